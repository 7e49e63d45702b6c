"""AlterUserScramCredentials (51): set or remove the SCRAM credentials of users (KIP-554).

The client salts and hashes; a password never travels.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, binary, int8, int16, int32, string


class ScramCredentialDeletion(Struct):
    name: str = string()
    mechanism: int = int8()  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512


class ScramCredentialUpsertion(Struct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


class AlterUserScramCredentialsRequest(Request, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterScramUserResponse(Struct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class AlterUserScramCredentialsResponse(Response, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    results: list[AlterScramUserResponse] = array(AlterScramUserResponse)
