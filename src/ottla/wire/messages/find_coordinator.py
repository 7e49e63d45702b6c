"""FindCoordinator (10): the coordinator of a group or a transactional id.

Transactions since v1 (KIP-98), several keys at once since v4 (KIP-699), TRANSACTION_ABORTABLE since v5 (KIP-890), share
groups since v6 (KIP-932).
"""

from __future__ import annotations

from ottla.wire.schema import STRING, Request, Response, Struct, array, int8, int16, int32, string


class FindCoordinatorRequest(Request, api_key=10, versions="0-6", flexible="3+"):
    key: str = string("0-3")
    # What the keys name: 0 groups, 1 transactional ids, 2 partitions of share groups.
    key_type: int = int8("1+")
    coordinator_keys: list[str] = array(STRING, "4+")


class Coordinator(Struct):
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", ignorable=True)


class FindCoordinatorResponse(Response, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("0-3")
    error_message: str | None = string("1-3", nullable="1-3", ignorable=True)
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
