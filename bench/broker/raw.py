"""Load from frames that were made before: so little is done for a response that the broker is the limit.

Each connection has a thread and a blocking socket. Answers to Produce are not looked into but for the first: equal
requests have answers of equal size, and afterwards the end offsets must be what they are when every batch was appended.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from bench.broker.control import Control, check, check_end_offset, connect, receive_frame
from bench.broker.frames import PRODUCE_VERSION, batch_of, fetch_frame, produce_frame, records_in_big_batch
from bench.broker.usage import cpu_s

from ottla.wire.framing import api_of, read_response
from ottla.wire.messages.produce import ProduceRequest, ProduceResponse

MB, GB = 10**6, 10**9
IN_FLIGHT: Final = 5
"""Of big requests on a connection, as clients do by default."""
BATCHES_A_FETCH: Final = 4
"""A MiB, which is what a consumer asks of a partition by default."""
_SCRATCH_BYTES: Final = 2 * 2**20


@dataclass(slots=True)
class Spent:
    """What passed by the clock, and what the broker's CPU time was meanwhile."""

    elapsed_s: float = 0.0
    cpu_s: float = 0.0

    def of_requests(self, count: int) -> dict[str, float]:
        return {
            "requests_per_s": count / self.elapsed_s,
            "cpu_us_per_request": self.cpu_s / count * 1e6,
            **self._busy(),
        }

    def of_bytes(self, count: int) -> dict[str, float]:
        return {"mb_per_s": count / MB / self.elapsed_s, "cpu_s_per_gb": self.cpu_s / (count / GB), **self._busy()}

    def _busy(self) -> dict[str, float]:
        return {"broker_cores": self.cpu_s / self.elapsed_s}


def one_record(
    address: str, pid: int, topic: str, partitions: int, value_bytes: int, in_flight: int, seconds: float
) -> dict[str, float]:
    """Requests of one record each over one connection, so many of them under way at any time, to one partition after
    the other. The first to each is told apart: with it a leader writes down where its epoch begins."""
    batch = batch_of(value_bytes, 1)
    frames = [produce_frame(topic, partition, batch) for partition in range(partitions)]
    with Control(address) as control:
        begun_at = control.end_offset(topic, 0)
    with connect(address) as connection:
        answer_bytes = answer_bytes_of(connection, frames[0])
        with measured(pid) as first:
            keep_in_flight(connection, frames, answer_bytes, in_flight, requests=partitions)
        until_s = time.perf_counter() + seconds
        with measured(pid) as spent:
            answered = keep_in_flight(connection, frames, answer_bytes, in_flight, until_s=until_s)
    laps, rest = divmod(answered, partitions)
    check_end_offset(address, topic, 0, begun_at + 2 + laps + (rest > 0))
    return {**spent.of_requests(answered), "first_us": first.elapsed_s / partitions * 1e6}


