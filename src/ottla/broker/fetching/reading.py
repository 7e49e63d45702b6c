"""Reads the partitions of a consumer's fetch request, immediately or when there are enough bytes.

Large reads are answered with slices of files, which the connection sends by `sendfile`; small ones are read here, so
that they are sent in one write with the header.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.file_slice import FileSlice
from ottla.base.ids import ZERO_UUID
from ottla.broker.fetching.fetch_sessions import (
    NO_SESSION,
    BrokerFetchSession,
    FetchedPartition,
    Key,
)
from ottla.broker.fetching.leader_hints import LeaderHints
from ottla.broker.fetching.preferred_replica import preferred_replica
from ottla.broker.requests.api import Deferred, RequestContext
from ottla.broker.requests.partition_access import unhosted
from ottla.log.errors import LogError
from ottla.log.partition_log import LogRead, PartitionLog
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from ottla.wire.schema import Bytes

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

_FROM_FOLLOWERS_SINCE: Final = 11
READ_COMMITTED: Final = 1
COPY_BELOW_BYTES: Final = 32 * 1024
"""Smaller slices are read and sent with the preceding bytes: a `sendfile` costs an extra call and packet."""
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchReading:
    """The reads of one request, repeated while it waits."""

    __slots__ = (
        "_context",
        "_hosted",
        "broker",
        "committed_only",
        "from_any_replica",
        "is_incremental",
        "max_bytes",
        "partitions",
        "rack",
        "request",
        "session",
    )

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        context: RequestContext,
        session: BrokerFetchSession | None,
        asked: dict[Key, FetchedPartition],
        *,
        is_incremental: bool,
    ) -> None:
        self.broker = broker
        self._hosted = broker.replicas.partitions
        self.request = request
        self._context = context
        self.session = session
        self.is_incremental = is_incremental and session is not None
        # A copy: the session may continue with other partitions while this waits.
        self.partitions = dict(session.partitions) if session is not None else asked
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.committed_only = request.isolation_level == READ_COMMITTED
        self.from_any_replica = context.version >= _FROM_FOLLOWERS_SINCE
        rack = request.rack_id
        self.rack = rack if rack and self.from_any_replica and broker.config.selects_replicas_by_rack else ""

    def read(self) -> tuple[list[tuple[Key, FetchedPartition, FetchPartitionResponse]], int, bool]:
        """The response of every partition, their size in bytes, and whether waiting is pointless: because of an error,
        a diverging log, or no readable partition.

        Limits as in Kafka (KIP-74): only the first partition with records may exceed them, by one batch.
        """
        left = self.max_bytes
        is_final, is_any_known = False, False
        size = 0
        answers = []
        for key, fetched in self.partitions.items():
            answer = self.read_one(fetched, min(fetched.max_bytes, left), min_one=not size)
            answers.append((key, fetched, answer))
            if answer.error_code:
                self.broker.request_stats.api(FetchRequest.api_key).count_error(answer.error_code)
                # An unknown partition does not end the wait for the others: otherwise a client that also fetches a
                # deleted topic would poll in a busy loop.
                if answer.error_code in _UNKNOWN:
                    continue
                is_final = True
            elif answer.diverging_epoch is not None or answer.preferred_read_replica >= 0:
                is_final = True
            is_any_known = True
            records = answer.records
            if records is not None and (found := len(records)):
                size += found
                left = max(left - found, 0)
            elif left < 0:
                left = 0  # a negative limit is an error of the first partition only
        return answers, size, is_final or not is_any_known

    def partition_of(self, fetched: FetchedPartition) -> Partition | None:
        if not fetched.topic:  # the topic may have been created since
            fetched.topic = self.broker.metadata.name_of(fetched.topic_id) or ""
        return self.broker.replicas.get(fetched.topic, fetched.index)

    def read_one(self, fetched: FetchedPartition, max_bytes: int, *, min_one: bool) -> FetchPartitionResponse:
        # Most are found by this look-up, without two calls.
        partition = self._hosted.get((fetched.topic, fetched.index)) or self.partition_of(fetched)  # type: ignore[call-overload]  # equal to its tuple
        if partition is None:
            topic, index = fetched.topic, fetched.index
            return refused(fetched, unhosted(self.broker, topic, index) if topic else ErrorCode.UNKNOWN_TOPIC_ID)
        topic_id = fetched.topic_id
        if topic_id != ZERO_UUID and topic_id != partition.topic_id:  # deleted and created again since
            return refused(fetched, ErrorCode.INCONSISTENT_TOPIC_ID)
        error = partition.check_leader(fetched.current_leader_epoch)
        if error:
            if self.from_any_replica:
                error = partition.check_replica(fetched.current_leader_epoch)
            if error:
                return refused(fetched, error)
        elif self.rack:
            elsewhere = self._elsewhere(partition, fetched)
            if elsewhere is not None:
                return elsewhere
        try:
            if fetched.last_fetched_epoch >= 0:
                diverged = parted(partition, fetched)
                if diverged is not None:
                    return diverged
            found = partition.read(
                fetched.fetch_offset,
                max_bytes,
                committed_only=self.committed_only,
                min_one=min_one,
            )
        except (LogError, ReplicationError) as failure:
            return refused(fetched, failure.code)
        except Exception:  # the other partitions can still be read
            _logger.exception("Fetch: reading %s at offset %d failed", partition.name, fetched.fetch_offset)
            return refused(fetched, ErrorCode.UNKNOWN_SERVER_ERROR)
        log = partition.log
        if log is None:  # the directory went offline while the log was read
            return refused(fetched, ErrorCode.KAFKA_STORAGE_ERROR)
        return answer_of(fetched, log, found)

    def _elsewhere(self, partition: Partition, fetched: FetchedPartition) -> FetchPartitionResponse | None:
        """The response to a consumer that should read from another replica; None to read here."""
        listener, offset = self._context.listener, fetched.fetch_offset
        replica = preferred_replica(self.broker, partition, self.rack, offset, listener)
        log = partition.log
        if replica is None or log is None:
            return None
        answer = answer_of(fetched, log, LogRead(None, None))
        answer.preferred_read_replica = replica
        return answer

    def check(self, partition: Partition, fetched: FetchedPartition) -> ErrorCode:
        """NONE if the partition can be read here."""
        epoch = fetched.current_leader_epoch
        return partition.check_replica(epoch) if self.from_any_replica else partition.check_leader(epoch)

    def response(self, answers: list[tuple[Key, FetchedPartition, FetchPartitionResponse]]) -> FetchResponse:
        """The response: all partitions, or in a session only those with news."""
        topics: dict[object, FetchTopicResponse] = {}
        session = self.session
        with_records = []
        hints: LeaderHints | None = None
        for key, fetched, answer in answers:
            records: object = answer.records
            if type(records) is FileSlice and 0 < records.size < COPY_BELOW_BYTES:
                try:
                    answer.records = records.read()
                except OSError as error:
                    answer = unreadable(self.broker, fetched, error)
            if answer.error_code:
                if hints is None:
                    hints = LeaderHints(self.broker, self._context)
                hints.add(answer, fetched.topic, fetched.index)
            if session is not None:
                is_news = fetched.is_news(answer)
                if self.is_incremental:
                    if not is_news:
                        continue
                    if answer.records:
                        with_records.append(key)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = FetchTopicResponse(topic=fetched.topic, topic_id=fetched.topic_id)
            topic.partitions.append(answer)
        session_id = NO_SESSION
        if session is not None:
            session.move_to_end(with_records)
            session_id = session.session_id
        response = FetchResponse(session_id=session_id, responses=list(topics.values()))
        if hints is not None:
            response.node_endpoints = hints.endpoints()
        return response

    def failure(self, error: ErrorCode) -> FetchResponse:
        """The response to a request that failed as a whole. Old versions have error codes only in partitions. The
        client then ends its session."""
        topics: dict[object, FetchTopicResponse] = {}
        for key, fetched in self.partitions.items():
            topic = topics.setdefault(key[0], FetchTopicResponse(topic=fetched.topic, topic_id=fetched.topic_id))
            topic.partitions.append(refused(fetched, error))
        return FetchResponse(error_code=error, responses=list(topics.values()))


def answer_of(fetched: FetchedPartition, log: PartitionLog, found: LogRead) -> FetchPartitionResponse:
    """The response with what was read."""
    piece = found.slice
    if piece is None:
        records: Bytes | FileSlice = b""
    else:
        records = piece if piece.held is None else piece.held
    answer = FetchPartitionResponse(
        partition_index=fetched.index,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=records,  # type: ignore[arg-type]  # a slice has a length, and can be sent
    )
    if found.aborted_transactions is not None:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in found.aborted_transactions
        ]
    return answer


def refused(fetched: FetchedPartition, error: ErrorCode) -> FetchPartitionResponse:
    # Null except for unknown partitions, as in Kafka.
    aborted: list[AbortedTransaction] | None = [] if error in _UNKNOWN else None
    return FetchPartitionResponse(
        partition_index=fetched.index, error_code=error, high_watermark=-1, aborted_transactions=aborted, records=b""
    )


def unreadable(broker: Broker, fetched: FetchedPartition, error: OSError) -> FetchPartitionResponse:
    """The response for a partition whose bytes were found but could not be read."""
    partition = broker.replicas.get(fetched.topic, fetched.index)
    code = ErrorCode.KAFKA_STORAGE_ERROR if partition is None else partition.read_failed(error).code
    broker.request_stats.api(FetchRequest.api_key).count_error(code)
    return refused(fetched, code)


def parted(partition: Partition, fetched: FetchedPartition) -> FetchPartitionResponse | None:
    """The response to a reader whose last epoch ended at a different offset in this log; None if it did not diverge."""
    epoch, end = partition.end_of_epoch(fetched.last_fetched_epoch)
    if epoch < 0:
        return refused(fetched, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == fetched.last_fetched_epoch and end >= fetched.fetch_offset:
        return None
    answer = refused(fetched, ErrorCode.NONE)
    log = partition.log
    if log is not None:
        if fetched.fetch_offset < log.log_start_offset:
            return refused(fetched, ErrorCode.OFFSET_OUT_OF_RANGE)
        answer.high_watermark, answer.last_stable_offset = log.high_watermark, log.last_stable_offset
        answer.log_start_offset = log.log_start_offset
    answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
    return answer


class DelayedFetch(DelayedOperation[Partition]):
    """Waits for `min_bytes`, for an error, or for the timeout.

    Bytes are counted as in Kafka: bytes that were available before count as well, each partition counts up to its own
    limit, and a reader in an older segment than the newest bytes does not wait at all.
    """

    __slots__ = ("_min_bytes", "_reading", "_sizes", "_total", "deferred", "partitions")

    def __init__(self, reading: FetchReading, min_bytes: int) -> None:
        super().__init__()
        self.deferred = Deferred()
        self._reading = reading
        self._min_bytes = min_bytes
        self.partitions: dict[Partition, FetchedPartition] = {}
        for fetched in reading.partitions.values():
            partition = reading.partition_of(fetched)
            if partition is not None:
                self.partitions[partition] = fetched
        self._sizes: dict[Partition, int] = {}
        """Bytes that were available when the partition was last checked."""
        self._total = 0

    def has_enough(self) -> bool:
        """Checks all partitions before waiting for changes. Not needed with `min_bytes` of 1: the request's own read
        found nothing."""
        return self._min_bytes > 1 and any(map(self.is_ready, self.partitions))

    def is_ready(self, key: Partition) -> bool:
        fetched, reading = self.partitions[key], self._reading
        if reading.check(key, fetched):
            return True
        offset = fetched.fetch_offset
        if self._min_bytes <= 1:
            bound = key.bound(committed_only=reading.committed_only)
            return bound > offset or offset > key.bound(to_log_end=True)
        try:
            size = key.bytes_readable(offset, committed_only=reading.committed_only)
        except (LogError, ReplicationError):  # reading it gives the client the error
            return True
        if size is None:
            return True
        size = min(size, fetched.max_bytes)
        self._total += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        return self._total >= self._min_bytes

    def complete(self) -> None:
        try:
            answers, _, _ = self._reading.read()
            response = self._reading.response(answers)
        except Exception:
            _logger.exception("a fetch that waited for records could not read them")
            response = self._reading.failure(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.deferred.answer(response)
