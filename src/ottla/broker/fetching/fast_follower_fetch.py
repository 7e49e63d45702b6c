"""The fast path for a follower that is in sync, and fetches one partition that changes.

Where a producer waits for acks=all, its followers send a Fetch for every record: incremental, with one partition, from
the log end. Such a request takes this path: it is read without an object for each part, what the follower has is noted
first, and producers that waited for it are answered before the request begins to wait. When there are records, they are
sent in a response that is written directly.

All other requests are decoded as declared and served by `follower_reading`. A request that turns out to need more falls
back to it before anything is noted; a wait that ends in any other way is answered by it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.broker.fetching.fetch_sessions import Key
from ottla.broker.fetching.follower_reading import DelayedFollowerFetch, FollowerReading, cancelled
from ottla.broker.fetching.follower_session import FollowedPartition, FollowerSession
from ottla.broker.fetching.reading import COPY_BELOW_BYTES
from ottla.broker.requests.api import Deferred, EncodedResponse, RequestContext
from ottla.log.errors import LogError
from ottla.replication.errors import ReplicationError
from ottla.wire.codec import reader_of
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.varint import encode_unsigned

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

FAST_SINCE: Final = 15
"""The first version in which a follower is named in a tagged field, after everything that changes."""

_ASKED: Final = Struct(">iiibiiB16sBiiqiqi")
"""Maximum wait, minimum and maximum size, isolation level, session and its epoch, number of topics; topic id, number of
partitions; index, leader epoch, offset, last epoch, log start, maximum size."""
_TOPICS_AT: Final = 21
_PARTITIONS_AT: Final = 38
_ONE: Final = 2
"""The length of a compact array with one element."""
_LONGEST: Final = 512
"""A longer request is not of this kind."""
_REMEMBERED_MAX: Final = 1000

_ANSWER: Final = Struct(">ihiB16sBihqqqBi")
"""Throttle time, error, session, number of topics; topic id, number of partitions; index, error, high watermark, last
stable offset, log start, aborted transactions, preferred replica."""
_NO_TAGS: Final = b"\x00\x00\x00"
"""Of the partition, the topic and the response."""


class FollowerId(NamedTuple):
    """What the end of a request says, the same in all requests of a follower."""

    replica_id: int
    broker_epoch: int


class FastFollowerFetch(NamedTuple):
    """A request of a follower; its frame is valid only while it is handled."""

    follower: FollowerId
    frame: memoryview
    read: Callable[[memoryview], FetchRequest]

    def as_request(self) -> FetchRequest:
        """The same request as the declared message."""
        return self.read(self.frame)


def fetch_reader(version: int) -> Callable[[memoryview], FastFollowerFetch | FetchRequest]:
    """Reads requests of that version."""
    read: Callable[[memoryview], FetchRequest] = reader_of(FetchRequest, version)
    if version < FAST_SINCE:
        return read
    followers: dict[bytes, FollowerId] = {}
    fixed, new = _ASKED.size, tuple.__new__

    def read_any(frame: memoryview) -> FastFollowerFetch | FetchRequest:
        size = len(frame)
        if not fixed < size < _LONGEST or frame[_TOPICS_AT] != _ONE or frame[_PARTITIONS_AT] != _ONE:
            return read(frame)
        end = bytes(frame[fixed:])
        follower = followers.get(end)
        if follower is not None:
            return new(FastFollowerFetch, (follower, frame, read))
        request = read(frame)
        state = request.replica_state
        if state is not None and state.replica_id >= 0 and not request.forgotten_topics_data:
            if len(followers) >= _REMEMBERED_MAX:
                followers.clear()
            followers[end] = FollowerId(state.replica_id, state.replica_epoch)
        return request

    return read_any


def fetch_fast(broker: Broker, request: FastFollowerFetch, context: RequestContext) -> Deferred | None:
    """Notes what the follower has, and waits for records. None, with nothing done, if the request needs the general
    path."""
    (
        max_wait_ms,
        min_bytes,
        max_bytes,
        _,
        session_id,
        session_epoch,
        _,
        topic_id,
        _,
        index,
        leader_epoch,
        offset,
        last_epoch,
        log_start,
        partition_max_bytes,
    ) = _ASKED.unpack_from(request.frame)
    replica_id, broker_epoch = request.follower
    sessions = broker.fetch_sessions
    session = sessions.get(session_id)
    if (
        type(session) is not FollowerSession
        or session.replica_id != replica_id
        or session.epoch != session_epoch
        or not session.by_id
        or max_wait_ms <= 0
        or min_bytes != 1
        or max_bytes <= 0
        or partition_max_bytes <= 0
    ):
        return None
    key: Key = (topic_id, index)  # equal to its Uuid
    followed = session.only(key)
    if followed is None:
        return None
    partition = followed.partition
    if (
        partition is None
        or partition.topic_id != topic_id
        or broker.replicas.get(followed.topic, index) is not partition
        or not partition.is_read_by(replica_id, session)
        or partition.check_leader(leader_epoch)
        or partition.check_follower(replica_id, leader_epoch)
        or leader_epoch < 0
    ):
        return None
    log, follower = partition.log, partition.follower(replica_id)
    if (
        log is None
        or follower is None
        or broker_epoch < follower.broker_epoch
        or offset != log.next_offset  # there is something to read, or to truncate
        or last_epoch != log.epochs.latest_epoch
    ):
        return None
    environment = broker.replicas.environment
    now_s = environment.clock_s()
    sessions.advance(session, now_s)
    session.only_fetched(key, now_s)
    followed.fetch_offset, followed.max_bytes = offset, partition_max_bytes
    followed.current_leader_epoch, followed.last_fetched_epoch = leader_epoch, last_epoch
    followed.follower_log_start = log_start
    session.broker_epoch = broker_epoch
    followed.follower = partition.follower_fetched(
        replica_id,
        fetch_offset=offset,
        log_start_offset=log_start,
        leader_end_offset_at_read=offset,
        broker_epoch=broker_epoch,
        now_s=now_s,
    )
    environment.produces.look_now()  # before anything else: producers wait for this
    reading = FollowerReading(broker, context, session, min_bytes=min_bytes, max_bytes=max_bytes, is_incremental=True)
    delayed = FastDelayedFollowerFetch(reading, key, followed)
    wait_s = max_wait_ms / 1000
    if log.high_watermark != followed.high_watermark or log.log_start_offset != followed.log_start_offset:
        wait_s = min(wait_s, reading.told_within_s)
    environment.follower_fetches.wait(delayed, (session,), wait_s)
    delayed.deferred.when_cancelled(partial(cancelled, broker, delayed, session))
    return delayed.deferred


class FastDelayedFollowerFetch(DelayedFollowerFetch):
    """Waits as any fetch of a follower. Records of its partition are sent without reading the session."""

    __slots__ = ("_followed", "_key")

    def __init__(self, reading: FollowerReading, key: Key, followed: FollowedPartition) -> None:
        super().__init__(reading, [])
        self._key = key
        self._followed = followed

    def complete(self) -> None:
        response = self._records_only()
        if response is None:
            super().complete()
        else:
            self.deferred.answer(response)

    def _records_only(self) -> EncodedResponse | None:
        """The response, if it has nothing but records of the partition, and not too many of them. Otherwise None, with
        nothing done."""
        reading, key, followed = self._reading, self._key, self._followed
        broker, session, partition = reading.broker, reading.session, followed.partition
        epoch = followed.current_leader_epoch
        if (
            partition is None
            or session.only(key) is not followed
            or broker.replicas.get(followed.topic, followed.index) is not partition
            or partition.topic_id != followed.topic_id
            or not partition.is_read_by(session.replica_id, session)
            or partition.check_leader(epoch)
            or partition.check_follower(session.replica_id, epoch)
        ):
            return None
        log, quota = partition.log, broker.replicas.environment.leader_quota
        if (
            log is None
            or followed.fetch_offset >= log.next_offset
            or followed.last_fetched_epoch != log.epochs.latest_epoch
            or (quota is not None and reading.is_throttled(partition))
        ):
            return None
        try:
            max_bytes = min(followed.max_bytes, reading.max_bytes)
            piece = partition.read(followed.fetch_offset, max_bytes, to_log_end=True).slice
            if piece is None or not 0 < piece.size < COPY_BELOW_BYTES:
                return None
            records = piece.read()
        except (LogError, ReplicationError, OSError):  # reading it again gives the follower the error
            return None
        if quota is not None:
            quota.record(partition.name, len(records))
        followed.high_watermark, followed.log_start_offset = log.high_watermark, log.log_start_offset
        session.answered(key, followed, has_records=True)
        head = _ANSWER.pack(
            0,
            0,
            session.session_id,
            _ONE,
            followed.topic_id,
            _ONE,
            followed.index,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            0,
            -1,
        )
        return b"".join((head, encode_unsigned(len(records) + 1), records, _NO_TAGS))