def big_batches(
    address: str, pid: int, topic: str, value_bytes: int, connections: int, total_mb: int
) -> dict[str, float]:
    """Requests of one big batch each; each connection writes to its own partition."""
    count = records_in_big_batch(value_bytes)
    batch = batch_of(value_bytes, count)
    requests = max(IN_FLIGHT, total_mb * MB // (len(batch) * connections))
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
        frames = [produce_frame(topic, partition, batch) for partition in range(connections)]
        answer_bytes = [answer_bytes_of(*pair) for pair in zip(sockets, frames, strict=True)]

        def send(index: int) -> None:
            keep_in_flight(sockets[index], [frames[index]], answer_bytes[index], IN_FLIGHT, requests=requests)

        with measured(pid) as spent:
            in_threads(send, connections)
    for partition in range(connections):
        check_end_offset(address, topic, partition, (requests + 1) * count)
    return spent.of_bytes(requests * connections * len(batch))


def catch_up(
    address: str, pid: int, topic: str, value_bytes: int, connections: int, in_flight: int, passes: int
) -> dict[str, float]:
    """What `big_batches` wrote to the topic, read from beginning to end; each connection reads its own partition."""
    count = records_in_big_batch(value_bytes)
    wanted_bytes = len(batch_of(value_bytes, count)) * BATCHES_A_FETCH
    frames: list[list[bytes]] = []
    with Control(address) as control:
        for partition in range(connections):
            step = BATCHES_A_FETCH * count
            starts = range(0, control.end_offset(topic, partition) - step + 1, step)
            frames.append([fetch_frame(topic, partition, start, wanted_bytes) for start in starts] * passes)
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
        with measured(pid) as spent:
            in_threads(lambda index: fetch_all(sockets[index], frames[index], in_flight, wanted_bytes), connections)
    return spent.of_bytes(sum(map(len, frames)) * wanted_bytes)


@contextmanager
def measured(pid: int) -> Iterator[Spent]:
    """What is yielded is filled in at the end of the block."""
    spent = Spent()
    cpu_before_s, started_s = cpu_s(pid), time.perf_counter()
    yield spent
    spent.elapsed_s = time.perf_counter() - started_s
    spent.cpu_s = cpu_s(pid) - cpu_before_s


def answer_bytes_of(connection: socket.socket, frame: bytes | bytearray) -> int:
    """The size of the answer to such a Produce request, the size field included."""
    connection.sendall(frame)
    answer = receive_frame(connection)
    response = read_response(api_of(ProduceRequest.api_key), PRODUCE_VERSION, answer)[1]
    if not isinstance(response, ProduceResponse):
        raise TypeError(f"a Produce request was answered by a {type(response).__name__}")
    check(response.responses[0].partition_responses[0].error_code, "a Produce request")
    return len(answer) + 4


def keep_in_flight(
    connection: socket.socket,
    frames: Sequence[bytes | bytearray],
    answer_bytes: int,
    in_flight: int,
    *,
    requests: int = sys.maxsize,
    until_s: float = float("inf"),
) -> int:
    """Sends the frames, which are of one size, round and round, a new one for each answer; returns how many answers."""
    frame_bytes = len(frames[0])
    # With some of its beginning behind its end, any run of frames in flight is one slice.
    wheel = memoryview(b"".join(islice(cycle(frames), len(frames) + in_flight)))
    scratch = bytearray(64 * 1024)
    clock, receive_into, send = time.perf_counter, connection.recv_into, connection.sendall
    sent = min(in_flight, requests)
    send(wheel[: sent * frame_bytes])
    next_frame = sent % len(frames)
    answered = received_bytes = 0
    while answered < sent:
        got = receive_into(scratch)
        if not got:
            raise ConnectionError("the broker has closed the connection")
        done, received_bytes = divmod(received_bytes + got, answer_bytes)
        if not done:
            continue
        answered += done
        if sent < requests and clock() < until_s:
            more = min(done, requests - sent)
            send(wheel[next_frame * frame_bytes : (next_frame + more) * frame_bytes])
            next_frame = (next_frame + more) % len(frames)
            sent += more
    return answered


_DROP: Final = socket.MSG_TRUNC if sys.platform == "linux" else 0
"""The system drops what has arrived instead of copying it to us: else this process is the limit, not the broker."""


def fetch_all(connection: socket.socket, frames: Sequence[bytes], in_flight: int, least_bytes: int) -> None:
    """Each answer must be at least of that size: that of the records asked for."""
    scratch, size_field = memoryview(bytearray(_SCRATCH_BYTES)), bytearray(4)
    for frame in frames[:in_flight]:
        connection.sendall(frame)
    for index in range(len(frames)):
        connection.recv_into(size_field, 4, socket.MSG_WAITALL)
        left_bytes = int.from_bytes(size_field, "big")
        if left_bytes < least_bytes:
            raise RuntimeError(f"an answer of {left_bytes} bytes cannot hold the {least_bytes} bytes asked for")
        while left_bytes:
            got = connection.recv_into(scratch, min(left_bytes, _SCRATCH_BYTES), socket.MSG_WAITALL | _DROP)
            if not got:
                raise ConnectionError("the broker has closed the connection")
            left_bytes -= got
        if index + in_flight < len(frames):
            connection.sendall(frames[index + in_flight])


def in_threads(work: Callable[[int], None], count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        for result in [pool.submit(work, index) for index in range(count)]:
            result.result()
