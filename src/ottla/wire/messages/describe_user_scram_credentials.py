"""DescribeUserScramCredentials (50): which SCRAM mechanisms users have credentials for, never the secrets (KIP-554)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class DescribeScramUser(Struct):
    name: str = string()


class DescribeUserScramCredentialsRequest(Request, api_key=50, versions="0", flexible="0+"):
    users: list[DescribeScramUser] | None = array(DescribeScramUser, nullable="0+")  # null or empty: all users


class ScramCredentialInfo(Struct):
    mechanism: int = int8()  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int = int32()


class DescribeScramUserResponse(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[ScramCredentialInfo] = array(ScramCredentialInfo)


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeScramUserResponse] = array(DescribeScramUserResponse)
