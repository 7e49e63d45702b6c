"""A coordinator of one group with one member, which has bad days when a test says so."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.base.error_codes import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
)
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupMember, JoinGroupRequest, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataTopicResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroupResponse,
    OffsetFetchGroupTopicResponse,
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.wire.schema import Request
from support.clients.scripted_broker import BROKER_ID, TOPIC_ID, Answer, HangUp, ScriptedBroker


@dataclass
class ScriptedGroup(ScriptedBroker):
    """`bad` holds, for each kind of request, what it is answered with before all goes well."""

    bad: dict[type[Request], list[ErrorCode | HangUp]] = field(default_factory=dict)
    bad_partitions: list[dict[int, ErrorCode]] = field(default_factory=list)
    """For commits: the codes of single partitions, request by request."""
    members: int = 0
    generation: int = 0
    skip_assignment: bool = False
    committed: dict[int, int] = field(default_factory=dict)
    target: list[int] = field(default_factory=lambda: [0])
    """What a member of the consumer protocol is to have."""

    def __post_init__(self) -> None:
        self.script = self._act

    def _act(self, request: Request) -> Answer | None:
        waiting = self.bad.get(type(request))
        bad = waiting.pop(0) if waiting else ErrorCode.NONE
        if isinstance(bad, HangUp):
            return bad
        match request:
            case FindCoordinatorRequest():
                return self._find(request, bad)
            case JoinGroupRequest():
                return self._join(request, bad)
            case SyncGroupRequest():
                given = request.assignments[0].assignment if request.assignments else b""
                return SyncGroupResponse(error_code=bad, assignment=b"" if bad else given)
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=bad)
            case LeaveGroupRequest():
                return LeaveGroupResponse(error_code=bad)
            case ConsumerGroupHeartbeatRequest():
                return self._beat(request, bad)
            case OffsetCommitRequest():
                return self._commit(request, bad)
            case OffsetFetchRequest():
                return self._fetch(request, bad)
            case MetadataRequest() if request.topics and request.topics[0].name is None:
                found = MetadataTopicResponse(name=next(iter(self.topics)), topic_id=TOPIC_ID)
                return MetadataResponse(brokers=self.metadata(request).brokers, topics=[found])
        return None

    def _find(self, request: FindCoordinatorRequest, bad: ErrorCode) -> FindCoordinatorResponse:
        host, port = self.address
        if not request.coordinator_keys:
            return FindCoordinatorResponse(error_code=bad, node_id=BROKER_ID, host=host, port=port)
        (key,) = request.coordinator_keys
        found = Coordinator(key=key, node_id=BROKER_ID, host=host, port=port, error_code=bad, error_message=None)
        return FindCoordinatorResponse(coordinators=[found])

    def _join(self, request: JoinGroupRequest, bad: ErrorCode) -> JoinGroupResponse:
        member_id = request.member_id
        if not bad and not member_id:
            self.members += 1
            member_id, bad = f"member-{self.members}", ErrorCode.MEMBER_ID_REQUIRED
        if bad:
            return JoinGroupResponse(error_code=bad, member_id=member_id, protocol_name="")
        self.generation += 1
        protocol = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_name=protocol.name,
            leader=member_id,
            member_id=member_id,
            skip_assignment=self.skip_assignment,
            members=[JoinGroupMember(member_id=member_id, metadata=protocol.metadata)],
        )

    def _beat(self, request: ConsumerGroupHeartbeatRequest, bad: ErrorCode) -> ConsumerGroupHeartbeatResponse:
        if request.member_epoch == 0 and bad in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            bad = ErrorCode.NONE  # that is what those who join are
        if bad or request.member_epoch < 0:
            return ConsumerGroupHeartbeatResponse(error_code=bad, member_epoch=request.member_epoch)
        self.generation += request.member_epoch == 0
        is_whole = request.subscribed_topic_names is not None
        partitions = HeartbeatTopicPartitions(topic_id=TOPIC_ID, partitions=self.target)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.generation,
            heartbeat_interval_ms=20,
            assignment=HeartbeatAssignment(topic_partitions=[partitions]) if is_whole else None,
        )

    def _commit(self, request: OffsetCommitRequest, bad: ErrorCode) -> OffsetCommitResponse:
        codes = self.bad_partitions.pop(0) if self.bad_partitions and not bad else {}
        topics = []
        for topic in request.topics:
            answers = []
            for one in topic.partitions:
                code = bad or codes.get(one.partition_index, ErrorCode.NONE)
                if not code:
                    self.committed[one.partition_index] = one.committed_offset
                answers.append(OffsetCommitPartitionResponse(partition_index=one.partition_index, error_code=code))
            topics.append(OffsetCommitTopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=answers))
        return OffsetCommitResponse(topics=topics)

    def _fetch(self, request: OffsetFetchRequest, bad: ErrorCode) -> OffsetFetchResponse:
        def found(indexes: list[int]) -> list[OffsetFetchPartitionResponse]:
            return [
                OffsetFetchPartitionResponse(
                    partition_index=index, committed_offset=self.committed.get(index, -1), metadata="", error_code=0
                )
                for index in indexes
            ]

        if not request.groups:
            topics = [
                OffsetFetchTopicResponse(name=topic.name, partitions=found(topic.partition_indexes))
                for topic in request.topics or ()
            ]
            return OffsetFetchResponse(topics=[] if bad else topics, error_code=bad)
        (group,) = request.groups
        of_group = [
            OffsetFetchGroupTopicResponse(
                name=topic.name, topic_id=topic.topic_id, partitions=found(topic.partition_indexes)
            )
            for topic in group.topics or ()
        ]
        answer = OffsetFetchGroupResponse(group_id=group.group_id, topics=[] if bad else of_group, error_code=bad)
        return OffsetFetchResponse(groups=[answer])
