"""Our consumer on a running broker, in both its faces."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest

from ottla import AsyncConsumer, Consumer, Producer
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin, NewTopic
from ottla.client.consume import ConsumerInterceptor, ConsumerRecord, RebalanceListener
from ottla.client.errors import ClientError, ClosedError, ConfigError, ForkedError, SerializationError, WakeupError
from ottla.client.offsets import OffsetAndMetadata
from support.clients.dialect import CODECS
from support.clients.peers import Peer
from support.waiting import wait_until

WAIT_S = 60.0
SettingsOf = Callable[..., dict[str, Any]]


@pytest.fixture
def settings_of(broker: Peer) -> SettingsOf:
    def settings(**more: object) -> dict[str, Any]:
        return {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest", **more}

    return settings


@pytest.fixture
def partitions(broker: Peer, topic: str) -> list[TopicPartition]:
    """Those of a topic of its own, two."""
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
    return [TopicPartition(topic, 0), TopicPartition(topic, 1)]


@pytest.fixture
def filled(broker: Peer, partitions: list[TopicPartition]) -> list[TopicPartition]:
    """The same with 100 records in each, whose values are their offsets, at times 1000 later."""
    fill(broker, partitions, range(100))
    return partitions


def fill(broker: Peer, partitions: list[TopicPartition], numbers: range, **settings: Any) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=20, **settings) as producer:
        for number in numbers:
            for topic, partition in partitions:
                producer.send(
                    topic,
                    b"%d" % number,
                    key=b"k%d" % (number % 3),
                    headers=[("n", b"%d" % number)] if number % 2 else None,
                    timestamp=1000 + number,
                    partition=partition,
                )


@pytest.fixture
def consumer(settings_of: SettingsOf) -> Iterator[Consumer]:
    with Consumer(settings_of()) as consumer:
        yield consumer


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while len(records) < count:
        polled = consumer.poll(WAIT_S)
        assert polled, f"{len(records)} of {count} records came"
        records += polled
    return records


def offsets(records: Collection[ConsumerRecord], partition: TopicPartition) -> list[int]:
    return [record.offset for record in records if (record.topic, record.partition) == partition]


# Reading.


def test_records_have_everything_that_was_sent(consumer: Consumer, filled: list[TopicPartition]) -> None:
    consumer.assign(filled)
    records = read(consumer, 200)
    for partition in filled:
        assert offsets(records, partition) == list(range(100))
    for record in records:
        number = record.offset
        assert record.value == b"%d" % number
        assert record.key == b"k%d" % (number % 3)
        assert record.timestamp == 1000 + number
        assert record.timestamp_type == 0
        assert record.headers == ((("n", b"%d" % number),) if number % 2 else ())
        assert record.leader_epoch == 0


def test_a_poll_gives_no_more_than_it_is_asked_for(settings_of: SettingsOf, filled: list[TopicPartition]) -> None:
    with Consumer(settings_of(max_poll_records=7)) as consumer:
        consumer.assign(filled)
        assert {len(consumer.poll(WAIT_S)) for _ in range(10)} == {7}
        assert len(consumer.poll(WAIT_S, max_records=3)) == 3
        rest = read(consumer, 127)
        assert len(rest) == 127
        assert consumer.poll(0) == []


def test_a_poll_waits_for_records_up_to_its_timeout(
    broker: Peer, consumer: Consumer, partitions: list[TopicPartition]
) -> None:
    consumer.assign(partitions)
    assert consumer.poll(0) == []
    assert consumer.poll(0.05) == []
    sending = threading.Timer(0.2, fill, (broker, partitions[:1], range(1)))
    sending.start()
    assert [record.value for record in consumer.poll(None)] == [b"0"]
    sending.join()


def test_records_one_by_one(consumer: Consumer, filled: list[TopicPartition]) -> None:
    consumer.assign(filled)
    seen: list[ConsumerRecord] = []
    for record in consumer:
        seen.append(record)
        if len(seen) == 42:
            break
    # Nothing is lost by going on in another way.
    seen += consumer.poll(WAIT_S, max_records=3)
    for record in consumer:
        seen.append(record)
        if len(seen) == 200:
            break
    for partition in filled:
        assert offsets(seen, partition) == list(range(100))
        assert consumer.position(partition) == 100


@pytest.mark.parametrize("compression", CODECS)
def test_arrow_batches_hold_what_records_do(
    broker: Peer, settings_of: SettingsOf, partitions: list[TopicPartition], compression: str
) -> None:
    fill(broker, partitions, range(300), compression_type=compression)
    with Consumer(settings_of()) as consumer:
        consumer.assign(partitions)
        records = read(consumer, 600)
        consumer.seek_to_beginning()
        rows: list[dict[str, Any]] = []
        for batch in consumer.iter_arrow():
            assert batch.column("topic").type.value_type == "string"
            rows += batch.to_pylist()
            if len(rows) >= 600:
                break
        assert consumer.poll_arrow(0).num_rows == 0
    key = ("topic", "partition", "offset")
    rows.sort(key=lambda row: tuple(row[name] for name in key))
    assert [
        (
            *(row[name] for name in key),
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in rows
    ] == sorted((one[0], one[1], one[2], one[3], one[5], one[6], one[7]) for one in records)


def test_arrow_and_records_take_turns(consumer: Consumer, filled: list[TopicPartition]) -> None:
    consumer.assign(filled[:1])
    seen = [record.offset for record in consumer.poll(WAIT_S, max_records=5)]
    for record in consumer:
        seen.append(record.offset)
        if len(seen) == 12:
            break
    while len(seen) < 100:
        seen += consumer.poll_arrow(WAIT_S).column("offset").to_pylist()
    assert seen == list(range(100))


def test_a_record_larger_than_a_fetch_comes_whole(
    broker: Peer, settings_of: SettingsOf, partitions: list[TopicPartition]
) -> None:
    values = [bytes([65 + index]) * 200_000 for index in range(5)]
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in values:
            producer.send(partitions[0].topic, value, partition=0).result(WAIT_S)
    with Consumer(settings_of(max_partition_fetch_bytes=1000, fetch_max_bytes=1000, queued_max_bytes=1000)) as consumer:
        consumer.assign(partitions)
        assert [record.value for record in read(consumer, 5)] == values


def test_deserializers(settings_of: SettingsOf, filled: list[TopicPartition]) -> None:
    with Consumer(settings_of(key_deserializer="string", value_deserializer="json")) as consumer:
        consumer.assign(filled[:1])
        assert [(record.key, record.value) for record in read(consumer, 100)] == [
            (f"k{number % 3}", number) for number in range(100)
        ]

    def picky(_: str, data: bytes) -> bytes:
        if data == b"3":
            raise ValueError("three is too much")
        return data

    with Consumer(settings_of(value_deserializer=picky)) as consumer:
        consumer.assign(filled[:1])
        assert offsets(consumer.poll(WAIT_S), filled[0]) == [0, 1, 2]
        with pytest.raises(SerializationError, match=r"three is too much.*offset 3"):
            consumer.poll(WAIT_S)
        consumer.seek(filled[0], 4)
        assert consumer.poll(WAIT_S)[0].offset == 4


class Marking(ConsumerInterceptor):
    def __init__(self, mark: bytes, threads: list[threading.Thread]) -> None:
        self.mark = mark
        self.threads = threads
        self.committed: list[Mapping[TopicPartition, OffsetAndMetadata]] = []
        self.is_closed = False

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        self.threads.append(threading.current_thread())
        return [record._replace(value=record.value + self.mark) for record in records]

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append(offsets)

    def close(self) -> None:
        self.is_closed = True


class Raising:
    def on_consume(self, _: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise RuntimeError("no records today")

    def on_commit(self, _: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("no commits today")


def test_interceptors(settings_of: SettingsOf, topic: str, filled: list[TopicPartition]) -> None:
    threads: list[threading.Thread] = []
    first, second = Marking(b"a", threads), Marking(b"b", threads)
    with Consumer(settings_of(interceptors=[first, Raising(), second], group_id=topic)) as consumer:
        consumer.assign(filled[:1])
        assert next(iter(consumer)).value == b"0ab"
        assert read(consumer, 99)[0].value == b"1ab"
        assert set(threads) == {threading.current_thread()}
        consumer.commit()
    assert first.committed == second.committed == [{filled[0]: OffsetAndMetadata(100, "", 0)}]
    assert first.is_closed


# Positions.


def test_reading_ends_where_seek_says(consumer: Consumer, filled: list[TopicPartition]) -> None:
    first, second = filled
    consumer.assign(filled)
    consumer.seek(first, 5, until=20)
    consumer.seek(second, 90, until=100)
    seen = [(record.partition, record.offset) for record in consumer]
    assert sorted(seen) == [(0, offset) for offset in range(5, 20)] + [(1, offset) for offset in range(90, 100)]
    assert [consumer.position(one) for one in filled] == [20, 100]
    assert consumer.poll() == []  # at once, and not in all eternity
    consumer.seek(first, 20, until=25)
    batches = list(consumer.iter_arrow(["offset"]))
    assert [row for batch in batches for row in batch.to_pylist()] == [{"offset": offset} for offset in range(20, 25)]
    consumer.seek(first, 98)
    assert [record.offset for record in consumer.poll(WAIT_S)] == [98, 99]  # and goes on without an end
    consumer.seek(first, 7, until=7)
    assert list(consumer) == []


def test_seeking_and_ends(consumer: Consumer, filled: list[TopicPartition]) -> None:
    first, second = filled
    consumer.assign(filled)
    assert consumer.assignment() == set(filled)
    read(consumer, 200)
    assert consumer.lag(first) == 0
    consumer.seek(first, 90)
    assert offsets(consumer.poll(WAIT_S), first) == list(range(90, 100))
    consumer.seek_to_beginning([second])
    assert consumer.position(second) == 0
    assert consumer.poll(WAIT_S)[0].offset == 0
    consumer.seek_to_end()
    assert consumer.position(second) == 100
    assert consumer.poll(0.1) == []
    assert consumer.beginning_offsets(filled) == dict.fromkeys(filled, 0)
    assert consumer.end_offsets(filled) == dict.fromkeys(filled, 100)
    found = consumer.offsets_for_times({first: 1050, second: 9999})
    assert [None if one is None else one[:2] for one in found.values()] == [(50, 1050), None]
    with pytest.raises(ValueError, match="is not an offset"):
        consumer.seek(first, -2)
    with pytest.raises(ClientError, match="not assigned"):
        consumer.seek(TopicPartition("other", 0), 1)


def test_pausing_loses_nothing(consumer: Consumer, filled: list[TopicPartition]) -> None:
    first, second = filled
    consumer.assign(filled)
    seen = consumer.poll(WAIT_S, max_records=10)
    consumer.pause([first])
    while len(offsets(seen, second)) < 100:
        polled = consumer.poll(WAIT_S)
        assert not offsets(polled, first)
        seen += polled
    assert consumer.paused() == {first}
    consumer.resume([first])
    seen += read(consumer, 200 - len(seen))
    assert offsets(seen, first) == list(range(100))


def test_partitions_are_given_up_and_taken_again(consumer: Consumer, filled: list[TopicPartition]) -> None:
    first, second = filled
    consumer.assign([first])
    seen = consumer.poll(WAIT_S, max_records=10)
    consumer.assign([first, second])  # keeps what it has
    seen += read(consumer, 190)
    assert offsets(seen, first) == offsets(seen, second) == list(range(100))
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    with pytest.raises(ClientError, match="nothing to poll"):
        consumer.poll(1)
    consumer.assign([first])
    assert consumer.poll(WAIT_S)[0].offset == 0


def test_what_the_cluster_has(consumer: Consumer, filled: list[TopicPartition]) -> None:
    topic = filled[0].topic
    assert len(consumer.partitions_for(topic).partitions) == 2
    assert topic in consumer.topics()
    assert "__consumer_offsets" not in consumer.topics()


# Commits.


def committed(settings_of: SettingsOf, group: str, partition: TopicPartition) -> int | None:
    with Consumer(settings_of(group_id=group)) as other:
        found = other.committed([partition])[partition]
        return None if found is None else found.offset


def test_commits_are_where_the_next_one_begins(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    first = filled[0]
    settings = settings_of(group_id=topic, enable_auto_commit=False)
    with Consumer(settings) as consumer:
        consumer.assign([first])
        consumer.poll(WAIT_S, max_records=30)
        assert consumer.committed([first]) == {first: None}
        consumer.commit()
        assert consumer.committed([first]) == {first: OffsetAndMetadata(30, "", 0)}
        consumer.commit({first: OffsetAndMetadata(20, "so far")})
        with pytest.raises(ValueError, match="not an offset to commit"):
            consumer.commit({first: OffsetAndMetadata(-1)})
    with Consumer(settings) as consumer:
        consumer.assign([first])
        assert consumer.poll(WAIT_S)[0].offset == 20
        assert consumer.committed([first]) == {first: OffsetAndMetadata(20, "so far")}


def test_commits_follow_an_iteration(settings_of: SettingsOf, topic: str, filled: list[TopicPartition]) -> None:
    first = filled[0]
    with Consumer(settings_of(group_id=topic, enable_auto_commit=False)) as consumer:
        consumer.assign([first])
        for record in consumer:
            consumer.commit_async()
            if record.offset == 41:
                break
    # Closing made sure of the last one.
    assert committed(settings_of, topic, first) == 42


def test_callbacks_of_commits_are_called_in_the_thread_that_polls(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    told: list[tuple[Any, Any, threading.Thread]] = []
    with Consumer(settings_of(group_id=topic, enable_auto_commit=False)) as consumer:
        consumer.assign(filled[:1])
        consumer.poll(WAIT_S, max_records=5)
        consumer.commit_async(callback=lambda offsets, error: told.append((offsets, error, threading.current_thread())))
        wait_until(lambda: consumer.poll(0.05, max_records=1) is not None and bool(told), "nobody was told")
    assert told[0] == ({filled[0]: OffsetAndMetadata(5, "", 0)}, None, threading.current_thread())


def test_a_callback_of_a_commit_that_fails_does_not_keep_others_from_being_called(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_offsets: object, _error: object) -> None:
        raise ValueError("out of luck")

    first, told = filled[0], []
    with Consumer(settings_of(group_id=topic, enable_auto_commit=False)) as consumer:
        consumer.assign([first])
        for callback in (fail, lambda *_: told.append(1), fail):
            consumer.commit_async({first: 3}, callback)
        with pytest.raises(TypeError, match="callback must not be a coroutine function"):
            consumer.commit_async({first: 3}, aio_callback)

    async def scenario() -> None:
        async def later(_offsets: object, _error: object) -> None:
            await asyncio.sleep(0.01)
            told.append(3)

        async with AsyncConsumer(settings_of(group_id=topic, enable_auto_commit=False)) as consumer:
            consumer.assign([first])
            for callback in (fail, lambda *_: told.append(2), later, fail):
                consumer.commit_async({first: 4}, callback)

    asyncio.run(scenario())
    assert told == [1, 2, 3]
    assert committed(settings_of, topic, first) == 4
    assert caplog.text.count("ValueError: out of luck") == 4


async def aio_callback(offsets: object, error: object) -> None:
    raise AssertionError(offsets, error)


def test_what_was_not_worked_off_is_not_committed(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    """With commits on their own: those of an orderly end include the last poll's records, those of a failure do not."""
    first = filled[0]
    settings = settings_of(group_id=topic, enable_auto_commit=True, max_poll_records=10)

    def fail() -> None:
        with Consumer(settings) as consumer:
            consumer.assign([first])
            assert len(consumer.poll(WAIT_S)) == 10
            assert len(consumer.poll(WAIT_S)) == 10
            raise RuntimeError("in the middle of the second ten")

    with pytest.raises(RuntimeError, match="second ten"):
        fail()
    assert committed(settings_of, topic, first) == 10
    with Consumer(settings) as consumer:
        consumer.assign([first])
        assert consumer.poll(WAIT_S)[0].offset == 10
    assert committed(settings_of, topic, first) == 20


