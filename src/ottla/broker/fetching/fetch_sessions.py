"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that requests and responses have only
changes.

A full fetch begins a session, incremental fetches continue it, each with the next epoch. It ends when its client ends
it, or when its slot is needed: sessions that were idle for a while go first, then those with fewer partitions. Those of
followers are preferred: they push consumers' sessions out, and never the other way round while they are in use.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import ClassVar, Final, TypeVar

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
            or answer.preferred_read_replica >= 0
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

    is_privileged: ClassVar = False
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

    def ended(self) -> None:
        """The client ended it, or another session took its slot."""

    def move_to_end(self, keys: Iterable[Key]) -> None:
        """Partitions that returned records are read last the next time, so that each gets its turn."""
        for key in keys:
            fetched = self.partitions.pop(key, None)
            if fetched is not None:
                self.partitions[key] = fetched


AnySession = TypeVar("AnySession", bound=BrokerFetchSession)


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
        return self.keep(BrokerFetchSession(NO_SESSION, by_id=by_id, now_s=self._clock.monotonic_s()), partition_count)

    def keep(self, session: AnySession, partition_count: int) -> AnySession | None:
        """Gives a new session its id; None if all slots are taken by sessions that must not be evicted."""
        if self.slots <= 0:
            return None
        if len(self._sessions) >= self.slots:
            doomed = self._evictable(session.created_s, (session.is_privileged, partition_count))
            if doomed is None:
                return None
            self.end(doomed.session_id)
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session.session_id = session_id
        self._sessions[session_id] = session
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
        self.advance(session, self._clock.monotonic_s())
        return session

    def get(self, session_id: int) -> BrokerFetchSession | None:
        return self._sessions.get(session_id)

    def advance(self, session: BrokerFetchSession, now_s: float) -> None:
        """The request with the session's epoch came."""
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        # In order of use: the first is the least recently used.
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        session.used_s = now_s

    def end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.ended()

    def _evictable(self, now_s: float, value: tuple[bool, int]) -> BrokerFetchSession | None:
        """The session that is worth least, if it is worth less than the new one: one that is not used any more, or one
        that is old enough to be replaced. A follower's may replace a consumer's of any age."""
        oldest = next(iter(self._sessions.values()))
        if now_s - oldest.used_s > _EVICTION_S:
            return oldest
        is_privileged, _ = value
        candidates = [
            ((each.is_privileged, len(each.partitions)), each)
            for each in self._sessions.values()
            if now_s - each.created_s > _EVICTION_S or (is_privileged and not each.is_privileged)
        ]
        if not candidates:
            return None
        worth, least = min(candidates, key=lambda candidate: candidate[0])
        return least if worth < value else None
