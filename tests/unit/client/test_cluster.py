"""Finding the cluster, and patience with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.admin import Admin, CreatedTopic, Resource, ResourceType, TopicSpec
from ottla.client.cluster import Cluster, ClusterOptions
from ottla.client.errors import ClosedError, RefusedError, UnknownTopicError
from ottla.net.client_connection import BrokerUnreachableError
from ottla.wire.messages.create_topics import CreatedTopic as CreatedTopicResponse
from ottla.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import Request
from unit.client.scripted_broker import BROKER_ID, Answer, HangUp, ScriptedBroker

IMPATIENT = ClusterOptions(retry_backoff_s=0.001, retry_backoff_max_s=0.002, api_timeout_s=0.2)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(bounded())


def created(code: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatedTopicResponse(name="new", error_code=code, error_message=None, num_partitions=3, configs=None)]
    )


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


def test_when_nobody_answers_it_is_told_at_once_who_was_asked() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as one, ScriptedBroker() as other:
            addresses = f"{one.bootstrap},{other.bootstrap}"
        async with Cluster(addresses) as cluster:
            with pytest.raises(BrokerUnreachableError) as caught:
                await cluster.retry(cluster.refresh)
            assert all(address in str(caught.value) for address in addresses.split(","))

    run(scenario)


def test_what_may_pass_is_tried_again() -> None:
    async def scenario() -> None:
        answers: list[Answer] = [HangUp(), created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.NONE)]

        def script(request: Request) -> Answer | None:
            return answers.pop(0) if isinstance(request, CreateTopicsRequest) else None

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap) as cluster:
            outcome = (await Admin(cluster).create_topics([TopicSpec("new", 3)]))["new"]
            assert isinstance(outcome, CreatedTopic)
            assert outcome.partitions == 3
            assert len(broker.of(CreateTopicsRequest)) == 3
            # Each time it was asked anew who decides.
            assert len(broker.of(MetadataRequest)) == 3

    run(scenario)


def test_patience_ends() -> None:
    async def scenario() -> None:
        def script(request: Request) -> Answer | None:
            return created(ErrorCode.NOT_CONTROLLER) if isinstance(request, CreateTopicsRequest) else None

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap, IMPATIENT) as cluster:
            outcome = (await Admin(cluster).create_topics([TopicSpec("new", 3)]))["new"]
            assert isinstance(outcome, RefusedError)
            assert outcome.code is ErrorCode.NOT_CONTROLLER
            assert len(broker.of(CreateTopicsRequest)) > 2

    run(scenario)


def test_what_will_not_pass_is_not_tried_again() -> None:
    async def scenario() -> None:
        def script(request: Request) -> Answer | None:
            return created(ErrorCode.TOPIC_ALREADY_EXISTS) if isinstance(request, CreateTopicsRequest) else None

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap) as cluster:
            outcome = (await Admin(cluster).create_topics([TopicSpec("new", 3)]))["new"]
            assert isinstance(outcome, RefusedError)
            assert str(outcome).endswith("(TOPIC_ALREADY_EXISTS)")
            assert len(broker.of(CreateTopicsRequest)) == 1

    run(scenario)


def test_a_refusal_for_good_ends_the_attempts() -> None:
    async def scenario() -> None:
        def script(request: Request) -> Answer | None:
            if not isinstance(request, IncrementalAlterConfigsRequest):
                return None
            refused = IncrementalAlterConfigsResourceResponse(
                error_code=ErrorCode.INVALID_CONFIG, error_message="not like this", resource_type=2, resource_name="t"
            )
            return IncrementalAlterConfigsResponse(responses=[refused])

        async with ScriptedBroker(script) as broker, Cluster(broker.bootstrap, IMPATIENT) as cluster:
            topic = Resource(ResourceType.TOPIC, "t")

            async def attempt() -> None:
                await Admin(cluster).alter_configs(topic, {"a": "b"})

            with pytest.raises(RefusedError, match=r"topic t: not like this \(INVALID_CONFIG\)"):
                await cluster.retry(attempt)
            assert len(broker.of(IncrementalAlterConfigsRequest)) == 1

    run(scenario)


def test_a_topic_that_is_not_there_is_waited_for_only_if_it_is_to_be_made() -> None:
    async def scenario() -> None:
        async with ScriptedBroker() as broker, Cluster(broker.bootstrap) as cluster:
            with pytest.raises(UnknownTopicError, match="there is no topic 'later'"):
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

    run(scenario)
