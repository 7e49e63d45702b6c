"""Groups: their coordinators, and what members wrote into blobs."""

from __future__ import annotations

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import GroupState, GroupType, SomeRefusedError
from ottla.wire.codec import encode_versioned
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedConsumerGroup,
)
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse, DeleteGroupsResult
from ottla.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.leave_group import LeaveGroupMemberResponse, LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.schema import Request
from support.clients.scripted_broker import BROKER_ID, Answer, ScriptedBroker
from unit.client.administer.scripted_admin import admin_of, run


def coordinators(request: FindCoordinatorRequest, node_id: int = BROKER_ID, code: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host="", port=0, error_code=code, error_message=None)
            for key in request.coordinator_keys
        ]
    )


def test_coordinators_are_asked_for_together_and_again_when_they_changed() -> None:
    looks = [(BROKER_ID, ErrorCode.COORDINATOR_NOT_AVAILABLE), (99, 0), (BROKER_ID, 0), (BROKER_ID, 0)]
    codes: dict[str, list[int]] = {"a": [ErrorCode.NOT_COORDINATOR, 0], "b": [0], "c": [ErrorCode.NON_EMPTY_GROUP]}

    def script(request: Request) -> Answer | None:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators(request, *looks.pop(0))
        if isinstance(request, DeleteGroupsRequest):
            return DeleteGroupsResponse(
                results=[DeleteGroupsResult(group_id=one, error_code=codes[one].pop(0)) for one in request.groups_names]
            )
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            with pytest.raises(SomeRefusedError) as refused:
                await admin.delete_consumer_groups(["a", "b", "c"])
            assert list(refused.value.errors) == ["c"]
            assert refused.value.results == {"a": None, "b": None}
            asked = [request.coordinator_keys for request in broker.of(FindCoordinatorRequest)]  # type: ignore[attr-defined]
            # None yet; then one that nobody knows; then the right one, which is another for `a`.
            assert asked == [["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"], ["a"]]

    run(scenario)


SUBSCRIPTION = encode_versioned(ConsumerProtocolSubscription(topics=["y", "x"]), 3)
ASSIGNMENT = encode_versioned(
    ConsumerProtocolAssignment(assigned_partitions=[ConsumerProtocolPartitions(topic="x", partitions=[2, 0])]), 1
)


def described(*, protocol_type: str, metadata: bytes, assignment: bytes) -> DescribedGroup:
    member = DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=metadata, member_assignment=assignment
    )
    return DescribedGroup(
        group_id="g", group_state="Stable", protocol_type=protocol_type, protocol_data="range", members=[member]
    )


@pytest.mark.parametrize(
    ("group", "topics", "partitions"),
    [
        (
            described(protocol_type="consumer", metadata=SUBSCRIPTION, assignment=ASSIGNMENT),
            ("y", "x"),
            (TopicPartition("x", 0), TopicPartition("x", 2)),
        ),
        # A version that is yet to come: more fields at the end.
        (
            described(
                protocol_type="consumer",
                metadata=b"\x00\x09" + SUBSCRIPTION[2:] + b"more",
                assignment=b"\x00\x09" + ASSIGNMENT[2:] + b"more",
            ),
            ("y", "x"),
            (TopicPartition("x", 0), TopicPartition("x", 2)),
        ),
        (described(protocol_type="consumer", metadata=b"", assignment=b""), (), ()),
        (described(protocol_type="consumer", metadata=b"\x00\x01\xff\xff", assignment=b"\x00"), (), ()),
        (described(protocol_type="connect", metadata=SUBSCRIPTION, assignment=ASSIGNMENT), (), ()),
    ],
    ids=["as written", "newer", "empty", "garbage", "no consumer"],
)
def test_what_members_of_classic_groups_wrote(
    group: DescribedGroup, topics: tuple[str, ...], partitions: tuple[TopicPartition, ...]
) -> None:
    def script(request: Request) -> Answer | None:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators(request)
        if isinstance(request, ConsumerGroupDescribeRequest):
            code = ErrorCode.GROUP_ID_NOT_FOUND
            return ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(group_id="g", error_code=code)])
        if isinstance(request, DescribeGroupsRequest):
            return DescribeGroupsResponse(groups=[group])
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            found = (await admin.describe_consumer_groups(["g"]))["g"]
            assert (found.type, found.state) == (GroupType.CLASSIC, GroupState.STABLE)
            (member,) = found.members
            assert (member.subscribed_topics, member.assignment) == (topics, partitions)
            assert (member.metadata, member.assignment_bytes) == (
                group.members[0].member_metadata,
                group.members[0].member_assignment,
            )

    run(scenario)


def test_all_members_are_removed_whether_they_have_names_or_not() -> None:
    members = [
        DescribedGroupMember(member_id="m-1", group_instance_id="static", client_id="", client_host=""),
        DescribedGroupMember(member_id="m-2", client_id="", client_host=""),
    ]

    def script(request: Request) -> Answer | None:
        if isinstance(request, FindCoordinatorRequest):
            return coordinators(request)
        if isinstance(request, ConsumerGroupDescribeRequest):
            code = ErrorCode.UNSUPPORTED_VERSION  # the broker knows the request, and is told not to serve it
            return ConsumerGroupDescribeResponse(groups=[DescribedConsumerGroup(group_id="g", error_code=code)])
        if isinstance(request, DescribeGroupsRequest):
            group = DescribedGroup(group_id="g", group_state="Stable", protocol_type="consumer", members=members)
            return DescribeGroupsResponse(groups=[group])
        if isinstance(request, LeaveGroupRequest):
            return LeaveGroupResponse(
                members=[
                    LeaveGroupMemberResponse(member_id=one.member_id, group_instance_id=one.group_instance_id)
                    for one in request.members
                ]
            )
        return None

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            await admin.remove_members_from_consumer_group("g", reason="spring")
            (request,) = broker.of(LeaveGroupRequest)
            assert isinstance(request, LeaveGroupRequest)
            assert [(one.member_id, one.group_instance_id, one.reason) for one in request.members] == [
                ("", "static", "spring"),
                ("m-2", None, "spring"),
            ]

    run(scenario)


def test_words_that_a_newer_kafka_added() -> None:
    assert GroupState("Dozing") is GroupState.UNKNOWN
    assert GroupState("stable") is GroupState.STABLE
    assert GroupType("Classic") is GroupType.CLASSIC
    assert GroupType("") is GroupType.UNKNOWN
