"""Strangers, liars and slow ones on the port, while a real client goes on as if they were not there."""

from __future__ import annotations

import logging
import os
import random
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil
import pytest

from faults.load import create_topic, load, read_all
from ottla.testing.broker import Broker
from ottla.wire.framing import request_frame
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest
from support.waiting import wait_until

_logger = logging.getLogger(__name__)

SEED = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
METADATA = b"".join(request_frame(MetadataRequest(topics=[]), 9, 1, "test"))
API_VERSIONS = b"".join(request_frame(ApiVersionsRequest(), 0, 1, "test"))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"connections.max.idle.ms": "600000", "socket.request.max.bytes": "10000000"}) as running:
        yield running


def connect(broker: Broker) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def is_hung_up(sock: socket.socket) -> bool:
    """Whether the broker ends the connection, whatever it may say before."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def random_bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.randrange(1, 2000))


def random_body(chance: random.Random) -> bytes:
    """A frame of the size it announces, with nothing sensible in it."""
    body = chance.randbytes(chance.randrange(0, 300))
    return len(body).to_bytes(4, "big") + body


def known_api(chance: random.Random) -> bytes:
    """An API and a version that exist, and then noise."""
    body = struct.pack(">hhih", chance.randrange(0, 76), chance.randrange(0, 14), 1, -1) + random_bytes(chance)
    return len(body).to_bytes(4, "big") + body


def announced(chance: random.Random) -> bytes:
    return chance.choice([2**31 - 1, 2**31, 2**32 - 1, 10_000_001]).to_bytes(4, "big")


def wrong_version(chance: random.Random) -> bytes:
    body = struct.pack(">hhih", chance.choice([0, 1, 3, 19]), chance.choice([-1, 100, 32767]), 1, -1)
    return len(body).to_bytes(4, "big") + body


def tls_hello(_: random.Random) -> bytes:
    return bytes.fromhex("16030100c8010000c40303") + bytes(200)


def http_get(_: random.Random) -> bytes:
    return b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


STRANGERS: list[Callable[[random.Random], bytes]] = [
    random_bytes,
    random_body,
    known_api,
    announced,
    wrong_version,
    tls_hello,
    http_get,
]


def test_strangers_disturb_nobody(broker: Broker) -> None:
    _logger.info("OTTLA_SEED=%d", SEED)
    chance = random.Random(SEED)
    create_topic(broker.bootstrap, "strangers")
    with load(broker.bootstrap, "strangers") as producing:
        wait_until(lambda: len(producing.acknowledged) > 100, "the first records")
        for _ in range(150):
            with connect(broker) as sock:
                try:
                    sock.sendall(chance.choice(STRANGERS)(chance))
                    sock.shutdown(socket.SHUT_WR)  # a half frame ends here
                    assert is_hung_up(sock)
                except (ConnectionResetError, BrokenPipeError):
                    pass
        before = len(producing.acknowledged)
        wait_until(lambda: len(producing.acknowledged) > before, "a record after all of them")
        assert producing.stop() == 0
    assert producing.errors == []
    found = dict(read_all(broker.bootstrap, "strangers"))
    assert all(found[offset] == b"%d" % number for offset, number in producing.acknowledged)
    assert "Traceback" not in broker.output


def test_repeated_events_are_logged_in_one_line(broker: Broker) -> None:
    before = broker.output
    for _ in range(200):
        with connect(broker) as sock:
            sock.sendall(tls_hello(random.Random(1)))
            assert is_hung_up(sock)
    said = broker.output[len(before) :].splitlines()
    assert len(said) <= 5
    assert all("closed the connection of 127.0.0.1" in line for line in said)


def test_a_client_that_asks_and_never_reads_costs_only_itself(broker: Broker) -> None:
    create_topic(broker.bootstrap, "unread")
    process = psutil.Process(broker.process.pid)
    with load(broker.bootstrap, "unread") as producing:
        wait_until(lambda: len(producing.acknowledged) > 2000, "some records")
        asking = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=1 << 26,
            topics=[
                FetchTopic(
                    topic="unread",
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
                )
            ],
        )
        frame = b"".join(request_frame(asking, 11, 1, "glutton"))
        gluttons = [connect(broker) for _ in range(20)]
        for sock in gluttons:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
        memory_before = process.memory_info().rss
        for _ in range(200):
            for sock in gluttons:
                with suppress(BlockingIOError):
                    sock.send(frame * 10)
        before = len(producing.acknowledged)
        wait_until(lambda: len(producing.acknowledged) > before + 1000, "more records")
        assert producing.stop() == 0
        assert process.memory_info().rss - memory_before < 64 * 2**20
        for sock in gluttons:
            sock.close()
    assert producing.errors == []


def test_slow_senders_of_large_frames_do_not_fill_the_memory(broker: Broker) -> None:
    process = psutil.Process(broker.process.pid)
    before = process.memory_info().rss
    size = 9_000_000
    slow = [connect(broker) for _ in range(100)]  # 900 MB announced
    for sock in slow:
        sock.sendall(size.to_bytes(4, "big") + bytes(10))
    with connect(broker) as sock:
        sock.sendall(METADATA)
        assert sock.recv(4)
    assert process.memory_info().rss - before < 150 * 2**20
    for sock in slow:
        sock.close()


def test_thousands_of_connections_at_once(broker: Broker) -> None:
    """Each is answered, and costs little."""
    process = psutil.Process(broker.process.pid)
    count = 2000
    before = process.memory_info().rss
    socks = []
    try:
        for _ in range(count):
            sock = connect(broker)
            sock.sendall(API_VERSIONS)
            socks.append(sock)
        for sock in socks:
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            assert len(sock.recv(size, socket.MSG_WAITALL)) == size
        each = (process.memory_info().rss - before) / count
        assert each < 20_000, f"{each:.0f} bytes a connection"
        create_topic(broker.bootstrap, "crowd")
    finally:
        for sock in socks:
            sock.close()
    wait_until(lambda: process.num_fds() < 1000, "the end of all connections")


def test_limits_of_connections_are_kept() -> None:
    with Broker({"max.connections.per.ip": "10"}) as broker:
        kept = [connect(broker) for _ in range(10)]
        for sock in kept:
            sock.sendall(API_VERSIONS)
            assert sock.recv(4, socket.MSG_WAITALL)
        with connect(broker) as refused:
            assert is_hung_up(refused)
        kept.pop().close()

        def is_served() -> bool:
            with connect(broker) as sock:
                try:
                    sock.sendall(API_VERSIONS)
                    return len(sock.recv(4)) > 0
                except (ConnectionResetError, BrokenPipeError):
                    return False

        wait_until(is_served, "a place")
        for sock in kept:
            sock.close()
        assert "max.connections.per.ip is 10" in broker.output
