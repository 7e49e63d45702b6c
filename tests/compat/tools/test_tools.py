"""Kafka's clients and command-line tools of two versions, unmodified, beside our broker: what they print is what they
printed beside a real Kafka of their own version (`seen/`, made by `record`).

With OTTLA_TEST_PEER=kafka the same is held to a real Kafka.
"""

from __future__ import annotations

import re

import pytest

from compat.once import Once
from compat.tools.peers import is_kafka
from compat.tools.runs import VERSIONS, run
from compat.tools.transcripts import Said, load

SEEN = {version: load(version) for version in VERSIONS}

# What is said of a broker's own configs is Kafka 3.9's, whoever asks; what 3.9 had not yet is 4.3's.
SAID_BY = {
    "client: configs are explained": "3.9.1",
    "see all configs of a topic": "3.9.1",
    "see what a topic takes from brokers": "3.9.1",
    "see all configs of a broker": "3.9.1",
    "resources for metrics of clients": "4.3.1",
}
# Compared in parts, by tests of their own.
IN_PARTS = {
    "see all configs of a broker",
    "see loggers of a broker",
    "versions of all APIs",
    "client: resources with configs",
    "features",
}
# Ours is told only where it listens, has its own place for logs by default, and is its own ZooKeeper.
OTHER_CONFIGS = {"advertised.listeners", "log.dir", "zookeeper.connect"}
# Two-phase commit (KIP-939) is served here. Kafka 4.3 keeps it behind its unstable APIs; 3.9 does not have it.
TWO_PHASE_CONFIG = "transaction.two.phase.commit.enable"
TWO_PHASE_API = "InitProducerId"

pytestmark = pytest.mark.compat


# One worker for each version: another would only wait for its run.
@pytest.fixture(params=[pytest.param(each, marks=pytest.mark.xdist_group(f"tools {each}")) for each in VERSIONS])
def version(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def said(version: str, once: Once) -> dict[str, Said]:
    return once(f"tools-{version}", lambda place: run(version, place / "run"))


def expected(version: str, step: str) -> Said:
    return SEEN[version if is_kafka() else SAID_BY.get(step, version)][step]


@pytest.mark.parametrize("step", [step for step in SEEN["4.3.1"] if step not in IN_PARTS])
def test_they_print_what_they_print_beside_kafka(said: dict[str, Said], version: str, step: str) -> None:
    assert str(said[step]) == str(expected(version, step))


def configs(text: str) -> dict[str, str]:
    return dict(re.findall(r"^  (\S+?)=(.*)$", text, re.MULTILINE))


def test_all_configs_of_a_broker(said: dict[str, Said], version: str) -> None:
    step = "see all configs of a broker"
    ours, theirs = configs(said[step].text), configs(expected(version, step).text)
    own = {key for key in ours if key.startswith("ottla.")}
    assert bool(own) != is_kafka()
    if not is_kafka():
        own.add(TWO_PHASE_CONFIG)
    assert ours.keys() - own == theirs.keys()
    assert {key: ours[key] for key in theirs.keys() - OTHER_CONFIGS} == {
        key: theirs[key] for key in theirs.keys() - OTHER_CONFIGS
    }


def test_features(said: dict[str, Said], version: str) -> None:
    """Ours has the transaction version of Kafka 4, whatever version asks."""
    if is_kafka():
        assert str(said["features"]) == str(expected(version, "features"))
        return
    assert said["features"].exit == 0
    assert re.search(r"transaction\.version\b.*FinalizedVersionLevel: 2\b", said["features"].text)


def test_loggers_of_a_broker(said: dict[str, Said]) -> None:
    loggers = said["see loggers of a broker"]
    levels = {entry.split()[0] for entry in configs(loggers.text).values()}
    assert loggers.exit == 0
    assert levels
    assert levels <= {"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF"}


def test_versions_of_apis_are_those_that_kafka_has(said: dict[str, Said], version: str) -> None:
    """As far as the tool's version knows them. What is not served is not announced."""
    ours, theirs = (usable(transcript["versions of all APIs"]) for transcript in (said, SEEN[version]))
    served = {api: best for api, best in ours.items() if best is not None}
    assert {"Produce", "Fetch", "ListOffsets", "Metadata", "ApiVersions", "CreateTopics"} <= served.keys()
    known = {api: best for api, best in theirs.items() if best is not None}
    if not is_kafka():
        assert served.pop(TWO_PHASE_API) >= known.pop(TWO_PHASE_API)
    assert {api: served[api] for api in served.keys() & known.keys()} == {
        api: known[api] for api in served.keys() & known.keys()
    }
    # Kafka 3.9 serves these without ZooKeeper only.
    assert served.keys() - known.keys() <= {"ListClientMetricsResources", "DescribeTopicPartitions"}


def usable(said: Said) -> dict[str, int | None]:
    """The version that the tool and the broker both have, by API."""
    rows = re.findall(r"^\t(\w+)\(\d+\): (?:.*\[usable: (\d+)\]|UNSUPPORTED)", said.text, re.MULTILINE)
    return {api: int(best) if best else None for api, best in rows}


def test_resources_with_configs(said: dict[str, Said], version: str) -> None:
    lines = said["client: resources with configs"].text.splitlines()
    if version == "4.3.1":
        assert lines == ["client metrics: done", "a topic is among all: true"]
    else:
        assert lines == ["client metrics: UnsupportedVersionException" if is_kafka() else "client metrics: done"]
