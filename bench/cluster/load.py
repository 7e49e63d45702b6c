"""Load on a cluster: raw frames to the leaders, and a client that goes on while brokers die."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from bench.broker.control import connect, receive_frame
from bench.broker.frames import CLIENT_ID, PRODUCE_VERSION, batch_of, fetch_frame, records_in_big_batch
from bench.broker.raw import BATCHES_A_FETCH, GB, IN_FLIGHT, MB, answer_bytes_of, fetch_all, in_threads, keep_in_flight
from bench.broker.usage import cpu_s
from confluent_kafka import KafkaError, Message, Producer

from ottla.wire.framing import request_frame
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic

_ALL_REPLICAS: Final = -1


class Spending:
    """Time, and the CPU time of several processes."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._cpu_s = sum(map(cpu_s, pids))
        self._begun_s = time.perf_counter()

    def of_bytes(self, count: int) -> dict[str, float]:
        elapsed_s = time.perf_counter() - self._begun_s
        used_s = sum(map(cpu_s, self._pids)) - self._cpu_s
        return {"mb_per_s": count / MB / elapsed_s, "cpu_s_per_gb": used_s / (count / GB)}


def produce_frame(topic: str, partition: int, batch: bytes | bytearray) -> bytearray:
    """Answered when all in-sync replicas have the batch."""
    data = ProduceTopic(name=topic, partition_data=[ProducePartition(index=partition, records=batch)])
    request = ProduceRequest(acks=_ALL_REPLICAS, timeout_ms=30_000, topic_data=[data])
    return bytearray(b"".join(request_frame(request, PRODUCE_VERSION, 1, CLIENT_ID)))


def produce(
    pids: Sequence[int], leaders: Mapping[int, str], topic: str, value_bytes: int, total_mb: int
) -> dict[str, float]:
    """Big batches with acks=all, one a request; each partition has its own connection, to its leader."""
    batch = batch_of(value_bytes, records_in_big_batch(value_bytes))
    requests = max(IN_FLIGHT, total_mb * MB // (len(batch) * len(leaders)))
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for address in leaders.values()]
        frames = [produce_frame(topic, partition, batch) for partition in leaders]
        sizes = [answer_bytes_of(*pair) for pair in zip(sockets, frames, strict=True)]
        spending = Spending(pids)

        def send(at: int) -> None:
            keep_in_flight(sockets[at], [frames[at]], sizes[at], IN_FLIGHT, requests=requests)

        in_threads(send, len(sockets))
        return spending.of_bytes(requests * len(leaders) * len(batch))


def one_at_a_time(address: str, topic: str, seconds: float) -> dict[str, float]:
    """One record a request, one request at a time, acks=all: how long each takes."""
    frame = produce_frame(topic, 0, batch_of(1024, 1))
    taken_s = []
    with connect(address) as connection:
        answer_bytes_of(connection, frame)
        until_s = time.perf_counter() + seconds
        while (begun_s := time.perf_counter()) < until_s:
            connection.sendall(frame)
            receive_frame(connection)
            taken_s.append(time.perf_counter() - begun_s)
    taken_s.sort()
    count = len(taken_s)
    return {"ack_p50_ms": taken_s[count // 2] * 1e3, "ack_p99_ms": taken_s[count * 99 // 100] * 1e3}


def consume(
    pids: Sequence[int], leaders: Mapping[int, str], ends: Mapping[int, int], topic: str, value_bytes: int, passes: int
) -> dict[str, float]:
    """What `produce` wrote, from the leaders; each partition on its own connection."""
    count = records_in_big_batch(value_bytes)
    wanted_bytes = len(batch_of(value_bytes, count)) * BATCHES_A_FETCH
    step = BATCHES_A_FETCH * count
    frames = [
        [fetch_frame(topic, partition, start, wanted_bytes) for start in range(0, ends[partition] - step + 1, step)]
        * passes
        for partition in leaders
    ]
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect(address)) for address in leaders.values()]
        spending = Spending(pids)
        in_threads(lambda at: fetch_all(sockets[at], frames[at], 4, wanted_bytes), len(sockets))
        return spending.of_bytes(sum(map(len, frames)) * wanted_bytes)


class SteadyProducer:
    """A thread with librdkafka's producer, acks=all, that sends a record every few milliseconds and notes when each is
    acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partition_count: int = 1, *, every_s: float = 0.005) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "linger.ms": 0,
                "enable.idempotence": True,
                # What a client waits after an error, so that the cluster is measured and not the client's patience.
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 20,
                "delivery.timeout.ms": 120_000,
                "log_level": 0,
            },
            on_delivery=self._delivered,
        )
        self._topic, self._partitions, self._every_s = topic, partition_count, every_s
        self._is_over = threading.Event()
        self._news = threading.Condition()
        self.errors: list[str] = []
        self._acknowledged: dict[int, float] = {}
        """By partition: when the last acknowledged record was sent."""
        self._thread = threading.Thread(target=self._run, name="steady producer")

    def __enter__(self) -> SteadyProducer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(self._every_s):
            sent_s = b"%f" % time.monotonic()
            self._producer.produce(self._topic, sent_s, partition=number % self._partitions)
            self._producer.poll(0)
            number += 1
        self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        with self._news:
            if error is not None:
                self.errors.append(str(error))
            else:
                self._acknowledged[message.partition() or 0] = float(message.value() or b"0")
            self._news.notify_all()

    def wait_for_acknowledged(self, partition: int, since_s: float, timeout_s: float = 120.0) -> float:
        """When a record that was sent after that moment is acknowledged."""
        with self._news:
            if not self._news.wait_for(lambda: self._acknowledged.get(partition, 0.0) > since_s, timeout_s):
                raise RuntimeError(f"no record of partition {partition} was acknowledged within {timeout_s:.0f} s")
            return time.monotonic()
