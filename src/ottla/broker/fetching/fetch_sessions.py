"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests and responses have only
changes.

A full fetch begins a session, incremental fetches continue it, each with the next epoch. It ends when its client ends
it, or when its slot is needed: sessions that were idle for a while go first, then those with fewer partitions.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Final

from ottla.base.clock import Clock
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import Uuid
from ottla.wire.messages.fetch import FetchPartition, FetchPartitionResponse, FetchRequest

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_EVICTION_S: Final = 120.0


class FetchedPartition:
    """A partition as a client requested it, and what the last response said about it. `topic` is empty while the topic
    id is unknown."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "high_watermark",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: Uuid, asked: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = asked.partition
        self.high_watermark = -1
        self.log_start_offset = -1
        self.ask(asked)

    def ask(self, asked: FetchPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        # Any negative epoch means none here; in ListOffsets and OffsetForLeaderEpoch only -1 does.
        self.current_leader_epoch = max(asked.current_leader_epoch, -1)
        self.last_fetched_epoch = asked.last_fetched_epoch

    def is_news(self, answer: FetchPartitionResponse) -> bool:
        """Whether the response must have this partition; remembers what it says."""
        news = bool(
            answer.records
            or answer.error_code
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        # After an error the next response has the partition again, even if nothing changes.
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return news


Key = tuple[str | Uuid, int]


class BrokerFetchSession:
    """The partitions that one client fetches, in reading order."""

    __slots__ = ("by_id", "created_s", "epoch", "partitions", "session_id", "used_s")

    def __init__(self, session_id: int, *, by_id: bool, now_s: float) -> None:
        self.session_id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.by_id = by_id
        self.created_s = self.used_s = now_s
        self.partitions: dict[Key, FetchedPartition] = {}

    def update(self, asked: Iterable[tuple[Key, FetchedPartition]], request: FetchRequest) -> None:
        """Adds and changes requested partitions, and removes forgotten ones."""
        partitions = self.partitions
        for key, new in asked:
            known = partitions.get(key)
            if known is None:
                partitions[key] = new
            else:
                known.fetch_offset, known.max_bytes = new.fetch_offset, new.max_bytes
                known.current_leader_epoch = new.current_leader_epoch
                known.last_fetched_epoch = new.last_fetched_epoch
        for topic in request.forgotten_topics_data:
            name = topic.topic_id if self.by_id else topic.topic
            for index in topic.partitions:
                partitions.pop((name, index), None)

    def move_to_end(self, keys: Iterable[Key]) -> None:
        """Partitions that returned records are read last the next time, so that each gets its turn."""
        for key in keys:
            fetched = self.partitions.pop(key, None)
            if fetched is not None:
                self.partitions[key] = fetched


class FetchSessionError(Exception):
    """An unknown session, or a wrong session epoch."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.description)
        self.code = code


class FetchSessions:
    """All sessions of a broker. Owned by the loop."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self.slots = slots
        self._clock = clock
        self._sessions: dict[int, BrokerFetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def begin(self, *, by_id: bool, partition_count: int) -> BrokerFetchSession | None:
        """Begins a session; None if all slots are taken by sessions that must not be evicted."""
        if self.slots <= 0:
            return None
        now_s = self._clock.monotonic_s()
        if len(self._sessions) >= self.slots and not self._evict(now_s, partition_count):
            return None
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = self._sessions[session_id] = BrokerFetchSession(session_id, by_id=by_id, now_s=now_s)
        return session

    def go_on(self, session_id: int, epoch: int, *, by_id: bool) -> BrokerFetchSession:
        """Continues the session of an incremental fetch, and advances its epoch."""
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise FetchSessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise FetchSessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        # In order of use: the first is the least recently used.
        del self._sessions[session_id]
        self._sessions[session_id] = session
        session.used_s = self._clock.monotonic_s()
        return session

    def end(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def _evict(self, now_s: float, partition_count: int) -> bool:
        oldest = next(iter(self._sessions.values()))
        if now_s - oldest.used_s > _EVICTION_S:
            del self._sessions[oldest.session_id]
            return True
        smallest = min(self._sessions.values(), key=lambda session: len(session.partitions))
        if len(smallest.partitions) < partition_count and now_s - smallest.created_s > _EVICTION_S:
            del self._sessions[smallest.session_id]
            return True
        return False
