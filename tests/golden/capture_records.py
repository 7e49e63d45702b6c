"""Captures log segments of real brokers as golden record batches, with the records that were put in.

Beside the bytes goes `manifest.json`: the records as given to the producer, with offsets and times as the broker
acknowledged them, and each batch's header as Kafka's own dump tool reads it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from golden import scenarios, segment_dump
from golden.java_writer import Acknowledged, text
from golden.scenarios import Compaction, Given, Scenario
from golden.writers import write_all, writer_version
from support.kafka_process import (
    Broker,
    kraft_broker,
    stop,
    zookeeper,
    zookeeper_mode_broker,
)

TARGET = Path(__file__).resolve().parent / "records"
PATIENCE_S = 90.0


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for old in TARGET.glob("*.bin"):
        old.unlink()
    captured: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="ottla-golden-") as directory:
        place = Path(directory)
        broker = kraft_broker(place / "kraft", {})
        captured += _capture(broker, scenarios.for_kraft(), [])
        with zookeeper(place / "zookeeper") as address:
            broker = zookeeper_mode_broker(place / "today", address, 1, {"log.cleaner.backoff.ms": "500"})
            captured += _capture(broker, scenarios.for_zookeeper_mode(), scenarios.compactions())
        with zookeeper(place / "old-zookeeper") as address:
            broker = zookeeper_mode_broker(place / "old", address, 1, {"inter.broker.protocol.version": "2.8"})
            captured += _capture(broker, scenarios.message_sets(), [])
    captured.sort(key=lambda entry: str(entry["file"]))
    (TARGET / "manifest.json").write_text(_manifest(captured), encoding="utf-8")
    _say(f"{len(captured)} files in {TARGET}")


def _manifest(captured: list[dict[str, Any]]) -> str:
    """JSON with a batch or a record a line, so that a person can read it and a change shows what changed."""
    entries = []
    for entry in captured:
        fields = []
        for name, value in entry.items():
            if isinstance(value, list) and value:
                lines = ",\n   ".join(json.dumps(each) for each in value)
                fields.append(f"{json.dumps(name)}: [\n   {lines}\n  ]")
            else:
                fields.append(f"{json.dumps(name)}: {json.dumps(value)}")
        entries.append(" {\n  " + ",\n  ".join(fields) + "\n }")
    return "[\n" + ",\n".join(entries) + "\n]\n"


def _capture(broker: Broker, plain: list[Scenario], compacted: list[Compaction]) -> list[dict[str, Any]]:
    try:
        _create_topics(broker, [*plain, *(compaction.steps[0] for compaction in compacted)])
        acknowledged = write_all(broker, plain)
        for compaction in compacted:
            for step in compaction.steps:
                write_all(broker, [step])
        _wait(broker, [scenario for scenario in plain if scenario.transactional], _has_markers)
        _wait(broker, [compaction.steps[0] for compaction in compacted], _is_compacted)
    finally:
        stop(broker.process)
    dumps = _dumped(broker, [*plain, *(compaction.steps[0] for compaction in compacted)])
    entries = []
    for scenario in plain:
        expected = _expected(scenario, acknowledged[scenario.topic])
        entries.append(_entry(broker, scenario, expected, dumps[scenario.topic]))
    for compaction in compacted:
        kept = [(offset, given.timestamp_ms, given) for offset, given in compaction.survivors]
        first = compaction.steps[0]
        entries.append(_entry(broker, first, kept, dumps[first.topic]))
    return entries


def _expected(scenario: Scenario, acknowledged: Acknowledged) -> list[tuple[int, int, Given]]:
    given = [record for sent in scenario.batches for record in sent.records]
    expected = []
    for (offset, acknowledged_ms), record in zip(acknowledged, given, strict=True):
        if scenario.magic == 0:
            timestamp_ms = scenarios.NO_TIMESTAMP_MS
        else:
            timestamp_ms = acknowledged_ms if scenario.broker_sets_time else record.timestamp_ms
        expected.append((offset, timestamp_ms, record))
    return expected


def _entry(broker: Broker, scenario: Scenario, expected: list[tuple[int, int, Given]], dump: Dump) -> dict[str, Any]:
    segment = _segment(broker, scenario)
    data = segment.read_bytes()
    file = TARGET / f"{scenario.name}.bin"
    file.write_bytes(data)
    batches, markers = dump
    broker_codec = scenario.topic_settings.get("compression.type", "producer")
    return {
        "file": file.name,
        "writer": writer_version(scenario.writer),
        "broker": f"Apache Kafka {broker.version}",
        "codec": scenario.codec if broker_codec == "producer" else broker_codec,
        "magic": scenario.magic,
        "batches": batches,
        "markers": markers,
        "records": [
            {
                "offset": offset,
                "timestamp_ms": timestamp_ms,
                "key": text(record.key),
                "value": text(record.value),
                "headers": [[name, text(value)] for name, value in record.headers],
                **({"given_timestamp_ms": record.timestamp_ms} if scenario.broker_sets_time else {}),
            }
            for offset, timestamp_ms, record in expected
        ],
    }


def _create_topics(broker: Broker, wanted: Iterable[Scenario]) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = [
        NewTopic(scenario.topic, num_partitions=1, replication_factor=1, config=dict(scenario.topic_settings))
        for scenario in wanted
    ]
    for created in admin.create_topics(topics, operation_timeout=30).values():
        created.result()


# Reading what came to disk, by Kafka's own tool

Dump = tuple[list[dict[str, Any]], list[dict[str, Any]]]
"""Batches and transaction markers."""


def _dumped(broker: Broker, wanted: Iterable[Scenario]) -> dict[str, Dump]:
    segments = {_segment(broker, scenario): scenario.topic for scenario in wanted}
    texts = segment_dump.dump(broker.version, list(segments)).texts
    return {topic: segment_dump.batches_and_markers(segment, texts[segment]) for segment, topic in segments.items()}


def _segment(broker: Broker, scenario: Scenario) -> Path:
    return broker.data / f"{scenario.topic}-0" / "00000000000000000000.log"


def _has_markers(scenario: Scenario, dump: Dump) -> bool:
    """A producer hears of its commit before the marker is in the partition."""
    return len(dump[1]) == len(scenario.batches)


def _is_compacted(_: Scenario, dump: Dump) -> bool:
    return any(batch["delete_horizon_ms"] is not None for batch in dump[0])


def _wait(broker: Broker, wanted: list[Scenario], ready: Callable[[Scenario, Dump], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    waiting = wanted
    while waiting:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{waiting[0].name} is not what it should become after {PATIENCE_S:.0f} s")
        dumps = _dumped(broker, waiting)
        waiting = [scenario for scenario in waiting if not ready(scenario, dumps[scenario.topic])]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
