"""The headers of requests and responses: API and version, and a correlation id that matches a response to its request.

`registry.Api` says which version of a header belongs to which version of a message.
"""

from __future__ import annotations

from ottla.wire.schema import Header, int16, int32, string


class RequestHeader(Header, versions="0-2", flexible="2+"):
    """v0 precedes ControlledShutdown v0 only; v2 has tagged fields."""

    request_api_key: int = int16()
    request_api_version: int = int16()
    correlation_id: int = int32()
    # Never compact: a broker must be able to read the header of an ApiVersions request that is newer than itself.
    client_id: str | None = string("1+", nullable="1+", ignorable=True, never_compact=True)


class ResponseHeader(Header, versions="0-1", flexible="1+"):
    """v1 has tagged fields."""

    correlation_id: int = int32()
