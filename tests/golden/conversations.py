"""What clients and brokers are made to say for the golden frames, in pieces that a capture puts together."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

CLIENT_ID = "golden"
TIMEOUT_S = 20
START_MS = 1_700_000_000_000


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def attempt(name: str, step: Callable[..., object], *arguments: Any) -> None:
    """Old clients do not get all they ask of new brokers; what was said until then is kept all the same."""
    try:
        step(*arguments)
    except Exception as error:
        say(f"  {name}: {error!r}")


def create_topic(address: str, topic: str, partitions: int = 1, replicas: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": address, "client.id": CLIENT_ID, "log_level": 2})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas)
    for created in admin.create_topics([new], operation_timeout=TIMEOUT_S).values():
        created.result(TIMEOUT_S)


def librdkafka(address: str, topic: str, group_protocol: str = "classic") -> None:
    """Produces in a transaction, consumes in a group, changes configs, creates and deletes topics."""
    create_topic(address, topic)
    create_topic(address, f"{topic}.gone")
    common: dict[str, Any] = {"bootstrap.servers": address, "client.id": CLIENT_ID, "log_level": 2}
    producer = confluent_kafka.Producer({**common, "transactional.id": f"{topic}.transactions"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(3):
        producer.produce(topic, b"value", b"key", partition=0, timestamp=START_MS + number)
    producer.flush(TIMEOUT_S)
    consumer = confluent_kafka.Consumer(
        {
            **common,
            "group.id": f"{topic}.{group_protocol}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 100,
            "group.protocol": group_protocol,
            **({"heartbeat.interval.ms": 500} if group_protocol == "classic" else {}),
        }
    )
    consumer.subscribe([topic])
    consumer.poll(5)
    partition = confluent_kafka.TopicPartition(topic, 0, 1)
    producer.send_offsets_to_transaction([partition], consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    for _ in range(4):
        consumer.poll(1)
    consumer.commit(asynchronous=False)
    consumer.committed([partition], TIMEOUT_S)
    consumer.get_watermark_offsets(partition, TIMEOUT_S)
    consumer.offsets_for_times([confluent_kafka.TopicPartition(topic, 0, START_MS)], TIMEOUT_S)
    consumer.list_topics(topic, TIMEOUT_S)
    consumer.close()
    admin = AdminClient(common)
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "-1"})
    for changed in admin.alter_configs([resource]).values():
        changed.result(TIMEOUT_S)
    admin.list_consumer_groups().result(TIMEOUT_S)
    for deleted in admin.delete_topics([f"{topic}.gone"]).values():
        deleted.result(TIMEOUT_S)


def kafka_python(address: str, topic: str, api_version: tuple[int, ...] | None) -> None:
    """Produces and consumes in a group, as a client that takes the broker for one of that version."""
    common: dict[str, Any] = {"bootstrap_servers": address, "client_id": CLIENT_ID, "api_version": api_version}
    modern = api_version is None or api_version >= (0, 11)
    producer = kafka.KafkaProducer(**common, enable_idempotence=modern)
    for number in range(3):
        producer.send(topic, value=b"value", key=b"key", partition=0, timestamp_ms=START_MS + number)
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        topic,
        **common,
        group_id=f"{topic}.group",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        fetch_max_wait_ms=100,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while not consumer.poll(500) and time.monotonic() < deadline:
        pass
    consumer.poll(500)
    consumer.commit()
    consumer.committed(kafka.TopicPartition(topic, 0))
    consumer.end_offsets([kafka.TopicPartition(topic, 0)])
    consumer.close()


def aiokafka_client(address: str, topic: str) -> None:
    async def converse() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, client_id=CLIENT_ID)
        await producer.start()
        await producer.send_and_wait(topic, b"value", b"key", partition=0, timestamp_ms=START_MS)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=address,
            client_id=CLIENT_ID,
            group_id=f"{topic}.group",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=200,
        )
        await consumer.start()
        await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
        await consumer.commit()
        await asyncio.sleep(1)
        await consumer.stop()

    asyncio.run(converse())


def replicate(address: str, topic: str) -> None:
    """Gives two brokers a replicated topic to talk about, and takes another away from them."""
    for name in (topic, f"{topic}.gone"):
        create_topic(address, name, partitions=2, replicas=2)
    producer = confluent_kafka.Producer({"bootstrap.servers": address, "client.id": CLIENT_ID, "log_level": 2})
    for number in range(4):
        producer.produce(topic, b"value", b"key", partition=number % 2, timestamp=START_MS + number)
    producer.flush(TIMEOUT_S)
    admin = AdminClient({"bootstrap.servers": address, "client.id": CLIENT_ID, "log_level": 2})
    for changed in (
        *admin.create_partitions([NewPartitions(topic, 3)]).values(),
        *admin.delete_topics([f"{topic}.gone"], operation_timeout=TIMEOUT_S).values(),
    ):
        changed.result(TIMEOUT_S)
