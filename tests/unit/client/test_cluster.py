"""Finding the cluster, and patience with it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.client.cluster import Cluster, ClusterOptions
from ottla.client.config import AdminConfig, ProducerConfig
from ottla.client.errors import ClosedError, NoBrokerError, RefusedError, UnknownTopicError, raise_if_refused
from ottla.client.metadata import PartitionInfo, TopicInfo
from ottla.net.client_connection import (
    Address,
    BrokerUnreachableError,
    ConnectionLostError,
    ConnectionOptions,
    RequestTimeoutError,
    UnsupportedApiError,
)
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import CreatableTopic, CreatedTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.wire.messages.metadata import (
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopicResponse,
)
from ottla.wire.schema import Request
from support.clients.scripted_broker import BROKER_ID, KAFKA_2_1, Answer, HangUp, ScriptedBroker, Silence
from support.waiting import until

BUSY = ClusterOptions(retry_backoff_s=0.001, retry_backoff_max_s=0.002)
"""Tries again at once."""
IMPATIENT = replace(BUSY, api_timeout_s=0.5)
"""And not for long: for what fails in any case."""


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def created(code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatedTopic(name="new", error_code=code, error_message=None, num_partitions=3, configs=None)]
    )


async def create_topic(cluster: Cluster) -> int:
    """Its number of partitions."""
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new", num_partitions=3, replication_factor=1)])

    async def attempt() -> int:
        (topic,) = (await cluster.send_to_controller(request, CreateTopicsResponse)).topics
        raise_if_refused(topic.error_code, f"topic {topic.name}")
        return topic.num_partitions

    return await cluster.retry(attempt)


def test_any_of_the_addresses_will_do() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as gone:
            nowhere = gone.bootstrap
        async with ScriptedBroker() as broker, Cluster(f"{nowhere},{broker.bootstrap}") as cluster:
            assert [topic.name for topic in await cluster.refresh(None)] == ["events"]
            assert cluster.brokers == {BROKER_ID: broker.address}
            assert cluster.known_leader(TopicPartition("events", 0)) == BROKER_ID
            # The connection to the bootstrap address serves for that broker too.
            await cluster.connection(BROKER_ID)
            assert broker.connections == 1

    run(scenario)


def test_the_error_names_the_brokers_that_did_not_answer() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as other:
            addresses = f"{one.bootstrap},{other.bootstrap}"
        async with Cluster(addresses, IMPATIENT) as cluster:
            with pytest.raises(BrokerUnreachableError) as caught:
                await cluster.retry(cluster.refresh)
            assert all(address in str(caught.value) for address in addresses.split(","))

    run(scenario)


def test_a_broker_that_is_about_to_start_is_waited_for() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as gone:
            address = gone.address
        async with Cluster([address]) as cluster:
            asking = asyncio.create_task(cluster.retry(lambda: cluster.refresh(None)))
            await until(lambda: address in cluster._connections._failing)
            server = ScriptedBroker(port=address.port)
            async with server:
                assert [topic.name for topic in await asking] == ["events"]

    run(scenario)


@pytest.mark.parametrize("bootstrap", ["no.such.host.invalid:9092", f"{'x' * 70}:9092"])
def test_an_invalid_address_is_reported_at_once(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if "invalid" in bootstrap:
        monkeypatch.setattr(socket, "getaddrinfo", unknown)

    async def scenario() -> None:
        async with Cluster(bootstrap, ClusterOptions(api_timeout_s=1000)) as cluster:
            with pytest.raises(BrokerUnreachableError):
                await cluster.retry(cluster.refresh)

    run(scenario)


def test_a_port_of_another_service_is_reported_at_once() -> None:
    async def scenario() -> None:
        async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server, Cluster([Address(*server.sockets[0].getsockname())]) as cluster:
            with pytest.raises(BrokerUnreachableError, match="an HTTP server"):
                await cluster.retry(cluster.refresh)

    run(scenario)


def test_the_time_given_is_kept_when_a_broker_answers_nothing() -> None:
    """As one that was stopped (SIGSTOP). The request's own time-out is far beyond the guard of this test."""

    async def scenario() -> None:
        async with ScriptedBroker(lambda _: Silence()) as broker:
            options = ClusterOptions(ConnectionOptions(request_timeout_s=1000), api_timeout_s=0.05)
            async with Cluster(broker.bootstrap, options) as cluster:
                with pytest.raises(RequestTimeoutError, match=r"no broker answered within 0\.05 s"):
                    await cluster.retry(cluster.refresh)

    run(scenario)


