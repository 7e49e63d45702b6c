"""What the screen of a local cluster shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.local_cluster.plan import plan_cluster
from ottla.cli.local_cluster.screen import render
from ottla.cli.local_cluster.state import ClusterState, Phase, ending, explain_end


def state_of(directory: Path, *phases: Phase) -> ClusterState:
    state = ClusterState.of(plan_cluster(len(phases), directory, {}))
    state.zookeeper.phase = Phase.RUNNING
    for broker, phase in zip(state.brokers, phases, strict=True):
        broker.phase = phase
    return state


def shown(state: ClusterState) -> str:
    console = Console(width=160, record=True, file=Path(os.devnull).open("w"))  # noqa: SIM115
    with console.file:
        console.print(render(state, "here"))
    return console.export_text()


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith(name))


def test_every_process_is_shown_with_its_address_and_state(tmp_path: Path) -> None:
    state = state_of(tmp_path, Phase.RUNNING, Phase.STARTING, Phase.ENDED)
    state.brokers[2].code = 1
    state.see({1: 11}, 1)
    text = shown(state)
    assert row(text, "ZooKeeper").split()[:3] == ["ZooKeeper", "127.0.0.1:2181", "running"]
    assert "127.0.0.1:9092" in row(text, "broker 1")
    assert "running, controller" in row(text, "broker 1")
    assert "starting" in row(text, "broker 2")
    assert "ended with code 1" in row(text, "broker 3")
    assert "In production" in text
    assert "Ctrl-C stops the cluster." in text
    assert "Try in another terminal" not in text


def test_commands_are_suggested_once_the_cluster_runs(tmp_path: Path) -> None:
    state = state_of(tmp_path, Phase.RUNNING, Phase.RUNNING)
    state.see({1: 11, 2: 12}, 2)
    assert "  ottla cluster" in shown(state)


def test_a_broker_that_lost_its_registration_is_shown(tmp_path: Path) -> None:
    state = state_of(tmp_path, Phase.RUNNING, Phase.RUNNING)
    state.see({1: 11}, 1)
    assert "not registered in ZooKeeper" in row(shown(state), "broker 2")
    state.see(None, None)  # ZooKeeper does not answer, so nothing is known
    assert "not registered" not in shown(state)


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "ended with code 0"), (3, "ended with code 3"), (-9, "ended by SIGKILL"), (-99, "ended by signal 99")],
)
def test_endings_are_named(code: int, text: str) -> None:
    assert ending(code) == text


def test_the_end_of_zookeeper_says_what_still_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = state_of(tmp_path / "my data", Phase.RUNNING)
    state.zookeeper.code = 1
    text = explain_end(state.zookeeper)
    assert "The brokers keep serving" in text
    assert text.endswith("ottla zookeeper --listen 127.0.0.1:2181 --data 'my data/zookeeper'")
