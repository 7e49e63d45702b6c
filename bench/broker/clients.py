"""Load from the clients that people use: librdkafka through confluent-kafka, and Kafka's own Java client."""

from __future__ import annotations

import random
import re
import subprocess
from typing import Final

from bench.broker.control import check_end_offset
from bench.broker.frames import BATCH_BYTES, texts
from bench.broker.raw import MB, Spent, measured
from confluent_kafka import Producer

from kafka_artifacts import classpath

_BURST: Final = 1000
_QUEUED_MAX: Final = 200_000
"""Records: full batches are made of them, and the queue of 256 MiB holds them."""
_RATE: Final = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


def librdkafka(
    address: str, pid: int, topic: str, value_bytes: int, total_mb: int, compression: str = "none", keys: int = 0
) -> dict[str, float]:
    """Records of one size to a topic of one partition, until all are delivered; of text where they are compressed, with
    so many different keys where there are keys."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "acks": 1,
            "compression.type": compression,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * _QUEUED_MAX,
            "queue.buffering.max.kbytes": 256 * 1024,
        }
    )
    chance = random.Random(value_bytes)
    values = (
        texts(value_bytes, _BURST) if compression != "none" else [chance.randbytes(value_bytes) for _ in range(_BURST)]
    )
    messages: list[dict[str, bytes]] = [{"value": value} for value in values]
    for number, message in enumerate(messages if keys else ()):
        message["key"] = b"key-%06d" % (number % keys)
    bursts = total_mb * MB // (value_bytes * _BURST)
    producer.list_topics(topic)
    with measured(pid) as spent:
        for _ in range(bursts):
            producer.produce_batch(topic, messages, 0)
            while len(producer) > _QUEUED_MAX:
                producer.poll(0.005)
        producer.flush(60)
    check_end_offset(address, topic, 0, bursts * _BURST)
    return spent.of_bytes(bursts * _BURST * value_bytes)


def java(address: str, pid: int, topic: str, value_bytes: int, total_mb: int, version: str) -> dict[str, float]:
    """The same from Kafka's own perf client: the rate is the one it tells, the broker's CPU that of its whole run."""
    count = total_mb * MB // value_bytes
    command = ["java", "-Xmx512M", "-cp", classpath(version), "org.apache.kafka.tools.ProducerPerformance"]
    command += ["--bootstrap-server", address, "--topic", topic, "--throughput", "-1"]
    command += ["--num-records", str(count), "--record-size", str(value_bytes)]
    command += ["--command-property", "acks=1", f"batch.size={BATCH_BYTES}", "linger.ms=5", "buffer.memory=134217728"]
    with measured(pid) as run:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    told = _RATE.findall(result.stdout)
    if result.returncode or not told:
        raise RuntimeError(f"Kafka's perf client failed:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
    check_end_offset(address, topic, 0, count)
    return Spent(count / float(told[-1][1]), run.cpu_s).of_bytes(count * value_bytes)
