"""The leaders of partitions that this broker does not lead (KIP-951): a client that came to the wrong broker need not
ask for metadata first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.broker.metadata.metadata_cache import BrokerEndpoint
from ottla.controller.state import NO_LEADER

if TYPE_CHECKING:
    from ottla.broker.broker import Broker


def current_leader(broker: Broker, topic: str, index: int) -> tuple[int, int]:
    """The leader's id and epoch, each -1 if unknown. A replica knows them before the cluster's metadata arrives."""
    partition = broker.replicas.get(topic, index)
    if partition is not None:
        return partition.leader_id, partition.leader_epoch
    known = broker.metadata.partition(topic, index)
    return (NO_LEADER, -1) if known is None else (known.leader, known.leader_epoch)


def endpoints_of(broker: Broker, leaders: Iterable[int], listener: str) -> list[BrokerEndpoint]:
    """The addresses of these brokers, as far as they are alive, for clients of that listener."""
    alive = broker.metadata.brokers_of(listener)
    return [alive[leader] for leader in leaders if leader in alive]
