"""Every row of the tables in docs/client/moving.md: what the other client's call gives, and that ours gives the same.

A function tries a row: it is registered under the left cell of the table, and no row may be left out.
"""

from __future__ import annotations

import asyncio
import re
import uuid
import warnings
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import pytest

from ottla import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic
from ottla.client.consume import RebalanceListener
from ottla.client.errors import CallTimeoutError, ConfigError, OffsetOutOfRangeError
from ottla.testing.broker import Broker

with warnings.catch_warnings():
    # It reads its message definitions by functions that Python 3.11 calls deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka
    import kafka.admin

PAGE = Path(__file__).parents[2] / "docs" / "client" / "moving.md"
WAIT_S = 30


class Place(NamedTuple):
    """A topic with one partition and three records: 0, 1, 2 at the times 1000, 2000, 3000."""

    bootstrap: str
    topic: str

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def settings(self, **more: object) -> dict[str, Any]:
        dotted = {name.replace("_", "."): value for name, value in more.items()}
        usual = {"bootstrap.servers": self.bootstrap, "group.id": f"g-{uuid.uuid4()}", "auto.offset.reset": "earliest"}
        return {**usual, "enable.auto.commit": False, **dotted}

    def keywords(self, **more: object) -> dict[str, Any]:
        return {name.replace(".", "_"): value for name, value in self.settings(**more).items()}

    def producer(self, **more: object) -> Producer[Any, Any]:
        return Producer({"bootstrap.servers": self.bootstrap, **{k.replace("_", "."): v for k, v in more.items()}})

    def values(self) -> list[bytes]:
        """All that the topic has."""
        with Consumer(self.settings()) as consumer:
            consumer.assign([self.partition])
            end = consumer.end_offsets([self.partition])[self.partition]
            consumer.seek(self.partition, 0, until=end)
            return [record.value for record in consumer]


Row = Callable[[Place], None]
ROWS: dict[str, dict[str, Row]] = {"confluent-kafka": {}, "kafka-python": {}, "aiokafka": {}}


def row(client: str, left: str) -> Callable[[Row], Row]:
    def register(function: Row) -> Row:
        ROWS[client][left] = function
        return function

    return register


def async_row(left: str) -> Callable[[Callable[[Place], Awaitable[None]]], None]:
    def register(function: Callable[[Place], Awaitable[None]]) -> None:
        async def bounded(place: Place) -> None:
            async with asyncio.timeout(WAIT_S):
                await function(place)

        ROWS["aiokafka"][left] = lambda place: asyncio.run(bounded(place))

    return register


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def place(broker: Broker) -> Place:
    place = Place(broker.bootstrap, f"t-{uuid.uuid4().hex[:8]}")
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        admin.create_topics([NewTopic(place.topic, partitions=1)])
    with place.producer() as producer:
        for number in range(3):
            producer.send(place.topic, b"%d" % number, timestamp=1000 * (number + 1))
    return place


def rows_of_the_page() -> dict[str, list[str]]:
    """The left cells of each table."""
    found: dict[str, list[str]] = {}
    client = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            client = line.split()[2] if line.startswith("## From ") else ""
        elif client and line.startswith("| `"):
            found.setdefault(client, []).append(line.strip("| ").split(" | ")[0])
    return found


# confluent-kafka.


def confluent_consumer(place: Place) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer(place.settings())


def confluent_partition(place: Place, offset: int = confluent_kafka.OFFSET_INVALID) -> confluent_kafka.TopicPartition:
    return confluent_kafka.TopicPartition(place.topic, 0, offset)


@row("confluent-kafka", "`Producer.produce(topic, value, key, partition, on_delivery, timestamp, headers)`")
def _(place: Place) -> None:
    theirs = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
    theirs.produce(place.topic, b"v", b"k", partition=0, on_delivery=None, timestamp=5, headers=[("h", b"1")])
    theirs.flush(WAIT_S)
    with place.producer() as producer:
        producer.send(place.topic, b"v", b"k", [("h", b"1")], 5, 0).result(WAIT_S)
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 3, until=5)
        first, second = consumer
    assert first._replace(offset=4) == second


@row("confluent-kafka", "`on_delivery=callback`")
def _(place: Place) -> None:
    told: list[int | None] = []
    theirs = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
    theirs.produce(place.topic, b"v", on_delivery=lambda _, message: told.append(message.offset()))
    theirs.flush(WAIT_S)
    with place.producer() as producer:
        delivery = producer.send(place.topic, b"v")
        delivery.add_done_callback(lambda done: told.append(done.result().offset))
    assert told == [3, 4]


