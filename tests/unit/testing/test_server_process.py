"""Ports for the servers of tests."""

from __future__ import annotations

import pytest

from ottla.testing import server_process
from ottla.testing.server_process import BrokerFailedError, unused_port


def test_no_port_is_given_away_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens on the first one yet: two members of a cluster would share it."""
    port = unused_port()
    monkeypatch.setattr(server_process, "_PORTS", (port, port + 1))
    with pytest.raises(BrokerFailedError, match=f"ports between {port} and {port + 1} is free"):
        unused_port()
