"""From the moment a record of a transaction is sent to the moment a read_committed consumer has it, at a steady rate.

The producer and the consumer are two processes with a connection each; a record's value begins with the time at which
it was sent, by the clock that all processes of a machine share. Each transaction has one record.
"""

from __future__ import annotations

import struct
import time
from typing import Final

from bench.broker.control import connect, receive_frame
from bench.broker.frames import CLIENT_ID, FETCH_VERSION
from bench.transactions.producer import RawProducer, initialise

from ottla.records.batch import iter_batches
from ottla.wire.framing import api_of, read_response, request_frame
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

_TIME: Final = struct.Struct(">q")
_FETCH_BYTES: Final = 1024 * 1024
_PAUSE_S: Final = 0.02
_READ_COMMITTED: Final = 1


def commit_steadily(
    address: str, topic: str, value_bytes: int, protocol: int, rate: int, count: int
) -> dict[str, float]:
    """That many transactions a second. One that is late does not wait, and neither do those after it."""
    identity = initialise(address, topic)
    late_s = 0.0
    with connect(address) as connection:
        producer = RawProducer(
            connection, identity, topic, topic, 0, value_bytes=value_bytes, records=1, protocol=protocol
        )
        frame = producer.batch
        # Behind the value comes the number of headers, a byte.
        value_at = frame.batch_at + frame.batch_bytes - value_bytes - 1
        started_s = time.perf_counter()
        for index in range(count):
            due_s = started_s + index / rate
            while (wait_s := due_s - time.perf_counter()) > 0:
                time.sleep(wait_s)
            late_s = max(late_s, -wait_s)
            _TIME.pack_into(frame.bytes, value_at, time.monotonic_ns())
            while producer.done == index:
                connection.sendall(producer.next_frame())
                if not producer.take(bytes(receive_frame(connection))):
                    time.sleep(_PAUSE_S)
        elapsed_s = time.perf_counter() - started_s
    return {"transactions_per_s": count / elapsed_s, "latest_ms": late_s * 1e3, "refused": float(producer.refused)}


def follow_committed(address: str, topic: str, value_bytes: int, count: int, skip: int) -> dict[str, float]:
    """Percentiles over the records behind the first ones, which find processes and connections cold."""
    latencies_ns: list[int] = []
    position = 0
    with connect(address) as connection:
        while len(latencies_ns) < count:
            wanted = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=_FETCH_BYTES)
            request = FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                isolation_level=_READ_COMMITTED,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            connection.sendall(b"".join(request_frame(request, FETCH_VERSION, 1, CLIENT_ID)))
            answer = receive_frame(connection)
            now_ns = time.monotonic_ns()
            response = read_response(api_of(FetchRequest.api_key), FETCH_VERSION, answer)[1]
            if not isinstance(response, FetchResponse):
                raise TypeError(f"a Fetch was answered by a {type(response).__name__}")
            records = response.responses[0].partitions[0].records if response.responses else None
            for batch in iter_batches(bytes(records or b"")):
                if batch.base_offset < position:
                    continue  # the batch of the position may begin before it
                position = batch.last_offset + 1
                if not batch.is_control:
                    sent_ns = _TIME.unpack_from(batch.data, len(batch.data) - value_bytes - 1)[0]
                    latencies_ns.append(now_ns - sent_ns)
    counted = sorted(latencies_ns[skip:])
    return {
        "p50_ms": counted[len(counted) // 2] / 1e6,
        "p99_ms": counted[len(counted) * 99 // 100] / 1e6,
        "max_ms": counted[-1] / 1e6,
    }
