"""Sixty consumers that commit at once, and hang up or stop reading as they please: everybody else gets the answer that
is theirs, and what was acknowledged is there, also after the broker was killed."""

from __future__ import annotations

import os
import random
import select
import socket
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from faults.load import WAIT_S, create_topic
from ottla.base.error_codes import ErrorCode
from ottla.testing.broker import Broker
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup,
    OffsetFetchGroupTopic,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from ottla.wire.schema import Request, Response

SEED = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
CONSUMERS = 60
COMMITS = 6_000
"""Once the broker sends answers together; and at most twenty times as many before."""
TOPIC = "t"
PARTITIONS = (1, 1, 1, 3, 70)
"""Of which a consumer commits as many as its number says."""
COMMIT_VERSION = 9
FETCH_VERSION = 8
RESET = struct.pack("ii", 1, 0)
"""To hang up without a farewell."""


@dataclass
class Consumer:
    """One after the other: a commit, its answer."""

    number: int
    port: int
    chance: random.Random
    sock: socket.socket = field(init=False)
    correlation_id: int = 0
    sent: int = 0
    acknowledged: int = 0
    received: bytes = b""

    def __post_init__(self) -> None:
        self.connect()

    @property
    def group(self) -> str:
        return f"group {self.number}"

    @property
    def partitions(self) -> int:
        return PARTITIONS[self.number % len(PARTITIONS)]

    def connect(self) -> None:
        self.sock = socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""

    def hang_up(self) -> None:
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.sock.close()

    def commit(self) -> None:
        self.sent += 1
        self.correlation_id = self.chance.randrange(2**31)
        offsets = [
            OffsetCommitPartition(partition_index=index, committed_offset=self.sent, committed_metadata="")
            for index in range(self.partitions)
        ]
        topics = [OffsetCommitTopic(name=TOPIC, partitions=offsets)]
        request = OffsetCommitRequest(group_id=self.group, topics=topics)
        self.sock.sendall(b"".join(request_frame(request, COMMIT_VERSION, self.correlation_id, self.group)))

    def is_answered(self) -> bool:
        """Takes what has come; whether that is the whole answer, and the right one."""
        got = self.sock.recv(65536)
        assert got, f"seed {SEED}: the broker has hung up on {self.group}"
        self.received += got
        if len(self.received) < 4 or len(self.received) < 4 + int.from_bytes(self.received[:4], "big"):
            return False
        answer = check_answer(self.received[4:], OffsetCommitRequest.api_key, COMMIT_VERSION, self.correlation_id)
        assert isinstance(answer, OffsetCommitResponse)
        (topic,) = answer.topics
        told = [(each.partition_index, each.error_code) for each in topic.partitions]
        assert told == [(index, ErrorCode.NONE) for index in range(self.partitions)]
        self.acknowledged, self.received = self.sent, b""
        return True


def check_answer(frame: bytes, api_key: int, version: int, correlation_id: int) -> Response:
    told, response = read_response(api_of(api_key), version, frame)
    assert told == correlation_id
    return response


def ask(port: int, request: Request, version: int) -> Response:
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as sock, sock.makefile("rb") as answers:
        sock.sendall(b"".join(request_frame(request, version, 7, "test")))
        size = int.from_bytes(answers.read(4), "big")
        return check_answer(answers.read(size), request.api_key, version, 7)


def sends_together(broker: Broker) -> bool:
    """Whether the compiled code is there that a broker sends many answers with."""
    return any("llvmlite" in each.path for each in psutil.Process(broker.process.pid).memory_maps())


def work(consumers: list[Consumer], chance: random.Random, count: int) -> None:
    """Until so many more commits are answered. Now and then somebody hangs up with an answer due, or does not read for
    a while."""
    by_descriptor = {consumer.sock.fileno(): consumer for consumer in consumers}
    lazy: list[Consumer] = []
    with select.epoll() as poller:
        for consumer in consumers:
            poller.register(consumer.sock, select.EPOLLIN)
            consumer.commit()
        answered = 0
        while answered < count:
            ready = poller.poll(WAIT_S)
            assert ready, f"nobody is answered any more, after {answered}"
            for descriptor, _ in ready:
                consumer = by_descriptor[descriptor]
                what = chance.random()
                if what < 0.01:
                    poller.unregister(descriptor)
                    del by_descriptor[descriptor]
                    consumer.hang_up()
                    consumer.connect()
                    by_descriptor[consumer.sock.fileno()] = consumer
                    poller.register(consumer.sock, select.EPOLLIN)
                elif what < 0.02 and len(lazy) < CONSUMERS // 4:
                    poller.modify(descriptor, 0)
                    lazy.append(consumer)
                    continue
                elif not consumer.is_answered():
                    continue
                answered += 1
                consumer.commit()
                if what > 0.99 and not consumer.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    poller.unregister(consumer.sock)  # with its commit under way
                    del by_descriptor[consumer.sock.fileno()]
                    consumer.hang_up()
                    consumer.connect()
                    consumer.commit()
                    by_descriptor[consumer.sock.fileno()] = consumer
                    poller.register(consumer.sock, select.EPOLLIN)
            if lazy and chance.random() < 0.2:
                poller.modify(lazy.pop(chance.randrange(len(lazy))).sock, select.EPOLLIN)
        for descriptor, consumer in by_descriptor.items():  # those that are still due
            poller.unregister(descriptor)
            while not consumer.is_answered():
                pass


def committed(broker: Broker, consumer: Consumer) -> list[int]:
    topics = [OffsetFetchGroupTopic(name=TOPIC, partition_indexes=list(range(consumer.partitions)))]
    request = OffsetFetchRequest(groups=[OffsetFetchGroup(group_id=consumer.group, topics=topics)])
    deadline_s = time.monotonic() + WAIT_S
    while True:
        answer = ask(broker.port, request, FETCH_VERSION)
        assert isinstance(answer, OffsetFetchResponse)
        (group,) = answer.groups
        if not group.error_code:
            return [each.committed_offset for each in group.topics[0].partitions]
        assert time.monotonic() < deadline_s, ErrorCode(group.error_code)


def test_each_commit_gets_its_own_answer_and_is_stored(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    with Broker({"offsets.topic.num.partitions": "7"}, directory=tmp_path) as broker:
        create_topic(broker.bootstrap, TOPIC, partitions=max(PARTITIONS))
        found = ask(broker.port, FindCoordinatorRequest(coordinator_keys=["group 0"]), 4)
        assert isinstance(found, FindCoordinatorResponse)
        consumers = [Consumer(number, broker.port, chance) for number in range(CONSUMERS)]
        for _ in range(20):
            work(consumers, chance, COMMITS)
            if sends_together(broker):
                break
        assert sends_together(broker), "the broker has not begun to send answers together"
        work(consumers, chance, COMMITS)
        for consumer in consumers:
            consumer.sock.close()
        check_kept(broker, consumers)
        broker.kill()
        broker.start()
        check_kept(broker, consumers)


def check_kept(broker: Broker, consumers: list[Consumer]) -> None:
    for consumer in consumers:
        offsets = committed(broker, consumer)
        assert len(set(offsets)) == 1, f"seed {SEED}: half a commit of {consumer.group}: {offsets}"
        assert consumer.acknowledged <= offsets[0] <= consumer.sent, f"seed {SEED}: {consumer.group}"
