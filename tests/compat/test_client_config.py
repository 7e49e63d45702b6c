"""Our clients' configs against Kafka 4.3.1's own: which keys there are, their types and defaults, what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_artifacts import classpath
from ottla.base.config import ValueType
from ottla.client.config import ADMIN_CONFIG, CONSUMER_CONFIG, PRODUCER_CONFIG
from ottla.client.config_keys.elsewhere import OWNERS

pytestmark = pytest.mark.compat

PRINTER = Path(__file__).parent / "java" / "ClientConfigs.java"
SCHEMAS = {schema.kind: schema for schema in (PRODUCER_CONFIG, CONSUMER_CONFIG, ADMIN_CONFIG)}
OF_KAFKA_0_8 = {
    "dual.commit.enabled",
    "offsets.storage",
    "rebalance.backoff.ms",
    "rebalance.max.retries",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
}
OURS_ALONE = {"max.decompressed.batch.bytes", "queued.max.bytes", *OF_KAFKA_0_8}
OTHER_DEFAULTS = {
    # Nobody knows where the brokers are; Kafka's classes have other names here.
    "bootstrap.servers",
    "partition.assignment.strategy",
    # Bytes are taken and given as they are, where Kafka wants to be told.
    "key.deserializer",
    "key.serializer",
    "value.deserializer",
    "value.serializer",
    # A consumer must not bring back a topic that was deleted; librdkafka has the same default.
    "allow.auto.create.topics",
    # What is quick here, and what the system knows better.
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "receive.buffer.bytes",
    "send.buffer.bytes",
}
VALUES = ["-2", "-1", "0", "1", "2", "9", "17", "18", "22", "23", "4999", "5000", "0.5", "1_000", "2147483648", "1e3"]
WORDS = ["true", "TRUE", "yes", "all", "gzip", "GZIP", "latest", "LATEST", "none", "consumer", "CLASSIC", "Rebootstrap"]
MORE_WORDS = ["read_committed", "by_duration:PT1H", "localhost:1", ""]
TRIED = [
    f"{kind}\t{key.name}={value}"
    for kind, schema in SCHEMAS.items()
    for key in schema
    # Kafka looks for classes, which are not here.
    if key.name not in OURS_ALONE and key.type is not ValueType.CLASS and key.type is not ValueType.LIST
    for value in (*VALUES, *WORDS, *MORE_WORDS)
]
TIMES = (
    "heartbeat.interval.ms",
    "session.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
MORE_LENIENT = {"auto.offset.reset=LATEST"}
STRICTER = {
    # Never sensible: less than any broker takes, or no time at all.
    "connections.max.idle.ms=-2",
    *(f"{key}={value}" for key in (*TIMES, "transaction.timeout.ms") for value in ("-2", "-1", "0")),
}


@pytest.fixture(scope="module")
def printed() -> list[str]:
    command = ["java", "-cp", classpath("4.3.1"), str(PRINTER)]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=180, input="\n".join(TRIED)
    ).stdout.splitlines()


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_key_of_kafka_is_known(printed: list[str], kind: str) -> None:
    theirs = {line.split("\t")[1] for line in printed if line.startswith(f"{kind}\t")}
    ours = {key.name for key in SCHEMAS[kind]} | {name for name, owners in OWNERS.items() if kind in owners}
    assert ours - theirs == OURS_ALONE & ours
    assert theirs - ours == set()


def test_types_and_defaults(printed: list[str]) -> None:
    rows = [line.split("\t") for line in printed if not line.startswith("?")]
    theirs = {(kind, name): [type_name, default] for kind, name, type_name, default in rows}
    differing = set()
    for kind, schema in SCHEMAS.items():
        for key in schema:
            if key.name not in OURS_ALONE:
                assert key.type.name == theirs[kind, key.name][0], key.name
                default = "null" if key.default is None else key.text(key.default)
                if default != theirs[kind, key.name][1]:
                    differing.add(key.name)
    assert differing == OTHER_DEFAULTS


def test_what_each_key_accepts(printed: list[str]) -> None:
    pairs = (line[1:].rsplit("\x1f", 1) for line in printed if line.startswith("?"))
    theirs = {asked: accepted == "true" for asked, accepted in pairs}
    ours = {}
    for asked in TRIED:
        kind, pair = asked.split("\t")
        name, value = pair.split("=", 1)
        ours[asked] = SCHEMAS[kind][name].accepts(value)
    assert {asked.split("\t")[1] for asked in TRIED if ours[asked] and not theirs[asked]} == MORE_LENIENT
    assert {asked.split("\t")[1] for asked in TRIED if theirs[asked] and not ours[asked]} == STRICTER
