"""DescribeAcls (29): list the access rules that a filter matches.

Pattern types (literal, prefixed) since v1 (KIP-290), users as resources since v3 (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Request, api_key=29, versions="0-3", flexible="2+"):
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)  # 3: literal, all that v0 knows
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DescribedAcl(Struct):
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribedAclResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8("1+", default=3)
    acls: list[DescribedAcl] = array(DescribedAcl)


class DescribeAclsResponse(Response, api_key=29, versions="0-3", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribedAclResource] = array(DescribedAclResource)
