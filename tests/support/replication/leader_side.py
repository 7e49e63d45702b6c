"""The leader's side of replication, in memory: answers a follower's requests from partitions, without a broker.

Keeps the rules of Kafka's fetch sessions that a follower relies on: a full fetch begins a session and is answered for
every partition; an incremental one changes it, and is answered only for partitions with news; a wrong epoch or id is
refused; what is forgotten is removed after what is asked was added.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.errors import LogError
from ottla.replication.errors import ReplicationError
from ottla.replication.partition import Partition
from ottla.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderEpochTopicResponse,
)
from ottla.wire.schema import Request, Response

Key = tuple[str | Uuid, int]


@dataclass
class Session:
    by_id: bool
    epoch: int = 1
    partitions: dict[Key, FetchPartition] = field(default_factory=dict)
    told: dict[Key, tuple[int, int]] = field(default_factory=dict)


class LeaderSide:
    """See the module. `now_s` is the leader's time."""

    def __init__(self, partitions: dict[TopicPartition, Partition], fetch_version: int = 17) -> None:
        self.partitions = partitions
        self.fetch_version = fetch_version
        self.sessions: dict[int, Session] = {}
        self.now_s = 0.0
        self.max_bytes: int | None = None
        self._ids = count(1)

    def answer(self, request: Request, version: int) -> Response:
        if isinstance(request, FetchRequest):
            return self.fetch(request, version)
        if isinstance(request, ListOffsetsRequest):
            return self.list_offsets(request)
        assert isinstance(request, OffsetForLeaderEpochRequest)
        return self.ends_of_epochs(request)

    # --- Fetch ------------------------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        by_id = version >= 13
        asked = {
            (topic.topic_id if by_id else topic.topic, each.partition): each
            for topic in request.topics
            for each in topic.partitions
        }
        replica = request.replica_state.replica_id if request.replica_state is not None else request.replica_id
        epoch = -1 if request.replica_state is None else request.replica_state.replica_epoch
        if request.session_epoch == 0:
            self.sessions.pop(request.session_id, None)
            session_id = next(self._ids)
            session = self.sessions[session_id] = Session(by_id, partitions=asked)
            is_full = True
        else:
            session_id, is_full = request.session_id, False
            known = self.sessions.get(session_id)
            if known is None:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if known.epoch != request.session_epoch:
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            if known.by_id != by_id:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
            session = known
            session.epoch += 1
            session.partitions |= asked
            for topic in request.forgotten_topics_data:
                for index in topic.partitions:
                    session.partitions.pop((topic.topic_id if by_id else topic.topic, index), None)
        topics: dict[str | Uuid, FetchTopicResponse] = {}
        for key, each in session.partitions.items():
            answer = self._read(key, each, replica, epoch, truncates=version >= 12)
            told = (answer.high_watermark, answer.log_start_offset)
            is_news = bool(answer.records or answer.error_code or answer.diverging_epoch)
            if is_full or is_news or session.told.get(key) != told:
                topic_answer = topics.setdefault(key[0], FetchTopicResponse())
                if by_id:
                    topic_answer.topic_id = key[0]  # type: ignore[assignment]
                else:
                    topic_answer.topic = key[0]  # type: ignore[assignment]
                topic_answer.partitions.append(answer)
            if answer.error_code or answer.diverging_epoch:
                session.told.pop(key, None)
            else:
                session.told[key] = told
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _partition(self, key: Key) -> Partition | None:
        for partition in self.partitions.values():
            if key[1] == partition.name.partition and key[0] in (partition.topic_id, partition.name.topic):
                return partition
        return None

    def _read(
        self, key: Key, asked: FetchPartition, replica: int, broker_epoch: int, *, truncates: bool
    ) -> FetchPartitionResponse:
        def refused(error: ErrorCode) -> FetchPartitionResponse:
            return FetchPartitionResponse(
                partition_index=key[1], error_code=error, high_watermark=-1, log_start_offset=-1, records=b""
            )

        partition = self._partition(key)
        if partition is None:
            is_id = isinstance(key[0], bytes)
            return refused(ErrorCode.UNKNOWN_TOPIC_ID if is_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = partition.check_leader(asked.current_leader_epoch) or partition.check_follower(
            replica, asked.current_leader_epoch
        )
        if error:
            return refused(error)
        log = partition.log
        assert log is not None
        if truncates and asked.last_fetched_epoch >= 0:
            epoch, end = partition.end_of_epoch(asked.last_fetched_epoch)
            if epoch < 0:
                return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                answer = refused(ErrorCode.NONE)
                answer.high_watermark, answer.log_start_offset = log.high_watermark, log.log_start_offset
                answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                return answer
        limit = asked.partition_max_bytes if self.max_bytes is None else self.max_bytes
        leader_end = log.next_offset
        try:
            found = partition.read(asked.fetch_offset, limit, to_log_end=True)
            partition.follower_fetched(
                replica,
                fetch_offset=asked.fetch_offset,
                log_start_offset=asked.log_start_offset,
                leader_end_offset_at_read=leader_end,
                broker_epoch=broker_epoch,
                now_s=self.now_s,
            )
        except (LogError, ReplicationError) as failure:
            return refused(failure.code)
        return FetchPartitionResponse(
            partition_index=key[1],
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            records=b"" if found.slice is None else found.slice.read(),
        )

    # --- others -----------------------------------------------------------------------------------------------------

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = ListOffsetsResponse()
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            for each in topic.partitions:
                partition = self.partitions.get(TopicPartition(topic.name, each.partition_index))
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer = ListOffsetsPartitionResponse(partition_index=each.partition_index)
                if partition is not None:
                    error = partition.check_leader(each.current_leader_epoch)
                    if not error and partition.log is not None:
                        log = partition.log
                        answer.offset = log.next_offset if each.timestamp == -1 else log.log_start_offset
                answer.error_code = error
                answers.partitions.append(answer)
            response.topics.append(answers)
        return response

    def ends_of_epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = OffsetForLeaderEpochTopicResponse(topic=topic.topic)
            for each in topic.partitions:
                partition = self.partitions.get(TopicPartition(topic.topic, each.partition))
                answer = OffsetForLeaderEpochPartitionResponse(partition=each.partition)
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if partition is not None:
                    answer.error_code = partition.check_leader(each.current_leader_epoch)
                    if not answer.error_code:
                        answer.leader_epoch, answer.end_offset = partition.end_of_epoch(each.leader_epoch)
                answers.partitions.append(answer)
            response.topics.append(answers)
        return response
