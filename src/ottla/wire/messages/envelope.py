"""Envelope (58): a broker forwards a client's request to the controller, with the client's identity (KIP-590)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, binary, int16


class EnvelopeRequest(Request, api_key=58, versions="0", flexible="0+"):
    request_data: bytes = binary()  # header and body as the client sent them
    request_principal: bytes | None = binary(nullable="0+")
    client_host_address: bytes = binary()


class EnvelopeResponse(Response, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = binary(nullable="0+", default=None)
    error_code: int = int16()  # of the forwarding; the response inside has its own
