"""What is read, and how far: positions, and what may be committed in the background."""

from __future__ import annotations

import asyncio
import re

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.consume import AsyncConsumer
from ottla.client.consume.record import ConsumerRecord
from ottla.client.errors import ArgumentError, ClientError
from ottla.client.offsets import EARLIEST, OffsetAndMetadata
from ottla.client.subscriptions.subscription import Iterated, Position, Subscription

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def assigned(*partitions: TopicPartition) -> Subscription:
    subscription = Subscription()
    subscription.assign_manually(partitions)
    for state in subscription.partitions.values():
        state.seek(Position(0))
    return subscription


def records(*offsets: int) -> list[ConsumerRecord]:
    return [ConsumerRecord("a", 0, offset, 0, 0, None, b"", (), 3) for offset in offsets]


def test_topics_and_partitions_exclude_each_other() -> None:
    subscription = assigned(A)
    with pytest.raises(ClientError, match="assigned by hand"):
        subscription.subscribe(["a"])
    subscription.unsubscribe()
    subscription.subscribe(["a"])
    assert subscription.topics == {"a"}
    with pytest.raises(ClientError, match="topics are subscribed to"):
        subscription.assign_manually([A])
    subscription.subscribe_pattern(re.compile("x.*"))
    assert subscription.topics == frozenset()
    assert subscription.matched(["x1"])
    assert not subscription.matched(["x1"])


def test_partitions_that_stay_keep_their_state() -> None:
    changes: list[None] = []
    subscription = assigned(A, B)
    subscription.on_change = lambda: changes.append(None)
    kept = subscription.state(A)
    subscription.assigned_by_group([A])
    assert subscription.state(A) is kept
    with pytest.raises(ClientError, match=r"b-0 is not assigned to this consumer; assigned: a-0"):
        subscription.state(B)
    subscription.assigned_by_group([A, B])
    assert subscription.state(B).position is None
    assert len(changes) == 2


def test_what_is_handed_out_is_consumed_when_the_user_polls_again() -> None:
    subscription = assigned(A, B)
    subscription.hand_out(subscription.state(A), Position(7, 2))
    assert subscription.positions()[A] == OffsetAndMetadata(7, "", 2)
    assert subscription.consumed()[A] == OffsetAndMetadata(0)
    subscription.settle()
    assert subscription.consumed() == {A: OffsetAndMetadata(7, "", 2), B: OffsetAndMetadata(0)}


def test_a_partition_without_a_position_has_nothing_to_commit() -> None:
    subscription = Subscription()
    subscription.assign_manually([A])
    assert subscription.state(A).is_lost
    assert subscription.positions() == subscription.consumed() == {}
    subscription.seek_to([A], EARLIEST)
    assert not subscription.state(A).is_lost


def test_records_given_one_by_one_move_the_position_one_by_one() -> None:
    subscription = assigned(A)
    state = subscription.state(A)
    subscription.hand_out(state, Position(10, 3))
    iterated = subscription.iterated = Iterated(state, records(4, 5, 8))

    def offsets() -> tuple[int, int]:
        return subscription.positions()[A].offset, subscription.consumed()[A].offset

    assert offsets() == (4, 0)  # nothing is done yet
    next(iterated.left)
    assert offsets() == (5, 4)  # at work on 4
    next(iterated.left)
    assert offsets() == (8, 5)
    next(iterated.left)
    assert offsets() == (10, 8)  # what lies behind it was compacted
    assert iterated.is_over
    subscription.settle()
    assert state.consumed == Position(10, 3)


def test_seeking_ends_an_iteration() -> None:
    subscription = assigned(A)
    iterated = subscription.iterated = Iterated(subscription.state(A), records(4, 5, 8))
    next(iterated.left)
    subscription.seek(A, Position(1))
    assert list(iterated.left) == []
    assert subscription.positions()[A].offset == 1
    iterated = subscription.iterated = Iterated(subscription.state(A), records(4, 5, 8))
    subscription.assign_manually([B])
    assert list(iterated.left) == []


def test_a_pattern_as_librdkafka_writes_it_is_refused_with_how_to_write_it() -> None:
    async def scenario() -> None:
        async with AsyncConsumer(bootstrap_servers="localhost:1", group_id="g") as consumer:
            with pytest.raises(
                ArgumentError, match=r"'\^orders-\.\*' is not the .*subscribe\(re\.compile\('orders-\.\*'\)\)"
            ):
                consumer.subscribe(["payments", "^orders-.*"])

    asyncio.run(scenario())
