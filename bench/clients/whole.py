"""Programs that send a million records, or read them, and end: everything counts, from the start of the process on."""

from __future__ import annotations

from typing import Final

from bench.broker.control import check_end_offset
from bench.clients import conditions
from bench.clients.conditions import POLL_RECORDS, WAIT_S
from bench.clients.measuring import BURST, values_of

COUNT: Final = 1_000_000
_POLL_S: Final = 5.0


def ottla_produce(address: str, topic: str, value_bytes: int) -> dict[str, float]:
    from ottla import Producer

    values = values_of(value_bytes)
    with Producer(conditions.ottla_producer(address)) as producer:
        send = producer.send
        for _ in range(COUNT // BURST):
            for value in values:
                send(topic, value)
    check_end_offset(address, topic, 0, COUNT)
    return {}


def confluent_produce(address: str, topic: str, value_bytes: int) -> dict[str, float]:
    import confluent_kafka

    values = values_of(value_bytes)
    producer = confluent_kafka.Producer(conditions.confluent_producer(address))
    produce, poll = producer.produce, producer.poll
    for _ in range(COUNT // BURST):
        for value in values:
            while True:
                try:
                    produce(topic, value)
                    break
                except BufferError:
                    poll(0.005)
        poll(0)
    producer.flush(WAIT_S)
    check_end_offset(address, topic, 0, COUNT)
    return {}


def ottla_consume(address: str, topic: str, value_bytes: int) -> dict[str, float]:
    from ottla import Consumer, TopicPartition

    read = read_bytes = 0
    with Consumer(conditions.ottla_consumer(address)) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while read < COUNT:
            records = consumer.poll(_POLL_S)
            read += len(records)
            read_bytes += sum([len(record.value or b"") for record in records])
    return _checked(read_bytes, value_bytes)


def confluent_consume(address: str, topic: str, value_bytes: int) -> dict[str, float]:
    import confluent_kafka

    read = read_bytes = 0
    consumer = confluent_kafka.Consumer(conditions.confluent_consumer(address))
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    while read < COUNT:
        messages = consumer.consume(min(POLL_RECORDS, COUNT - read), _POLL_S)
        read += len(messages)
        read_bytes += sum([len(message.value() or b"") for message in messages])
    consumer.close()
    return _checked(read_bytes, value_bytes)


def _checked(read_bytes: int, value_bytes: int) -> dict[str, float]:
    if read_bytes != COUNT * value_bytes:
        raise RuntimeError(f"{COUNT} records of {value_bytes} bytes came with {read_bytes} bytes")
    return {}
