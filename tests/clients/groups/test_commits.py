"""Where a group goes on: commits by hand and by themselves, places found by time, and what to do without a commit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from support.clients.confluent_client import ConfluentClient
from support.clients.dialect import WAIT_S, Record
from support.clients.expectations import START_MS
from support.groups.consumers import (
    Consumed,
    GroupConsumer,
    MakeTopic,
    Membership,
    join,
)
from support.groups.flavours import A_CLIENT_EACH, Flavour
from support.waiting import wait_until

COUNT = 10


@pytest.fixture(params=A_CLIENT_EACH, ids=str)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    chosen: Flavour = request.param
    return chosen


@pytest.fixture(autouse=True)
def records(topic: str, make_topic: MakeTopic, confluent: ConfluentClient) -> list[str]:
    """What one partition holds."""
    make_topic(topic, 1)
    values = [f"value {number}" for number in range(COUNT)]
    confluent.produce(topic, [Record(value.encode(), timestamp_ms=START_MS + at) for at, value in enumerate(values)])
    return values


@contextmanager
def joined(membership: Membership) -> Iterator[GroupConsumer]:
    consumer = join(membership)
    try:
        yield consumer
    finally:
        consumer.close()


def take(consumer: GroupConsumer, count: int) -> list[Consumed]:
    """At least so many records."""
    taken: list[Consumed] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} records of {count} came in {WAIT_S:.0f} s"
        taken += [event for event in consumer.poll(0.1) if isinstance(event, Consumed)]
    return taken


def values_of(taken: list[Consumed]) -> list[str]:
    return [record.value for record in taken]


def test_a_group_goes_on_where_it_committed(membership: Membership, topic: str, records: list[str]) -> None:
    place = (topic, 0)
    with joined(membership) as consumer:
        assert consumer.committed(place) is None
        assert values_of(take(consumer, COUNT)) == records
        consumer.commit({place: 4})
        assert consumer.committed(place) == 4
        # It reads on: a commit says where others begin, and moves nobody.
        consumer.commit({place: 6})
    with joined(membership) as consumer:
        assert values_of(take(consumer, COUNT - 6)) == records[6:]
        consumer.commit()
        assert consumer.committed(place) == COUNT
        # Backwards is allowed.
        consumer.commit({place: 1})
        assert consumer.committed(place) == 1


def test_a_commit_that_is_not_waited_for(membership: Membership, topic: str) -> None:
    with joined(membership) as consumer:
        take(consumer, COUNT)
        consumer.commit_later({(topic, 0): 5})

        def is_committed() -> bool:
            consumer.poll(0.05)
            return consumer.committed((topic, 0)) == 5

        wait_until(is_committed, "what was committed is not told")


def test_commits_that_a_consumer_makes_by_itself(membership: Membership, topic: str) -> None:
    auto = replace(membership, auto_commit_ms=100)
    with joined(auto) as consumer:
        take(consumer, COUNT)

        def is_committed() -> bool:
            consumer.poll(0.05)
            return consumer.committed((topic, 0)) == COUNT

        wait_until(is_committed, "what was consumed is not committed")
    with joined(replace(membership, reset="latest")) as consumer:
        assert consumer.committed((topic, 0)) == COUNT


def test_a_consumer_that_leaves_commits_what_it_consumed(membership: Membership, topic: str) -> None:
    with joined(replace(membership, auto_commit_ms=60_000)) as consumer:
        take(consumer, COUNT)
    with joined(membership) as consumer:
        assert consumer.committed((topic, 0)) == COUNT


def test_without_a_commit_a_group_begins_at_the_configured_position(
    membership: Membership, topic: str, records: list[str], confluent: ConfluentClient
) -> None:
    with joined(replace(membership, group=f"{membership.group}-earliest")) as consumer:
        assert values_of(take(consumer, COUNT)) == records
    with joined(replace(membership, group=f"{membership.group}-latest", reset="latest")) as consumer:
        latest: list[Consumed] = []

        def sees_new_records() -> bool:
            # Again and again: the consumer does not say when it has found where it begins.
            confluent.produce(topic, [Record(b"new")])
            latest.extend(event for event in consumer.poll(0.1) if isinstance(event, Consumed))
            return bool(latest)

        wait_until(sees_new_records, "nothing new is consumed")
        assert set(values_of(latest)) == {"new"}


def test_a_place_found_by_time_is_committed_and_continued_from(
    membership: Membership, topic: str, records: list[str]
) -> None:
    place = (topic, 0)
    with joined(membership) as consumer:
        take(consumer, COUNT)
        found = consumer.offset_for_time(place, START_MS + 7)
        assert found == 7
        consumer.seek(place, found)
        assert values_of(take(consumer, COUNT - 7)) == records[7:]
        consumer.commit({place: found})
    with joined(membership) as consumer:
        assert values_of(take(consumer, COUNT - 7)) == records[7:]
