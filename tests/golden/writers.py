"""The producers that write golden scenarios: Java of both versions, librdkafka, kafka-python and aiokafka.

Each sends a scenario's batches one by one and returns what the broker acknowledged.
"""

from __future__ import annotations

import asyncio
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from golden import scenarios
from golden.java_writer import Acknowledged, write_by_java
from golden.scenarios import Scenario
from support.kafka_process import Broker

CLIENT_ID = "golden"
LINGER_MS = 5000
FLUSH_TIMEOUT_S = 60


def writer_version(name: str) -> str:
    versions = {
        scenarios.LIBRDKAFKA: f"librdkafka {confluent_kafka.libversion()[0]}",
        scenarios.KAFKA_PYTHON: f"kafka-python {kafka.__version__}",
        scenarios.AIOKAFKA: f"aiokafka {aiokafka.__version__}",
    }
    return versions.get(name, f"Java producer {name.removeprefix('java-')}")


def write_all(broker: Broker, wanted: list[Scenario]) -> dict[str, Acknowledged]:
    acknowledged: dict[str, Acknowledged] = {}
    for version in ("3.9.1", "4.3.1"):
        of_java = [scenario for scenario in wanted if scenario.writer == f"java-{version}"]
        if of_java:
            acknowledged |= write_by_java(broker, version, of_java)
    for scenario in wanted:
        if scenario.writer == scenarios.LIBRDKAFKA:
            acknowledged[scenario.topic] = _write_by_librdkafka(broker, scenario)
        elif scenario.writer == scenarios.KAFKA_PYTHON:
            acknowledged[scenario.topic] = _write_by_kafka_python(broker, scenario)
        elif scenario.writer == scenarios.AIOKAFKA:
            acknowledged[scenario.topic] = asyncio.run(_write_by_aiokafka(broker, scenario))
    return acknowledged


def _write_by_librdkafka(broker: Broker, scenario: Scenario) -> Acknowledged:
    config: dict[str, Any] = {
        "bootstrap.servers": broker.address,
        "client.id": CLIENT_ID,
        "log_level": 2,
        "linger.ms": LINGER_MS,
        "compression.type": scenario.codec,
        "enable.idempotence": scenario.idempotent,
    }
    if scenario.transactional:
        config["transactional.id"] = scenario.name
    if scenario.magic < 2:
        # A librdkafka that asks for versions writes the newest format and lets the broker convert it.
        config |= {"api.version.request": False, "broker.version.fallback": "0.9.0"}
    producer = confluent_kafka.Producer(config)
    acknowledged: Acknowledged = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        offset = message.offset()
        acknowledged.append((-1 if offset is None else offset, message.timestamp()[1]))

    if scenario.transactional:
        producer.init_transactions()
    for sent in scenario.batches:
        if sent.end:
            producer.begin_transaction()
        for given in sent.records:
            more: dict[str, Any] = {"headers": list(given.headers)} if given.headers else {}
            producer.produce(
                scenario.topic,
                given.value,
                given.key,
                partition=0,
                timestamp=given.timestamp_ms,
                on_delivery=delivered,
                **more,
            )
        if producer.flush(FLUSH_TIMEOUT_S):
            raise RuntimeError(f"{scenario.name}: records are not acknowledged after {FLUSH_TIMEOUT_S} s")
        if sent.end == "commit":
            producer.commit_transaction()
        elif sent.end == "abort":
            producer.abort_transaction()
    return acknowledged


def _write_by_kafka_python(broker: Broker, scenario: Scenario) -> Acknowledged:
    config: dict[str, Any] = {}
    if scenario.transactional:
        config["transactional_id"] = scenario.name
    if scenario.magic < 2:
        config["api_version"] = (0, 9) if scenario.magic == 0 else (0, 10, 2)
    producer = kafka.KafkaProducer(
        bootstrap_servers=broker.address,
        client_id=CLIENT_ID,
        linger_ms=LINGER_MS,
        compression_type=None if scenario.codec == "none" else scenario.codec,
        enable_idempotence=scenario.idempotent,
        **config,
    )
    acknowledged: Acknowledged = []
    if scenario.transactional:
        producer.init_transactions()
    for sent in scenario.batches:
        if sent.end:
            producer.begin_transaction()
        futures = [
            producer.send(
                scenario.topic,
                value=given.value,
                key=given.key,
                headers=list(given.headers),
                partition=0,
                timestamp_ms=given.timestamp_ms,
            )
            for given in sent.records
        ]
        producer.flush(FLUSH_TIMEOUT_S)
        for future in futures:
            metadata = future.get(10)
            acknowledged.append((metadata.offset, metadata.timestamp))
        if sent.end == "commit":
            producer.commit_transaction()
        elif sent.end == "abort":
            producer.abort_transaction()
    producer.close()
    return acknowledged


async def _write_by_aiokafka(broker: Broker, scenario: Scenario) -> Acknowledged:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.address,
        client_id=CLIENT_ID,
        linger_ms=LINGER_MS,
        compression_type=None if scenario.codec == "none" else scenario.codec,
        enable_idempotence=scenario.idempotent,
        transactional_id=scenario.name if scenario.transactional else None,
    )
    await producer.start()
    acknowledged: Acknowledged = []
    try:
        for sent in scenario.batches:
            if sent.end:
                await producer.begin_transaction()
            futures = [
                await producer.send(
                    scenario.topic,
                    value=given.value,
                    key=given.key,
                    headers=list(given.headers),
                    partition=0,
                    timestamp_ms=given.timestamp_ms,
                )
                for given in sent.records
            ]
            await producer.flush()
            for future in futures:
                metadata = await future
                acknowledged.append((metadata.offset, metadata.timestamp))
            if sent.end == "commit":
                await producer.commit_transaction()
            elif sent.end == "abort":
                await producer.abort_transaction()
    finally:
        await producer.stop()
    return acknowledged
