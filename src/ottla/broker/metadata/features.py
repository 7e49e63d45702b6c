"""Features of the cluster, as clients see them in ApiVersions (KIP-584).

`transaction.version` is in force at the highest level that every live broker supports, as its registration says. So it
needs no node in ZooKeeper: Kafka 3.9 brokers, which do not know the feature in ZooKeeper mode, would stop if `/feature`
named it. Clients replace what they know only by features of a higher epoch: here the newest registration of a live
broker. Owned by the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

TRANSACTION_VERSION: Final = "transaction.version"
SUPPORTED: Final[Mapping[str, tuple[int, int]]] = {TRANSACTION_VERSION: (0, 2)}
"""The lowest and the highest version of each feature that this broker supports."""


class LiveRegistration(NamedTuple):
    """What a live broker registered."""

    broker_epoch: int
    features: Mapping[str, tuple[int, int]]


class ClusterFeatures:
    """In a broker without others, all that it supports is in force."""

    def __init__(self) -> None:
        self.epoch = 0
        self.finalized: Mapping[str, int] = {name: highest for name, (_, highest) in SUPPORTED.items()}
        """The levels that are in force; features at level 0 are left out."""

    def brokers_changed(self, live: Mapping[int, LiveRegistration]) -> None:
        """All live brokers of a cluster, by id."""
        levels = {
            name: min((each.features.get(name, (0, 0))[1] for each in live.values()), default=0) for name in SUPPORTED
        }
        self.finalized = {name: level for name, level in levels.items() if level > 0}
        self.epoch = max((each.broker_epoch for each in live.values()), default=0)
