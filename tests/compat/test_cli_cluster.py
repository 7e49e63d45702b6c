"""`ottla cluster`, `reassign` and `elect` on three brokers of Apache Kafka 3.9.1 with the embedded ZooKeeper.

Kafka's own tool reads our plan.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.clients.command_line import Ottla, caller
from support.kafka_process import Broker, java_command, kill, stop, zookeeper_mode_broker
from support.trees.server_process import server_process
from support.waiting import wait_until

pytestmark = pytest.mark.compat

IDS = (1, 2, 3)
SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "3000",
    "auto.leader.rebalance.enable": "false",
}


@dataclass
class ThreeBrokers:
    brokers: dict[int, Broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeBrokers]:
    place = tmp_path_factory.mktemp("three")
    with server_process(place) as address:

        def start(broker_id: int) -> Broker:
            settings = {**SETTINGS, "broker.rack": f"rack-{broker_id}"}
            return zookeeper_mode_broker(place / str(broker_id), address, broker_id, settings, heap_mb=384)

        with ThreadPoolExecutor(len(IDS)) as pool:
            brokers = dict(zip(IDS, pool.map(start, IDS), strict=True))
        try:
            yield ThreeBrokers(brokers)
        finally:
            for broker in brokers.values():
                kill(broker.process)


@pytest.fixture
def ottla(cluster: ThreeBrokers, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(cluster.bootstrap, capfdbinary)


def json_of(told: str) -> Any:
    return json.loads(told.splitlines()[0])


def partitions(ottla: Ottla, topic: str) -> list[dict[str, Any]]:
    (described,) = json_of(ottla("topics", "describe", topic, "--json"))
    found: list[dict[str, Any]] = described["partitions"]
    return found


def test_moves_elections_and_a_dead_broker(cluster: ThreeBrokers, ottla: Ottla, tmp_path: Path) -> None:
    """In one test, because each step goes on from the last."""
    wait_until(lambda: len(json_of(ottla("cluster", "--json"))["brokers"]) == len(IDS), "not all brokers are there")
    ottla("topics", "create", "orders", "--partitions", "6", "--replication-factor", "2")
    ottla("topics", "create", "alone", "--partitions", "3", "--replication-factor", "1")
    found = json_of(ottla("cluster", "--json"))
    assert [one["rack"] for one in found["brokers"]] == ["rack-1", "rack-2", "rack-3"]
    assert [one["status"] for one in found["brokers"]].count("controller") == 1
    assert sum(one["replicas"] for one in found["brokers"]) == 15
    assert {row["broker"] for row in json_of(ottla("cluster", "log-dirs", "--json"))} == set(IDS)
    _drain(cluster, ottla, tmp_path)
    _rebalance_and_elect(ottla, tmp_path)
    _without_a_broker(cluster, ottla)


def _drain(cluster: ThreeBrokers, ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "drain.json"
    planned = json_of(ottla("reassign", "plan", "--drain", "3", "-t", "orders", "-o", str(file), "--json"))
    assert all(3 in row["replicas"] and row["removing"] == [3] for row in planned)
    before = {row["partition"]: row["replicas"] for row in partitions(ottla, "orders")}
    told = ottla("reassign", "run", str(file), "--throttle", "10MB")
    for line in ("Set the throttle", "Started to move 4 partitions.", "Removed the throttle.", "Completed"):
        assert line in told
    assert all(set(row["replicas"]) == {1, 2} for row in partitions(ottla, "orders"))
    assert "throttled" not in ottla("configs", "describe", "--topic", "orders")
    assert "throttled" not in ottla("configs", "describe", "--broker", "1")
    assert _verified_by_kafka(cluster, file).count("is completed") == 4
    ottla("reassign", "run", str(tmp_path / "drain.rollback.json"))
    assert {row["partition"]: row["replicas"] for row in partitions(ottla, "orders")} == before


def _verified_by_kafka(cluster: ThreeBrokers, file: Path) -> str:
    command = java_command("3.9.1", "org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--verify")
    command += ["--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def _rebalance_and_elect(ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "three.json"
    ottla("reassign", "plan", "--rebalance", "-r", "3", "-t", "orders", "-o", str(file))
    assert "Completed" in ottla("reassign", "run", str(file))
    rows = partitions(ottla, "orders")
    assert all(set(row["replicas"]) == set(IDS) for row in rows)
    assert sorted(row["replicas"][0] for row in rows) == [1, 1, 2, 2, 3, 3]
    misled = [row["partition"] for row in rows if row["leader"] != row["replicas"][0]]
    elected = json_of(ottla("elect", "preferred", "--topic", "orders", "--json"))
    assert {row["partition"] for row in elected} >= set(misled)
    wait_until(
        lambda: all(row["leader"] == row["replicas"][0] for row in partitions(ottla, "orders")),
        "not all are led by the preferred leader",
    )


def _without_a_broker(cluster: ThreeBrokers, ottla: Ottla) -> None:
    found = json_of(ottla("cluster", "--json"))
    gone = next(one["broker"] for one in found["brokers"] if one["status"] == "controller")
    kill(cluster.brokers[gone].process)

    def problems() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json_of(ottla("cluster", "problems", "--json"))
        return listed

    wait_until(lambda: len(problems()) == 7, "the loss of a broker is not seen")
    kinds = {(row["topic"], row["problem"]) for row in problems()}
    assert kinds == {("orders", "under-replicated"), ("alone", "offline")}
    ottla("cluster", "problems", "--check", code=1)
    found = json_of(ottla("cluster", "--json"))
    (row,) = [one for one in found["brokers"] if one["broker"] == gone]
    assert (row["status"], row["address"], row["leaders"]) == ("offline", None, 0)
    assert found["controller"] not in (gone, None)
    assert all(row["offline"] == [gone] for row in partitions(ottla, "orders"))
    told = ottla("elect", "preferred", "--topic", "orders")
    assert "2 partitions cannot get the preferred leader, because it is offline or out of sync." in told
    stop(cluster.brokers[gone].process)
