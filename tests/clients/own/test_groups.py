"""Groups through our consumers, as users have them: code that blocks, listeners that commit, brokers that go away."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Collection
from contextlib import ExitStack
from typing import Any

import pytest

from ottla import Admin, AsyncConsumer, Consumer, Producer
from ottla.base.ids import TopicPartition
from ottla.client.administer import NewTopic
from ottla.client.consume import ConsumerRecord, RebalanceListener, SubscriptionPattern
from ottla.client.errors import ClientError, CommitFailedError
from ottla.client.offsets import OffsetAndMetadata
from support.clients.peers import Peer
from support.groups.driven_members import PROTOCOLS
from support.waiting import wait_until

Settings = dict[str, Any]
SettingsOf = Callable[..., Settings]

WAIT_S = 60.0
CLASSIC: Settings = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 100}
COOPERATIVE: Settings = {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"}
CONSUMER: Settings = {"group_protocol": "consumer"}
CONSUMERS = [CONSUMER] if "consumer" in PROTOCOLS else []
BOTH = pytest.mark.parametrize("protocol", [CLASSIC, *CONSUMERS], ids=PROTOCOLS)
INCREMENTAL = pytest.mark.parametrize("protocol", [COOPERATIVE, *CONSUMERS], ids=PROTOCOLS)


@pytest.fixture
def broker(group_broker: Peer) -> Peer:
    return group_broker


@pytest.fixture
def settings_of(broker: Peer) -> SettingsOf:
    """Of members of one group."""
    group = f"group-{uuid.uuid4().hex[:8]}"

    def settings(*parts: Settings, **more: object) -> Settings:
        made = {
            "bootstrap_servers": broker.bootstrap,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "fetch_max_wait_ms": 50,
            "retry_backoff_ms": 20,
            "enable_auto_commit": False,
        }
        for part in (*parts, more):
            made |= part
        return made

    return settings


@pytest.fixture
def partitions(broker: Peer, topic: str) -> list[TopicPartition]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 4, 1)])
    return [TopicPartition(topic, index) for index in range(4)]


def fill(broker: Peer, partitions: list[TopicPartition], numbers: range) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in numbers:
            for topic, partition in partitions:
                producer.send(topic, b"%d" % number, partition=partition)


class Polling:
    """A consumer that a thread of its own polls, until it is stopped or told to block."""

    def __init__(self, settings: Settings, topics: Any, listener: RebalanceListener | None = None) -> None:
        self.consumer = Consumer(settings)
        self.consumer.subscribe(topics, listener)
        self.records: list[ConsumerRecord] = []
        self.failure: Exception | None = None
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="polling")
        self._thread.start()

    def _poll(self) -> None:
        try:
            while not self._is_stopped.is_set():
                self.records += self.consumer.poll(0.05)
        except Exception as error:
            self.failure = error

    @property
    def owned(self) -> frozenset[TopicPartition]:
        if self.failure is not None:
            raise self.failure
        return self.consumer.assignment()

    def block(self) -> None:
        """The user's code does something else."""
        self._is_stopped.set()
        self._thread.join()

    def close(self) -> None:
        self.block()
        self.consumer.close()

    def __enter__(self) -> Polling:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def share(members: list[Polling], partitions: list[TopicPartition]) -> bool:
    owned = [one for member in members for one in member.owned]
    return sorted(owned) == partitions and all(member.owned for member in members)


