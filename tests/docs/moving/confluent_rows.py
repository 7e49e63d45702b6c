"""Rows of the table for confluent-kafka."""

from __future__ import annotations

import re
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from docs.moving.rows import WAIT_S, Place, committed_by, row
from ottla import Admin, Consumer, Producer, TopicPartition
from ottla.client.administer import NewTopic
from ottla.client.consume import RebalanceListener
from ottla.client.errors import CallTimeoutError, OffsetOutOfRangeError


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


@row(
    "confluent-kafka",
    "`Producer.init_transactions()`, `Producer.begin_transaction()`, `Producer.commit_transaction()`, "
    "`Producer.abort_transaction()`",
)
def _(place: Place) -> None:
    settings = {"bootstrap.servers": place.bootstrap, "transactional.id": place.topic}
    theirs = confluent_kafka.Producer(settings)
    theirs.init_transactions(WAIT_S)
    for end in (theirs.commit_transaction, theirs.abort_transaction):
        theirs.begin_transaction()
        theirs.produce(place.topic, b"theirs")
        end(WAIT_S)
    with Producer(settings) as producer:
        with producer.transaction():
            producer.send(place.topic, b"ours")
        producer.begin_transaction()
        producer.send(place.topic, b"ours")
        producer.abort_transaction()
    assert place.values_of_transactions() == [b"theirs", b"ours"]


@row("confluent-kafka", "`Producer.send_offsets_to_transaction(positions, group_metadata)`")
def _(place: Place) -> None:
    settings = {"bootstrap.servers": place.bootstrap, "transactional.id": place.topic}
    theirs, reader = confluent_kafka.Producer(settings), confluent_consumer(place)
    reader.subscribe([place.topic])
    assert reader.poll(WAIT_S) is not None
    theirs.init_transactions(WAIT_S)
    theirs.begin_transaction()
    theirs.send_offsets_to_transaction(reader.position(reader.assignment()), reader.consumer_group_metadata(), WAIT_S)
    theirs.commit_transaction(WAIT_S)
    reader.close()

    def commit(consumer: Consumer) -> None:
        with Producer(settings) as producer, producer.transaction():
            producer.send_offsets_to_transaction(consumer.positions(), consumer.group_metadata())

    assert committed_by(place, commit) == 2
