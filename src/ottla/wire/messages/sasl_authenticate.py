"""SaslAuthenticate (36): one step of a SASL exchange, after SaslHandshake chose the mechanism (KIP-152).

A session has a lifetime, after which the client authenticates again, since v1 (KIP-368).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, binary, int16, int64, string


class SaslAuthenticateRequest(Request, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: bytes = binary()


class SaslAuthenticateResponse(Response, api_key=36, versions="0-2", flexible="2+"):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = binary()
    session_lifetime_ms: int = int64("1+", ignorable=True)
