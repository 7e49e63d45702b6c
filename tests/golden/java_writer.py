"""The Java producer, of both versions, writing scenarios: each batch by itself, with what the broker acknowledged."""

from __future__ import annotations

import json
from typing import Any

from golden.scenarios import Scenario
from support.kafka_process import Broker, run_java

Acknowledged = list[tuple[int, int]]
"""Offset and timestamp of each record, in the order they were sent."""


def text(value: bytes | None) -> str | None:
    """Bytes as JSON text: Latin-1 has a character for each byte."""
    return None if value is None else value.decode("latin-1")


def write_by_java(broker: Broker, version: str, wanted: list[Scenario]) -> dict[str, Acknowledged]:
    task = {"bootstrap": broker.address, "scenarios": [_java_scenario(scenario) for scenario in wanted]}
    answer: dict[str, list[list[int]]] = json.loads(run_java(version, "Produce.java", json.dumps(task)))
    return {topic: [(offset, timestamp_ms) for offset, timestamp_ms in acks] for topic, acks in answer.items()}


def _java_scenario(scenario: Scenario) -> dict[str, Any]:
    config = {"compression.type": scenario.codec, "enable.idempotence": str(scenario.idempotent).lower()}
    if scenario.transactional:
        config["transactional.id"] = scenario.name
    return {
        "topic": scenario.topic,
        "config": config,
        "batches": [
            {
                "end": sent.end,
                "records": [
                    {
                        "timestamp_ms": given.timestamp_ms,
                        "key": text(given.key),
                        "value": text(given.value),
                        "headers": [[name, text(value)] for name, value in given.headers],
                    }
                    for given in sent.records
                ],
            }
            for sent in scenario.batches
        ],
    }
