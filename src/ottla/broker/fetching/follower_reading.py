"""Reads for followers: up to the log end, and with their progress noted.

Every fetch says what the follower has (`Partition.follower_fetched`), which moves the high watermark and the in-sync
replicas. A fetch waits until there are records, as in Kafka. A follower that has all records also wants to know how far
they are committed: it may lead next, or serve consumers. Kafka 3.9 tells it when the wait times out; here it is told a
little after the high watermark moved, unless records are sent first, which a busy leader does all the time.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.file_slice import FileSlice
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.broker.fetching.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSessionError,
    Key,
)
from ottla.broker.fetching.follower_session import FollowedPartition, FollowerSession
from ottla.broker.fetching.leader_hints import LeaderHints
from ottla.broker.fetching.reading import COPY_BELOW_BYTES, answer_of, parted, refused, unreadable
from ottla.broker.requests.api import Deferred, RequestContext
from ottla.broker.requests.partition_access import unhosted
from ottla.log.errors import LogError
from ottla.replication.delayed import DelayedOperation
from ottla.replication.environment import FollowerReader
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

OFFSETS_TOLD_WITHIN_S: Final = 0.05
"""How long a new high watermark or log start waits for records to go with it."""
OFFSETS_TOLD_TO_SERVERS_WITHIN_S: Final = 0.005
"""The same where consumers read from followers, and wait for the high watermark to reach them."""
_TOPIC_IDS_SINCE: Final = 13

Answers = list[tuple[Key, FollowedPartition, FetchPartitionResponse]]


def fetch_as_follower(
    broker: Broker, request: FetchRequest, context: RequestContext, replica_id: int
) -> FetchResponse | Deferred:
    """Answers a fetch of a follower, now or when there are records."""
    by_id = context.version >= _TOPIC_IDS_SINCE
    environment = broker.replicas.environment
    now_s = environment.clock_s()
    asked = _asked(broker, request, by_id=by_id)
    sessions = broker.fetch_sessions
    is_incremental = request.session_epoch not in (FINAL_EPOCH, INITIAL_EPOCH)
    if is_incremental:
        try:
            found = sessions.go_on(request.session_id, request.session_epoch, by_id=by_id)
        except FetchSessionError as error:
            return FetchResponse(error_code=error.code)
        if not isinstance(found, FollowerSession) or found.replica_id != replica_id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session = found
        session.update(asked.items(), request)
        session.fetched(now_s)
    else:
        if request.session_id != NO_SESSION:
            sessions.end(request.session_id)
        session = FollowerSession(NO_SESSION, replica_id, environment.follower_fetches, by_id=by_id, now_s=now_s)
        session.begin(asked)
        if request.session_epoch == INITIAL_EPOCH:
            sessions.keep(session, len(asked))
    state = request.replica_state
    session.broker_epoch = -1 if state is None else state.replica_epoch
    reading = FollowerReading(
        broker,
        context,
        session,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        is_incremental=is_incremental,
    )
    answers = reading.read(is_first=True)
    if (
        reading.is_final
        or reading.size >= min(reading.min_bytes, reading.max_bytes)
        or request.max_wait_ms <= 0
        or not session.partitions
    ):
        return reading.response(answers)
    fetches = environment.follower_fetches
    delayed = DelayedFollowerFetch(reading, answers)
    wait_s = request.max_wait_ms / 1000
    fetches.wait(delayed, (session,), min(wait_s, reading.told_within_s) if reading.has_untold else wait_s)
    delayed.deferred.when_cancelled(partial(cancelled, broker, delayed, session))
    return delayed.deferred


def cancelled(broker: Broker, delayed: DelayedFollowerFetch, session: FollowerSession) -> None:
    """The connection is gone. A follower begins a new session on its next one."""
    broker.replicas.follower_fetches.cancel(delayed)
    if session.session_id == NO_SESSION:
        session.ended()
    else:
        broker.fetch_sessions.end(session.session_id)


def _asked(broker: Broker, request: FetchRequest, *, by_id: bool) -> dict[Key, FollowedPartition]:
    asked: dict[Key, FollowedPartition] = {}
    for topic in request.topics:
        if by_id:
            name = _name_of(broker, topic.topic_id)
            for each in topic.partitions:
                asked[topic.topic_id, each.partition] = FollowedPartition(name, topic.topic_id, each)
        else:
            for each in topic.partitions:
                asked[topic.topic, each.partition] = FollowedPartition(topic.topic, ZERO_UUID, each)
    return asked


def _name_of(broker: Broker, topic_id: Uuid) -> str:
    """The topic's name; empty if it is unknown. A follower may ask before this broker got the cluster's metadata with
    the topic, which it hosts already."""
    name = broker.metadata.name_of(topic_id)
    if name is None and topic_id != ZERO_UUID:
        for hosted in broker.replicas.partitions.values():
            if hosted.topic_id == topic_id:
                return hosted.name.topic
    return name or ""


class FollowerReading:
    """The reads of one request of a follower, repeated when it has waited."""

    __slots__ = (
        "_context",
        "_is_incremental",
        "broker",
        "has_untold",
        "is_final",
        "max_bytes",
        "min_bytes",
        "session",
        "size",
    )

    def __init__(
        self,
        broker: Broker,
        context: RequestContext,
        session: FollowerSession,
        *,
        min_bytes: int,
        max_bytes: int,
        is_incremental: bool,
    ) -> None:
        self.broker = broker
        self.session = session
        self.min_bytes = min_bytes
        self.max_bytes = min(max_bytes, broker.fetch_max_bytes)
        self._context = context
        self._is_incremental = is_incremental
        self.size = 0
        """The bytes found by the last read."""
        self.is_final = False
        """Whether waiting is pointless: because of an error, or a log that diverges."""
        self.has_untold = False
        """Whether there are offsets that the follower does not know yet."""

    @property
    def told_within_s(self) -> float:
        serves = self.broker.config.selects_replicas_by_rack
        return OFFSETS_TOLD_TO_SERVERS_WITHIN_S if serves else OFFSETS_TOLD_WITHIN_S

    def read(self, *, is_first: bool) -> Answers:
        """The responses of all partitions that may have news. The first read also notes what the follower has.

        Limits as in Kafka (KIP-74): only the first partition with records may exceed them, by one batch."""
        session = self.session
        source = session.unsettled if self._is_incremental else session.partitions
        now_s = self.broker.replicas.environment.clock_s()
        left, size = self.max_bytes, 0
        is_final = has_untold = False
        answers: Answers = []
        for key, followed in list(source.items()):
            if not isinstance(followed, FollowedPartition):
                continue
            limit = min(followed.max_bytes, left)
            answer = self._read_one(followed, limit, min_one=not size, noted_s=now_s if is_first else None)
            answers.append((key, followed, answer))
            if answer.error_code:
                self.broker.request_stats.api(FetchRequest.api_key).count_error(answer.error_code)
                is_final = True
            elif answer.diverging_epoch is not None:
                is_final = True
            elif (
                answer.high_watermark != followed.high_watermark or answer.log_start_offset != followed.log_start_offset
            ):
                has_untold = True
            if answer.records:
                found = len(answer.records)
                size += found
                left = max(left - found, 0)
            elif left < 0:
                left = 0  # a negative limit is an error of the first partition only
        self.size, self.is_final, self.has_untold = size, is_final, has_untold
        return answers

    def _read_one(
        self, followed: FollowedPartition, max_bytes: int, *, min_one: bool, noted_s: float | None
    ) -> FetchPartitionResponse:
        session = self.session
        if not followed.topic:  # the topic may have been created since
            followed.topic = _name_of(self.broker, followed.topic_id)
        partition = self.broker.replicas.get(followed.topic, followed.index)
        session.found(followed, partition)
        if noted_s is not None:
            followed.follower = None
        if partition is None:
            return refused(
                followed,
                unhosted(self.broker, followed.topic, followed.index) if followed.topic else ErrorCode.UNKNOWN_TOPIC_ID,
            )
        if followed.topic_id not in (partition.topic_id, ZERO_UUID):  # deleted and created again since
            return refused(followed, ErrorCode.INCONSISTENT_TOPIC_ID)
        epoch = followed.current_leader_epoch
        error = partition.check_leader(epoch) or partition.check_follower(session.replica_id, epoch)
        if error:
            return refused(followed, error)
        try:
            if followed.last_fetched_epoch >= 0:
                diverged = parted(partition, followed)
                if diverged is not None:
                    return diverged
            if self.is_throttled(partition):
                max_bytes, min_one = 0, False
            found = partition.read(followed.fetch_offset, max_bytes, to_log_end=True, min_one=min_one)
            log = partition.log
            if log is None:  # the directory went offline while the log was read
                return refused(followed, ErrorCode.KAFKA_STORAGE_ERROR)
            if noted_s is not None:
                # Before the offsets are told: they are newer then than Kafka's.
                followed.follower = partition.follower_fetched(
                    session.replica_id,
                    fetch_offset=followed.fetch_offset,
                    log_start_offset=followed.follower_log_start,
                    leader_end_offset_at_read=log.next_offset,
                    broker_epoch=session.broker_epoch,
                    now_s=noted_s,
                )
        except (LogError, ReplicationError) as failure:
            return refused(followed, failure.code)
        except Exception:  # the other partitions can still be read
            _logger.exception("Fetch: reading %s at offset %d failed", partition.name, followed.fetch_offset)
            return refused(followed, ErrorCode.UNKNOWN_SERVER_ERROR)
        return answer_of(followed, log, found)

    def is_throttled(self, partition: Partition) -> bool:
        """Whether nothing may be sent now because of a replication quota, which in-sync replicas do not have."""
        quota = self.broker.replicas.environment.leader_quota
        return quota is not None and quota.must_wait(
            partition.name, is_in_sync=self.session.replica_id in partition.isr
        )

    def response(self, answers: Answers) -> FetchResponse:
        """All partitions for a full fetch, else only those with news."""
        topics: dict[object, FetchTopicResponse] = {}
        session = self.session
        hints = LeaderHints(self.broker, self._context)
        quota = self.broker.replicas.environment.leader_quota
        for key, followed, answer in answers:
            records: object = answer.records
            if type(records) is FileSlice and 0 < records.size < COPY_BELOW_BYTES:
                try:
                    answer.records = records.read()
                except OSError as error:
                    answer = unreadable(self.broker, followed, error)
            if answer.error_code:
                hints.add(answer, followed.topic, followed.index)
            if answer.records and quota is not None:
                quota.record(TopicPartition(followed.topic, followed.index), len(answer.records))
            is_news = followed.is_news(answer)
            session.answered(key, followed, has_records=bool(answer.records))
            if self._is_incremental and not is_news:
                continue
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopicResponse(topic=followed.topic, topic_id=followed.topic_id)
            topic.partitions.append(answer)
        if session.session_id == NO_SESSION:
            session.ended()
        return FetchResponse(
            session_id=session.session_id, responses=list(topics.values()), node_endpoints=hints.endpoints()
        )

    def failure(self, error: ErrorCode) -> FetchResponse:
        """The response to a request that failed as a whole."""
        return FetchResponse(error_code=error)


class DelayedFollowerFetch(DelayedOperation[FollowerReader]):
    """Waits for `min_bytes`, for an error, or for the timeout. Looks only at partitions that changed."""

    __slots__ = ("_reading", "_sizes", "_total", "deferred")

    def __init__(self, reading: FollowerReading, answers: Answers) -> None:
        """`answers` were not enough."""
        super().__init__()
        self.deferred = Deferred()
        self._reading = reading
        self._sizes: dict[Key, int] = {key: len(answer.records) for key, _, answer in answers if answer.records}
        """Bytes that were available when the partition was last checked."""
        self._total = sum(self._sizes.values())

    def is_ready(self, key: FollowerReader) -> bool:  # noqa: ARG002
        session = self._reading.session
        fresh, session.fresh = session.fresh, {}
        has_untold = False
        for name, followed in fresh.items():
            partition = followed.partition
            if partition is None:
                return True
            log, epoch = partition.log, followed.current_leader_epoch
            if log is None or partition.check_leader(epoch) or partition.check_follower(session.replica_id, epoch):
                return True
            offset = followed.fetch_offset
            if log.next_offset != offset:
                if not log.log_start_offset <= offset <= log.next_offset:
                    return True
                if self._counts(name, followed, partition):
                    return True
            has_untold = (
                has_untold
                or log.high_watermark != followed.high_watermark
                or log.log_start_offset != followed.log_start_offset
            )
        if has_untold:
            self._reading.broker.replicas.follower_fetches.hasten(self, self._reading.told_within_s)
        return False

    def _counts(self, name: Key, followed: FollowedPartition, partition: Partition) -> bool:
        """Whether there is enough with what the partition has. A throttled partition does not count."""
        reading = self._reading
        if reading.is_throttled(partition):
            return False
        if reading.min_bytes <= 1:
            return True
        try:
            size = partition.bytes_readable(followed.fetch_offset, to_log_end=True)
        except (LogError, ReplicationError):  # reading it gives the follower the error
            return True
        if size is None:  # it is in an older segment
            return True
        size = min(size, followed.max_bytes)
        self._total += size - self._sizes.get(name, 0)
        self._sizes[name] = size
        return self._total >= min(reading.min_bytes, reading.max_bytes)

    def complete(self) -> None:
        try:
            response = self._reading.response(self._reading.read(is_first=False))
        except Exception:
            _logger.exception("a follower's fetch that waited for records could not read them")
            response = self._reading.failure(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.deferred.answer(response)
