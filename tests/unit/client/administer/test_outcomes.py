"""What becomes of several things at once, and where requests go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import (
    EARLIEST,
    LATEST,
    AsyncAdmin,
    ConfigResource,
    NewTopic,
    Operation,
    Replica,
    SomeRefusedError,
)
from ottla.client.administer.operations import operations_of
from ottla.wire.messages.create_topics import CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeletedTopic, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResponse,
    DescribeConfigsResponse,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribedLogDir,
    DescribeLogDirsPartitionResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsTopicResponse,
)
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopicResponse,
)
from ottla.wire.schema import Request, Response
from support.clients.scripted_broker import BROKER_ID, Answer, ScriptedBroker
from unit.client.administer.scripted_admin import admin_of, run

OTHER_ID = 8


def named(request: Request) -> list[str]:
    if isinstance(request, CreateTopicsRequest):
        return [topic.name for topic in request.topics]
    assert isinstance(request, DeleteTopicsRequest)
    return [topic.name or "" for topic in request.topics]


def test_only_what_may_pass_is_asked_for_again() -> None:
    codes = {"done": [0], "late": [ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, 0], "wrong": [40]}

    def script(request: Request) -> Answer | None:
        if not isinstance(request, DeleteTopicsRequest):
            return None
        return DeleteTopicsResponse(
            responses=[DeletedTopic(name=name, error_code=codes[name].pop(0)) for name in named(request)]
        )

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            with pytest.raises(SomeRefusedError) as refused:
                await admin.delete_topics(["done", "late", "wrong", "done"])
            assert {name: error.code for name, error in refused.value.errors.items()} == {
                "wrong": ErrorCode.INVALID_CONFIG
            }
            assert refused.value.results == {"done": None, "late": None}
            asked = [named(request) for request in broker.of(DeleteTopicsRequest)]
            assert asked == [["done", "late", "wrong"], ["late"], ["late"]]

    run(scenario)


def test_patience_ends_with_what_was_told_last() -> None:
    def script(request: Request) -> Answer | None:
        if not isinstance(request, DeleteTopicsRequest):
            return None
        code = ErrorCode.REQUEST_TIMED_OUT
        return DeleteTopicsResponse(responses=[DeletedTopic(name=name, error_code=code) for name in named(request)])

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker, timeout_ms=1_000) as admin:
            with pytest.raises(SomeRefusedError) as refused:
                await admin.delete_topics(["t"])
            assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert len(broker.of(DeleteTopicsRequest)) > 2

    run(scenario)


def test_what_the_broker_says_nothing_of_has_failed() -> None:
    def script(request: Request) -> Answer | None:
        if not isinstance(request, CreateTopicsRequest):
            return None
        return CreateTopicsResponse(topics=[CreatedTopic(name="events", configs=None)])

    async def scenario() -> None:
        async with ScriptedBroker(script) as broker, admin_of(broker) as admin:
            with pytest.raises(SomeRefusedError, match="forgotten: the response does not mention it") as refused:
                await admin.create_topics([NewTopic("events"), NewTopic("forgotten")])
            assert list(refused.value.results) == ["events"]

    run(scenario)


def test_nothing_asks_nothing() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, admin_of(broker) as admin:
            assert await admin.create_topics([]) == {}
            assert await admin.list_offsets({}) == {}
            assert await admin.describe_consumer_groups([]) == {}
            assert broker.requests == []

    run(scenario)


class Pair:
    """Two brokers: the first leads partition 0, the second partition 1 and decides for the cluster."""

    def __init__(self) -> None:
        self.brokers = (ScriptedBroker(self.script), ScriptedBroker(self.script))

    def script(self, request: Request) -> Answer | None:
        if isinstance(request, MetadataRequest):
            return self.metadata()
        if isinstance(request, CreateTopicsRequest):
            return CreateTopicsResponse(
                topics=[CreatedTopic(name=name, configs=None, num_partitions=2) for name in named(request)]
            )
        if isinstance(request, ListOffsetsRequest):
            return ListOffsetsResponse(topics=[*map(_offsets, request.topics)])
        if isinstance(request, DescribeConfigsRequest):
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResourceResponse(
                        resource_type=one.resource_type, resource_name=one.resource_name, error_message=None
                    )
                    for one in request.resources
                ]
            )
        assert isinstance(request, DescribeLogDirsRequest)
        return _log_dirs()

    def metadata(self) -> Response:
        leaders = (BROKER_ID, OTHER_ID)
        return MetadataResponse(
            brokers=[
                MetadataBroker(node_id=broker_id, host=broker.address.host, port=broker.address.port)
                for broker_id, broker in zip(leaders, self.brokers, strict=True)
            ],
            controller_id=OTHER_ID,
            topics=[
                MetadataTopicResponse(
                    name="events",
                    partitions=[
                        MetadataPartitionResponse(partition_index=index, leader_id=leader, replica_nodes=[leader])
                        for index, leader in enumerate(leaders)
                    ],
                )
            ],
        )


def _offsets(topic: object) -> ListOffsetsTopicResponse:
    name, partitions = topic.name, topic.partitions  # type: ignore[attr-defined]
    return ListOffsetsTopicResponse(
        name=name,
        partitions=[ListOffsetsPartitionResponse(partition_index=one.partition_index, offset=5) for one in partitions],
    )


def _log_dirs() -> DescribeLogDirsResponse:
    def holding(size: int, *, is_future: bool) -> list[DescribeLogDirsTopicResponse]:
        one = DescribeLogDirsPartitionResponse(
            partition_index=0, partition_size=size, offset_lag=3 * is_future, is_future_key=is_future
        )
        return [DescribeLogDirsTopicResponse(name="events", partitions=[one])]

    return DescribeLogDirsResponse(
        results=[
            DescribedLogDir(log_dir="/a", topics=holding(100, is_future=False), total_bytes=9, usable_bytes=4),
            DescribedLogDir(log_dir="/b", topics=holding(60, is_future=True)),
            DescribedLogDir(log_dir="/c", error_code=ErrorCode.KAFKA_STORAGE_ERROR),
        ]
    )


def pair(scenario: Callable[[Pair, AsyncAdmin], Awaitable[None]]) -> None:
    async def both() -> None:
        cluster = Pair()
        async with cluster.brokers[0], cluster.brokers[1], admin_of(cluster.brokers[0]) as admin:
            await scenario(cluster, admin)

    run(both)


def test_the_controller_makes_topics() -> None:
    async def scenario(cluster: Pair, admin: AsyncAdmin) -> None:
        await admin.create_topics([NewTopic("events")])
        assert [len(broker.of(CreateTopicsRequest)) for broker in cluster.brokers] == [0, 1]

    pair(scenario)


def test_leaders_are_asked_for_offsets() -> None:
    async def scenario(cluster: Pair, admin: AsyncAdmin) -> None:
        first, second = TopicPartition("events", 0), TopicPartition("events", 1)
        found = await admin.list_offsets({first: EARLIEST, second: LATEST})
        assert [found[one].offset for one in (first, second)] == [5, 5]
        for broker, index in zip(cluster.brokers, (0, 1), strict=True):
            (request,) = broker.of(ListOffsetsRequest)
            assert isinstance(request, ListOffsetsRequest)
            ((asked,),) = (topic.partitions for topic in request.topics)
            assert asked.partition_index == index

    pair(scenario)


def test_topics_that_are_not_known_yet_are_asked_for_together() -> None:
    def script(request: Request) -> Answer | None:
        if not isinstance(request, ListOffsetsRequest):
            return None
        return ListOffsetsResponse(topics=[*map(_offsets, request.topics)])

    async def scenario() -> None:
        topics = {f"t{number}": 1 for number in range(50)}
        async with ScriptedBroker(script, topics=topics) as broker, admin_of(broker) as admin:
            found = await admin.list_offsets({TopicPartition(name, 0): LATEST for name in topics})
            assert len(found) == len(topics)
            assert len(broker.of(MetadataRequest)) == 1
            assert len(broker.of(ListOffsetsRequest)) == 1

    run(scenario)


def test_a_broker_is_asked_for_its_own_configs() -> None:
    async def scenario(cluster: Pair, admin: AsyncAdmin) -> None:
        resources = [ConfigResource.topic("events"), ConfigResource.broker(OTHER_ID), ConfigResource.broker(None)]
        assert set(await admin.describe_configs(resources)) == set(resources)
        asked = [
            [one.resource_name for request in broker.of(DescribeConfigsRequest) for one in request.resources]  # type: ignore[attr-defined]
            for broker in cluster.brokers
        ]
        assert sorted(map(sorted, asked)) == [["", "events"], [str(OTHER_ID)]]
        assert asked[1][-1] == str(OTHER_ID)

    pair(scenario)


def test_log_directories_with_a_move_under_way_and_one_offline() -> None:
    async def scenario(_: Pair, admin: AsyncAdmin) -> None:
        described = await admin.describe_log_dirs()
        assert set(described) == {BROKER_ID, OTHER_ID}
        directories = described[OTHER_ID]
        assert (directories["/a"].total_bytes, directories["/b"].total_bytes) == (9, None)
        offline = directories["/c"].error
        assert offline is not None
        assert offline.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert f"/c of broker {OTHER_ID}" in str(offline)
        replica = Replica(TopicPartition("events", 0), OTHER_ID)
        place = (await admin.describe_replica_log_dirs([replica]))[replica]
        assert (place.path, place.size, place.future_path, place.future_offset_lag) == ("/a", 100, "/b", 3)

    pair(scenario)


def test_operations_are_bits() -> None:
    assert operations_of(-(2**31)) is None
    assert operations_of(1 << 3 | 1 << 8) == frozenset({Operation.READ, Operation.DESCRIBE})
    assert operations_of(1 << 30) == frozenset()  # one that a newer Kafka added
