"""Our producer on a running broker, in both its faces."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla import AsyncProducer, Consumer, Producer
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin, NewTopic
from ottla.client.consume import ConsumerRecord
from ottla.client.errors import (
    BufferFullError,
    ClientError,
    ClosedError,
    NoBrokerError,
    RecordTooLargeError,
    RefusedError,
    SerializationError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ottla.client.produce import Delivery, ProducerRecord, RecordMetadata, sender
from ottla.client.produce.partitioners import partition_of_key
from support.clients.dialect import CODECS
from support.clients.nowhere import closed_port
from support.clients.peers import Peer

WAIT_S = 60.0
PARTITIONS = 3


@pytest.fixture
def three(broker: Peer, topic: str) -> str:
    """A topic with three partitions."""
    return make(broker, topic, PARTITIONS)


def make(broker: Peer, topic: str, partitions: int = 1, **configs: str) -> str:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        dotted = {name.replace("_", "."): value for name, value in configs.items()}
        admin.create_topics([NewTopic(topic, partitions, 1, configs=dotted)])
    return topic


@pytest.fixture
def producer(broker: Peer) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        yield producer


def records_of(broker: Peer, topic: str, count: int, partitions: int = 1) -> list[ConsumerRecord]:
    """So many records of the topic, and no more."""
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        places = [TopicPartition(topic, index) for index in range(partitions)]
        consumer.assign(places)
        assert sum(consumer.end_offsets(places).values()) == count
        records: list[ConsumerRecord] = []
        while len(records) < count:
            polled = consumer.poll(WAIT_S)
            assert polled, f"{len(records)} of {count} records came"
            records += polled
        return records


# Records, and where they are.


def test_a_record_arrives_with_all_it_has(broker: Peer, producer: Producer, three: str) -> None:
    delivery = producer.send(three, b"value", b"key", [("h", b"1"), ("h", None)], timestamp=12_345, partition=2)
    assert delivery.result(WAIT_S) == RecordMetadata(three, 2, 0, 12_345)
    assert delivery.done()
    assert delivery.exception() is None
    assert producer.send(three, key=b"key", partition=2).result(WAIT_S).offset == 1
    first, tombstone = records_of(broker, three, 2, PARTITIONS)
    assert (first.value, first.key, first.timestamp) == (b"value", b"key", 12_345)
    assert first.headers == (("h", b"1"), ("h", None))
    assert (tombstone.value, tombstone.key) == (None, b"key")


def test_a_record_without_a_time_has_the_time_of_its_making(broker: Peer, producer: Producer, topic: str) -> None:
    make(broker, topic)
    before = int(time.time() * 1000) - 1
    deliveries = [producer.send(topic, b"%d" % index) for index in range(2000)]
    after = int(time.time() * 1000) + 1
    told = [delivery.result(WAIT_S).timestamp for delivery in deliveries]
    assert before <= told[0] <= told[-1] <= after
    assert told == sorted(told)
    assert [record.timestamp for record in records_of(broker, topic, 2000)] == told


def test_deliveries_tell_where_each_record_is(broker: Peer, producer: Producer, three: str) -> None:
    """By every way that a record takes: alone, without a key, with one, with headers, in the middle of others."""
    sent: list[tuple[Delivery, bytes]] = []
    for index in range(3000):
        value = b"%d" % index
        key = b"k%d" % (index % 50) if index % 3 == 0 else None
        headers = [("index", value)] if index % 7 == 0 else None
        timestamp = 1000 + index if index % 11 == 0 else None
        sent.append((producer.send(three, value, key, headers, timestamp), value))
    there = {(one.partition, one.offset): one for one in records_of_flushed(broker, producer, three, 3000)}
    for index, (delivery, value) in enumerate(sent):
        _, partition, offset, timestamp = delivery.result(WAIT_S)
        record = there[partition, offset]
        assert (record.value, record.timestamp) == (value, timestamp)
        if index % 3 == 0:
            assert partition == partition_of_key(b"k%d" % (index % 50), PARTITIONS)
        if index % 11 == 0:
            assert timestamp == 1000 + index


def records_of_flushed(broker: Peer, producer: Producer, topic: str, count: int) -> list[ConsumerRecord]:
    producer.flush(WAIT_S)
    return records_of(broker, topic, count, PARTITIONS)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 5000])
def test_every_codec_is_read_back(broker: Peer, topic: str, codec: str, count: int) -> None:
    make(broker, topic)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec, batch_size=100_000) as producer:
        for index in range(count):
            producer.send(topic, b"%d" % index * 20, headers={"codec": codec} if index % 2 else None)
    assert [one.value for one in records_of(broker, topic, count)] == [b"%d" % index * 20 for index in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_threads_that_send_at_once_lose_nothing(broker: Peer, topic: str, threads: int) -> None:
    """With batches that end all the time, and threads that are interrupted as often as can be."""
    make(broker, topic)
    count = 8_000
    sent: dict[int, list[Delivery]] = {}
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=0, batch_size=4_000) as producer:

            def work(number: int) -> None:
                sent[number] = [producer.send(topic, b"%d %d" % (number, index)) for index in range(count)]

            workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join(WAIT_S)
            producer.flush(WAIT_S)
    finally:
        sys.setswitchinterval(interval_s)
    values = {one.offset: one.value for one in records_of(broker, topic, threads * count)}
    for number, deliveries in sent.items():
        offsets = [delivery.result(WAIT_S).offset for delivery in deliveries]
        assert offsets == sorted(offsets)
        assert [values[offset] for offset in offsets] == [b"%d %d" % (number, index) for index in range(count)]


@pytest.mark.parametrize("interruption", ["closed", "another thread"])
def test_a_batch_that_is_closed_while_a_thread_appends_loses_nothing(
    broker: Peer, topic: str, interruption: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(broker, topic)
    deliveries = []
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        accumulator = producer._core.accumulator

        def close() -> None:
            with accumulator.lock:
                batch = accumulator.known[topic].queues[0].open
                assert batch is not None
                accumulator.close(batch)

        def send_elsewhere() -> None:
            thread = threading.Thread(target=lambda: others.append(producer.send(topic, b"other")))
            thread.start()
            thread.join(WAIT_S)

        def interrupted() -> float:
            """The last call before a record is appended."""
            monkeypatch.undo()
            if interruption == "closed":
                close()
            else:
                send_elsewhere()
            return time.monotonic()

        others: list[Delivery] = []
        for index in range(200):
            if index == 100:
                monkeypatch.setattr("ottla.client.produce.send_path.monotonic", interrupted)
            deliveries.append(producer.send(topic, b"%d" % index))
        producer.flush(WAIT_S)
    there = {one.offset: one.value for one in records_of(broker, topic, len(deliveries) + len(others))}
    assert [there[one.result().offset] for one in deliveries] == [b"%d" % index for index in range(len(deliveries))]
    assert [there[one.result().offset] for one in others] == [b"other"] * (interruption == "another thread")


def test_a_batch_that_leaves_while_a_thread_looks_at_the_clock_loses_nothing(
    broker: Peer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(broker, topic)
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        looks = 0

        def interrupted() -> float:
            nonlocal looks
            looks += 1
            if looks % 10 == 0:
                producer.flush(WAIT_S)
            # Every other time it is another millisecond, whose stamp the batch has to be given.
            return time.monotonic() + 3600.0 * (looks % 2)

        monkeypatch.setattr("ottla.client.produce.send_path.monotonic", interrupted)
        deliveries = [producer.send(topic, b"%d" % index) for index in range(200)]
        producer.flush(WAIT_S)
    assert looks > 100
    there = {one.offset: one for one in records_of(broker, topic, 200)}
    for index, delivery in enumerate(deliveries):
        record = there[delivery.result().offset]
        assert (record.value, record.timestamp) == (b"%d" % index, delivery.result().timestamp)


def test_records_without_a_key_are_spread(broker: Peer, three: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=1000) as producer:
        used = {producer.send(three, b"x" * 100).result(WAIT_S).partition for _ in range(200)}
    assert used == set(range(PARTITIONS))


def test_records_take_turns(broker: Peer, three: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, partitioner="roundrobin") as producer:
        deliveries = [producer.send(three, b"x", key=b"the same") for _ in range(6)]
        used = [delivery.result(WAIT_S).partition for delivery in deliveries]
    assert [(one - used[0]) % PARTITIONS for one in used] == [0, 1, 2, 0, 1, 2]


def test_a_partitioner_of_ones_own_decides(broker: Peer, three: str) -> None:
    asked: list[tuple[str, bytes | None, bytes | None, int]] = []

    def mine(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        asked.append((topic, key, value, partitions))
        return len(value or b"") % 4

    with Producer(bootstrap_servers=broker.bootstrap, partitioner=mine, value_serializer="string") as producer:
        assert producer.send(three, "ab", b"key").result(WAIT_S).partition == 2
        assert producer.send(three, None).result(WAIT_S).partition == 0
        with pytest.raises(ClientError, match=r"chose partition 3: topic .* has partitions 0 to 2"):
            producer.send(three, "abc")
    assert asked[0] == (three, b"key", b"ab", PARTITIONS)


def test_batches_linger_unless_someone_waits(broker: Peer, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as patient:
        deliveries = [patient.send(topic, b"%d" % index) for index in range(100)]
        assert [delivery.result(WAIT_S).offset for delivery in deliveries] == list(range(100))
        assert patient.metrics()["batches"] == 1
        patient.send(topic, b"left")
        patient.flush(WAIT_S)
        assert patient.metrics()["batches"] == 2
        last = patient.send(topic, b"last")
    assert last.done()


# Interceptors and serializers.


class Watching:
    """Notes what it sees, and adds its name to values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[ProducerRecord] = []
        self.acknowledged: list[tuple[RecordMetadata, Exception | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record._replace(value=record.value + self.name)

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.acknowledged.append((metadata, error))

    def close(self) -> None:
        self.closed += 1


class Broken:
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError(f"{record.topic}: interceptor on strike")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError(f"{metadata}, {error}: interceptor on strike")


def test_interceptors_are_asked_in_order_and_none_can_stop_a_record(
    broker: Peer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Watching("1"), Watching("2")
    settings = {"interceptors": [first, Broken(), second], "value_serializer": "string"}
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:
        metadata = producer.send(topic, "value ").result(WAIT_S)
        with pytest.raises(SerializationError):
            producer.send(topic, "value ", key=5)
    assert [one.value for one in records_of(broker, topic, 1)] == [b"value 12"]
    assert [one.value for one in second.sent] == ["value 1"] * 2
    assert first.acknowledged[0] == second.acknowledged[0] == (metadata, None)
    assert isinstance(first.acknowledged[1][1], SerializationError)
    assert first.acknowledged[1][0] == RecordMetadata(topic, -1, -1, -1)
    assert (first.closed, second.closed) == (1, 1)
    assert "interceptor on strike" in caplog.text


def test_serializers_make_bytes_of_keys_and_values(broker: Peer, topic: str) -> None:
    settings: dict[str, Any] = {"key_serializer": "int64", "value_serializer": lambda _, value: value.upper().encode()}
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        producer.send(topic, "text", 7).result(WAIT_S)
        producer.send(topic, None, 7).result(WAIT_S)
        with pytest.raises(SerializationError, match=r"the key of a record of topic .* str"):
            producer.send(topic, "text", "seven")
    first, second = records_of(broker, topic, 2)
    assert (first.key, first.value) == (b"\0\0\0\0\0\0\0\7", b"TEXT")
    assert second.value is None


def test_serializers_are_asked_for_bytes_too(broker: Peer, topic: str) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 1000}
    with Producer({**settings, "key.serializer": lambda _, key: b"k" + key}) as producer:
        for _ in range(3):
            producer.send(topic, b"a", b"b")
    with Producer({**settings, "value.serializer": lambda _, value: b"v" + value}) as producer:
        for _ in range(3):
            producer.send(topic, b"a", b"b")
            producer.send(topic, b"a")
    seen = [(one.key, one.value) for one in records_of(broker, topic, 9)]
    assert seen == [(b"kb", b"a")] * 3 + [(b"b", b"va"), (None, b"va")] * 3


# Mistakes, told where they are made.


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"value": "text"}, SerializationError, "value of a record .* str"),
        ({"value": 5}, SerializationError, "value of a record .* int"),
        ({"key": "text"}, SerializationError, "key of a record .* str"),
        ({"headers": [("name",)]}, SerializationError, "headers of a record .* pairs"),
        ({"headers": {5: b"x"}}, SerializationError, "name of a header is a text, not int"),
        ({"headers": {"x": 5}}, SerializationError, "bytes, text or None, not int"),
        ({"timestamp": -1}, ValueError, "timestamp must be .* not -1"),
        ({"timestamp": 1.5}, TypeError, "timestamp must be an int, not float"),
        ({"partition": 3}, ClientError, "partitions 0 to 2, not 3"),
        ({"partition": -1}, ValueError, "partition must be 0 or more, not -1"),
        ({"value": b"x" * 2_000_000}, RecordTooLargeError, r"max\.request\.size, which is 1048576"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_once(
    producer: Producer, three: str, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        producer.send(three, **arguments)
    assert producer.send(three, b"and then").result(WAIT_S).offset == 0


def test_a_record_above_the_topics_limit_is_reported_by_its_delivery(broker: Peer, topic: str) -> None:
    make(broker, topic, max_message_bytes="2000")
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=16_384, linger_ms=1000) as producer:
        deliveries = [producer.send(topic, b"x" * 400) for _ in range(20)]
        large = producer.send(topic, b"x" * 3000)
        behind = producer.send(topic, b"behind")
        with pytest.raises(RecordTooLargeError, match=r"larger than its broker takes \(max\.message\.bytes"):
            large.result(WAIT_S)
        assert [delivery.result(WAIT_S).offset for delivery in deliveries] == list(range(20))
        assert behind.result(WAIT_S).offset == 20


def test_a_topic_that_does_not_exist_is_reported_by_send(strict_broker: Peer, topic: str) -> None:
    with (
        Producer(bootstrap_servers=strict_broker.bootstrap, max_block_ms=1000) as producer,
        pytest.raises(UnknownTopicError, match=topic),
    ):
        producer.send(topic, b"nobody will read this")


def test_a_name_that_no_topic_can_have_is_reported_by_send(producer: Producer) -> None:
    with pytest.raises(RefusedError) as caught:
        producer.send("no topic!", b"")
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_send_reports_that_no_broker_is_reachable() -> None:
    with (
        Producer(bootstrap_servers=f"127.0.0.1:{closed_port()}", max_block_ms=1000) as producer,
        pytest.raises(NoBrokerError, match="connection refused"),
    ):
        producer.send("topic", b"")


def test_a_buffer_that_stays_full_is_reported_by_send(broker: Peer, topic: str) -> None:
    """The broker is not asked for anything but the topic: the buffer is too small for a second batch."""
    settings = {"buffer.memory": 20_000, "batch.size": 10_000, "max.block.ms": 2_000}
    with Producer({"bootstrap.servers": broker.bootstrap}) as first:
        first.send_and_wait(topic, b"x")  # makes the topic, which may take longer than the other waits
    with Producer({"bootstrap.servers": broker.bootstrap, **settings}) as producer:

        def fill() -> None:
            for _ in range(100):
                producer.send(topic, b"x" * 5000)

        producer.send_and_wait(topic, b"x")
        held = threading.Event()
        producer.send(topic, b"y").add_done_callback(lambda _: held.wait(WAIT_S))
        producer._thread.call_soon(held.wait, WAIT_S)
        try:
            with pytest.raises(BufferFullError, match=r"20000 bytes \(buffer\.memory\).*2 s \(max\.block\.ms\)"):
                fill()
        finally:
            held.set()
        producer.flush(WAIT_S)
        assert producer.metrics()["buffer_free_bytes"] == 20_000


def test_more_than_the_buffer_holds_gets_through(broker: Peer, topic: str) -> None:
    make(broker, topic)
    with Producer(bootstrap_servers=broker.bootstrap, buffer_memory=50_000, batch_size=10_000) as producer:
        for index in range(3000):
            producer.send(topic, b"%4d" % index * 25)
    assert [one.value[:4] for one in records_of(broker, topic, 3000) if one.value] == [b"%4d" % i for i in range(3000)]


# Ends.


def test_a_closed_producer_refuses(broker: Peer, topic: str) -> None:
    producer = Producer(bootstrap_servers=broker.bootstrap)
    deliveries = [producer.send(topic, b"%d" % index) for index in range(10)]
    producer.close(WAIT_S)
    assert all(delivery.done() for delivery in deliveries)
    assert [delivery.result().offset for delivery in deliveries] == list(range(10))
    producer.close()
    uses: list[Callable[[], object]] = [
        lambda: producer.send(topic, b"late"),
        lambda: producer.send(topic, b"late", b"key"),
        lambda: producer.send_batch(topic, {"value": [b"late"]}),
        producer.flush,
        lambda: producer.partitions_for(topic),
    ]
    for use in uses:
        with pytest.raises(ClosedError):
            use()


def test_leaving_by_an_exception_sends_what_was_sent(broker: Peer, topic: str) -> None:
    def interrupted() -> None:
        with Producer(bootstrap_servers=broker.bootstrap, linger_ms=10_000) as producer:
            deliveries.append(producer.send(topic, b"x"))
            raise LookupError("of the user's")

    deliveries: list[Delivery] = []
    with pytest.raises(LookupError):
        interrupted()
    assert deliveries[0].result().offset == 0


def test_waiting_in_the_producers_own_thread_is_refused(producer: Producer, topic: str) -> None:
    caught: list[BaseException] = []
    done = threading.Event()

    def callback(_: Delivery) -> None:
        try:
            producer.send(topic, b"second").result(WAIT_S)
        except BaseException as error:
            caught.append(error)
        done.set()

    producer.send(topic, b"first").add_done_callback(callback)
    assert done.wait(WAIT_S)
    assert isinstance(caught[0], RuntimeError)
    assert "await" in str(caught[0])


def test_partitions_of_a_topic_are_returned(producer: Producer, three: str) -> None:
    assert [one.index for one in producer.partitions_for(three)] == [0, 1, 2]


# In asyncio.


def test_coroutines_send_and_wait(broker: Peer, three: str) -> None:
    async def scenario() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, linger_ms=20) as producer:
            deliveries = [await producer.send(three, b"%d" % index, b"key") for index in range(1000)]
            partition = partition_of_key(b"key", PARTITIONS)
            assert [(await one)[1:3] for one in deliveries] == [(partition, offset) for offset in range(1000)]
            assert producer.metrics()["batches"] < 20
            many = await asyncio.gather(*(producer.send_and_wait(three, b"%d" % index) for index in range(500)))
            assert len({(one.partition, one.offset) for one in many}) == 500
            await producer.flush(WAIT_S)
            assert len(await producer.partitions_for(three)) == 3
            with pytest.raises(SerializationError):
                await producer.send(three, "text")  # type: ignore[arg-type]
        with pytest.raises(ClosedError):
            await producer.send(three, b"late")

    asyncio.run(scenario())