@BOTH
def test_heartbeats_go_on_while_the_users_code_blocks(
    topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    with Polling(settings_of(protocol), topic) as one, Polling(settings_of(protocol), topic) as other:
        wait_until(lambda: share([one, other], partitions), "not every partition has an owner")
        one.block()
        owned, theirs = one.owned, other.owned
        end_s = time.monotonic() + 4  # longer than the session
        while time.monotonic() < end_s:
            sum(range(10_000))  # Python code that does not wait for anything
        assert one.consumer.assignment() == owned
        one.consumer.commit(dict.fromkeys(owned, OffsetAndMetadata(3)))
        assert other.owned == theirs


@BOTH
def test_heartbeats_go_on_while_a_listener_blocks(
    topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    class Slow(RebalanceListener):
        thread: threading.Thread | None = None

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            if partitions:
                self.thread = threading.current_thread()
                time.sleep(3.5)  # longer than the session

    listener = Slow()
    with Polling(settings_of(protocol), topic, listener) as member:
        wait_until(lambda: member.owned == set(partitions) and listener.thread is not None, "nothing was assigned")
        assert listener.thread is member._thread  # the user's, and not the loop's
        wait_until(lambda: member.consumer.group_metadata().generation_id > 0, "the member is out")
        member.block()
        member.consumer.commit({partitions[0]: OffsetAndMetadata(1)})


@BOTH
def test_a_listener_commits_what_goes_to_others(
    broker: Peer, topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    """The others begin behind it: no record comes twice, though nothing is committed but there."""
    fill(broker, partitions, range(100))

    class Committing(RebalanceListener):
        consumer: Consumer

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:  # noqa: ARG002
            self.consumer.commit()

    listeners = [Committing(), Committing()]
    with ExitStack() as stack:
        first = stack.enter_context(Polling(settings_of(protocol), topic, listeners[0]))
        listeners[0].consumer = first.consumer
        wait_until(lambda: len(first.records) == 400, "not all records came")
        second = stack.enter_context(Polling(settings_of(protocol), topic, listeners[1]))
        listeners[1].consumer = second.consumer
        wait_until(lambda: share([first, second], partitions), "the second got nothing")
        fill(broker, partitions, range(100, 150))
        wait_until(lambda: len(first.records) + len(second.records) >= 600, "not all new records came")
        seen = [(one.topic, one.partition, one.offset) for one in first.records + second.records]
        assert len(seen) == len(set(seen))


@INCREMENTAL
def test_members_that_keep_their_partitions_continue_to_consume(
    broker: Peer, topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    """A member that takes its time with giving up holds up nobody but who waits for its partitions."""
    other = TopicPartition(f"{topic}-other", 0)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(other.topic, 1, 1)])
    asked, released = threading.Event(), threading.Event()

    class Reluctant(RebalanceListener):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:  # noqa: ARG002
            asked.set()
            released.wait(WAIT_S)

    with ExitStack() as stack:
        slow = stack.enter_context(Polling(settings_of(protocol), topic, Reluctant()))
        stack.callback(released.set)
        reading = stack.enter_context(Polling(settings_of(protocol), other.topic))
        wait_until(lambda: slow.owned == set(partitions) and reading.owned == {other}, "nothing was assigned")
        waiting = stack.enter_context(Polling(settings_of(protocol), topic))
        assert asked.wait(WAIT_S)
        fill(broker, [other], range(10))
        wait_until(lambda: len(reading.records) == 10, "who keeps its partition gets nothing of it")
        assert not waiting.owned & slow.owned
        released.set()
        wait_until(lambda: share([slow, waiting], partitions), "who waited got nothing")
        assert reading.owned == {other}


@BOTH
def test_a_group_goes_on_when_its_coordinator_was_away(
    broker: Peer, topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    fill(broker, partitions, range(10))
    settings = settings_of(protocol, enable_auto_commit=True, auto_commit_interval_ms=50)
    if protocol != CONSUMER:
        settings["session_timeout_ms"] = 30_000
    with Polling(settings, topic) as member:
        wait_until(lambda: len(member.records) == 40, "not all records came")
        wait_until(
            lambda: all(
                found is not None and found.offset == 10 for found in member.consumer.committed(partitions).values()
            ),
            "nothing is committed",
        )
        broker.kill()
        broker.start()
        fill(broker, partitions, range(10, 20))
        wait_until(lambda: len(member.records) >= 80, "nothing comes after the restart")
        assert member.owned == set(partitions)
    with Consumer(settings) as other:
        found = other.committed(partitions)
    assert [one.offset for one in found.values() if one is not None] == [20] * 4


@BOTH
def test_close_hands_partitions_over_at_once(
    topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    settings = settings_of(protocol, **({} if protocol == CONSUMER else {"session_timeout_ms": 60_000}))
    with Polling(settings, topic) as staying:
        leaving = Polling(settings, topic)
        try:
            wait_until(lambda: share([staying, leaving], partitions), "not every partition has an owner")
        finally:
            leaving.close()
        # Far sooner than the session would end.
        wait_until(lambda: staying.owned == set(partitions), "what was left is nobody's")


@BOTH
def test_consumers_of_one_loop(
    broker: Peer, topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    """Listeners may be coroutines, and commit."""
    fill(broker, partitions, range(20))
    told: list[str] = []

    class Listener(RebalanceListener):
        consumer: AsyncConsumer

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0)
            told.append(f"assigned {len(partitions)}")

        async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await self.consumer.commit()
            told.append(f"revoked {len(partitions)}")

    async def scenario() -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        for _ in range(2):
            async with AsyncConsumer(settings_of(protocol)) as consumer:
                listener = Listener()
                listener.consumer = consumer
                consumer.subscribe([topic], listener)
                while len(records) < 80:
                    records += await consumer.poll(1.0)
                while not consumer.assignment():
                    assert not await consumer.poll(0.05)
                # All is committed when the second comes.
                assert not await consumer.poll(0.2)
        return records

    records = asyncio.run(asyncio.wait_for(scenario(), WAIT_S))
    assert len(records) == 80
    assert [one for one in told if one != "assigned 0"] == ["assigned 4", "revoked 4"] * 2


def test_the_coordinator_matches_patterns(
    broker: Peer, topic: str, partitions: list[TopicPartition], settings_of: SettingsOf
) -> None:
    fill(broker, partitions, range(1))
    with Polling(settings_of(CONSUMER), SubscriptionPattern(f"{topic}.*")) as member:
        wait_until(lambda: len(member.records) == 4, "nothing came")
    with Consumer(settings_of(CLASSIC)) as consumer, pytest.raises(ClientError, match=r"group\.protocol"):
        consumer.subscribe(SubscriptionPattern("x"))


@BOTH
def test_a_late_poll_cannot_commit_partitions_of_others(
    topic: str, partitions: list[TopicPartition], settings_of: SettingsOf, protocol: Settings
) -> None:
    settings = settings_of(protocol, max_poll_interval_ms=1000)
    with Polling(settings, topic) as late, Polling(settings, topic) as other:
        wait_until(lambda: share([late, other], partitions), "not every partition has an owner")
        late.block()
        wait_until(lambda: other.owned == set(partitions), "who does not poll keeps its partitions")
        with pytest.raises(CommitFailedError):
            late.consumer.commit(dict.fromkeys(partitions, OffsetAndMetadata(1)))
        late.consumer.poll(0)
        assert not late.consumer.assignment()


def test_a_subscription_to_a_topic_that_does_not_exist_warns(
    broker: Peer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    there = f"{topic}-there"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(there)])
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=topic) as consumer:
        consumer.subscribe([there, topic])
        told = "does not exist"
        wait_until(lambda: consumer.poll(0.05) == [] and told in caplog.text, "nobody was warned")
    (warning,) = [one for one in caplog.messages if told in one]
    assert warning.startswith(f"Topic {topic!r} does not exist.")


# Topics that are deleted.


def recreate(broker: Peer, topic: str, partitions: int, records: int) -> list[TopicPartition]:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([topic])

        def is_created() -> bool:
            try:
                admin.create_topics([NewTopic(topic, partitions, 1)])
            except ClientError:
                return False  # still being deleted
            return True

        wait_until(is_created, "the topic is not created again")
    made = [TopicPartition(topic, index) for index in range(partitions)]
    fill(broker, made, range(records))
    return made


@BOTH
@pytest.mark.parametrize("partition_count", [4, 6])
def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    broker: Peer,
    settings_of: SettingsOf,
    partitions: list[TopicPartition],
    topic: str,
    protocol: Settings,
    partition_count: int,
) -> None:
    fill(broker, partitions, range(10))
    settings = settings_of(protocol, enable_auto_commit=True)
    reading = Polling(settings, [topic])
    try:
        wait_until(lambda: len(reading.records) == 40 and bool(reading.owned), "not all came")
        reading.consumer.commit()
        reading.records.clear()
        made = recreate(broker, topic, partition_count, 15)
        wait_until(lambda: len(reading.records) >= 15 * partition_count and bool(reading.owned), "not all came")
        assert sorted((one.partition, one.offset) for one in reading.records) == [
            (index, offset) for index in range(partition_count) for offset in range(15)
        ]
    finally:
        reading.close()
    with Consumer(settings) as other:
        assert other.committed(made) == dict.fromkeys(made, OffsetAndMetadata(15, "", 0))


def test_the_committed_offsets_of_a_topic_go_with_it(
    broker: Peer, settings_of: SettingsOf, partitions: list[TopicPartition], topic: str
) -> None:
    fill(broker, partitions, range(10))
    with Consumer(settings_of()) as consumer:
        consumer.assign(partitions)
        consumer.commit(dict.fromkeys(partitions, 7))
        made = recreate(broker, topic, 4, 1)
        wait_until(lambda: consumer.committed(made) == dict.fromkeys(made), "offsets stay")