def test_retriable_errors_are_retried() -> None:
    async def scenario() -> None:
        answers: list[Answer] = [HangUp(), created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.NONE)]

        def script(request: Request) -> Answer | None:
            return answers.pop(0) if isinstance(request, CreateTopicsRequest) else None

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap) as cluster:
            assert await create_topic(cluster) == 3
            assert len(broker.of(CreateTopicsRequest)) == 3
            # Each time it was asked anew who decides.
            assert len(broker.of(MetadataRequest)) == 3

    run(scenario)


def test_leaders_are_asked_for_again_after_a_failure() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, BUSY) as cluster:
            await cluster.topic("events")
            leaders: list[int | None] = []

            async def attempt() -> None:
                leaders.append(cluster.known_leader(TopicPartition("events", 0)))
                if len(leaders) < 2:
                    raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "events-0")
                await cluster.topic("events")

            await cluster.retry(attempt)
            assert leaders == [BROKER_ID, None]
            assert len(broker.of(MetadataRequest)) == 2
            assert cluster.known_leader(TopicPartition("events", 0)) == BROKER_ID

    run(scenario)


def test_patience_ends() -> None:
    async def scenario() -> None:
        def script(request: Request) -> Answer | None:
            return created(ErrorCode.NOT_CONTROLLER) if isinstance(request, CreateTopicsRequest) else None

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap, IMPATIENT) as cluster:
            with pytest.raises(RefusedError, match="NOT_CONTROLLER"):
                await create_topic(cluster)
            assert len(broker.of(CreateTopicsRequest)) > 2

    run(scenario)


def test_fatal_errors_are_not_retried() -> None:
    async def scenario() -> None:
        def script(request: Request) -> Answer | None:
            return created(ErrorCode.TOPIC_ALREADY_EXISTS) if isinstance(request, CreateTopicsRequest) else None

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap) as cluster:
            with pytest.raises(RefusedError, match=r"\(TOPIC_ALREADY_EXISTS\)$"):
                await create_topic(cluster)
            assert len(broker.of(CreateTopicsRequest)) == 1

    run(scenario)


def test_a_topic_that_is_not_there_is_waited_for_only_if_it_is_to_be_made() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap) as cluster:
            with pytest.raises(UnknownTopicError, match="topic 'later' does not exist"):
                await cluster.topic("later")
            asked = len(broker.requests)

            def appear(_: Request) -> None:
                if len(broker.requests) == asked + 3:
                    broker.topics["later"] = 2

            broker.script = appear
            assert len((await cluster.topic("later", create=True)).partitions) == 2
            request = broker.requests[-1]
            assert isinstance(request, MetadataRequest)
            assert request.allow_auto_topic_creation

    run(scenario)


def test_a_closed_client_says_so() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker:
            cluster = Cluster(broker.bootstrap)
            await cluster.refresh()
            await cluster.close()
            with pytest.raises(ClosedError):
                await cluster.refresh()
            # Nor does it look after anything by itself any more.
            assert cluster._next_upkeep is not None
            assert cluster._next_upkeep.cancelled()

    run(scenario)


# What is known grows old.


def test_topics_are_looked_at_again_by_and_by() -> None:
    async def scenario() -> None:
        options = replace(BUSY, metadata_age_max_s=0.05)
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, options) as cluster:
            assert len((await cluster.topic("events")).partitions) == 1
            broker.topics["events"] = 3
            await until(lambda: len(partitions_of(cluster, "events")) == 3)

    run(scenario)


def partitions_of(cluster: Cluster, name: str) -> tuple[PartitionInfo, ...]:
    known = cluster.known_topic(name)
    return () if known is None else known.partitions


def test_a_cluster_that_is_away_for_a_while_is_looked_at_when_it_is_back() -> None:
    async def scenario() -> None:
        refused = 0

        def script(_: Request) -> Answer | None:
            nonlocal refused
            refused += 1
            return HangUp() if 1 < refused < 5 else None

        options = replace(BUSY, metadata_age_max_s=0.05)
        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap, options) as cluster:
            await cluster.topic("events")
            broker.topics["events"] = 3
            await until(lambda: len(partitions_of(cluster, "events")) == 3)
            assert refused >= 5

    run(scenario)