def test_a_coroutine_that_never_pauses_still_lets_the_producer_send(broker: Peer, topic: str) -> None:
    make(broker, topic)

    async def scenario() -> int:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap, batch_size=1000, buffer_memory=2**40) as producer:
            count, deadline_s = 0, time.monotonic() + WAIT_S
            while not producer.metrics().get("records"):
                assert time.monotonic() < deadline_s
                await producer.send(topic, b"%d" % count)
                count += 1
        return count

    count = asyncio.run(scenario())
    assert [one.value for one in records_of(broker, topic, count)] == [b"%d" % index for index in range(count)]


def test_a_producer_belongs_to_one_loop(broker: Peer, topic: str) -> None:
    producer = AsyncProducer(bootstrap_servers=broker.bootstrap)

    async def use() -> None:
        await producer.send_and_wait(topic, b"x")

    def use_elsewhere() -> None:
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            asyncio.run(use())

    async def use_and_close() -> None:
        await use()
        await asyncio.to_thread(use_elsewhere)
        await producer.close()

    asyncio.run(use_and_close())


def test_records_for_a_partition_that_is_gone_fail_soon(
    broker: Peer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that is created again may have fewer partitions than the producer knows."""
    monkeypatch.setattr(sender, "MISSING_MAX_S", 0.3)
    with Admin(bootstrap_servers=broker.bootstrap) as admin, Producer(bootstrap_servers=broker.bootstrap) as producer:
        admin.create_topics([NewTopic(topic, 3, 1)])
        producer.send(topic, b"old", partition=2).result(WAIT_S)
        admin.delete_topics([topic])
        admin.create_topics([NewTopic(topic, 2, 1)])
        gone, there = (producer.send(topic, b"new", partition=partition) for partition in (2, 1))
        with pytest.raises(UnknownPartitionError, match=r"has partitions 0 to 1 now, not 2: it was created again"):
            gone.result(WAIT_S)
        assert there.result(WAIT_S).offset == 0
