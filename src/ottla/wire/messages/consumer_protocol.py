"""What consumers of a classic group tell each other, in blobs that the broker carries from join to sync.

A blob begins with its version as an int16. Versions only ever add fields at the end, so a reader that meets a newer
one reads it as the newest it knows. Owned partitions since v1 (KIP-429), their generation since v2 (KIP-792), the rack
since v3 (KIP-881); the assignment stays the same in all.
"""

from __future__ import annotations

from ottla.wire.schema import INT32, STRING, Data, Struct, array, binary, int32, string


class ConsumerProtocolPartitions(Struct):
    topic: str = string(key=True)
    partitions: list[int] = array(INT32)


class ConsumerProtocolSubscription(Data, versions="0-3"):
    topics: list[str] = array(STRING)
    user_data: bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[ConsumerProtocolPartitions] = array(ConsumerProtocolPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignment(Data, versions="0-3"):
    assigned_partitions: list[ConsumerProtocolPartitions] = array(ConsumerProtocolPartitions)
    user_data: bytes | None = binary(nullable="0+", default=None)
