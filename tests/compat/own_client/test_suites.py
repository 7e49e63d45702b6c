"""Our client's own suites, which `make test` runs beside our broker, here beside Apache Kafka of both versions.

Each is a run of pytest of its own: the tests are the same files, and the broker is chosen by OTTLA_TEST_PEER.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.compat

ROOT = Path(__file__).parents[3]
TIME_LIMIT_S = 1200
"""Only a run that hangs takes so long."""
GROUPS = [f"tests/clients/own/test_{name}.py" for name in ("groups", "membership", "admin_groups")]
TRANSACTIONS = "tests/clients/own/test_transactions.py"
SUITES = {
    "own": ["tests/clients/own", *(f"--ignore={module}" for module in (*GROUPS, TRANSACTIONS))],
    "groups": GROUPS,
    "transactions": [TRANSACTIONS, "tests/clients/test_cli_transactions.py"],
    "dialect": ["tests/clients", "--ignore=tests/clients/own", "--ignore=tests/clients/groups"],
}
CHOSEN = {
    # Both of our consumers and producers share one core: the asyncio ones are tested beside one version, and without
    # what restarts Kafka, which takes long.
    ("kafka-3.9.1", "dialect"): ["-k=ottla and not asyncio"],
    ("kafka-4.3.1", "dialect"): ["-k=ottla and not (asyncio and (restart or killed))"],
}
MARKERS_COME_LATER = [
    # Kafka acknowledges the end of a transaction before its markers are written, so what there is to catch up with may
    # end before it.
    "tests/clients/own/test_table_view.py::test_transactions",
    "tests/clients/own/test_table_view.py::test_a_view_is_its_model",
]
IMPOSSIBLE = {
    "kafka-3.9.1": [
        *MARKERS_COME_LATER,
        # With ZooKeeper there are no groups of the consumer protocol.
        "tests/clients/own/test_groups.py::test_the_coordinator_matches_patterns",
        "tests/clients/own/test_membership.py::test_the_coordinator_matches_patterns",
        "tests/clients/own/test_membership.py::test_a_static_member_of_a_consumer_group_cannot_take_a_place",
        "tests/clients/own/test_membership.py::test_an_assignor_that_the_broker_does_not_have",
        # A config is told before it is at work, and the name of a topic is not free yet when it is listed no more.
        "tests/clients/test_configs.py::test_a_change_is_in_force_at_once",
        "tests/clients/test_long_poll.py::test_a_waiting_fetch_gets_an_error_when_its_topic_is_deleted",
        "tests/clients/test_topics.py::test_a_topic_of_the_same_name_starts_empty",
        "tests/clients/own/test_table_view.py::test_a_recreated_topic",
        "tests/clients/own/test_producer.py::test_records_for_a_partition_that_is_gone_fail_soon",
    ],
    "kafka-4.3.1": MARKERS_COME_LATER,
}


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("peer", IMPOSSIBLE)
def test_it_holds_beside_kafka(peer: str, suite: str, tmp_path: Path) -> None:
    run_suite(peer, [*SUITES[suite], *CHOSEN.get((peer, suite), [])], tmp_path)


def test_consumers_of_kafka_0_8_hold_beside_kafka_and_its_zookeeper(tmp_path: Path) -> None:
    run_suite("kafka-3.9.1", [f"tests/zookeeper/test_consumer_{name}.py" for name in ("groups", "chaos")], tmp_path)


def run_suite(peer: str, suite: list[str], tmp_path: Path) -> None:
    # Nothing of the run that this test is part of may leak into its own.
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    without = [f"--deselect={test}" for test in IMPOSSIBLE[peer]]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    result = subprocess.run(
        [*command, "-m", "not compat and not soak", f"--basetemp={tmp_path / 'run'}", *without, *suite],
        cwd=ROOT,
        env={**settings, "OTTLA_TEST_PEER": peer},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIME_LIMIT_S,
    )
    assert result.returncode == 0, result.stdout[-20_000:] + result.stderr[-5_000:]
