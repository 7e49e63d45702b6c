"""RenewDelegationToken (39): move the expiry of a token further out, up to its maximal lifetime (KIP-48)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, binary, int16, int32, int64


class RenewDelegationTokenRequest(Request, api_key=39, versions="0-2", flexible="2+"):
    hmac: bytes = binary()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, api_key=39, versions="0-2", flexible="2+"):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
