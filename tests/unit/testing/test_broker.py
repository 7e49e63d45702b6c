"""A broker for tests: starts, stops, comes back, several at once; and the fixture of the pytest plugin."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.testing.broker import Broker, BrokerFailedError


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


def test_what_keeps_it_from_starting_is_told() -> None:
    with pytest.raises(BrokerFailedError, match=r"num\.partitions"), Broker({"num.partitions": "many"}):
        pass


def test_misuse_is_told() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.process
    with pytest.raises(RuntimeError, match="not started"):
        _ = broker.directory
    with broker, pytest.raises(RuntimeError, match="runs already"):
        broker.start()


def test_the_plugin_gives_a_broker_with_the_projects_settings(tmp_path: Path) -> None:
    """In a project of its own, as its users have it."""
    (tmp_path / "conftest.py").write_text(
        "import pytest\n\n@pytest.fixture(scope='session')\ndef ottla_broker_settings():\n"
        "    return {'num.partitions': '7'}\n"
    )
    (tmp_path / "test_project.py").write_text(
        "from confluent_kafka import Producer\n\n"
        "def test_topic(ottla_broker):\n"
        "    producer = Producer({'bootstrap.servers': ottla_broker.bootstrap})\n"
        "    producer.produce('orders', b'hello')\n"
        "    assert producer.flush(30) == 0\n"
        "    assert len(producer.list_topics('orders', timeout=30).topics['orders'].partitions) == 7\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout
