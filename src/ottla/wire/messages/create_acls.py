"""CreateAcls (30): add access rules. Results stand in the order of the rules asked for.

Pattern types (literal, prefixed) since v1 (KIP-290), users as resources since v3 (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class AclCreation(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8("1+", default=3)  # 3: literal, all that v0 knows
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Request, api_key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = array(AclCreation)


class AclCreationResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class CreateAclsResponse(Response, api_key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    results: list[AclCreationResponse] = array(AclCreationResponse)
