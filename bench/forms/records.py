"""Raw loads of records in forms of their own: compressed, with keys, in tiny batches, for many partitions a request,
read by many at once."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from bench.broker.control import Control, check, check_end_offset, connect, receive_frame
from bench.broker.frames import (
    FETCH_VERSION,
    batch_of,
    fetch_frame,
    produce_frame,
    text_batch,
    wide_fetch_frame,
    wide_produce_frame,
)
from bench.broker.raw import IN_FLIGHT, answer_bytes_of, fetch_all, in_threads, keep_in_flight, measured

from ottla.records.layout import Compression
from ottla.wire.framing import api_of, read_response
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

_FETCHED_AT_ONCE: Final = 2**20


def batches(
    address: str,
    pid: int,
    topic: str,
    value_bytes: int,
    count: int,
    compression: str,
    keys: int,
    connections: int,
    in_flight: int,
    seconds: float,
) -> dict[str, float]:
    """Requests of one batch of so many records of text; each connection writes to its own partition."""
    batch = text_batch(value_bytes, count, Compression[compression.upper()], keys)
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(connections)]
        frames = [produce_frame(topic, partition, batch) for partition in range(connections)]
        answer_bytes = [answer_bytes_of(*pair) for pair in zip(sockets, frames, strict=True)]
        answered = [0] * connections
        until_s = time.perf_counter() + seconds

        def send(index: int) -> None:
            answered[index] = keep_in_flight(
                sockets[index], [frames[index]], answer_bytes[index], in_flight, until_s=until_s
            )

        with measured(pid) as spent:
            in_threads(send, connections)
    for partition, requests in enumerate(answered):
        check_end_offset(address, topic, partition, (requests + 1) * count)
    return {**spent.of_requests(sum(answered)), **spent.of_bytes(sum(answered) * value_bytes * count)}


def wide_produce(address: str, pid: int, topic: str, width: int, seconds: float) -> dict[str, float]:
    """Requests with a batch of one record for every partition of the topic."""
    frame = wide_produce_frame(topic, range(width), batch_of(100, 1))
    with connect(address) as connection:
        answer_bytes = answer_bytes_of(connection, frame)
        until_s = time.perf_counter() + seconds
        with measured(pid) as spent:
            answered = keep_in_flight(connection, [frame], answer_bytes, IN_FLIGHT, until_s=until_s)
    for partition in (0, width - 1):
        check_end_offset(address, topic, partition, answered + 1)
    return spent.of_requests(answered)


def wide_fetch(address: str, pid: int, topic: str, width: int, seconds: float) -> dict[str, float]:
    """Requests for a kilobyte of every partition, of batches of one record, outside of sessions."""
    batch = batch_of(100, 1)
    partition_bytes = 4 * len(batch)
    with connect(address) as connection:
        filling = wide_produce_frame(topic, range(width), batch)
        answer_bytes = answer_bytes_of(connection, filling)
        keep_in_flight(connection, [filling], answer_bytes, IN_FLIGHT, requests=9)
        frame = wide_fetch_frame(topic, range(width), 1, partition_bytes)
        answer_bytes = _fetched_bytes(connection, frame, width * partition_bytes)
        until_s = time.perf_counter() + seconds
        with measured(pid) as spent:
            answered = keep_in_flight(connection, [frame], answer_bytes, 2, until_s=until_s)
    return spent.of_requests(answered)


def _fetched_bytes(connection: socket.socket, frame: bytes, expected: int) -> int:
    """The size of the answer, with its size field; all the records asked for must be in it."""
    connection.sendall(frame)
    answer = receive_frame(connection)
    response = read_response(api_of(FetchRequest.api_key), FETCH_VERSION, answer)[1]
    if not isinstance(response, FetchResponse):
        raise TypeError(f"a Fetch request was answered by a {type(response).__name__}")
    found = 0
    for topic in response.responses:
        for partition in topic.partitions:
            check(partition.error_code, f"a fetch of partition {partition.partition_index}")
            found += len(partition.records or b"")
    if found != expected:
        raise RuntimeError(f"a Fetch request for {expected} bytes was answered with {found}")
    return len(answer) + 4


def fan_out(address: str, pid: int, topic: str, consumers: int, total_mb: int) -> dict[str, float]:
    """The same records, read from beginning to end by several consumers at once."""
    batch = batch_of(1024, 250)
    requests = max(1, total_mb * 10**6 // len(batch))
    with connect(address) as connection:
        filling = produce_frame(topic, 0, batch)
        keep_in_flight(connection, [filling], answer_bytes_of(connection, filling), IN_FLIGHT, requests=requests)
    with Control(address) as control:
        end = control.end_offset(topic, 0)
    batches_a_fetch = _FETCHED_AT_ONCE // len(batch)
    starts = range(0, end - batches_a_fetch * 250 + 1, batches_a_fetch * 250)
    wanted_bytes = batches_a_fetch * len(batch)
    frames: Sequence[bytes] = [fetch_frame(topic, 0, start, wanted_bytes) for start in starts]
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for _ in range(consumers)]
        with measured(pid) as spent:
            in_threads(lambda index: fetch_all(sockets[index], frames, 2, wanted_bytes), consumers)
    return spent.of_bytes(consumers * len(frames) * wanted_bytes)
