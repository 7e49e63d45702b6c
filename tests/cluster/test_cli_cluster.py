"""`ottla cluster`, `reassign` and `elect` on three brokers. The same on Apache Kafka: `compat/test_cli_cluster.py`."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.testing.broker import Setting
from ottla.testing.cluster import Cluster
from ottla.testing.server_process import unused_port
from support.clients.command_line import Ottla, caller
from support.cluster.traffic import numbered, read, write
from support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("cluster")

IDS = (1, 2, 3)


class ObservedCluster(Cluster):
    """Each broker has metrics."""

    def __init__(self) -> None:
        super().__init__(3, settings={"auto.leader.rebalance.enable": False, "replica.lag.time.max.ms": 3000})
        self.metrics_ports = {broker: unused_port() for broker in IDS}

    def broker_settings(self, broker: int) -> dict[str, Setting]:
        return {**super().broker_settings(broker), "ottla.metrics.port": self.metrics_ports[broker]}

    def total(self, metric: str) -> float:
        """Of all brokers that run, as an alert sees it."""
        total = 0.0
        for broker, port in self.metrics_ports.items():
            if self.brokers[broker].is_running:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
                    lines = page.read().decode().splitlines()
                values = [float(line.split()[-1]) for line in lines if re.match(rf"{metric}[ {{]", line)]
                assert values, f"broker {broker} has no {metric}"
                total += sum(values)
        return total


@pytest.fixture(scope="module")
def cluster() -> Iterator[ObservedCluster]:
    with ObservedCluster() as cluster:
        yield cluster


@pytest.fixture
def ottla(cluster: Cluster, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(cluster.bootstrap, capfdbinary)


def json_of(told: str) -> Any:
    return json.loads(told.splitlines()[0])


def partitions(ottla: Ottla, topic: str) -> list[dict[str, Any]]:
    (described,) = json_of(ottla("topics", "describe", topic, "--json"))
    found: list[dict[str, Any]] = described["partitions"]
    return found


def test_moves_elections_and_a_dead_broker(cluster: ObservedCluster, ottla: Ottla, tmp_path: Path) -> None:
    """In one test, because each step goes on from the last."""
    ottla("topics", "create", "orders", "--partitions", "6", "--replication-factor", "2")
    ottla("topics", "create", "alone", "--partitions", "3", "--replication-factor", "1")
    found = json_of(ottla("cluster", "--json"))
    assert [one["status"] for one in found["brokers"]].count("controller") == 1
    assert [one["replicas"] for one in found["brokers"]] == [5, 5, 5]
    assert {row["broker"] for row in json_of(ottla("cluster", "log-dirs", "--json"))} == set(IDS)
    assert _alerts(cluster) == (1, 0, 0)
    _drain(ottla, tmp_path)
    _rebalance_and_elect(ottla, tmp_path)
    gone = _without_a_broker(cluster, ottla)
    _back_again(cluster, ottla, gone)


def _alerts(cluster: ObservedCluster) -> tuple[float, ...]:
    names = ("active_controller", "under_replicated_partitions", "offline_partitions")
    return tuple(cluster.total(f"ottla_{name}") for name in names)


def _drain(ottla: Ottla, tmp_path: Path) -> None:
    file = tmp_path / "drain.json"
    ottla("reassign", "plan", "--drain", "3", "-t", "orders", "-o", str(file))
    before = {row["partition"]: row["replicas"] for row in partitions(ottla, "orders")}
    told = ottla("reassign", "run", str(file), "--throttle", "10MB")
    for line in ("Set the throttle", "Started to move 4 partitions.", "Removed the throttle.", "Completed"):
        assert line in told
    assert all(set(row["replicas"]) == {1, 2} for row in partitions(ottla, "orders"))
    assert "throttled" not in ottla("configs", "describe", "--topic", "orders")
    assert "throttled" not in ottla("configs", "describe", "--broker", "1")
    ottla("reassign", "run", str(tmp_path / "drain.rollback.json"))
    assert {row["partition"]: row["replicas"] for row in partitions(ottla, "orders")} == before


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


def _without_a_broker(cluster: ObservedCluster, ottla: Ottla) -> int:
    gone = cluster.wait_for_controller()
    cluster.brokers[gone].kill()

    def problems() -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = json_of(ottla("cluster", "problems", "--json"))
        return listed

    cluster.wait_for_controller(other_than=gone)
    wait_until(lambda: len(problems()) == 7, "the loss of a broker is not seen")
    kinds = {(row["topic"], row["problem"]) for row in problems()}
    assert kinds == {("orders", "at min ISR"), ("alone", "offline")}
    ottla("cluster", "problems", "--check", code=1)
    assert _alerts(cluster) == (1, 6, 1)
    assert cluster.total("ottla_controller_failover_seconds") > 0
    assert cluster.total("ottla_leader_election_total") > 0
    wait_until(
        lambda: json_of(ottla("cluster", "--json"))["brokers"][gone - 1]["status"] == "offline",
        "the broker is not shown as offline",
    )
    found = json_of(ottla("cluster", "--json"))
    (row,) = [one for one in found["brokers"] if one["broker"] == gone]
    assert (row["status"], row["address"], row["leaders"]) == ("offline", None, 0)
    assert found["controller"] not in (gone, None)
    assert all(row["offline"] == [gone] for row in partitions(ottla, "orders"))
    told = ottla("elect", "preferred", "--topic", "orders")
    assert "2 partitions cannot get the preferred leader, because it is offline or out of sync." in told
    return gone


def _back_again(cluster: ObservedCluster, ottla: Ottla, gone: int) -> None:
    cluster.brokers[gone].start()
    wait_until(
        lambda: json_of(ottla("cluster", "problems", "--json")) == [], "the broker does not catch up after its return"
    )
    assert _alerts(cluster) == (1, 0, 0)
    assert cluster.total("ottla_isr_expand_total") > 0
    assert len(json_of(ottla("elect", "preferred", "--topic", "orders", "--json"))) == 2


def test_a_move_that_takes_too_long_is_cancelled_and_run_again(cluster: Cluster, ottla: Ottla, tmp_path: Path) -> None:
    ottla("topics", "create", "heavy", "--replication-factor", "2")
    values = [b"%d" % number + bytes(10_000) for number in range(300)]  # more than one response
    write(cluster, "heavy", values)
    (before,) = partitions(ottla, "heavy")
    (added,) = set(IDS) - set(before["replicas"])
    folder = cluster.brokers[added].directory / "data" / "logs" / "heavy-0"
    file = tmp_path / "heavy.json"
    ottla("reassign", "plan", "--rebalance", "-r", "3", "-t", "heavy", "-o", str(file))
    ottla("reassign", "run", str(file), "--throttle", "1KB", "--no-wait")
    wait_until(folder.exists, "the new replica is not begun")
    (move,) = json_of(ottla("reassign", "list", "--json"))
    assert (move["topic"], move["adding"], move["removing"]) == ("heavy", [added], [])
    assert "throttled" in ottla("configs", "describe", "--topic", "heavy")
    assert "Cancelled 1 reassignment." in ottla("reassign", "cancel", str(file), "--yes")
    assert json_of(ottla("reassign", "list", "--json")) == []
    (after,) = partitions(ottla, "heavy")
    assert after["replicas"] == before["replicas"]
    cluster.wait_for_isr("heavy", 0, before["replicas"])
    assert "throttled" not in ottla("configs", "describe", "--topic", "heavy")
    assert "throttled" not in ottla("configs", "describe", "--broker", str(added))
    wait_until(lambda: not folder.exists(), "what was copied stays on the disk")
    assert "Completed" in ottla("reassign", "run", str(file))
    cluster.wait_for_isr("heavy", 0, IDS)
    assert read(cluster, "heavy", len(values)) == values


def test_a_leader_that_lacks_records_is_elected_on_request_only(cluster: Cluster, ottla: Ottla) -> None:
    config = ("--config", "min.insync.replicas=1")
    ottla("topics", "create", "risky", "--replication-factor", "2", *config)
    write(cluster, "risky", numbered(0, 10))
    (found,) = partitions(ottla, "risky")
    leader = found["leader"]
    (follower,) = set(found["replicas"]) - {leader}
    cluster.brokers[follower].kill()
    cluster.wait_for_isr("risky", 0, {leader})
    write(cluster, "risky", numbered(10, 20))
    cluster.brokers[leader].kill()
    cluster.brokers[follower].start()

    def problem() -> Any:
        rows = json_of(ottla("cluster", "problems", "--json"))
        return [row["problem"] for row in rows if row["topic"] == "risky"]

    wait_until(lambda: problem() == ["offline"], "the partition is not shown as offline")
    told = ottla("elect", "unclean", "--topic", "risky:0", "--yes")
    assert "risky" in told
    assert cluster.wait_for_leader("risky") == follower
    write(cluster, "risky", numbered(20, 25))
    cluster.brokers[leader].start()
    cluster.wait_for_isr("risky", 0, {leader, follower})
    assert read(cluster, "risky", 15) == numbered(0, 10) + numbered(20, 25)