def test_a_topic_that_nobody_asks_about_is_forgotten() -> None:
    async def scenario() -> None:
        options = replace(BUSY, metadata_age_max_s=0.05, metadata_idle_s=1000)
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, options) as cluster:
            broker.topics["used"] = 1
            await cluster.refresh(None)
            for name in cluster._used_at_s:
                cluster._used_at_s[name] -= 1000
            assert cluster.known_leader(TopicPartition("used", 0)) == BROKER_ID
            await until(lambda: cluster.known_topic("events") is None)
            assert cluster.known_topic("used") is not None
            # It is still to be had.
            assert (await cluster.topic("events")).name == "events"

    run(scenario)


def test_connections_that_nobody_uses_are_closed() -> None:
    async def scenario() -> None:
        options = replace(BUSY, connection_idle_s=0.05)
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, options) as cluster:
            await cluster.refresh()
            connection = await cluster.connection(BROKER_ID)
            connections = broker.connections
            await until(lambda: not connection.is_open)
            await cluster.refresh()
            assert broker.connections == connections + 1

    run(scenario)


def test_a_broker_that_is_behind_is_not_believed() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(leader_epoch=5) as broker, Cluster(broker.bootstrap) as cluster:
            assert (await cluster.topic("events")).partitions[0].leader_epoch == 5
            broker.leader_epoch = 4
            broker.topics["events"] = 2
            assert [one.leader_epoch for one in (await cluster.topic("events", fresh=True)).partitions] == [5, 4]
            broker.leader_epoch = 6
            assert [one.leader_epoch for one in (await cluster.topic("events", fresh=True)).partitions] == [6, 6]

    run(scenario)


def test_another_topic_of_the_same_name_starts_over() -> None:
    old, new = TopicInfo("t", Uuid(b"a" * 16), False, (EPOCH_5,)), TopicInfo("t", Uuid(b"b" * 16), False, (EPOCH_0,))
    assert new.not_older_than(old) == new
    assert replace(new, topic_id=old.topic_id).not_older_than(old).partitions == (EPOCH_5,)
    # Old brokers tell no ids: then nobody can know.
    nameless = replace(new, topic_id=ZERO_UUID)
    assert nameless.not_older_than(replace(old, topic_id=ZERO_UUID)) == nameless


def test_partitions_stay_at_their_indexes_if_a_broker_leaves_some_out() -> None:
    """Otherwise one would keep the leader of another that has a higher epoch, for ever."""

    def told(*epochs: tuple[int, int]) -> TopicInfo:
        partitions = [MetadataPartitionResponse(partition_index=index, leader_epoch=epoch) for index, epoch in epochs]
        return TopicInfo.of(MetadataTopicResponse(name="t", topic_id=Uuid(b"a" * 16), partitions=partitions))

    whole = told((0, 3), (1, 20), (2, 7))
    for partial in (told((1, 21), (2, 7)), told((1, 21)), told((2, 8), (0, 4))):
        assert [one.index for one in partial.partitions] == list(range(len(partial.partitions)))
        kept = partial.not_older_than(whole)
        assert kept.has_partitions_of(whole)
        newest = told((0, 5), (1, 22), (2, 9))
        assert newest.not_older_than(kept) == newest
    assert [one.leader_epoch for one in told((2, 8), (0, 4)).not_older_than(whole).partitions] == [4, 20, 8]
    assert [one.leader_epoch for one in told((0, 4)).not_older_than(whole).partitions] == [4, 20, 7]
    unknown = told((1, 20)).partitions[0]
    assert (unknown.index, unknown.leader_id, unknown.leader_epoch) == (0, -1, -1)
    assert len(told((2**31 - 1, 0)).partitions) < 20_000


EPOCH_0 = PartitionInfo(0, BROKER_ID, 0, (BROKER_ID,), (BROKER_ID,))
EPOCH_5 = replace(EPOCH_0, leader_epoch=5)


