"""An attempt to connect ends, whatever happens: all later requests to the broker would wait for it."""

from __future__ import annotations

import asyncio

import pytest

from ottla.broker.links import broker_peer
from ottla.broker.links.broker_peer import BrokerPeer
from ottla.net.client_connection import Address, ConnectionOptions
from ottla.wire.peer import PeerError


def test_an_attempt_that_hangs_is_given_up_and_another_one_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []
    outcomes: list[PeerError | None] = []

    async def hang(address: Address, _options: ConnectionOptions) -> None:
        attempts.append(address)
        await asyncio.Event().wait()

    async def run() -> None:
        here = Address("127.0.0.1", 9092)
        options = ConnectionOptions(connect_timeout_s=0.001)
        peer = BrokerPeer("broker 2", lambda: here, options, on_attempt=outcomes.append)
        for count in (1, 2):
            with pytest.raises(PeerError, match="connecting did not end in time"):
                await asyncio.wait_for(peer.connect(), 30)
            assert attempts == [here] * count
        peer.close()

    monkeypatch.setattr(broker_peer, "_OPEN_SLACK_S", 0.001)
    monkeypatch.setattr("ottla.net.client_connection.ClientConnection.open", hang)
    asyncio.run(run())
    assert [outcome is not None and not outcome.is_refused for outcome in outcomes] == [True, True]
