"""Which replica a consumer should read from (KIP-392): one in its own rack, if the leader is in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.replication.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


def preferred_replica(broker: Broker, partition: Partition, rack: str, offset: int, listener: str) -> int | None:
    """The in-sync replica in the rack that has the offset and is furthest; None to read from the leader."""
    brokers = broker.metadata.brokers_of(listener)
    leader = brokers.get(partition.broker_id)
    if leader is not None and leader.rack == rack:
        return None
    best: tuple[int, float, int] | None = None
    for follower in partition.followers():
        endpoint = brokers.get(follower.replica_id)
        if (
            endpoint is not None
            and endpoint.rack == rack
            and follower.replica_id in partition.isr
            and follower.log_start <= offset <= follower.log_end
        ):
            candidate = (follower.log_end, follower.last_caught_up_s, follower.replica_id)
            if best is None or candidate > best:
                best = candidate
    return None if best is None else best[2]
