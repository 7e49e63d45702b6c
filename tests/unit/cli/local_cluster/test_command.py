"""`ottla start --brokers`: the port of ZooKeeper, which another program may take."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ottla.cli.local_cluster import command
from ottla.cli.local_cluster.launcher import ZooKeeperEndedError
from ottla.cli.local_cluster.plan import ClusterPlan


class Machine:
    """Which ports are taken, and what becomes of each try to run a cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, takes: int) -> None:
        self.taken = {2181}
        self.tried: list[int] = []
        self._takes = takes
        monkeypatch.setattr(command, "_bind_error", self._bind_error)
        monkeypatch.setattr(command, "_run", self._run)

    def _bind_error(self, _: str, port: int) -> OSError | None:
        return OSError(errno.EADDRINUSE, "taken") if port in self.taken else None

    async def _run(self, plan: ClusterPlan) -> int:
        port = plan.zookeeper.bind[1]
        self.tried.append(port)
        assert f":{port}" in (plan.directory / "broker-1.properties").read_text()
        if len(self.tried) <= self._takes:
            self.taken.add(port)
            raise ZooKeeperEndedError("ZooKeeper did not start")
        return 0


def run(directory: Path) -> int:
    return command.run_cluster(1, None, [], {}, directory=directory, host=None, port=0)


def test_another_port_is_tried_if_the_chosen_one_was_taken_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, takes=2)
    assert run(tmp_path) == 0
    assert machine.tried == [2182, 2183, 2184]


def test_a_zookeeper_that_ends_for_another_reason_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(monkeypatch, takes=1)
    machine.taken = set()
    monkeypatch.setattr(command, "_bind_error", lambda *_: None)
    with pytest.raises(ZooKeeperEndedError):
        run(tmp_path)
    assert machine.tried == [2181]


def test_a_machine_that_takes_every_port_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, takes=100)
    with pytest.raises(ZooKeeperEndedError):
        run(tmp_path)
    assert len(machine.tried) == 5
