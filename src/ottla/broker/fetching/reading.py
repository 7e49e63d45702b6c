"""Reads the partitions of a fetch request, immediately or when there are enough bytes.

Large reads are answered with slices of files, which the connection sends by `sendfile`; small ones are read here, so
that they are sent in one write with the header.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID
from ottla.broker.fetching.fetch_sessions import (
    NO_SESSION,
    BrokerFetchSession,
    FetchedPartition,
    Key,
)
from ottla.broker.requests.api import Deferred
from ottla.log.errors import LogError
from ottla.replication.delayed import DelayedOperation
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

_logger = logging.getLogger(__name__)

_LEADER_TOLD_SINCE: Final = 12
READ_COMMITTED: Final = 1
COPY_BELOW_BYTES: Final = 32 * 1024
"""Smaller slices are read and sent with the preceding bytes: a `sendfile` costs an extra call and packet."""
_MOVED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchReading:
    """The reads of one request, repeated while it waits."""

    __slots__ = (
        "broker",
        "committed_only",
        "is_incremental",
        "max_bytes",
        "partitions",
        "request",
        "session",
        "to_log_end",
        "version",
    )

    def __init__(
        self,
        broker: Broker,
        request: FetchRequest,
        version: int,
        session: BrokerFetchSession | None,
        asked: dict[Key, FetchedPartition],
        *,
        is_incremental: bool,
    ) -> None:
        self.broker = broker
        self.request = request
        self.version = version
        self.session = session
        self.is_incremental = is_incremental and session is not None
        # A copy: the session may continue with other partitions while this waits.
        self.partitions = dict(session.partitions) if session is not None else asked
        self.max_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.committed_only = request.isolation_level == READ_COMMITTED
        replica = request.replica_state.replica_id if request.replica_state is not None else request.replica_id
        self.to_log_end = replica >= 0

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
            elif answer.diverging_epoch is not None:
                is_final = True
            is_any_known = True
            if answer.records:
                found = len(answer.records)
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
        partition = self.partition_of(fetched)
        if partition is None:
            return _refused(
                fetched, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if fetched.topic else ErrorCode.UNKNOWN_TOPIC_ID
            )
        if fetched.topic_id not in (partition.topic_id, ZERO_UUID):  # deleted and created again since
            return _refused(fetched, ErrorCode.INCONSISTENT_TOPIC_ID)
        error = partition.check_leader(fetched.current_leader_epoch)
        if error:
            answer = _refused(fetched, error)
            if error in _MOVED and self.version >= _LEADER_TOLD_SINCE:
                answer.current_leader = FetchLeaderIdAndEpoch(
                    leader_id=partition.leader_id, leader_epoch=partition.leader_epoch
                )
            return answer
        try:
            if fetched.last_fetched_epoch >= 0:
                parted = _parted(partition, fetched)
                if parted is not None:
                    return parted
            found = partition.read(
                fetched.fetch_offset,
                max_bytes,
                committed_only=self.committed_only,
                to_log_end=self.to_log_end,
                min_one=min_one,
            )
        except (LogError, ReplicationError) as failure:
            return _refused(fetched, failure.code)
        except Exception:  # the other partitions can still be read
            _logger.exception("Fetch: reading %s at offset %d failed", partition.name, fetched.fetch_offset)
            return _refused(fetched, ErrorCode.UNKNOWN_SERVER_ERROR)
        log = partition.log
        if log is None:  # the directory went offline while the log was read
            return _refused(fetched, ErrorCode.KAFKA_STORAGE_ERROR)
        piece = found.slice
        answer = FetchPartitionResponse(
            partition_index=fetched.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=b"" if piece is None else piece,  # type: ignore[arg-type]  # it has a length, and can be sent
        )
        if found.aborted_transactions is not None:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in found.aborted_transactions
            ]
        return answer

    def response(self, answers: list[tuple[Key, FetchedPartition, FetchPartitionResponse]]) -> FetchResponse:
        """The response: all partitions, or in a session only those with news."""
        topics: dict[object, FetchTopicResponse] = {}
        session = self.session
        with_records = []
        for key, fetched, answer in answers:
            records = answer.records
            if records and len(records) < COPY_BELOW_BYTES:
                try:
                    answer.records = records.read()  # type: ignore[union-attr]  # a slice of a file
                except OSError as error:
                    answer = self._unreadable(fetched, error)
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
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _unreadable(self, fetched: FetchedPartition, error: OSError) -> FetchPartitionResponse:
        """The response for a partition whose bytes were found but could not be read."""
        partition = self.partition_of(fetched)
        code = ErrorCode.KAFKA_STORAGE_ERROR if partition is None else partition.read_failed(error).code
        self.broker.request_stats.api(FetchRequest.api_key).count_error(code)
        return _refused(fetched, code)

    def failure(self, error: ErrorCode) -> FetchResponse:
        """The response to a request that failed as a whole. Old versions have error codes only in partitions. The
        client then ends its session."""
        topics: dict[object, FetchTopicResponse] = {}
        for key, fetched in self.partitions.items():
            topic = topics.setdefault(key[0], FetchTopicResponse(topic=fetched.topic, topic_id=fetched.topic_id))
            topic.partitions.append(_refused(fetched, error))
        return FetchResponse(error_code=error, responses=list(topics.values()))


def _refused(fetched: FetchedPartition, error: ErrorCode) -> FetchPartitionResponse:
    # Null except for unknown partitions, as in Kafka.
    aborted: list[AbortedTransaction] | None = [] if error in _UNKNOWN else None
    return FetchPartitionResponse(
        partition_index=fetched.index, error_code=error, high_watermark=-1, aborted_transactions=aborted, records=b""
    )


def _parted(partition: Partition, fetched: FetchedPartition) -> FetchPartitionResponse | None:
    """The response to a reader whose last epoch ended at a different offset in this log; None if it did not diverge."""
    epoch, end = partition.end_of_epoch(fetched.last_fetched_epoch)
    if epoch < 0:
        return _refused(fetched, ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch == fetched.last_fetched_epoch and end >= fetched.fetch_offset:
        return None
    answer = _refused(fetched, ErrorCode.NONE)
    log = partition.log
    if log is not None:
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
        if key.check_leader(fetched.current_leader_epoch):
            return True
        offset = fetched.fetch_offset
        if self._min_bytes <= 1:
            bound = key.bound(committed_only=reading.committed_only, to_log_end=reading.to_log_end)
            return bound > offset or offset > key.bound(to_log_end=True)
        try:
            size = key.bytes_readable(offset, committed_only=reading.committed_only, to_log_end=reading.to_log_end)
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
