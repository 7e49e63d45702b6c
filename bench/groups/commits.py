"""Offset commits from frames that were made before, one under way on each connection, as consumers do."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle

from bench.broker.control import check, connect, receive_frame
from bench.broker.frames import CLIENT_ID
from bench.broker.raw import measured
from bench.groups.member import COMMIT_VERSION

from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
)

_SCRATCH_BYTES = 64 * 1024


def commits(
    address: str, pid: int, topic: str, connections: int, groups: int, partitions: int, seconds: float
) -> dict[str, float]:
    """So many partitions a commit, for one group after the other."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
        frames = commit_frames("commits", groups, topic, partitions)
        with measured(pid) as spent:
            answered = exchange(sockets, cycle(frames), until_s=time.perf_counter() + seconds)
    return spent.of_requests(answered)


def commit_frames(prefix: str, groups: int, topic: str, partitions: int) -> list[bytes]:
    """One for each group, from a consumer that is no member."""

    def frame(group_id: str) -> bytes:
        offsets = [
            OffsetCommitPartition(partition_index=index, committed_offset=index + 1, committed_metadata="")
            for index in range(partitions)
        ]
        topics = [OffsetCommitTopic(name=topic, partitions=offsets)]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        return b"".join(request_frame(request, COMMIT_VERSION, 1, CLIENT_ID))

    # All names are equally long, so that the rest need be written only once.
    names = group_names(prefix, groups)
    first = frame(names[0])
    return [first.replace(names[0].encode(), name.encode(), 1) for name in names]


def group_names(prefix: str, groups: int) -> list[str]:
    return [f"{prefix}-{number:05}" for number in range(groups)]


def exchange(connections: Sequence[socket.socket], frames: Iterator[bytes], *, until_s: float = float("inf")) -> int:
    """Sends the frames, a new one for each answer, until there are none or it is time; how many were answered.

    The first answer is looked into, and all others must be its like, byte for byte."""
    connections[0].sendall(next(frames))
    answer = receive_frame(connections[0])
    _check_commit(answer)
    expected = len(answer).to_bytes(4, "big") + answer
    by_number = {connection.fileno(): connection for connection in connections}
    pending: dict[int, bytes] = {}
    answered, clock = 1, time.perf_counter
    with select.epoll() as poller:
        for number, connection in by_number.items():
            if (frame := next(frames, None)) is not None:
                connection.sendall(frame)
                poller.register(number, select.EPOLLIN)
                pending[number] = b""
        while pending:
            for number, _ in poller.poll():
                connection = by_number[number]
                got = connection.recv(_SCRATCH_BYTES)
                if not got:
                    raise ConnectionError("the broker has closed the connection")
                received = pending[number] + got
                if len(received) < len(expected):
                    pending[number] = received
                    continue
                if received != expected:
                    _check_commit(received[4:])
                    raise RuntimeError("an answer to OffsetCommit differs from the first, and has no error")
                answered += 1
                following = next(frames, None) if clock() < until_s else None
                if following is None:
                    del pending[number]
                    poller.unregister(number)
                else:
                    pending[number] = b""
                    connection.sendall(following)
    return answered


def _check_commit(answer: bytes | bytearray) -> None:
    response = read_response(api_of(OffsetCommitRequest.api_key), COMMIT_VERSION, answer)[1]
    if not isinstance(response, OffsetCommitResponse):
        raise TypeError(f"an OffsetCommit was answered by a {type(response).__name__}")
    for topic in response.topics:
        for partition in topic.partitions:
            check(partition.error_code, f"the offset of {topic.name}-{partition.partition_index}")
