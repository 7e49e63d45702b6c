"""From the moment a record is sent to the moment a consumer has it, at a steady rate.

The producer and the consumer are two processes with a connection each; a record's value begins with the time at which
it was sent, by the clock that all processes of a machine share. The producer does not wait for answers, so that a
broker that falls behind does not lower its own load.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import Final

from bench.broker.control import check, connect, receive_frame
from bench.broker.frames import FETCH_VERSION, batch_of, fetch_frame, produce_frame
from bench.broker.raw import answer_bytes_of
from crc32c import crc32c

from ottla.records.layout import ATTRIBUTES_AT, CRC_AT
from ottla.wire.framing import api_of, read_response
from ottla.wire.messages.fetch import FetchRequest, FetchResponse

_TIME: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_FETCH_BYTES: Final = 1024 * 1024


def send_steadily(address: str, topic: str, value_bytes: int, rate: int, count: int) -> dict[str, float]:
    """That many records a second, one a request, until all are sent."""
    batch, time_at = _batch(value_bytes)
    frame = produce_frame(topic, 0, batch)
    batch_at = frame.index(batch)
    time_at += batch_at
    crc_at, covered = batch_at + CRC_AT, memoryview(frame)[batch_at + ATTRIBUTES_AT : batch_at + len(batch)]
    scratch = bytearray(64 * 1024)
    with connect(address) as connection:
        unread_bytes = (count - 1) * answer_bytes_of(connection, frame)
        started_s = time.perf_counter()
        for index in range(1, count):
            due_s = started_s + index / rate
            while (wait_s := due_s - time.perf_counter()) > 0:
                time.sleep(wait_s)
            _TIME.pack_into(frame, time_at, time.monotonic_ns())
            _CRC.pack_into(frame, crc_at, crc32c(covered))
            connection.sendall(frame)
            with suppress(BlockingIOError):
                unread_bytes -= connection.recv_into(scratch, 0, socket.MSG_DONTWAIT)
        elapsed_s = time.perf_counter() - started_s
        # Closed before its answers are read, a connection is reset, and the broker drops what it has not taken from it.
        while unread_bytes > 0 and (got := connection.recv_into(scratch)):
            unread_bytes -= got
    return {"sent_per_s": count / elapsed_s}


def follow(address: str, topic: str, value_bytes: int, count: int, skip: int) -> dict[str, float]:
    """Percentiles over the records behind the first ones, which find processes and connections cold."""
    batch, time_at = _batch(value_bytes)
    batch_bytes, api = len(batch), api_of(FetchRequest.api_key)
    latencies_ns: list[int] = []
    with connect(address) as connection:
        while (offset := len(latencies_ns)) < count:
            connection.sendall(fetch_frame(topic, 0, offset, _FETCH_BYTES))
            answer = receive_frame(connection)
            now_ns = time.monotonic_ns()
            response = read_response(api, FETCH_VERSION, answer)[1]
            if not isinstance(response, FetchResponse):
                raise TypeError(f"a Fetch request was answered by a {type(response).__name__}")
            partition = response.responses[0].partitions[0]
            check(partition.error_code, "a Fetch request")
            records = partition.records or b""
            latencies_ns.extend(
                now_ns - _TIME.unpack_from(records, start + time_at)[0]
                for start in range(0, len(records) - batch_bytes + 1, batch_bytes)
            )
    counted = sorted(latencies_ns[skip:])
    return {
        "p50_ms": counted[len(counted) // 2] / 1e6,
        "p99_ms": counted[len(counted) * 99 // 100] / 1e6,
        "max_ms": counted[-1] / 1e6,
    }


def _batch(value_bytes: int) -> tuple[bytearray, int]:
    """A batch of one record, and where in it the value begins."""
    batch = batch_of(value_bytes, 1)
    return batch, len(batch) - value_bytes - 1  # behind the value comes the number of headers, a byte
