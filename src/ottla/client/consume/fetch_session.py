"""A fetch session with one broker (KIP-227): requests and responses contain only what changed. No I/O.

    epoch 0 ──(response with an id)──▶ 1 ─▶ 2 ─▶ … ─▶ 2^31-1 ─▶ 1       any failure: back to 0
       └───(response without an id: the broker keeps no session)──▶ 0

Epoch 0 requests all partitions and a new session. Later epochs name the partitions that were added, changed or removed;
the broker fetches all others as before. Brokers before 1.1 never return an id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.wire.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_LAST_EPOCH: Final = 2**31 - 1

SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors of a whole response: the next request begins a new session."""


class Wanted(NamedTuple):
    """What to fetch from a partition."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    max_bytes: int


class SessionRequest(NamedTuple):
    """What a request contains about the session and its partitions."""

    session_id: int
    epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


class ConsumerFetchSession:
    """What the broker remembers, as long as no request fails. One request at a time."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._by_id = False
        self._known: dict[TopicPartition, Wanted] = {}

    def ask(self, wanted: Mapping[TopicPartition, Wanted], *, by_id: bool) -> SessionRequest:
        """Returns the next request for these partitions. A session uses either topic names or topic ids."""
        if by_id != self._by_id:
            self._epoch = FIRST_EPOCH
            self._by_id = by_id
        known = {} if self._epoch == FIRST_EPOCH else self._known
        topics: dict[Uuid | str, FetchTopic] = {}
        for partition, one in wanted.items():
            if known.get(partition) != one:
                topic = topics.get(one.topic_id if by_id else partition.topic)
                if topic is None:
                    topic = FetchTopic(topic=partition.topic, topic_id=one.topic_id)
                    topics[one.topic_id if by_id else partition.topic] = topic
                topic.partitions.append(
                    FetchPartition(
                        partition=partition.partition,
                        current_leader_epoch=one.leader_epoch,
                        fetch_offset=one.offset,
                        partition_max_bytes=one.max_bytes,
                    )
                )
        forgotten: dict[Uuid | str, ForgottenTopic] = {}
        for partition, one in known.items():
            now = wanted.get(partition)
            if now is None or (by_id and now.topic_id != one.topic_id):
                key = one.topic_id if by_id else partition.topic
                forgotten.setdefault(
                    key, ForgottenTopic(topic=partition.topic, topic_id=one.topic_id)
                ).partitions.append(partition.partition)
        self._known = dict(wanted)
        session_id = self._id
        if self._epoch == FIRST_EPOCH:
            self._id = NO_SESSION
        return SessionRequest(session_id, self._epoch, list(topics.values()), list(forgotten.values()))

    def answered(self, session_id: int) -> None:
        """Called when the broker answered the request without a session error."""
        self._id = session_id
        if session_id == NO_SESSION:
            self._epoch = FIRST_EPOCH
        else:
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def failed(self, *, is_forgotten: bool = False) -> None:
        """Called when the request failed. The next one begins a new session, and closes this one unless the broker has
        already lost it."""
        self._epoch = FIRST_EPOCH
        if is_forgotten:
            self._id = NO_SESSION
