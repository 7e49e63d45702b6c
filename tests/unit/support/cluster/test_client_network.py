"""What happens to requests and answers between clients and a broker; the broker here answers every request with it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from support.cluster.client_network import ClientNetwork
from support.waiting import wait_until

BROKER = 1
END_TXN, FETCH = 26, 1
_ROUTE = struct.Struct(">hhi")


class EchoingBroker:
    """Remembers the requests that reach it."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            while frame := _read(connection):
                api_key, _, correlation_id = _ROUTE.unpack(frame)
                self.requests.append((api_key, correlation_id))
                try:
                    connection.sendall(_framed(correlation_id.to_bytes(4, "big")))
                except OSError:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def _read(connection: socket.socket) -> bytes:
    """A frame; empty at the end of the connection."""
    try:
        size = connection.recv(4, socket.MSG_WAITALL)
        return connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL) if size else b""
    except ConnectionError:
        return b""


@pytest.fixture
def broker() -> Iterator[EchoingBroker]:
    broker = EchoingBroker()
    yield broker
    broker.close()


@pytest.fixture
def network(broker: EchoingBroker) -> Iterator[ClientNetwork]:
    network = ClientNetwork({BROKER: broker.port}, seed=1)
    yield network
    network.close()


@pytest.fixture
def client(network: ClientNetwork) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", network.ports[BROKER])) as connection:
        yield connection


def send(client: socket.socket, api_key: int, correlation_id: int) -> None:
    client.sendall(_framed(_ROUTE.pack(api_key, 0, correlation_id)))


def answer(client: socket.socket) -> int | None:
    """None if the connection has ended."""
    frame = _read(client)
    return int.from_bytes(frame, "big") if frame else None


def test_requests_and_answers_pass(network: ClientNetwork, broker: EchoingBroker, client: socket.socket) -> None:
    network.slow_down([BROKER], 0.001)
    for number in range(3):
        send(client, FETCH, number)
    assert [answer(client) for _ in range(3)] == [0, 1, 2]
    assert broker.requests == [(FETCH, 0), (FETCH, 1), (FETCH, 2)]


def test_an_answer_is_lost_after_the_broker_acted(
    network: ClientNetwork, broker: EchoingBroker, client: socket.socket
) -> None:
    network.lose_answers([BROKER], [END_TXN], 1.0)
    send(client, FETCH, 1)
    assert answer(client) == 1
    send(client, END_TXN, 2)
    assert answer(client) is None
    assert broker.requests == [(FETCH, 1), (END_TXN, 2)]
    assert network.lost == 1


def test_requests_arrive_although_their_client_is_gone(
    network: ClientNetwork, broker: EchoingBroker, client: socket.socket
) -> None:
    send(client, FETCH, 1)
    assert answer(client) == 1
    network.hold([BROKER], requests=True, answers=False)
    send(client, END_TXN, 2)
    client.close()
    assert broker.requests == [(FETCH, 1)]
    network.heal()
    wait_until(lambda: broker.requests == [(FETCH, 1), (END_TXN, 2)], "the late request does not arrive")


@pytest.mark.parametrize("lose", [False, True])
def test_answers_that_are_held_arrive_late_or_never(
    network: ClientNetwork, broker: EchoingBroker, client: socket.socket, lose: bool
) -> None:
    send(client, FETCH, 1)
    assert answer(client) == 1
    network.hold([BROKER], requests=False, answers=True)
    send(client, END_TXN, 2)
    wait_until(lambda: (END_TXN, 2) in broker.requests, "the request does not arrive")
    network.heal(lose_held=lose)
    assert answer(client) == (None if lose else 2)


def test_a_cut_ends_connections_and_new_ones(network: ClientNetwork, client: socket.socket) -> None:
    send(client, FETCH, 1)
    assert answer(client) == 1
    network.cut([BROKER])
    assert answer(client) is None
    with socket.create_connection(("127.0.0.1", network.ports[BROKER])) as another:
        assert answer(another) is None
    network.heal()
    with socket.create_connection(("127.0.0.1", network.ports[BROKER])) as another:
        send(another, FETCH, 2)
        assert answer(another) == 2
