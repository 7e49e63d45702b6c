"""DeleteAcls (31): remove the access rules that filters match. Results stand in the order of the filters.

Pattern types (literal, prefixed) since v1 (KIP-290), users as resources since v3 (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class AclDeletionFilter(Struct):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)  # 3: literal, all that v0 knows
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Request, api_key=31, versions="0-3", flexible="2+"):
    filters: list[AclDeletionFilter] = array(AclDeletionFilter)


class DeletedAcl(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class AclDeletionFilterResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeletedAcl] = array(DeletedAcl)


class DeleteAclsResponse(Response, api_key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    filter_results: list[AclDeletionFilterResponse] = array(AclDeletionFilterResponse)
