"""Brokers of Kafka 2.1: what they serve is done in their way, and what they do not is said."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import (
    LATEST,
    MAX_TIMESTAMP,
    AsyncAdmin,
    ConfigResource,
    ElectionType,
    GroupState,
    GroupType,
    NewTopic,
    OffsetAndMetadata,
    SomeRefusedError,
)
from ottla.client.errors import UnsupportedApiError
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.wire.messages.create_topics import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeletedTopic, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchPartitionResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchTopicResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import BROKER_ID, KAFKA_2_1, Answer, ScriptedBroker
from unit.client.administer.scripted_admin import admin_of, run

PARTITION = TopicPartition("events", 0)


def script(request: Request) -> Answer | None:
    match request:
        case CreateTopicsRequest():
            return CreateTopicsResponse(topics=[CreatedTopic(name=topic.name) for topic in request.topics])
        case DeleteTopicsRequest():
            return DeleteTopicsResponse(responses=[DeletedTopic(name=name) for name in request.topic_names])
        case AlterConfigsRequest():
            return AlterConfigsResponse(
                responses=[
                    AlterConfigsResourceResponse(
                        resource_type=one.resource_type, resource_name=one.resource_name, error_message=None
                    )
                    for one in request.resources
                ]
            )
        case ListOffsetsRequest():
            found = ListOffsetsPartitionResponse(partition_index=0, offset=9, leader_epoch=2)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="events", partitions=[found])])
        case FindCoordinatorRequest():
            return FindCoordinatorResponse(node_id=BROKER_ID, host="", port=0)
        case ListGroupsRequest():
            return ListGroupsResponse(groups=[ListedGroup(group_id="old", protocol_type="consumer")])
        case DescribeGroupsRequest():
            return DescribeGroupsResponse(groups=[*map(_group, request.groups)])
        case OffsetFetchRequest():
            one = OffsetFetchPartitionResponse(partition_index=0, committed_offset=4, metadata="note")
            none = OffsetFetchPartitionResponse(partition_index=1, committed_offset=-1, metadata="")
            return OffsetFetchResponse(topics=[OffsetFetchTopicResponse(name="events", partitions=[one, none])])
        case OffsetCommitRequest():
            answered = OffsetCommitPartitionResponse(partition_index=0)
            return OffsetCommitResponse(topics=[OffsetCommitTopicResponse(name="events", partitions=[answered])])
    return None


def _group(name: str) -> DescribedGroup:
    """To such a broker a group that it does not know is a dead one."""
    if name == "old":
        return DescribedGroup(group_id=name, group_state="Empty", protocol_type="consumer")
    return DescribedGroup(group_id=name, group_state="Dead")


def old(scenario: Callable[[ScriptedBroker, AsyncAdmin], Awaitable[None]]) -> None:
    async def both() -> None:
        async with (
            ScriptedBroker(script, topics={"events": 1, "more": 1}, newest=KAFKA_2_1) as broker,
            admin_of(broker) as admin,
        ):
            await scenario(broker, admin)

    run(both)


def test_topics() -> None:
    async def scenario(broker: ScriptedBroker, admin: AsyncAdmin) -> None:
        created = (await admin.create_topics([NewTopic("events", 1, 1)]))["events"]
        assert (created.topic_id, created.partitions, created.configs) == (None, None, None)
        await admin.create_topics([NewTopic("events", 1, 1), NewTopic("more", assignments={0: [BROKER_ID]})])
        await admin.delete_topics(["events"])
        (request,) = broker.of(DeleteTopicsRequest)
        assert isinstance(request, DeleteTopicsRequest)
        assert request.topic_names == ["events"]
        described = (await admin.describe_topics(["events"], include_authorized_operations=True))["events"]
        assert [one.index for one in described.partitions] == [0]
        assert described.authorized_operations is None
        with pytest.raises(SomeRefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_topics(["absent"])

    old(scenario)


def test_the_cluster_is_described_by_metadata() -> None:
    async def scenario(broker: ScriptedBroker, admin: AsyncAdmin) -> None:
        cluster = await admin.describe_cluster(include_authorized_operations=True)
        assert (cluster.cluster_id, cluster.controller_id) == ("scripted", BROKER_ID)
        assert [(one.broker_id, one.port) for one in cluster.brokers] == [(BROKER_ID, broker.address.port)]
        assert (await admin.api_versions())["Metadata"].highest == KAFKA_2_1[3]

    old(scenario)


def test_configs_offsets_and_groups() -> None:
    async def scenario(broker: ScriptedBroker, admin: AsyncAdmin) -> None:
        await admin.replace_configs({ConfigResource.topic("events"): {"a": "b"}})
        assert (await admin.list_offsets({PARTITION: LATEST}))[PARTITION].offset == 9
        (listed,) = await admin.list_groups()
        assert (listed.group_id, listed.state, listed.type) == ("old", GroupState.UNKNOWN, GroupType.UNKNOWN)
        with pytest.raises(SomeRefusedError) as refused:
            await admin.describe_consumer_groups(["old", "gone"])
        assert refused.value.errors["gone"].code is ErrorCode.GROUP_ID_NOT_FOUND
        assert refused.value.results["old"].state is GroupState.EMPTY
        keys = [request.key for request in broker.of(FindCoordinatorRequest)]  # type: ignore[attr-defined]
        assert keys == ["old", "gone"]  # one at a time
        assert await admin.list_consumer_group_offsets("old") == {PARTITION: OffsetAndMetadata(4, "note", None)}
        await admin.alter_consumer_group_offsets("old", {PARTITION: 3})

    old(scenario)


@pytest.mark.parametrize(
    ("ask", "reason"),
    [
        (lambda admin: admin.create_topics([NewTopic("t")]), "is too old to use its default number of partitions"),
        (lambda admin: admin.delete_topics_by_id(["AAAAAAAAAAAAAAAAAAAAAQ"]), "too old to delete topics by id"),
        (lambda admin: admin.describe_topics_by_id(["AAAAAAAAAAAAAAAAAAAAAQ"]), "too old to describe topics by id"),
        (lambda admin: admin.incremental_alter_configs({ConfigResource.topic("t"): {"a": "b"}}), "does not serve Incr"),
        (lambda admin: admin.list_config_resources(), "does not serve ListConfigResources"),
        (lambda admin: admin.list_offsets({PARTITION: MAX_TIMESTAMP}), "too old to look up this kind of offset"),
        (lambda admin: admin.elect_leaders(ElectionType.PREFERRED), "does not serve ElectLeaders"),
        (lambda admin: admin.list_partition_reassignments(), "does not serve ListPartitionReassignments"),
        (lambda admin: admin.describe_producers([PARTITION]), "does not serve DescribeProducers"),
        (lambda admin: admin.describe_cluster(include_fenced_brokers=True), "does not serve DescribeCluster"),
        (lambda admin: admin.list_groups(states=[GroupState.EMPTY]), "too old to list groups by state"),
        (lambda admin: admin.list_groups(types=[GroupType.CLASSIC]), "too old to list groups by type"),
        (lambda admin: admin.remove_members_from_consumer_group("old", ["x"]), "too old to remove members"),
        (lambda admin: admin.delete_consumer_group_offsets("old", [PARTITION]), "does not serve OffsetDelete"),
        (lambda admin: admin.list_consumer_group_offsets("old", require_stable=True), "too old to wait for offsets"),
    ],
)
def test_what_they_cannot_do_is_said_at_once(ask: Callable[[AsyncAdmin], Awaitable[object]], reason: str) -> None:
    async def scenario(broker: ScriptedBroker, admin: AsyncAdmin) -> None:
        with pytest.raises(UnsupportedApiError, match=reason) as error:
            await ask(admin)
        assert str(broker.address) in str(error.value)

    old(scenario)
