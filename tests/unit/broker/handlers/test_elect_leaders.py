from __future__ import annotations

import pytest

from ottla.base.coordination import CoordinationError
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.broker.handlers.elect_leaders import elect_leaders
from ottla.broker.requests.api import BrokerError
from ottla.wire.codec import encode
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersTopic
from support.brokers.lone_broker import LoneBroker, on_tree
from support.brokers.small_broker import context

Outcomes = dict[tuple[str, int], tuple[int, str | None]]


async def ask(
    broker: LoneBroker, topics: dict[str, list[int]] | None, *, election_type: int = 0, version: int = 2
) -> Outcomes:
    wanted = None if topics is None else [ElectLeadersTopic(topic=name, partitions=ids) for name, ids in topics.items()]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=wanted)
    response = await elect_leaders(broker, request, context(version))  # type: ignore[arg-type]
    encode(response, version)
    assert response.error_code == ErrorCode.NONE
    return {
        (topic.topic, result.partition_id): (result.error_code, result.error_message)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


@pytest.mark.parametrize("version", list(ElectLeadersRequest.versions))
@on_tree
async def test_what_is_named_is_answered(broker: LoneBroker, version: int) -> None:
    await broker.create("events", 2)
    outcomes = await ask(broker, {"events": [0, 1, 0, 7], "other": [0]}, version=version)
    assert {name: code for name, (code, _) in outcomes.items()} == {
        ("events", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("events", 1): ErrorCode.ELECTION_NOT_NEEDED,
        ("events", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("other", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert outcomes["events", 7][1] == "Topic 'events' has no partition 7; it has 2."


@on_tree
async def test_for_all_partitions_only_changes_are_returned(broker: LoneBroker) -> None:
    await broker.create("events", 2)
    assert await ask(broker, None) == {}
    await broker.controller.replicas_failed([TopicPartition("events", 1)])
    outcomes = await ask(broker, None, election_type=1)
    assert {name: code for name, (code, _) in outcomes.items()} == {
        ("events", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    }


@on_tree
async def test_an_election_that_took_place(broker: LoneBroker) -> None:
    await broker.tree.tree.create("/brokers/topics/events", b'{"partitions":{"0":[4,9]},"version":2}')
    state = b'{"controller_epoch":1,"leader":9,"version":1,"leader_epoch":0,"isr":[9]}'
    await broker.tree.tree.create("/brokers/topics/events/partitions/0/state", state, parents=True)
    later = await broker.restarted()
    assert await ask(later, None, election_type=1) == {("events", 0): (ErrorCode.NONE, None)}


@on_tree
async def test_unknown_kinds_of_elections_are_refused(broker: LoneBroker) -> None:
    with pytest.raises(BrokerError, match="type 5") as error:
        await ask(broker, None, election_type=5)
    assert error.value.code is ErrorCode.INVALID_REQUEST


@on_tree
async def test_a_tree_that_fails(broker: LoneBroker) -> None:
    await broker.tree.tree.create("/brokers/topics/events", b'{"partitions":{"0":[4,9]},"version":2}')
    state = b'{"controller_epoch":1,"leader":9,"version":1,"leader_epoch":0,"isr":[9]}'
    await broker.tree.tree.create("/brokers/topics/events/partitions/0/state", state, parents=True)
    later = await broker.restarted()
    later.tree.failure = CoordinationError("/brokers", "the disk is full")
    with pytest.raises(BrokerError, match="the disk is full"):
        await ask(later, None, election_type=1)