def test_a_failure_does_not_move_back_what_the_user_committed(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    first = filled[0]

    def fail() -> None:
        with Consumer(settings_of(group_id=topic, enable_auto_commit=True, max_poll_records=10)) as consumer:
            consumer.assign([first])
            assert len(consumer.poll(WAIT_S)) == 10
            assert len(consumer.poll(WAIT_S)) == 10
            consumer.commit()
            raise RuntimeError("after the commit")

    with pytest.raises(RuntimeError, match="after the commit"):
        fail()
    assert committed(settings_of, topic, first) == 20


def test_an_iteration_that_is_left_commits_what_was_worked_off(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    first = filled[0]
    settings = settings_of(group_id=topic, enable_auto_commit=True)

    def fail() -> None:
        with Consumer(settings) as consumer:
            consumer.assign([first])
            for record in consumer:
                if record.offset == 41:
                    raise RuntimeError("41 is not done")

    with pytest.raises(RuntimeError, match="41"):
        fail()
    assert committed(settings_of, topic, first) == 41
    with Consumer(settings) as consumer:
        consumer.assign([first])
        for record in consumer:
            if record.offset == 50:
                break
    assert committed(settings_of, topic, first) == 51
    with Consumer(settings) as consumer:
        consumer.assign([first])
        assert next(iter(consumer)).offset == 51
        assert [record.offset for record in consumer.poll(WAIT_S, max_records=4)] == [52, 53, 54, 55]
    assert committed(settings_of, topic, first) == 56


class Noting(RebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, set[TopicPartition], threading.Thread]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", set(partitions), threading.current_thread()))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", set(partitions), threading.current_thread()))


