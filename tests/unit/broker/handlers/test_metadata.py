from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.broker.handlers import metadata as module
from ottla.broker.handlers.metadata import metadata
from ottla.broker.metadata.metadata_cache import BrokerEndpoint
from ottla.broker.requests.api import RequestContext
from ottla.wire.codec import encode
from ottla.wire.messages.metadata import (
    MetadataBroker,
    MetadataPartitionResponse,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
    MetadataTopicResponse,
)
from support.brokers.lone_broker import BROKER_ID, LoneBroker, on_tree
from support.brokers.small_broker import context

NOBODYS_ID = Uuid(b"2" * 16)
NOT_ASKED = -(2**31)


async def ask(
    broker: LoneBroker, *names: str | None, version: int = 13, everything: bool = False, **options: Any
) -> MetadataResponse:
    topics = None if everything else [MetadataTopic(name=name) for name in names]
    return await send(broker, MetadataRequest(topics=topics, **options), context(version))


async def send(broker: LoneBroker, request: MetadataRequest, asked: RequestContext) -> MetadataResponse:
    response = metadata(broker, request, asked)  # type: ignore[arg-type]
    if inspect.iscoroutine(response):
        response = await response
    assert isinstance(response, MetadataResponse)
    encode(response, asked.version)
    return response


def errors(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


@pytest.mark.parametrize("version", list(MetadataRequest.versions))
@on_tree
async def test_a_topic(broker: LoneBroker, version: int) -> None:
    topic = await broker.create("events", 2)
    response = await ask(broker, "events", "events", version=version)
    assert response == MetadataResponse(
        brokers=[MetadataBroker(node_id=BROKER_ID, host="here", port=9092, rack="a rack")],
        cluster_id="a-cluster",
        controller_id=BROKER_ID,
        topics=[
            MetadataTopicResponse(
                name="events",
                topic_id=topic.topic_id,
                partitions=[
                    MetadataPartitionResponse(
                        partition_index=index,
                        leader_id=BROKER_ID,
                        leader_epoch=0,
                        replica_nodes=[BROKER_ID],
                        isr_nodes=[BROKER_ID],
                    )
                    for index in (0, 1)
                ],
                topic_authorized_operations=NOT_ASKED,
            )
        ],
        cluster_authorized_operations=NOT_ASKED,
    )


@on_tree
async def test_all_topics_and_none(broker: LoneBroker) -> None:
    await broker.create("a")
    await broker.create("__consumer_offsets")
    for version in MetadataRequest.versions:
        if version > 0:
            response = await ask(broker, everything=True, version=version)
            assert {topic.name: topic.is_internal for topic in response.topics} == {
                "a": False,
                "__consumer_offsets": True,
            }
        # Before there was a null, no topics meant all of them.
        assert bool((await ask(broker, version=version)).topics) == (version == 0)


@on_tree
async def test_operations_on_request(broker: LoneBroker) -> None:
    await broker.create("events")
    response = await ask(
        broker,
        "events",
        "other",
        version=8,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    # As Kafka without an authorizer.
    assert response.cluster_authorized_operations == 8096
    assert [topic.topic_authorized_operations for topic in response.topics] == [3576, 3576]
    plain = await ask(broker, "events", version=8)
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED


@on_tree
async def test_clients_get_the_address_of_their_listener(broker: LoneBroker) -> None:
    broker.metadata.put_broker(BrokerEndpoint(BROKER_ID, "inside", 9999), listener="INTERNAL")
    asked = RequestContext(12, "client", "127.0.0.1", "INTERNAL", 0)
    (told,) = (await send(broker, MetadataRequest(topics=[]), asked)).brokers
    assert (told.host, told.port) == ("inside", 9999)


# --- topics that are not there --------------------------------------------------------------------------------------


@on_tree
async def test_topics_are_not_made_where_the_client_does_not_want_it(broker: LoneBroker) -> None:
    await broker.create("there")
    response = await ask(broker, "other", "a b", "there", "", allow_auto_topic_creation=False)
    assert errors(response) == {
        "there": ErrorCode.NONE,
        "other": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    assert list(broker.controller.topics) == ["there"]


@on_tree(auto_create_topics_enable="false")
async def test_topics_are_not_made_where_the_broker_does_not_want_it(broker: LoneBroker) -> None:
    assert errors(await ask(broker, "other")) == {"other": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert broker.controller.topics == {}


@on_tree(num_partitions="3")
async def test_topics_are_made_with_the_brokers_defaults(broker: LoneBroker) -> None:
    response = await ask(broker, "new", "a b", version=4)
    assert errors(response) == {"new": ErrorCode.NONE, "a b": ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [len(topic.partitions) for topic in response.topics] == [3, 0]
    assert list(broker.controller.topics) == ["new"]


@on_tree(
    offsets_topic_num_partitions="2",
    offsets_topic_replication_factor="1",
    transaction_state_log_num_partitions="3",
    transaction_state_log_replication_factor="1",
    transaction_state_log_min_isr="1",
)
async def test_internal_topics_are_made_as_the_broker_needs_them(broker: LoneBroker) -> None:
    response = await ask(broker, "__consumer_offsets", "__transaction_state")
    assert [(topic.is_internal, len(topic.partitions)) for topic in response.topics] == [(True, 2), (True, 3)]
    offsets, transactions = broker.controller.topics.values()
    assert offsets.configs == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    assert transactions.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "1",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


@on_tree(default_replication_factor="3")
async def test_a_topic_that_cannot_be_created_is_reported(broker: LoneBroker) -> None:
    assert errors(await ask(broker, "new")) == {"new": ErrorCode.INVALID_REPLICATION_FACTOR}


@on_tree
async def test_names_that_collide_are_reported(broker: LoneBroker) -> None:
    await broker.create("a.b")
    assert errors(await ask(broker, "a_b")) == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}


@on_tree
async def test_a_tree_that_fails_is_reported(broker: LoneBroker) -> None:
    await broker.create("there")
    broker.tree.failure = CoordinationError("/brokers", "the disk is full")
    assert errors(await ask(broker, "there", "new")) == {
        "there": ErrorCode.NONE,
        "new": ErrorCode.UNKNOWN_SERVER_ERROR,
    }


@on_tree
async def test_a_topic_that_is_still_being_deleted(broker: LoneBroker) -> None:
    await broker.create("events")
    broker.tree.failure_of_deletes = CoordinationError("/brokers", "no power")
    await broker.controller.delete_topic("events")
    assert errors(await ask(broker, "events")) == {"events": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@on_tree
async def test_concurrent_requests_for_the_same_new_topic(broker: LoneBroker) -> None:
    responses = await asyncio.gather(*(ask(broker, "new") for _ in range(10)))
    assert [errors(response) for response in responses] == [{"new": ErrorCode.NONE}] * 10
    assert len(broker.applied) == 1


# --- by id ----------------------------------------------------------------------------------------------------------


@on_tree
async def test_topics_by_id(broker: LoneBroker) -> None:
    topic = await broker.create("events")
    await broker.create("other")
    request = MetadataRequest(
        topics=[
            MetadataTopic(name=None, topic_id=topic.topic_id),
            MetadataTopic(name=None, topic_id=NOBODYS_ID),
            MetadataTopic(name="other"),  # not by its id, so not at all: as Kafka does it
        ]
    )
    response = await send(broker, request, context(12))
    assert [(each.name, each.topic_id, each.error_code) for each in response.topics] == [
        (None, NOBODYS_ID, ErrorCode.UNKNOWN_TOPIC_ID),
        ("events", topic.topic_id, ErrorCode.NONE),
    ]


@pytest.mark.parametrize(
    ("version", "name", "topic_id"),
    [(10, None, ZERO_UUID), (11, "events", NOBODYS_ID), (12, None, ZERO_UUID)],
)
@on_tree
async def test_ids_where_they_must_not_be(broker: LoneBroker, version: int, name: str | None, topic_id: Uuid) -> None:
    request = MetadataRequest(topics=[MetadataTopic(name=name, topic_id=topic_id)])
    (topic,) = (await send(broker, request, context(version))).topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.INVALID_REQUEST, topic_id)
    assert broker.controller.topics == {}


# --- what is kept ---------------------------------------------------------------------------------------------------


@on_tree
async def test_what_is_answered_of_a_topic_is_made_once(broker: LoneBroker) -> None:
    await broker.create("events", 100)
    await broker.create("other")
    (first,) = (await ask(broker, "events")).topics
    again = (await ask(broker, everything=True)).topics
    assert any(topic is first for topic in again)
    await broker.controller.create_partitions("events", 101)
    (changed,) = (await ask(broker, "events")).topics
    assert len(changed.partitions) == 101
    assert len(first.partitions) == 100


@on_tree
async def test_deleted_topics_are_not_kept(broker: LoneBroker) -> None:
    for number in range(5):
        await broker.create(f"t{number}")
    await ask(broker, everything=True)
    for number in range(5):
        await broker.controller.delete_topic(f"t{number}")
        response = await ask(broker, f"t{number}", allow_auto_topic_creation=False)
        assert errors(response) == {f"t{number}": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    await ask(broker, everything=True)
    assert all(not made.by_name for made in module._made_answers[broker.metadata].values())


@on_tree
async def test_leaders_and_replicas_that_are_gone(broker: LoneBroker) -> None:
    await broker.tree.tree.create("/brokers/topics/events", b'{"partitions":{"0":[4,9],"1":[9]},"version":2}')
    for index, state in enumerate(('"leader":4,"isr":[4,9]', '"leader":9,"isr":[9]')):
        data = f'{{"controller_epoch":1,"version":1,"leader_epoch":6,{state}}}'.encode()
        await broker.tree.tree.create(f"/brokers/topics/events/partitions/{index}/state", data, parents=True)
    later = await broker.restarted()
    (topic,) = (await ask(later, "events", version=12)).topics
    assert topic.partitions == [
        MetadataPartitionResponse(
            leader_id=4, leader_epoch=6, replica_nodes=[4, 9], isr_nodes=[4, 9], offline_replicas=[9]
        ),
        MetadataPartitionResponse(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=1,
            leader_id=-1,
            leader_epoch=6,
            replica_nodes=[9],
            isr_nodes=[9],
            offline_replicas=[9],
        ),
    ]
    # Version 0 leaves out who is gone.
    (topic,) = (await ask(later, "events", version=0)).topics
    assert [(each.error_code, each.replica_nodes, each.isr_nodes) for each in topic.partitions] == [
        (ErrorCode.REPLICA_NOT_AVAILABLE, [4], [4]),
        (ErrorCode.LEADER_NOT_AVAILABLE, [], []),
    ]
    # A broker comes: what was made without it is not used again.
    later.metadata.put_broker(BrokerEndpoint(9, "elsewhere", 9092))
    (topic,) = (await ask(later, "events", version=12)).topics
    assert [(each.error_code, each.leader_id, each.offline_replicas) for each in topic.partitions] == [
        (ErrorCode.NONE, 4, []),
        (ErrorCode.NONE, 9, []),
    ]


@on_tree
async def test_a_replica_whose_directory_failed(broker: LoneBroker) -> None:
    await broker.create("events", 2)
    await ask(broker, "events")
    await broker.controller.replicas_failed([TopicPartition("events", 1)])
    (topic,) = (await ask(broker, "events")).topics
    assert [(each.error_code, each.leader_id, each.offline_replicas) for each in topic.partitions] == [
        (ErrorCode.NONE, BROKER_ID, []),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1, [BROKER_ID]),
    ]


@on_tree
async def test_a_broker_that_has_just_started_waits_for_the_controller(broker: LoneBroker) -> None:
    broker.metadata.is_told = False
    waiting = asyncio.ensure_future(ask(broker, "events"))
    await asyncio.sleep(0)
    assert not waiting.done()
    await broker.create("events")
    broker.metadata.is_told = True
    broker.metadata.wake()
    assert errors(await waiting) == {"events": ErrorCode.NONE}


@on_tree
async def test_it_does_not_wait_for_ever(broker: LoneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.metadata.metadata_cache._FIRST_UPDATE_S", 0.01)
    broker.metadata.is_told = False
    response = await ask(broker, "nothing", allow_auto_topic_creation=False)
    assert errors(response) == {"nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@on_tree
async def test_a_topic_that_the_controller_has_yet_to_name_is_not_unknown(
    broker: LoneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.metadata.metadata_cache._FIRST_UPDATE_S", 0.01)
    await broker.create("events")
    broker.metadata.expect({"late": [0]})
    names = ("events", "late", "nothing")
    response = await ask(broker, *names, allow_auto_topic_creation=False)
    assert errors(response) == {
        "events": ErrorCode.NONE,
        "late": ErrorCode.LEADER_NOT_AVAILABLE,
        "nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


@on_tree
async def test_a_topic_has_the_partitions_that_the_controller_has_yet_to_name(
    broker: LoneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.metadata.metadata_cache._FIRST_UPDATE_S", 0.01)
    await broker.create("events", 2)

    async def partitions() -> list[tuple[int, int, int]]:
        (topic,) = (await ask(broker, "events")).topics
        return [(one.partition_index, one.error_code, one.leader_id) for one in topic.partitions]

    whole = await partitions()
    broker.metadata.expect({"events": [1, 3]})
    assert await partitions() == [*whole, (3, ErrorCode.LEADER_NOT_AVAILABLE, -1)]
    broker.metadata.expect({})
    assert await partitions() == whole
