"""Limits for the bytes of replication (KIP-73): a rate, and the replicas that it is for.

`leader.replication.throttled.rate` and `follower.replication.throttled.rate` set the rates of a broker;
`leader.replication.throttled.replicas` and `follower.replication.throttled.replicas` of a topic list the replicas. Only
replicas that are not in sync wait: throttling one that is would drive it out of the ISR. All bytes of listed replicas
count, so that the total stays below the rate.

The rate is measured as in Kafka: over eleven windows of a second, or since the oldest of them began.
No I/O; the caller brings the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from ottla.base.ids import TopicPartition

WINDOW_S: Final = 1.0
WINDOW_COUNT: Final = 11
ALL: Final = "*"
_NONE: Final[frozenset[int]] = frozenset()


class ReplicationQuota:
    """One direction of one broker. `limit` in bytes per second; None for no limit."""

    __slots__ = ("_clock_s", "_replicas", "_total", "_windows", "limit")

    def __init__(self, clock_s: Callable[[], float], limit: float | None = None) -> None:
        self.limit = limit
        self._clock_s = clock_s
        self._replicas: dict[str, frozenset[int] | None] = {}
        """The throttled partitions of each topic; None for all."""
        self._windows: deque[list[float]] = deque()
        """Start in seconds, and bytes; oldest first."""
        self._total = 0.0

    # --- what is throttled ------------------------------------------------------------------------------------------

    def set_replicas(self, topic: str, value: str, broker_id: int) -> None:
        """Takes a topic's `*.replication.throttled.replicas`: `*`, or pairs of partition and broker like `0:1,0:2`."""
        value = value.strip()
        if value == ALL:
            self._replicas[topic] = None
            return
        pairs = [pair.split(":") for pair in value.split(",") if pair.strip()]
        partitions = frozenset(int(partition) for partition, broker in pairs if int(broker) == broker_id)
        if partitions:
            self._replicas[topic] = partitions
        else:
            self._replicas.pop(topic, None)

    def is_throttled(self, name: TopicPartition) -> bool:
        """Whether this broker's replica of the partition is listed."""
        partitions = self._replicas.get(name[0], _NONE)
        return partitions is None or name[1] in partitions

    # --- the rate ---------------------------------------------------------------------------------------------------

    def record(self, name: TopicPartition, size: int) -> None:
        """Counts bytes of a partition, if it is throttled."""
        if not self._replicas or not self.is_throttled(name):
            return
        now_s = self._clock_s()
        self._purge(now_s)
        windows = self._windows
        if not windows or now_s - windows[-1][0] >= WINDOW_S:
            windows.append([now_s, 0.0])
        windows[-1][1] += size
        self._total += size

    def rate(self) -> float:
        """Bytes per second."""
        now_s = self._clock_s()
        self._purge(now_s)
        windows = self._windows
        return self._total / max(now_s - windows[0][0], WINDOW_S) if windows else 0.0

    @property
    def is_exceeded(self) -> bool:
        return self.limit is not None and self.rate() > self.limit

    def must_wait(self, name: TopicPartition, *, is_in_sync: bool) -> bool:
        """Whether the replica gets nothing for now."""
        return self.limit is not None and not is_in_sync and self.is_throttled(name) and self.is_exceeded

    def _purge(self, now_s: float) -> None:
        windows = self._windows
        while windows and now_s - windows[0][0] >= WINDOW_COUNT * WINDOW_S:
            self._total -= windows.popleft()[1]


class ReplicationQuotas:
    """Both directions of a broker. A leader's fetch handler asks `leader`, a follower's fetch loops ask `follower`."""

    def __init__(self, broker_id: int, clock_s: Callable[[], float]) -> None:
        self._broker_id = broker_id
        self.leader = ReplicationQuota(clock_s)
        self.follower = ReplicationQuota(clock_s)

    def set_rates(self, *, leader: int | None, follower: int | None) -> None:
        """The broker's configs changed; None where they are not set."""
        self.leader.limit, self.follower.limit = leader, follower

    def set_topic(self, topic: str, config: Mapping[str, str]) -> None:
        """A topic's own configs changed, or the topic is gone (empty)."""
        self.leader.set_replicas(topic, config.get("leader.replication.throttled.replicas", ""), self._broker_id)
        self.follower.set_replicas(topic, config.get("follower.replication.throttled.replicas", ""), self._broker_id)
