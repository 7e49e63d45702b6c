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

from bench.broker.control import connect
from bench.broker.frames import FETCH_VERSION, batch_of, fetch_frame, produce_frame
from bench.broker.raw import answer_bytes_of
from crc32c import crc32c

from ottla.records.layout import ATTRIBUTES_AT, BASE_OFFSET_AT, CRC_AT
from ottla.wire.framing import response_frame
from ottla.wire.messages.fetch import FetchPartitionResponse, FetchResponse, FetchTopicResponse

_TIME: Final = struct.Struct(">q")
_CRC: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")
_ANY_OFFSET: Final = 0x0FF5E7_0FF5E7
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
    batch_bytes = len(batch)
    frame = bytearray(fetch_frame(topic, 0, _ANY_OFFSET, _FETCH_BYTES))
    offset_at = frame.index(_OFFSET.pack(_ANY_OFFSET))
    records_length_at = _records_length_at(topic)
    scratch = bytearray(2 * _FETCH_BYTES)
    latencies_ns: list[int] = []
    with connect(address) as connection:
        while (offset := len(latencies_ns)) < count:
            _OFFSET.pack_into(frame, offset_at, offset)
            connection.sendall(frame)
            answer_bytes = _receive(connection, scratch)
            now_ns = time.monotonic_ns()
            records_at = records_length_at + 1
            while scratch[records_at - 1] & 0x80:  # the length is a varint
                records_at += 1
            # The last batch may be cut off where the answer was full: it comes again.
            for start in range(records_at, answer_bytes - batch_bytes + 1, batch_bytes):
                found = _OFFSET.unpack_from(scratch, start + BASE_OFFSET_AT)[0]
                if found != len(latencies_ns):
                    raise RuntimeError(f"{topic}: a record at offset {found} came where {len(latencies_ns)} is due")
                latencies_ns.append(now_ns - _TIME.unpack_from(scratch, start + time_at)[0])
    counted = sorted(latencies_ns[skip:])
    return {
        "p50_ms": counted[len(counted) // 2] / 1e6,
        "p99_ms": counted[len(counted) * 99 // 100] / 1e6,
        "max_ms": counted[-1] / 1e6,
    }


def _records_length_at(topic: str) -> int:
    """Where an answer that brings records of one partition, and nothing out of the ordinary, says how many bytes."""
    partition = FetchPartitionResponse(records=b"")
    response = FetchResponse(responses=[FetchTopicResponse(topic=topic, partitions=[partition])])
    # Behind the length, which is a byte here, come the counts of tags of partition, topic and response.
    return sum(map(len, response_frame(response, FETCH_VERSION, 1))) - 4


def _receive(connection: socket.socket, scratch: bytearray) -> int:
    """One answer, at the beginning of the buffer, its size field first; the bytes of all of it."""
    filled, whole = 0, 4
    with memoryview(scratch) as view:
        while filled < whole:
            got = connection.recv_into(view[filled:])
            if not got:
                raise ConnectionError("the broker has closed the connection")
            filled += got
            if filled >= 4:
                whole = 4 + int.from_bytes(view[:4], "big")
    return whole


def _batch(value_bytes: int) -> tuple[bytearray, int]:
    """A batch of one record, and where in it the value begins."""
    batch = batch_of(value_bytes, 1)
    return batch, len(batch) - value_bytes - 1  # behind the value comes the number of headers, a byte