def test_racks_are_known() -> None:
    async def scenario() -> None:
        async with ScriptedBroker(rack="north") as broker, Cluster(broker.bootstrap) as cluster:
            await cluster.refresh()
            assert cluster.racks == {BROKER_ID: "north"}

    run(scenario)


def test_a_broker_may_send_us_back_to_the_beginning() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as right:

            def script(request: Request) -> Answer | None:
                if not isinstance(request, MetadataRequest):
                    return None
                if request.topics:
                    return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
                return wrong.metadata(request)

            async with ScriptedBroker(script) as wrong:
                addresses = [wrong.address]
                async with Cluster(addresses) as cluster:
                    await cluster.refresh()
                    cluster._connections.bootstrap = [right.address]
                    assert (await cluster.topic("events")).name == "events"
                    assert cluster.brokers == {BROKER_ID: right.address}

    run(scenario)


def test_brokers_of_kafka_2_1_will_do() -> None:
    async def scenario() -> None:
        async with (
            ScriptedBroker(newest=KAFKA_2_1, api_versions_max=2) as broker,
            Cluster(broker.bootstrap) as cluster,
        ):
            # They do not know ours, and say so in version 0.
            assert (await cluster.topic("events")).partitions[0].leader_id == BROKER_ID
            assert broker.versions == [ApiVersionsRequest.versions.high, 2]
            connection = await cluster.connection(BROKER_ID)
            assert connection.version_for(MetadataRequest) == 7
            with pytest.raises(UnsupportedApiError, match="does not serve IncrementalAlterConfigs in a version"):
                connection.version_for(IncrementalAlterConfigsRequest)

    run(scenario)


# What is said in the end.


def test_the_last_failure_tells_how_often_and_how_long_it_was_tried() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap, IMPATIENT) as cluster:
            await cluster.refresh()

            async def refused() -> None:
                raise RefusedError(ErrorCode.NOT_CONTROLLER, "topic t")

            with pytest.raises(RefusedError, match=r"topic t: .*; tried \d+ times in \d\.\d s \(NOT_CONTROLLER\)"):
                await cluster.retry(refused)

            async def lost() -> None:
                raise ConnectionLostError("a:1: the connection broke")

            with pytest.raises(ConnectionLostError, match=r"a:1: the connection broke; tried \d+ times in \d\.\d s"):
                await cluster.retry(lost)

            async def absent() -> None:
                raise NoBrokerError("no broker can be reached: a:1: connection refused (3 attempts in 1.0 s)")

            with pytest.raises(NoBrokerError, match=r"attempts in 1\.0 s\)$"):
                await cluster.retry(absent)
            with pytest.raises(ConnectionLostError, match=r"^a:1: the connection broke$"):
                await cluster.retry(lost, timeout_s=0)

    run(scenario)


def test_a_config_says_how_patient_a_cluster_is() -> None:
    settings = {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "me",
        "connections.max.idle.ms": 1000,
        "max.block.ms": 2000,
        "metadata.max.age.ms": 3000,
        "metadata.max.idle.ms": 5000,
        "metadata.recovery.strategy": "none",
        "receive.buffer.bytes": 6000,
        "reconnect.backoff.ms": 70,
        "reconnect.backoff.max.ms": 800,
        "request.timeout.ms": 9000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1100,
        "socket.connection.setup.timeout.ms": 12_000,
        "socket.connection.setup.timeout.max.ms": 13_000,
    }
    cluster = Cluster(ProducerConfig.parse(settings))
    assert cluster.bootstrap == [Address("a", 1), Address("b", 2)]
    assert cluster.options == ClusterOptions(
        connection=ConnectionOptions("me", 12.0, 9.0, receive_buffer_bytes=6000),
        retry_backoff_s=0.1,
        retry_backoff_max_s=1.1,
        api_timeout_s=2.0,
        connect_timeout_max_s=13.0,
        reconnect_backoff_s=0.07,
        reconnect_backoff_max_s=0.8,
        connection_idle_s=1.0,
        metadata_age_max_s=3.0,
        metadata_idle_s=5.0,
        rebootstrap=False,
    )
    eager = AdminConfig.parse({"bootstrap.servers": "a:1", "connections.max.idle.ms": -1})
    assert ClusterOptions.of(eager).connection_idle_s is None
    assert ClusterOptions.of(eager).api_timeout_s == 60
