"""DescribeClientQuotas (48): which quotas are set for users, client ids and addresses that match a filter (KIP-546)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, float64, int8, int16, int32, string


class DescribeClientQuotasComponent(Struct):
    entity_type: str = string()
    match_type: int = int8()  # 0: the name in `match`, 1: the default entity, 2: any entity of the type
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Request, api_key=48, versions="0-1", flexible="1+"):
    components: list[DescribeClientQuotasComponent] = array(DescribeClientQuotasComponent)
    strict: bool = boolean()  # whether entities with types that no component names are left out


class DescribeClientQuotasEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")  # null is the default entity of its type


class DescribeClientQuotasValue(Struct):
    key: str = string()
    value: float = float64()


class DescribeClientQuotasEntry(Struct):
    entity: list[DescribeClientQuotasEntity] = array(DescribeClientQuotasEntity)
    values: list[DescribeClientQuotasValue] = array(DescribeClientQuotasValue)


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribeClientQuotasEntry] | None = array(DescribeClientQuotasEntry, nullable="0+")