@row("confluent-kafka", "`Producer.poll(0)`")
def _(place: Place) -> None:
    told: list[object] = []
    with place.producer() as producer:
        delivery = producer.send(place.topic, b"v")
        delivery.add_done_callback(told.append)
        producer.flush(WAIT_S)
    assert told == [delivery]


@row("confluent-kafka", "`Producer.flush(timeout)`")
def _(place: Place) -> None:
    theirs = confluent_kafka.Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    theirs.produce(place.topic, b"v")
    assert theirs.flush(0) == 1
    theirs.purge()
    with place.producer(linger_ms=60_000) as producer:
        producer.send(place.topic, b"v")
        with pytest.raises(CallTimeoutError):
            producer.flush(0)
        producer.flush(WAIT_S)


@row("confluent-kafka", "`Producer.produce_batch(topic, messages)`")
def _(place: Place) -> None:
    theirs = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
    theirs.produce_batch(place.topic, [{"value": b"a"}, {"value": b"b"}])
    theirs.flush(WAIT_S)
    with place.producer() as producer:
        producer.send_batch(place.topic, {"value": [b"a", b"b"]}).result(WAIT_S)
    assert place.values()[3:] == [b"a", b"b"] * 2


@row("confluent-kafka", "`Producer.list_topics()`")
def _(place: Place) -> None:
    theirs = confluent_kafka.Producer({"bootstrap.servers": place.bootstrap})
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        ours = {topic.name for topic in admin.list_topics()}
    assert place.topic in ours
    assert place.topic in theirs.list_topics(timeout=WAIT_S).topics


class Told(RebalanceListener):
    def __init__(self) -> None:
        self.partitions: list[Any] = []

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.partitions += partitions


