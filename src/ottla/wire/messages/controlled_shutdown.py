"""ControlledShutdown (7): a broker that is about to stop asks the controller to move its leaderships away.

The request header of v0 has no client id. Fenced by broker epoch since v2 (KIP-380). Gone in Kafka 4.
"""

from __future__ import annotations

from ottla.wire.schema import Request, Response, Struct, array, int16, int32, int64, string


class ControlledShutdownRequest(Request, api_key=7, versions="0-3", flexible="3+"):
    broker_id: int = int32()
    broker_epoch: int = int64("2+", default=-1, ignorable=True)


class RemainingPartition(Struct):
    """A partition that the broker still leads: it has to ask again."""

    topic_name: str = string(key=True)
    partition_index: int = int32(key=True)


class ControlledShutdownResponse(Response, api_key=7, versions="0-3", flexible="3+"):
    error_code: int = int16()
    remaining_partitions: list[RemainingPartition] = array(RemainingPartition)
