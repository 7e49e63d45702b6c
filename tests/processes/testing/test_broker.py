"""A broker for tests: starts, stops, comes back, several at once; and the fixture of the pytest plugin."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.testing import broker as testing_broker
from ottla.testing import server_process
from ottla.testing.broker import Broker, BrokerFailedError, Setting, settings_text


def is_listening(broker: Broker) -> bool:
    try:
        socket.create_connection(("127.0.0.1", broker.port), timeout=10).close()
    except ConnectionRefusedError:
        return False
    return True


def test_it_serves_inside_the_block_and_leaves_nothing_behind() -> None:
    with Broker() as broker:
        assert broker.bootstrap == f"127.0.0.1:{broker.port}"
        assert is_listening(broker)
        directory = broker.directory
        assert directory.exists()
    assert not is_listening(broker)
    assert not directory.exists()


def test_several_run_at_once() -> None:
    with Broker() as first, Broker() as second:
        assert first.port != second.port
        assert is_listening(first)
        assert is_listening(second)


def test_it_comes_back_on_the_same_port_with_its_data(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "here") as broker:
        port = broker.port
        broker.stop()
        assert not is_listening(broker)
        broker.start()
        assert broker.port == port
        broker.kill()
        assert not is_listening(broker)
        broker.start()
        assert is_listening(broker)
    assert (tmp_path / "here" / "data").is_dir()


def test_a_broker_that_does_not_start_says_why_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    broker = Broker({"num.partitions": "many"})
    with pytest.raises(BrokerFailedError, match=r"num\.partitions"):
        broker.start()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BrokerFailedError, match=r"num\.partitions"):
        broker.start()  # as often as one likes

    kept = Broker({"num.partitions": "many"}, directory=tmp_path / "mine")
    with pytest.raises(BrokerFailedError):
        kept.start()
    assert "num.partitions" in (tmp_path / "mine" / "output.log").read_text()


def test_a_broker_that_does_not_start_in_time_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(testing_broker, "START_TIMEOUT_S", 0.0)
    begun: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        begun.append(subprocess.Popen(*arguments, **options))
        return begun[0]

    monkeypatch.setattr(server_process, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": begin}))
    with pytest.raises(BrokerFailedError, match="did not start in 0 s"):
        Broker().start()
    assert begun[0].returncode is not None
    assert list(tmp_path.iterdir()) == []


def test_settings_may_be_numbers_and_booleans() -> None:
    given: dict[str, Setting] = {
        "num.partitions": 3,
        "auto.create.topics.enable": False,
        "log.cleaner.min.cleanable.ratio": 0.1,
        "a": "b",
    }
    expected = {"num.partitions": "3", "auto.create.topics.enable": "false", "log.cleaner.min.cleanable.ratio": "0.1"}
    assert settings_text(given) == {**expected, "a": "b"}
    with pytest.raises(TypeError, match=r"log\.dirs must be a str, int, float or bool, not PosixPath"):
        settings_text({"log.dirs": Path("/x")})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match=r"broker\.rack must be a str"):
        Broker({"broker.rack": None})  # type: ignore[dict-item]


def test_misuse_is_reported() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="is not running"):
        _ = broker.process
    with pytest.raises(RuntimeError, match="not started"):
        _ = broker.directory
    with broker, pytest.raises(RuntimeError, match="is already running"):
        broker.start()


def test_the_plugin_gives_a_broker_with_the_projects_settings(tmp_path: Path) -> None:
    """In a project of its own, as its users have it."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef ottla_broker_settings():\n"
        "    return {'num.partitions': 7}\n"
    )
    (tmp_path / "test_project.py").write_text(
        "from confluent_kafka import Producer\n\n"
        "def test_topic(ottla_broker):\n"
        "    producer = Producer({'bootstrap.servers': ottla_broker.bootstrap})\n"
        "    producer.produce('orders', b'hello')\n"
        "    assert producer.flush(30) == 0\n"
        "    assert len(producer.list_topics('orders', timeout=30).topics['orders'].partitions) == 7\n"
        "    seen.append(ottla_broker)\n\n"
        "seen = []\n\n"
        "def test_same(ottla_broker):\n"
        "    assert seen == [ottla_broker]\n\n"
        "def test_own(ottla_broker, new_ottla_broker):\n"
        "    assert new_ottla_broker.bootstrap != ottla_broker.bootstrap\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 passed" in result.stdout
