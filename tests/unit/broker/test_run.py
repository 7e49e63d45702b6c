"""Running a broker: what ends it, and with which exit code."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.broker import run
from ottla.broker.broker import Broker, ReadyInfo
from ottla.broker.configs.broker_config import BrokerConfig


def exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: Callable[[Broker], None]) -> int:
    """Serves until `end`, which is called when the broker is ready."""
    started: list[Broker] = []

    class Started(Broker):
        @classmethod
        async def start(cls, config: BrokerConfig, disk: Disk, clock: Clock) -> Broker:
            started.append(await Broker.start(config, disk, clock))
            return started[0]

    monkeypatch.setattr(run, "Broker", Started)
    nothing = SimpleNamespace(collect=lambda: 0, freeze=lambda: None, set_threshold=lambda *_: None)
    monkeypatch.setattr(run, "gc", nothing)
    config = BrokerConfig(
        {"broker.id": "1", "listeners": "PLAINTEXT://127.0.0.1:0", "ottla.data.dir": str(tmp_path / "data")}
    )

    def on_ready(_: ReadyInfo) -> None:
        end(started[0])

    return asyncio.run(asyncio.wait_for(run._serve(config, on_ready), 60))


def test_a_signal_ends_a_broker_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert exit_code(tmp_path, monkeypatch, lambda _: os.kill(os.getpid(), signal.SIGTERM)) == 0


def test_a_broker_without_a_log_directory_ends_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(broker: Broker) -> None:
        for directory in broker.directories.directories:
            broker.directories.take_offline(directory, "it failed")

    assert exit_code(tmp_path, monkeypatch, fail) == 1
