"""`ottla cluster`, `reassign` and `elect` against one broker of ours. More brokers: `compat/test_cli_cluster.py`."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing.broker import Broker
from support.clients.command_line import Ottla, caller


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def ottla(broker: Broker, capfdbinary: pytest.CaptureFixture[bytes]) -> Ottla:
    return caller(broker.bootstrap, capfdbinary)


def test_a_healthy_cluster(ottla: Ottla, broker: Broker, topic: str) -> None:
    ottla("topics", "create", topic, "--partitions", "3")
    found = json.loads(ottla("cluster", "--json"))
    (one,) = found["brokers"]
    assert (one["broker"], one["address"], one["status"]) == (1, broker.bootstrap, "controller")
    assert one["leaders"] == one["replicas"] == found["partitions"] >= 3
    assert found["problems"] == []
    told = ottla("cluster").splitlines()
    assert told[0].split("\t")[:4] == ["1", broker.bootstrap, "-", "controller"]
    assert told[1].endswith("all with a leader and fully replicated.")
    assert ottla("cluster", "problems", "--check").endswith("fully replicated.\n")
    assert ottla("cluster", "problems", "--json").splitlines()[0] == "[]"


def test_log_directories(ottla: Ottla, topic: str) -> None:
    ottla("topics", "create", topic)
    (row,) = json.loads(ottla("cluster", "log-dirs", "--json"))
    assert (row["broker"], row["status"], row["moving_here"]) == (1, "online", 0)
    assert 0 < row["usable"] <= row["total"]
    assert ottla("cluster", "log-dirs", "--broker", "1").split("\t")[:3] == ["1", row["log_dir"], "online"]
    assert "There is no broker 9 in the cluster; its brokers are 1." in ottla(
        "cluster", "log-dirs", "--broker", "9", code=1
    )


def test_a_plan_with_nothing_to_do(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    ottla("topics", "create", topic)
    out = tmp_path / "plan.json"
    told = ottla("reassign", "plan", "--rebalance", "--topic", topic, "--out", str(out))
    assert told == "Nothing to move: the replicas are already where they should be.\n"
    assert not out.exists()
    assert ottla("reassign", "list") == "No partition is being reassigned.\n"
    assert ottla("reassign", "cancel", "--all") == "No such reassignment is in progress.\n"
    out.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}))
    assert ottla("reassign", "run", str(out)) == "All partitions are already where the plan wants them.\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give exactly one of --to, --drain and --rebalance"),
        (["--to", "1,x"], "'1,x' is not a list of broker ids"),
        (["--to", "1,7"], "Broker 7 is not online; the online brokers are 1."),
        (["--drain", "7"], "There is no broker 7; the online brokers are 1."),
        (["--drain", "1"], "There is no broker that could take replicas."),
        (["--rebalance", "-r", "2"], "needs 2 replicas, but only broker 1 can take them: add a broker, or "),
        (["--rebalance", "--topic", "missing"], "Topic 'missing' does not exist."),
        (["--rebalance", "--topic", "a:b"], "'a:b' is not of the form TOPIC or TOPIC:PARTITION"),
    ],
)
def test_plans_that_cannot_be_made(ottla: Ottla, topic: str, arguments: list[str], told: str) -> None:
    ottla("topics", "create", topic)
    assert told.lower() in ottla("reassign", "plan", *arguments, code=1).lower()


def test_plans_that_cannot_be_run(ottla: Ottla, topic: str, tmp_path: Path) -> None:
    ottla("topics", "create", topic)
    file = tmp_path / "plan.json"
    for partition, replicas, told in (
        (0, [1, 7], "should move to broker 7, which is not online; the online brokers are 1."),
        (4, [1], f"Partition {topic}-4 does not exist."),
    ):
        row = {"topic": topic, "partition": partition, "replicas": replicas}
        file.write_text(json.dumps({"partitions": [row]}))
        assert told in ottla("reassign", "run", str(file), code=1)


def test_elections_that_are_not_needed(ottla: Ottla, topic: str) -> None:
    ottla("topics", "create", topic)
    nothing = "Every partition that could be led by its preferred leader already is.\n"
    assert ottla("elect", "preferred", "--topic", f"{topic}:0") == nothing
    assert ottla("elect", "unclean", "--topic", topic) == "No partition is without a leader.\n"
    assert "give either --topic or --all" in ottla("elect", "unclean", code=1).lower()
    told = ottla("elect", "preferred", "--topic", f"{topic}:5", code=1)
    assert told == f"Error: Topic {topic} has no partition 5: it has 1 partition, numbered from 0.\n"