@row("confluent-kafka", "`Consumer.subscribe(topics, on_assign, on_revoke)`")
def _(place: Place) -> None:
    assigned: list[Any] = []
    theirs = confluent_consumer(place)
    theirs.subscribe([place.topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    theirs.consume(1, WAIT_S)
    theirs.close()
    listener = Told()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe([place.topic], listener)
        consumer.poll(WAIT_S)
    assert [one.partition for one in assigned] == [one.partition for one in listener.partitions] == [0]


@row("confluent-kafka", '`Consumer.subscribe(["^orders-.*"])`')
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.subscribe([f"^{place.topic[:-1]}.*"])
    assert [one.value() for one in theirs.consume(3, WAIT_S)] == [b"0", b"1", b"2"]
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe(re.compile(f"{place.topic[:-1]}.*"))
        assert [one.value for one in consumer.poll(WAIT_S)] == [b"0", b"1", b"2"]


@row("confluent-kafka", "`Consumer.poll(timeout)`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.subscribe([place.topic])
    message = theirs.poll(WAIT_S)
    assert message is not None
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe([place.topic])
        (record,) = consumer.poll(WAIT_S, max_records=1)
        assert record.value == message.value() == b"0"
        assert next(iter(consumer)).value == b"1"


@row("confluent-kafka", "`Consumer.consume(count, timeout)`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.subscribe([place.topic])
    messages = theirs.consume(2, WAIT_S)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe([place.topic])
        records = consumer.poll(WAIT_S, max_records=2)
    assert [one.value() for one in messages] == [one.value for one in records] == [b"0", b"1"]


def committed_by(place: Place, commit: Callable[[Any], object]) -> int:
    """What the group has committed after a poll of two records and this, and a close."""
    settings = place.settings()
    with Consumer(settings) as consumer:
        consumer.subscribe([place.topic])
        assert len(consumer.poll(WAIT_S, max_records=2)) == 2
        commit(consumer)
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        return admin.list_consumer_group_offsets(settings["group.id"])[place.partition].offset


@row("confluent-kafka", "`Consumer.commit(asynchronous=False)`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.subscribe([place.topic])
    theirs.consume(2, WAIT_S)
    assert [one.offset for one in theirs.commit(asynchronous=False)] == [2]
    theirs.close()
    assert committed_by(place, lambda consumer: consumer.commit()) == 2


@row("confluent-kafka", "`Consumer.commit()`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.subscribe([place.topic])
    theirs.consume(2, WAIT_S)
    assert theirs.commit() is None
    theirs.close()
    assert committed_by(place, lambda consumer: consumer.commit_async()) == 2


@row("confluent-kafka", "`Consumer.store_offsets(message)`")
def _(place: Place) -> None:
    theirs = confluent_kafka.Consumer({**place.settings(), "enable.auto.offset.store": False})
    theirs.subscribe([place.topic])
    message = theirs.poll(WAIT_S)
    assert message is not None
    theirs.store_offsets(message)
    assert [one.offset for one in theirs.commit(asynchronous=False)] == [1]
    theirs.close()
    assert committed_by(place, lambda consumer: consumer.commit({place.partition: 0 + 1})) == 1


@row("confluent-kafka", "`Consumer.assign([TopicPartition(topic, 0, offset)])`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.assign([confluent_partition(place, 1)])
    messages = theirs.consume(2, WAIT_S)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.assign([TopicPartition(place.topic, 0)])
        consumer.seek(place.partition, 1)
        records = consumer.poll(WAIT_S)
    assert [one.offset() for one in messages] == [one.offset for one in records] == [1, 2]


@row("confluent-kafka", "`Consumer.get_watermark_offsets(partition)`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    low_high = theirs.get_watermark_offsets(confluent_partition(place), WAIT_S)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        partition = place.partition
        ours = consumer.beginning_offsets([partition])[partition], consumer.end_offsets([partition])[partition]
    assert low_high == ours == (0, 3)


@row("confluent-kafka", "`Consumer.committed([partition])`")
def _(place: Place) -> None:
    settings = place.settings()
    theirs = confluent_kafka.Consumer(settings)
    theirs.commit(offsets=[confluent_partition(place, 2)], asynchronous=False)
    (committed,) = theirs.committed([confluent_partition(place)], WAIT_S)
    theirs.close()
    with Consumer(settings) as consumer:
        ours = consumer.committed([place.partition])[place.partition]
    assert ours is not None
    assert committed.offset == ours.offset == 2


@row("confluent-kafka", "`Consumer.offsets_for_times([partition])`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    (found,) = theirs.offsets_for_times([confluent_partition(place, 1500)], WAIT_S)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        ours = consumer.offsets_for_times({place.partition: 1500})[place.partition]
    assert ours is not None
    assert found.offset == ours.offset == 1


@row("confluent-kafka", "`Consumer.pause`, `Consumer.resume`, `Consumer.seek`, `Consumer.position`")
def _(place: Place) -> None:
    theirs = confluent_consumer(place)
    theirs.assign([confluent_partition(place, 0)])
    assert theirs.consume(1, WAIT_S)
    theirs.pause([confluent_partition(place)])
    theirs.resume([confluent_partition(place)])
    theirs.seek(confluent_partition(place, 2))
    (message,) = theirs.consume(1, WAIT_S)
    (position,) = theirs.position([confluent_partition(place)])
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        consumer.pause([place.partition])
        consumer.resume([place.partition])
        consumer.seek(place.partition, 2)
        (record,) = consumer.poll(WAIT_S)
        assert (message.offset(), position.offset) == (record.offset, consumer.position(place.partition)) == (2, 3)


def one_of_each(place: Place) -> tuple[Any, Any]:
    """The first message of theirs and the first record of ours."""
    theirs = confluent_consumer(place)
    theirs.subscribe([place.topic])
    message = theirs.poll(WAIT_S)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe([place.topic])
        (record,) = consumer.poll(WAIT_S, max_records=1)
    return message, record


@row("confluent-kafka", "`message.value()`, `message.key()`, `message.offset()`")
def _(place: Place) -> None:
    message, record = one_of_each(place)
    assert (message.value(), message.key(), message.offset()) == (record.value, record.key, record.offset)


@row("confluent-kafka", "`message.timestamp()`")
def _(place: Place) -> None:
    message, record = one_of_each(place)
    kind, timestamp = message.timestamp()
    assert (kind, timestamp) == (confluent_kafka.TIMESTAMP_CREATE_TIME, 1000)
    assert (record.timestamp_type, record.timestamp) == (0, 1000)


@row("confluent-kafka", "`message.error()`")
def _(place: Place) -> None:
    theirs = confluent_kafka.Consumer(place.settings(auto_offset_reset="error"))
    theirs.assign([confluent_partition(place, 50)])
    message = theirs.poll(WAIT_S)
    theirs.close()
    assert message is not None
    assert message.error() is not None
    with Consumer(place.settings(auto_offset_reset="none")) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 50)
        with pytest.raises(OffsetOutOfRangeError):
            consumer.poll(WAIT_S)


@row("confluent-kafka", "`AdminClient.create_topics(topics)`, futures")
def _(place: Place) -> None:
    theirs = confluent_kafka.admin.AdminClient({"bootstrap.servers": place.bootstrap})
    name = f"{place.topic}-theirs"
    new = confluent_kafka.admin.NewTopic(name, 2, 1)  # type: ignore[attr-defined]
    theirs.create_topics([new])[name].result(WAIT_S)
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{place.topic}-ours", partitions=2)])
        names = [name, f"{place.topic}-ours"]
        assert [len(one.partitions) for one in admin.describe_topics(names).values()] == [2, 2]


@pytest.mark.parametrize(
    ("client", "theirs", "ours"),
    [
        (Producer, "queue.buffering.max.ms", "linger.ms"),
        (Producer, "message.max.bytes", "max.request.size"),
        (Consumer, "queued.max.messages.kbytes", "queued.max.bytes"),
    ],
)
def test_configs_with_other_names(client: Any, theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(theirs)):
        client({"bootstrap.servers": "localhost:9092", theirs: 5})
    client({"bootstrap.servers": "localhost:9092", ours: 5_000_000}).close()


# kafka-python.


def python_consumer(place: Place, *topics: str, **more: object) -> Any:
    return kafka.KafkaConsumer(*topics, **{**place.keywords(), **more})


def python_producer(place: Place, **more: object) -> Any:
    return kafka.KafkaProducer(bootstrap_servers=place.bootstrap, **more)


def python_partition(place: Place) -> Any:
    return kafka.TopicPartition(place.topic, 0)


@row("kafka-python", "`KafkaProducer(bootstrap_servers=…, value_serializer=f)`")
def _(place: Place) -> None:
    theirs = python_producer(place, value_serializer=str.encode)
    theirs.send(place.topic, "text").get(WAIT_S)
    theirs.close()

    def serialize(_topic: str, value: str) -> bytes:
        return value.encode()

    with Producer(bootstrap_servers=place.bootstrap, value_serializer=serialize) as producer:
        producer.send(place.topic, "text")
    with Producer(bootstrap_servers=place.bootstrap, value_serializer="json") as by_name:
        by_name.send(place.topic, "text")
    assert place.values()[3:] == [b"text", b"text", b'"text"']


@row("kafka-python", "`KafkaProducer.send(topic, value, key, headers, partition, timestamp_ms)`")
def _(place: Place) -> None:
    theirs = python_producer(place)
    theirs.send(place.topic, b"v", b"k", [("h", b"1")], 0, 5).get(WAIT_S)
    theirs.close()
    with place.producer() as producer:
        producer.send(place.topic, b"v", b"k", [("h", b"1")], 5, 0)
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 3, until=5)
        first, second = consumer
    assert first._replace(offset=4) == second


@row("kafka-python", "`future.get(timeout)`")
def _(place: Place) -> None:
    theirs = python_producer(place)
    metadata = theirs.send(place.topic, b"v").get(WAIT_S)
    theirs.close()
    with place.producer() as producer:
        assert producer.send(place.topic, b"v").result(WAIT_S).offset == metadata.offset + 1 == 4


@row("kafka-python", "`future.add_callback(f)`, `future.add_errback(f)`")
def _(place: Place) -> None:
    told: list[int | None] = []
    theirs = python_producer(place)
    future = theirs.send(place.topic, b"v")
    future.add_callback(lambda metadata: told.append(metadata.offset))
    future.add_errback(told.append)
    theirs.close()
    with place.producer() as producer:
        producer.send(place.topic, b"v").add_done_callback(lambda done: told.append(done.result().offset))
    assert told == [3, 4]


@row("kafka-python", "`KafkaProducer.flush(timeout)`, `KafkaProducer.close()`")
def _(place: Place) -> None:
    theirs = python_producer(place)
    theirs.send(place.topic, b"v")
    theirs.flush(WAIT_S)
    theirs.close()
    producer = place.producer()
    producer.send(place.topic, b"v")
    producer.flush(WAIT_S)
    producer.close()
    assert place.values()[3:] == [b"v", b"v"]


@row("kafka-python", "`KafkaProducer.partitions_for(topic)`")
def _(place: Place) -> None:
    theirs = python_producer(place)
    found = theirs.partitions_for(place.topic)
    theirs.close()
    with place.producer() as producer:
        assert found == {0} == {one.index for one in producer.partitions_for(place.topic)}


@row("kafka-python", '`KafkaConsumer("orders", group_id=…)`')
def _(place: Place) -> None:
    theirs = python_consumer(place, place.topic)
    message = next(theirs)
    theirs.close()
    with Consumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        assert next(iter(consumer)).value == message.value == b"0"


@row("kafka-python", '`KafkaConsumer.subscribe(pattern="orders-.*")`')
def _(place: Place) -> None:
    theirs = python_consumer(place)
    theirs.subscribe(pattern=f"{place.topic[:-1]}.*")
    message = next(theirs)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe(re.compile(f"{place.topic[:-1]}.*"))
        assert next(iter(consumer)).value == message.value


@row("kafka-python", "`for message in consumer`")
def _(place: Place) -> None:
    theirs = python_consumer(place, place.topic, consumer_timeout_ms=2000)
    values = [message.value for message in theirs]
    theirs.close()
    assert values == place.values()


@row("kafka-python", "`KafkaConsumer.poll(timeout_ms=1000, max_records=n)`, a dict")
def _(place: Place) -> None:
    theirs = python_consumer(place)
    theirs.assign([python_partition(place)])
    polled: dict[Any, list[Any]] = {}
    while not polled:
        polled = theirs.poll(timeout_ms=1000, max_records=2)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        records = consumer.poll(WAIT_S, max_records=2)
    ((_, messages),) = polled.items()
    assert [one.value for one in messages] == [one.value for one in records]


@row("kafka-python", "`KafkaConsumer.commit()`, `KafkaConsumer.commit_async()`")
def _(place: Place) -> None:
    theirs = python_consumer(place, place.topic)
    next(theirs)
    theirs.commit()
    theirs.commit_async()
    assert theirs.committed(python_partition(place)) == 1
    theirs.close()
    assert committed_by(place, lambda consumer: consumer.commit()) == 2
    assert committed_by(place, lambda consumer: consumer.commit_async()) == 2


@row("kafka-python", "`KafkaConsumer.committed(partition)`")
def _(place: Place) -> None:
    settings = place.keywords()
    with Consumer(**settings) as consumer:
        consumer.commit({place.partition: 2})
        ours = consumer.committed([place.partition])[place.partition]
    theirs = kafka.KafkaConsumer(**settings)
    found = theirs.committed(python_partition(place))
    theirs.close()
    assert ours is not None
    assert found == ours.offset == 2


@row(
    "kafka-python",
    "`KafkaConsumer.beginning_offsets`, `KafkaConsumer.end_offsets`, `KafkaConsumer.offsets_for_times`",
)
def _(place: Place) -> None:
    theirs = python_consumer(place)
    partition = python_partition(place)
    found = (
        theirs.beginning_offsets([partition])[partition],
        theirs.end_offsets([partition])[partition],
        theirs.offsets_for_times({partition: 1500})[partition].offset,
    )
    theirs.close()
    with Consumer(place.settings()) as consumer:
        at = consumer.offsets_for_times({place.partition: 1500})[place.partition]
        assert at is not None
        ours = (
            consumer.beginning_offsets([place.partition])[place.partition],
            consumer.end_offsets([place.partition])[place.partition],
            at.offset,
        )
    assert found == ours == (0, 3, 1)


@row("kafka-python", "`KafkaConsumer.seek_to_beginning(*partitions)`")
def _(place: Place) -> None:
    theirs = python_consumer(place)
    theirs.assign([python_partition(place)])
    theirs.seek(python_partition(place), 2)
    theirs.seek_to_beginning(python_partition(place))
    message = next(theirs)
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 2)
        consumer.seek_to_beginning([place.partition])
        assert next(iter(consumer)).offset == message.offset == 0


@row("kafka-python", "`KafkaConsumer.pause(*partitions)`, `KafkaConsumer.resume(*partitions)`")
def _(place: Place) -> None:
    theirs = python_consumer(place)
    theirs.assign([python_partition(place)])
    theirs.pause(python_partition(place))
    paused = len(theirs.paused())
    theirs.resume(python_partition(place))
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        consumer.pause([place.partition])
        assert len(consumer.paused()) == paused == 1
        consumer.resume([place.partition])
        assert not consumer.paused()


@row("kafka-python", "`KafkaConsumer.highwater(partition)`")
def _(place: Place) -> None:
    theirs = python_consumer(place, place.topic)
    next(theirs)
    high = theirs.highwater(python_partition(place))
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.subscribe([place.topic])
        (record,) = consumer.poll(WAIT_S, max_records=1)
        assert high == consumer.end_offsets([place.partition])[place.partition] == 3
        assert consumer.lag(place.partition) == high - record.offset - 1


@row("kafka-python", "`KafkaConsumer.partitions_for_topic(topic)`, `KafkaConsumer.topics()`")
def _(place: Place) -> None:
    theirs = python_consumer(place)
    found, topics = theirs.partitions_for_topic(place.topic), theirs.topics()
    theirs.close()
    with Consumer(place.settings()) as consumer:
        assert found == {one.index for one in consumer.partitions_for(place.topic).partitions}
        assert place.topic in topics
        assert place.topic in consumer.topics()


@row("kafka-python", "`consumer_timeout_ms=…`")
def _(place: Place) -> None:
    theirs = python_consumer(place, consumer_timeout_ms=100)
    theirs.assign([python_partition(place)])
    theirs.seek(python_partition(place), 3)
    assert list(theirs) == []
    theirs.close()
    with Consumer(place.settings()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 3)
        assert consumer.poll(0.1) == []


@row("kafka-python", "`KafkaAdminClient.create_topics(topics)`")
def _(place: Place) -> None:
    theirs = kafka.KafkaAdminClient(bootstrap_servers=place.bootstrap)
    theirs.create_topics([kafka.admin.NewTopic(f"{place.topic}-theirs", 2, 1)])
    theirs.close()
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{place.topic}-ours", partitions=2)])
        names = [f"{place.topic}-theirs", f"{place.topic}-ours"]
        assert [len(one.partitions) for one in admin.describe_topics(names).values()] == [2, 2]


def group_with_offsets(place: Place) -> str:
    settings = place.settings()
    with Consumer(settings) as consumer:
        consumer.commit({place.partition: 2})
    return str(settings["group.id"])


@row("kafka-python", "`KafkaAdminClient.describe_groups(groups)`")
def _(place: Place) -> None:
    group = group_with_offsets(place)
    theirs = kafka.KafkaAdminClient(bootstrap_servers=place.bootstrap)
    found = theirs.describe_groups([group])
    theirs.close()
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        assert admin.describe_consumer_groups([group])[group].group_id in str(found)


@row("kafka-python", "`KafkaAdminClient.list_group_offsets(group)`")
def _(place: Place) -> None:
    group = group_with_offsets(place)
    theirs = kafka.KafkaAdminClient(bootstrap_servers=place.bootstrap)
    found = str(theirs.list_group_offsets(group))
    theirs.close()
    assert "2" in found
    with Admin(bootstrap_servers=place.bootstrap) as admin:
        assert admin.list_consumer_group_offsets(group)[place.partition].offset == 2


# aiokafka.


async def async_consumer(place: Place, *topics: str) -> Any:
    theirs = aiokafka.AIOKafkaConsumer(*topics, **place.keywords())
    await theirs.start()
    return theirs


def async_partition(place: Place) -> Any:
    return aiokafka.TopicPartition(place.topic, 0)


@async_row("`AIOKafkaProducer(…)`, `await AIOKafkaProducer.start()`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    await theirs.send_and_wait(place.topic, b"v")
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        assert (await producer.send_and_wait(place.topic, b"v")).offset == 4


@async_row("`await AIOKafkaProducer.stop()`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    await theirs.send(place.topic, b"v")
    await theirs.stop()
    producer = AsyncProducer(bootstrap_servers=place.bootstrap)
    await producer.send(place.topic, b"v")
    await producer.close()
    assert (await asyncio.to_thread(place.values))[3:] == [b"v", b"v"]


@async_row("`await AIOKafkaProducer.send_and_wait(topic, value)`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    metadata = await theirs.send_and_wait(place.topic, b"v")
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        assert (await producer.send_and_wait(place.topic, b"v")).offset == metadata.offset + 1


@async_row("`await AIOKafkaProducer.send(topic, value)`, a future")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    future = await theirs.send(place.topic, b"v")
    assert (await future).offset == 3
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        delivery = await producer.send(place.topic, b"v")
        assert (await delivery).offset == 4


@async_row("`AIOKafkaProducer.create_batch()`, `AIOKafkaProducer.send_batch(batch, topic, partition=0)`")
async def _(place: Place) -> None:
    theirs = aiokafka.AIOKafkaProducer(bootstrap_servers=place.bootstrap)
    await theirs.start()
    batch = theirs.create_batch()
    batch.append(key=None, value=b"a", timestamp=None)
    await (await theirs.send_batch(batch, place.topic, partition=0))
    await theirs.stop()
    async with AsyncProducer(bootstrap_servers=place.bootstrap) as producer:
        await (await producer.send_batch(place.topic, {"value": [b"a"]}, partition=0))
    assert (await asyncio.to_thread(place.values))[3:] == [b"a", b"a"]


@async_row('`AIOKafkaConsumer("orders", group_id=…)`, `await AIOKafkaConsumer.start()`')
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        assert (await consumer.poll(WAIT_S))[0].value == message.value


@async_row("`await AIOKafkaConsumer.getone()`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        (record,) = await consumer.poll(max_records=1)
    assert record.value == message.value == b"0"


@async_row("`await AIOKafkaConsumer.getmany(timeout_ms=1000)`, a dict")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    polled: dict[Any, list[Any]] = {}
    while not polled:
        polled = await theirs.getmany(timeout_ms=1000)
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        records = await consumer.poll(WAIT_S)
    ((_, messages),) = polled.items()
    assert [one.value for one in messages] == [one.value for one in records]


@async_row("`async for message in consumer`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    values: list[bytes] = []
    async for message in theirs:
        values.append(message.value)
        if len(values) == 3:
            break
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        async for record in consumer:
            assert record.value == values.pop(0)
            if not values:
                break


@async_row("`await AIOKafkaConsumer.commit()`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    await theirs.getone()
    await theirs.commit()
    assert await theirs.committed(async_partition(place)) == 1
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        await consumer.poll(WAIT_S, max_records=1)
        await consumer.commit()
        committed = (await consumer.committed([place.partition]))[place.partition]
        assert committed is not None
        assert committed.offset == 1


@async_row("`await AIOKafkaConsumer.committed(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    assert await theirs.committed(async_partition(place)) is None
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        assert await consumer.committed([place.partition]) == {place.partition: None}


@async_row("`AIOKafkaConsumer.seek(partition, offset)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    theirs.assign([async_partition(place)])
    theirs.seek(async_partition(place), 2)
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 2)
        assert (await consumer.poll(WAIT_S))[0].offset == message.offset == 2


@async_row("`await AIOKafkaConsumer.seek_to_beginning(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    theirs.assign([async_partition(place)])
    await theirs.seek_to_beginning(async_partition(place))
    message = await theirs.getone()
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.assign([place.partition])
        consumer.seek(place.partition, 2)
        consumer.seek_to_beginning([place.partition])
        assert (await consumer.poll(WAIT_S))[0].offset == message.offset == 0


@async_row("`await AIOKafkaConsumer.position(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    theirs.assign([async_partition(place)])
    await theirs.getone()
    found = await theirs.position(async_partition(place))
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.assign([place.partition])
        await consumer.poll(WAIT_S, max_records=1)
        assert await consumer.position(place.partition) == found == 1


@async_row("`await AIOKafkaConsumer.end_offsets([partition])`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place)
    found = await theirs.end_offsets([async_partition(place)])
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        assert list((await consumer.end_offsets([place.partition])).values()) == list(found.values()) == [3]


@async_row("`AIOKafkaConsumer.highwater(partition)`")
async def _(place: Place) -> None:
    theirs = await async_consumer(place, place.topic)
    message = await theirs.getone()
    high = theirs.highwater(async_partition(place))
    await theirs.stop()
    async with AsyncConsumer(**place.keywords()) as consumer:
        consumer.subscribe([place.topic])
        await consumer.poll(WAIT_S, max_records=1)
        assert consumer.lag(place.partition) == high - message.offset - 1 == 2


# All of them.


def test_every_row_is_tried() -> None:
    assert {client: sorted(rows) for client, rows in ROWS.items()} == {
        client: sorted(rows) for client, rows in rows_of_the_page().items()
    }


@pytest.mark.filterwarnings("ignore:.*does not implement kafka.serializer:DeprecationWarning")
@pytest.mark.parametrize(("client", "left"), [(client, left) for client, rows in ROWS.items() for left in rows])
def test_a_row(client: str, left: str, place: Place) -> None:
    ROWS[client][left](place)
