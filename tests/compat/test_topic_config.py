"""Our topic configs against Kafka 3.9.1's own: keys, types, defaults, the broker's names for them, what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_artifacts import classpath
from ottla.base.config import ConfigError
from ottla.log.broker_config import BROKER_SCALED, BROKER_SYNONYMS, LOG_BROKER_CONFIG
from ottla.log.config import LogConfig
from ottla.log.topic_config import TOPIC_CONFIG

PRINTER = Path(__file__).parent / "java" / "TopicConfigs.java"

NUMBERS = ["-3", "-2", "-1", "0", "1", "9", "13", "14", "0.5", "1.5", "23", "2147483648", "9223372036854775808"]
WORDS = ["delete", "compact,delete", "true", "gzip", "CreateTime", "x", "0:1", "0:1,2:3", "0:1,x", "*"]
VALUES = [*NUMBERS, *WORDS, ""]
TRIED = [
    f"{key.name}={value}"
    for key in TOPIC_CONFIG
    if key.name not in ("message.format.version", "remote.storage.enable")
    for value in VALUES
]

pytestmark = pytest.mark.compat


@pytest.fixture(scope="module")
def printed() -> list[str]:
    command = ["java", "-cp", classpath("3.9.1"), str(PRINTER), *TRIED]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.splitlines()


def test_keys_types_and_defaults(printed: list[str]) -> None:
    theirs = {tuple(line.split("\t")[:3]) for line in printed if line[0] not in "?!"}
    ours = {(key.name, key.type.name, key.text(key.default)) for key in TOPIC_CONFIG}
    assert ours == theirs


def test_what_the_broker_calls_them(printed: list[str]) -> None:
    theirs = {
        name: tuple(synonyms.split())
        for name, _, _, synonyms in (line.split("\t") for line in printed if line[0] not in "?!")
        if synonyms.split()
    }
    ours: dict[str, tuple[str, ...]] = {key: (synonym,) for key, synonym in BROKER_SYNONYMS.items()}
    ours |= {key: tuple(name for name, _ in synonyms) for key, synonyms in BROKER_SCALED.items()}
    assert ours == theirs


def test_the_broker_s_keys(printed: list[str]) -> None:
    theirs = {
        name: (kind, default) for name, kind, default in (line[1:].split("\t") for line in printed if line[0] == "!")
    }
    for key in LOG_BROKER_CONFIG:
        default = "null" if key.default is None else key.text(key.default)
        assert (key.type.name, default.replace("e+308", "E308")) == theirs[key.name], key.name


def test_what_is_accepted(printed: list[str]) -> None:
    theirs = dict(line[1:].split("\t") for line in printed if line.startswith("?"))
    ours = {pair: "true" if accepts(*pair.split("=", 1)) else "false" for pair in TRIED}
    assert {pair: ours[pair] for pair in TRIED if ours[pair] != theirs[pair]} == {}


def accepts(key: str, value: str) -> bool:
    try:
        LogConfig.from_properties({key: value})
    except ConfigError:
        return False
    return True
