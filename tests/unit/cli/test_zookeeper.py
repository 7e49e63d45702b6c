"""`ottla zookeeper`: what it says when it cannot start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ottla.cli.main import run


@pytest.fixture(autouse=True)
def _no_log_setup(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stay for the tests after this one."""
    monkeypatch.setattr("ottla.broker.observability.logging_setup.configure", lambda *_: None)


def test_a_port_in_use_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(["zookeeper", "--listen", address, "--data", str(tmp_path)]) == 1
    assert f"Cannot listen on {address}: another process uses the port. Choose another one" in capsys.readouterr().err


def test_another_failure_keeps_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.touch()
    assert run(["zookeeper", "--listen", "127.0.0.1:0", "--data", str(file)]) == 1
    told = capsys.readouterr().err
    assert str(file) in told
    assert "Cannot listen" not in told
