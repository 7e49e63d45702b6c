"""Rows of the table for kafka-python."""

from __future__ import annotations

import re
import warnings
from typing import Any

from docs.moving.rows import WAIT_S, Place, committed_by, row
from ottla import Admin, Consumer, Producer
from ottla.client.administer import NewTopic

with warnings.catch_warnings():
    # It reads its message definitions by functions that Python 3.11 calls deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    import kafka
    import kafka.admin


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


@row(
    "kafka-python",
    "`KafkaProducer.init_transactions()`, `KafkaProducer.begin_transaction()`, `KafkaProducer.commit_transaction()`, "
    "`KafkaProducer.abort_transaction()`",
)
def _(place: Place) -> None:
    theirs = kafka.KafkaProducer(bootstrap_servers=place.bootstrap, transactional_id=place.topic)
    theirs.init_transactions()
    for end in (theirs.commit_transaction, theirs.abort_transaction):
        theirs.begin_transaction()
        theirs.send(place.topic, b"theirs")
        end()
    theirs.close()
    with place.producer(transactional_id=place.topic) as producer:
        producer.init_transactions()
        for call in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.send(place.topic, b"ours")
            call()
    assert place.values_of_transactions() == [b"theirs", b"ours"]
