"""All partitions that this broker follows: which loop fetches which partition from which leader.

Each leader has `num.replica.fetchers` lanes, and each partition always uses the same one of them. A lane is a loop with
a connection and a fetch session of its own.

While a lane waits at its leader for news (up to `replica.fetch.wait.max.ms`) it cannot ask for other partitions. New
ones, usually those whose leader just died, would wait that long, and producers with them. So they begin in an extra
loop, which ends when the lane has its answer and takes them over.

Owned by the loop.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterable
from typing import Final
from zlib import crc32

from ottla.base.clock import Clock
from ottla.base.ids import TopicPartition
from ottla.replication.fetching.fetch_loop import FetchLoop
from ottla.replication.fetching.fetcher_core import FetcherCore, FetchStats
from ottla.replication.fetching.followed import Followed
from ottla.replication.fetching.replication_quota import ReplicationQuota
from ottla.replication.fetching.settings import FetchSettings
from ottla.replication.partition import Partition
from ottla.replication.role import NO_LEADER
from ottla.wire.peer import Peer

_logger = logging.getLogger(__name__)

_MAX_EXTRAS: Final = 3

LaneKey = tuple[int, int]
"""Leader, and number of the fetcher."""


class Fetchers:
    """See the module. `open_peer` makes a new connection to a broker; `quota` throttles this broker as a follower."""

    def __init__(
        self,
        open_peer: Callable[[int], Peer],
        broker_id: int,
        broker_epoch: Callable[[], int],
        settings: FetchSettings,
        clock: Clock,
        loop: AbstractEventLoop,
        quota: ReplicationQuota | None = None,
    ) -> None:
        self.stats = FetchStats()
        self._open_peer = open_peer
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._quota = ReplicationQuota(clock.monotonic_s) if quota is None else quota
        self._fetchers_per_broker = max(settings.fetchers_per_broker, 1)
        self._followed: dict[TopicPartition, Followed] = {}
        self._lanes: dict[LaneKey, _Lane] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # --- what is followed -------------------------------------------------------------------------------------------

    def follow(self, partitions: Iterable[Partition]) -> None:
        """Fetches from the leader that each partition's role names. Replaces an earlier following; the same leader in
        the same epoch goes on as it is. A role without another broker as leader ends it."""
        if self._is_closed:
            return
        groups: dict[LaneKey, list[Followed]] = {}
        left: set[LaneKey] = set()
        for partition in partitions:
            known = self._followed.get(partition.name)
            if (
                known is not None
                and known.core is not None
                and known.partition is partition
                and known.topic_id == partition.topic_id
                and known.is_current
            ):
                continue
            if known is not None:
                left.add(self._drop(known))
            if partition.leader_id not in (NO_LEADER, self._broker_id):
                followed = self._followed[partition.name] = Followed(partition)
                groups.setdefault(self._lane_key(followed), []).append(followed)
        for key, group in groups.items():
            self._lane(key).add(group)
        self._end_idle(left)

    def stop(self, names: Iterable[TopicPartition]) -> None:
        """When this returns, nothing will be appended to these partitions any more."""
        known = [followed for name in names if (followed := self._followed.get(name)) is not None]
        self._end_idle({self._drop(followed) for followed in known})

    def _drop(self, followed: Followed) -> LaneKey:
        del self._followed[followed.name]
        self.stats.failed.discard(followed.name)
        if followed.core is not None:
            followed.core.remove(followed.name)
        return self._lane_key(followed)

    def _lane_key(self, followed: Followed) -> LaneKey:
        name = followed.name
        return followed.leader_id, crc32(f"{name.topic}-{name.partition}".encode()) % self._fetchers_per_broker

    def _lane(self, key: LaneKey) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(lambda on_round: self._new_loop(key[0], on_round), self._end)
        return lane

    def _new_loop(self, leader_id: int, on_round: Callable[[], None]) -> FetchLoop:
        core = FetcherCore(leader_id, self._broker_id, self._broker_epoch, self._settings, self._quota, self.stats)
        return FetchLoop(core, self._open_peer(leader_id), self._settings, self._clock, self._loop, on_round)

    def _end(self, loop: FetchLoop) -> None:
        """Keeps its task until it is over: the event loop does not."""
        task = loop.close()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _end_idle(self, keys: Iterable[LaneKey]) -> None:
        for key in keys:
            lane = self._lanes.get(key)
            if lane is not None and not len(lane):
                lane.close()
                del self._lanes[key]

    def resize(self, fetchers_per_broker: int) -> None:
        """`num.replica.fetchers` changed: every partition begins again, in the lane that is now its own."""
        fetchers_per_broker = max(fetchers_per_broker, 1)
        if fetchers_per_broker != self._fetchers_per_broker:
            partitions = [followed.partition for followed in self._followed.values()]
            self.stop(list(self._followed))
            self._fetchers_per_broker = fetchers_per_broker
            self.follow(partitions)

    async def close(self) -> None:
        """Ends all loops and their connections."""
        self._is_closed = True
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()
        for followed in self._followed.values():
            if followed.core is not None:
                followed.core.remove(followed.name)
        self._followed.clear()
        if self._ending:
            await asyncio.wait(list(self._ending))

    # --- for metrics ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of partitions that are followed, including failed ones."""
        return len(self._followed)

    def max_lag(self) -> int:
        """The most records that a partition is behind its leader's high watermark. May be called in any thread."""
        followed = list(self._followed.values())
        return max((each.lag or 0 for each in followed if each.core is not None), default=0)

    def lag_of(self, name: TopicPartition) -> int | None:
        """None if it is not followed, or its leader has not answered yet."""
        followed = self._followed.get(name)
        return None if followed is None else followed.lag

    @property
    def failed_count(self) -> int:
        return len(self.stats.failed)

    @property
    def bytes_in(self) -> int:
        return self.stats.bytes_in

    @property
    def lane_count(self) -> int:
        return len(self._lanes)


class _Lane:
    """The loop of one leader and fetcher number, and extra ones for a moment."""

    def __init__(
        self, new_loop: Callable[[Callable[[], None]], FetchLoop], end_loop: Callable[[FetchLoop], None]
    ) -> None:
        self._new_loop = new_loop
        self._end_loop = end_loop
        self._main = new_loop(self._absorb)
        self._extras: list[FetchLoop] = []

    def __len__(self) -> int:
        return len(self._main.core.partitions) + sum(len(extra.core.partitions) for extra in self._extras)

    def add(self, group: Iterable[Followed]) -> None:
        fetching = self._loop_for_new()
        for followed in group:
            fetching.core.add(followed)
        fetching.wake()

    def _loop_for_new(self) -> FetchLoop:
        if not self._main.is_waiting:
            return self._main
        for extra in self._extras:
            if not extra.is_waiting:
                return extra
        if len(self._extras) < _MAX_EXTRAS:
            self._extras.append(self._new_loop(lambda: None))
        return self._extras[-1]

    def _absorb(self) -> None:
        """The main loop is free: it takes over the partitions of the extra ones."""
        extras, self._extras = self._extras, []
        for extra in extras:
            extra.core.hand_over(self._main.core)
            self._end_loop(extra)

    def close(self) -> None:
        for each in (self._main, *self._extras):
            self._end_loop(each)