def test_listeners_are_called_in_the_thread_that_polls(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    listener = Noting()
    here = threading.current_thread()
    with Consumer(settings_of(group_id=topic)) as consumer:
        consumer.subscribe([topic], listener)
        assert consumer.subscription() == {topic}
        assert len(read(consumer, 200)) == 200
        assert listener.calls == [("assigned", set(filled), here)]
        assert consumer.group_metadata().group_id == topic
    assert listener.calls[-1] == ("revoked", set(filled), here)


def test_patterns(settings_of: SettingsOf, topic: str, filled: list[TopicPartition]) -> None:
    with Consumer(settings_of(group_id=topic)) as consumer:
        consumer.subscribe(re.compile(re.escape(topic[:-1]) + "."))
        assert len(read(consumer, 200)) == 200
        assert consumer.assignment() == set(filled)


# Asyncio.


def test_the_asyncio_face(settings_of: SettingsOf, topic: str, filled: list[TopicPartition]) -> None:
    async def scenario() -> None:
        async with AsyncConsumer(settings_of(group_id=topic, enable_auto_commit=False)) as consumer:
            consumer.subscribe(topic)
            seen = []
            async for record in consumer:
                seen.append(record)
                if len(seen) == 50:
                    break
            await consumer.commit()
            while len(seen) < 200:
                seen += await consumer.poll(WAIT_S)
            for partition in filled:
                assert offsets(seen, partition) == list(range(100))
            consumer.seek_to_beginning(filled[:1])
            rows = 0
            async for batch in consumer.iter_arrow():
                rows += batch.num_rows
                if rows == 100:
                    break
            found = await consumer.committed(filled)
            assert sum(one.offset for one in found.values() if one is not None) == 50
        with pytest.raises(ClosedError):
            await consumer.poll(0)

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_listeners_of_the_asyncio_face_may_be_coroutines(
    settings_of: SettingsOf, topic: str, filled: list[TopicPartition]
) -> None:
    class Seeking(RebalanceListener):
        def __init__(self, consumer: AsyncConsumer) -> None:
            self.consumer = consumer

        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            await asyncio.sleep(0)
            for partition in partitions:
                self.consumer.seek(partition, 95)

    async def scenario() -> None:
        async with AsyncConsumer(settings_of(group_id=topic)) as consumer:
            consumer.subscribe([topic], Seeking(consumer))
            seen: list[ConsumerRecord] = []
            while len(seen) < 10:
                seen += await consumer.poll(WAIT_S)
            for partition in filled:
                assert offsets(seen, partition) == list(range(95, 100))

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


# Life.


def test_a_consumer_that_is_closed_says_so(settings_of: SettingsOf, filled: list[TopicPartition]) -> None:
    consumer = Consumer(settings_of())
    consumer.assign(filled)
    read(consumer, 1)
    consumer.close()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(0)
    with pytest.raises(ClosedError):
        consumer.assign(filled)
    assert list(consumer) == list(consumer.iter_arrow()) == []


def test_closing_ends_a_poll_of_another_thread(settings_of: SettingsOf, partitions: list[TopicPartition]) -> None:
    consumer = Consumer(settings_of())
    consumer.assign(partitions)
    raised: list[Exception] = []

    def poll() -> None:
        try:
            consumer.poll(None)
        except ClosedError as error:
            raised.append(error)

    polling = threading.Thread(target=poll)
    polling.start()

    def is_refused() -> bool:
        try:
            consumer.poll(0)
        except ClientError as error:
            return "another thread" in str(error)
        return False

    wait_until(is_refused, "the other thread does not poll")
    consumer.close()
    polling.join(WAIT_S)
    assert len(raised) == 1


def test_a_forked_child_is_refused_and_the_parent_goes_on(
    settings_of: SettingsOf, filled: list[TopicPartition]
) -> None:
    with Consumer(settings_of(max_poll_records=10)) as consumer:
        consumer.assign(filled)
        consumer.poll(WAIT_S)
        child = os.fork()
        if child == 0:
            try:
                consumer.poll(0)
            except ForkedError:
                os._exit(7)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert len(read(consumer, 190)) == 190


PROGRAM = """
import signal, sys
from ottla import Consumer
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it would be ignored
with Consumer(bootstrap_servers=sys.argv[1]) as consumer:
    consumer.assign([(sys.argv[2], 0)])
    try:
        consumer.poll(0)
        print("polls", flush=True)
        consumer.poll(None)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_poll(broker: Peer, partitions: list[TopicPartition]) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, broker.bootstrap, partitions[0].topic], stdout=subprocess.PIPE, text=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "polls\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=WAIT_S)[0] == "interrupted\n"
        assert program.returncode == 0
    finally:
        program.kill()
        program.communicate()


def test_invalid_arguments_are_reported_by_the_call(settings_of: SettingsOf, topic: str) -> None:
    with pytest.raises(ConfigError, match="max_poll_records"):
        Consumer(settings_of(max_pol_records=5))
    with pytest.raises(ConfigError, match="deserializer"):
        Consumer(settings_of(value_deserializer="jsno"))
    with Consumer(settings_of()) as consumer:
        with pytest.raises(ClientError, match=r"without a group\.id"):
            consumer.subscribe([topic])
        with pytest.raises(ClientError, match=r"group\.id"):
            consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)})
        with pytest.raises(ClientError, match="nothing to poll"):
            consumer.poll(1)
    with Consumer(settings_of(group_id=topic)) as consumer:
        consumer.subscribe([topic])
        with pytest.raises(ClientError, match="topics are subscribed to"):
            consumer.assign([(topic, 0)])
        for names in ([], [""]):
            with pytest.raises(ClientError, match="topic"):
                consumer.subscribe(names)


def test_a_topic_that_is_not_there_is_reported(strict_broker: Peer, topic: str) -> None:
    settings = {"bootstrap.servers": strict_broker.bootstrap, "default.api.timeout.ms": 200}
    with Consumer(settings) as consumer:
        consumer.assign([(topic, 0)])
        with pytest.raises(ClientError, match=f"topic '{topic}' does not exist"):
            consumer.poll(WAIT_S)


# Woken up, and counted.


def test_wakeup_ends_the_poll_that_waits_or_the_next_one(settings_of: SettingsOf, filled: list[TopicPartition]) -> None:
    with Consumer(settings_of()) as consumer:
        consumer.assign(filled)
        consumer.seek_to_end()
        while consumer.poll(0.01):
            pass
        waking = threading.Timer(0.05, consumer.wakeup)
        waking.start()
        with pytest.raises(WakeupError):
            consumer.poll()
        waking.join(WAIT_S)
        consumer.seek_to_beginning()
        consumer.wakeup()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(WAIT_S)
        assert len(read(consumer, 200)) == 200
        consumer.seek_to_beginning()
        iterated = iter(consumer)
        assert next(iterated).offset == 0
        consumer.wakeup()
        with pytest.raises(WakeupError):
            for _ in iterated:
                pass


def test_wakeup_ends_a_poll_that_waits_for_its_group(strict_broker: Peer, topic: str) -> None:
    """Another member does not come back to the rebalance."""

    async def scenario() -> None:
        with Admin(bootstrap_servers=strict_broker.bootstrap) as admin:
            admin.create_topics([NewTopic(topic)])
        settings = {"bootstrap_servers": strict_broker.bootstrap, "group_id": topic}
        async with AsyncConsumer(settings) as first, AsyncConsumer(settings) as second:
            for consumer in (first, second):
                consumer.subscribe([topic])
            while not first.assignment():
                await first.poll(0.05)
            waiting = asyncio.create_task(second.poll())
            while second.membership.metadata().member_id == "":
                await asyncio.sleep(0.01)
            second.wakeup()
            with pytest.raises(WakeupError):
                await waiting
            while not (first.assignment() or second.assignment()) or not second.membership.metadata().member_id:
                await asyncio.gather(first.poll(0.05), second.poll(0.05))

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_metrics_count_what_was_read(settings_of: SettingsOf, filled: list[TopicPartition]) -> None:
    with Consumer(settings_of(max_poll_records=10)) as consumer:
        assert consumer.metrics()["records"] == 0
        consumer.assign(filled[:1])
        assert len(consumer.poll(WAIT_S)) == 10
        metrics = consumer.metrics()
        assert (metrics["records"], metrics["partitions"], metrics["records_lag_max"]) == (10, 1, 90)
        assert metrics["requests"] >= 1
        assert metrics["bytes"] > 100
        next(iter(consumer))
        rows = consumer.poll_arrow(WAIT_S).num_rows
        assert consumer.metrics()["records"] == 10 + 10 + rows
