"""Requests of a thread that waits for the response itself, however the bytes come, and when they do not."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.net.blocking_exchange import BlockingExchange
from ottla.net.client_connection import Address, ConnectionLostError, RequestTimeoutError
from ottla.wire.errors import FrameSizeError

BEFORE = b"SIZEapi!id..before "
SLICE_S = 0.01


class Peer:
    """The other end, and an exchange."""

    def __init__(self) -> None:
        ours, self.socket = socket.socketpair()
        beside: Any = SimpleNamespace(address=Address("broker", 1), max_response_bytes=100_000)
        self.exchange = BlockingExchange(beside, ours, SLICE_S)

    def ask(self, after: bytes = b"after", patience_s: float = 20.0) -> bytes:
        return self.exchange.ask(BEFORE, after, time.monotonic() + patience_s)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    yield peer
    peer.exchange.abandon()
    peer.socket.close()


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def test_requests_are_numbered_and_their_responses_returned(peer: Peer) -> None:
    for number in (1, 2, 3):
        correlation_id = number.to_bytes(4, "big")
        peer.socket.sendall(framed(correlation_id + b"response"))
        assert peer.ask() == correlation_id + b"response"
        assert peer.socket.recv(100) == b"SIZEapi!" + correlation_id + b"before after"


def test_a_response_may_come_in_parts_and_late(peer: Peer) -> None:
    response = framed(b"\0\0\0\1" + bytes(50_000))

    def answer() -> None:
        peer.socket.recv(100)
        time.sleep(3 * SLICE_S)
        for start in range(0, len(response), 7_001):
            peer.socket.sendall(response[start : start + 7_001])

    thread = threading.Thread(target=answer)
    thread.start()
    assert peer.ask() == response[4:]
    thread.join()


def test_a_request_that_does_not_fit_into_the_socket_is_sent_whole(peer: Peer) -> None:
    after, received = bytes(5_000_000), bytearray()

    def answer() -> None:
        while len(received) < len(BEFORE) + len(after):
            received.extend(peer.socket.recv(100_000))
        peer.socket.sendall(framed(b"\0\0\0\1"))

    thread = threading.Thread(target=answer)
    thread.start()
    assert peer.ask(after) == b"\0\0\0\1"
    thread.join()
    assert received.endswith(after)


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (framed(b"\0\0\0\2 of another request"), ConnectionLostError),
        (framed(b"\0\0\0\1") + b"more", ConnectionLostError),
        (b"\xff\xff\xff\xff", FrameSizeError),
        ((100_001).to_bytes(4, "big"), FrameSizeError),
    ],
)
def test_what_is_no_response_ends_it(peer: Peer, response: bytes, error: type[Exception]) -> None:
    peer.socket.sendall(response)
    with pytest.raises(error):
        peer.ask()


def test_a_broker_that_hangs_up_or_stays_silent_is_reported(peer: Peer) -> None:
    with pytest.raises(RequestTimeoutError):
        peer.ask(patience_s=2 * SLICE_S)
    peer.socket.shutdown(socket.SHUT_RDWR)
    with pytest.raises((ConnectionLostError, OSError)):
        peer.ask()


def test_closing_ends_the_wait_of_another_thread(peer: Peer) -> None:
    peer.exchange.owner = threading.get_ident()
    closing = threading.Timer(2 * SLICE_S, peer.exchange.close)
    closing.start()
    with pytest.raises((ConnectionLostError, OSError)):
        peer.ask()
    closing.join()
