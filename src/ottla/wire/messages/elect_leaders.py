"""ElectLeaders (43): have the controller elect new leaders of partitions (KIP-183).

v0 knows preferred leaders only; v1 adds unclean elections and an error for the whole request (KIP-460).
"""

from __future__ import annotations

from ottla.wire.schema import INT32, Request, Response, Struct, array, int8, int16, int32, string


class ElectLeadersTopic(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(INT32)


class ElectLeadersRequest(Request, api_key=43, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")  # 0: the preferred replica, 1: a live one where none is in sync
    topic_partitions: list[ElectLeadersTopic] | None = array(ElectLeadersTopic, nullable="0+")  # null: all there are
    timeout_ms: int = int32(default=60_000)


class ElectLeadersPartitionResponse(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ElectLeadersTopicResponse(Struct):
    topic: str = string()
    partition_result: list[ElectLeadersPartitionResponse] = array(ElectLeadersPartitionResponse)


class ElectLeadersResponse(Response, api_key=43, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ElectLeadersTopicResponse] = array(ElectLeadersTopicResponse)
