"""AlterClientQuotas (49): set or remove quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, boolean, float64, int16, int32, string


class AlterClientQuotasEntity(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")  # null is the default entity of its type


class AlterClientQuotasOperation(Struct):
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasEntry(Struct):
    entity: list[AlterClientQuotasEntity] = array(AlterClientQuotasEntity)
    ops: list[AlterClientQuotasOperation] = array(AlterClientQuotasOperation)


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+"):
    entries: list[AlterClientQuotasEntry] = array(AlterClientQuotasEntry)
    validate_only: bool = boolean()


class AlterClientQuotasEntityResponse(Struct):
    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class AlterClientQuotasEntryResponse(Struct):
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlterClientQuotasEntityResponse] = array(AlterClientQuotasEntityResponse)


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasEntryResponse] = array(AlterClientQuotasEntryResponse)
