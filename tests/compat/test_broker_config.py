"""Our broker configs against Kafka 3.9.1's own: keys, types, defaults, what is refused, what can change at runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_artifacts import classpath
from ottla.base.config import ConfigError, ValueType
from ottla.broker.configs.broker_config import BROKER_CONFIG, BrokerConfig
from ottla.broker.configs.keys.update_modes import INTERNAL, UpdateMode, update_mode

pytestmark = pytest.mark.compat

PRINTER = Path(__file__).parent / "java" / "BrokerConfigs.java"
NUMBERS = ["-3", "-2", "-1", "0", "1", "2", "9", "12", "14", "0.5", "1.5", "23", "101", "1024", "1_000", "32768"]
LARGE = ["2147483648", "9223372036854775808", "1e3", "NaN"]
WORDS = [
    "delete",
    "compact,delete",
    "true",
    "TRUE",
    "yes",
    "gzip",
    "CreateTime",
    "SSL",
    "requested",
    "Upgrade",
    "broker",
]
RELEASES = ["3.9", "3.9-IV0", "3.9-IV1", "3.9.1", "2.8-IV1", "0.10.2.1", "0.8", "0.11.0-IV2", "5.0", "3", "3.9-IV"]
ADDRESSES = ["1@localhost:9093", "localhost:9093", "1@localhost", "[::1]:1,b:2", "classic,consumer", "classic,x"]
VALUES = [*NUMBERS, *LARGE, *WORDS, *RELEASES, *ADDRESSES, ""]
OURS_ALONE = {key.name for key in BROKER_CONFIG if key.name.startswith("ottla.")} | {
    "transaction.two.phase.commit.enable"  # of Kafka 4 (KIP-939)
}
OTHER_DEFAULTS = {"log.dir"}
"""Where the defaults differ; the module says why."""
STRICTER = {
    # Kafka lets through what is no number, and what stands before a host.
    "controller.quorum.bootstrap.servers=1@localhost:9093",
    "log.cleaner.min.cleanable.ratio=NaN",
    "remote.log.manager.task.retry.jitter=NaN",
}
TRIED = [
    f"{key.name}={value}"
    for key in BROKER_CONFIG
    # Kafka looks for classes, which are not here.
    if key.name not in OURS_ALONE and key.type is not ValueType.CLASS
    for value in VALUES
]

MAP = "listener.security.protocol.map"
TOGETHER: list[dict[str, str]] = [
    {},
    {"broker.id": "0"},
    {"broker.id": "1000"},
    {"broker.id": "1001"},
    {"broker.id": "-2"},
    {"broker.id": "1001", "reserved.broker.max.id": "2000"},
    {"broker.id": "1001", "broker.id.generation.enable": "false"},
    {"broker.id.generation.enable": "false"},
    {"broker.id": "1", "node.id": "2"},
    {"broker.id": "1", "node.id": "1"},
    {"node.id": "3"},
    {"log.roll.ms": "0"},
    {"log.roll.ms": "1"},
    {"log.roll.jitter.ms": "-1"},
    {"log.retention.ms": "0"},
    {"log.retention.ms": "-1"},
    {"log.retention.ms": "-5"},
    {"log.retention.minutes": "0"},
    {"log.retention.hours": "0"},
    {"log.retention.hours": "-7"},
    {"log.retention.hours": "0", "log.retention.ms": "5"},
    {"log.dirs": ""},
    {"log.dirs": " , "},
    {"log.dirs": "/a, /b"},
    {"log.dir": "/a"},
    {"log.cleaner.threads": "0"},
    {"log.cleaner.threads": "128"},
    {"log.cleaner.threads": "127"},
    {"log.cleaner.dedupe.buffer.size": "1048576"},
    {"log.cleaner.dedupe.buffer.size": "1048577"},
    {"replica.fetch.wait.max.ms": "30001"},
    {"replica.fetch.wait.max.ms": "30000"},
    {"replica.fetch.wait.max.ms": "600", "replica.lag.time.max.ms": "500"},
    {"queued.max.request.bytes": "104857599"},
    {"queued.max.request.bytes": "104857600"},
    {"queued.max.request.bytes": "0"},
    {"max.connections.per.ip": "0"},
    {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"},
    {"max.connections.per.ip.overrides": "127.0.0.1"},
    {"max.connections.per.ip.overrides": "127.0.0.1:x"},
    {"max.connections.per.ip.overrides": "a b:1"},
    {"max.connections.per.ip.overrides": "127.0.0.1:5, host:6"},
    {"connections.max.idle.ms": "100"},
    {"connections.max.idle.ms": "101"},
    {"connections.max.idle.ms": "-1"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092"},
    {"listeners": "plaintext://127.0.0.1:9092"},
    {"listeners": "PLAINTEXT://[::1]:9092"},
    {"listeners": "PLAINTEXT://127.0.0.1:9092,PLAINTEXT://127.0.0.1:9093"},
    {"listeners": "PLAINTEXT://127.0.0.1"},
    {"listeners": "PLAINTEXT:9092"},
    {"listeners": "127.0.0.1:9092"},
    {"listeners": "PLAINTEXT://a b:9092"},
    {"listeners": ""},
    {"listeners": "INSIDE://:9092"},
    {"listeners": "INSIDE://:9092", MAP: "INSIDE:PLAINTEXT"},
    {"listeners": "INSIDE://:9092", MAP: "INSIDE:PLAINTEXT", "inter.broker.listener.name": "INSIDE"},
    {"listeners": "INSIDE://:9092", MAP: "INSIDE:PLAINTEXT", "inter.broker.listener.name": "inside"},
    {"listeners": "INSIDE://:9092", MAP: "INSIDE:NONSENSE", "inter.broker.listener.name": "INSIDE"},
    {"listeners": "INSIDE://:9092", MAP: "INSIDE", "inter.broker.listener.name": "INSIDE"},
    {"inter.broker.listener.name": "INSIDE"},
    {"inter.broker.listener.name": "PLAINTEXT"},
    {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "PLAINTEXT"},
    {"security.inter.broker.protocol": "SSL"},
    *(
        {"listeners": listeners, MAP: "PLAINTEXT:PLAINTEXT,B:PLAINTEXT,C:PLAINTEXT"}
        for listeners in (
            "PLAINTEXT://:9092,B://:9093",
            "PLAINTEXT://:9092,B://:9092",
            "PLAINTEXT://:0,B://:0",
            "PLAINTEXT://127.0.0.1:9092,B://[::1]:9092",
            "PLAINTEXT://127.0.0.1:9092,B://127.0.0.2:9092",
            "PLAINTEXT://127.0.0.1:9092,B://[::1]:9092,C://:9092",
        )
    ),
    {"advertised.listeners": "PLAINTEXT://broker.example:1"},
    {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"},
    {"advertised.listeners": "SSL://broker.example:1"},
    {"controller.listener.names": "PLAINTEXT"},
    *({"control.plane.listener.name": name} for name in ("PLAINTEXT", "SSL", "X")),
    {
        "listeners": "PLAINTEXT://:9092,B://:9093",
        MAP: "PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
        "control.plane.listener.name": "b",
    },
    {"log.cleaner.min.compaction.lag.ms": "5", "log.cleaner.max.compaction.lag.ms": "6"},
    {"inter.broker.protocol.version": "3.0"},
    {"compression.type": "zstd", "compression.zstd.level": "22"},
    {"compression.zstd.level": "23"},
]


def joined(settings: dict[str, str]) -> str:
    return "\t".join(f"{key}={value}" for key, value in {"zookeeper.connect": "localhost:1", **settings}.items()) + "\t"


@pytest.fixture(scope="module")
def printed() -> list[str]:
    asked = "\n".join([*TRIED, *map(joined, TOGETHER)])
    command = ["java", "-cp", classpath("3.9.1"), str(PRINTER)]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=180, input=asked
    ).stdout.splitlines()


def keys_of(printed: list[str]) -> dict[str, list[str]]:
    return {line.split("\t")[0]: line.split("\t")[1:] for line in printed if line[0] not in "?+"}


def answers(printed: list[str], mark: str) -> dict[str, bool]:
    pairs = (line[1:].rsplit("\x1f", 1) for line in printed if line[0] == mark)
    return {asked: accepted == "true" for asked, accepted in pairs}


def test_keys_types_and_defaults(printed: list[str]) -> None:
    theirs = keys_of(printed)
    ours = {
        key.name: [key.type.name, "null" if key.default is None else key.text(key.default)]
        for key in BROKER_CONFIG
        if key.name not in OURS_ALONE
    }
    assert ours.keys() == theirs.keys()
    differing = {name for name, found in ours.items() if found != theirs[name][:2]}
    assert differing == OTHER_DEFAULTS


def test_which_are_internal(printed: list[str]) -> None:
    assert {name for name, found in keys_of(printed).items() if found[2] == "true"} == INTERNAL


def test_which_can_change_while_a_broker_runs(printed: list[str]) -> None:
    theirs = {name: found[3] for name, found in keys_of(printed).items()}
    ours = {name: update_mode(name) for name in theirs}
    names = {UpdateMode.READ_ONLY: "null", UpdateMode.PER_BROKER: "per-broker", UpdateMode.CLUSTER_WIDE: "cluster-wide"}
    assert {name: names[mode] for name, mode in ours.items()} == theirs


def test_what_each_key_accepts(printed: list[str]) -> None:
    theirs = answers(printed, "?")
    ours = {pair: BROKER_CONFIG[pair.split("=", 1)[0]].accepts(pair.split("=", 1)[1]) for pair in TRIED}
    assert {pair for pair in TRIED if ours[pair] and not theirs[pair]} == set()
    assert {pair for pair in TRIED if theirs[pair] and not ours[pair]} == STRICTER


def test_what_is_accepted_together(printed: list[str]) -> None:
    theirs = answers(printed, "+")
    differing = {joined(each): theirs[joined(each)] for each in TOGETHER if starts(each) != theirs[joined(each)]}
    assert differing == {}


def starts(settings: dict[str, str]) -> bool:
    try:
        BrokerConfig(settings)
    except ConfigError:
        return False
    return True
