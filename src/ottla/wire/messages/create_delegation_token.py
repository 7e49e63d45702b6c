"""CreateDelegationToken (38): have the broker issue a token by which others can act as a principal (KIP-48).

A token for another principal than the requester since v3 (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, int16, int32, int64, string


class CreateDelegationTokenRenewer(Struct):
    principal_type: str = string()
    principal_name: str = string()


class CreateDelegationTokenRequest(Request, api_key=38, versions="0-3", flexible="2+"):
    # Without an owner the requester owns the token.
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreateDelegationTokenRenewer] = array(CreateDelegationTokenRenewer)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, api_key=38, versions="0-3", flexible="2+"):
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = binary()
    throttle_time_ms: int = int32()
