"""Transactions of several producers, one after the other on each connection, from one thread that waits for all."""

from __future__ import annotations

import heapq
import select
import time
from contextlib import ExitStack

from bench.broker.control import connect
from bench.broker.raw import measured
from bench.transactions.producer import RawProducer, await_end_offset, initialise

_SCRATCH_BYTES = 64 * 1024


def transactions(
    address: str,
    pid: int,
    topic: str,
    producers: int,
    records: int,
    value_bytes: int,
    protocol: int,
    pause_s: float,
    seconds: float,
) -> dict[str, float]:
    """Each producer has a partition of its own, which has to be empty before. After CONCURRENT_TRANSACTIONS, a producer
    pauses for `pause_s`."""
    with ExitStack() as stack:
        clients = []
        for index in range(producers):
            name = f"{topic}-{index}"
            identity = initialise(address, name)
            connection = stack.enter_context(connect(address))
            clients.append(
                RawProducer(
                    connection,
                    identity,
                    name,
                    topic,
                    index,
                    value_bytes=value_bytes,
                    records=records,
                    protocol=protocol,
                )
            )
        _run(clients, time.perf_counter(), pause_s)  # one each: cold paths, and a topic's first batch
        for client in clients:
            client.done = client.refused = 0
        with measured(pid) as spent:
            _run(clients, time.perf_counter() + seconds, pause_s)
    done = sum(client.done for client in clients)
    for index, client in enumerate(clients):
        await_end_offset(address, topic, index, (client.done + 1) * (records + 1))  # with its marker
    return {
        "transactions_per_s": done / spent.elapsed_s,
        "records_per_s": done * records / spent.elapsed_s,
        "cpu_us_per_transaction": spent.cpu_s / done * 1e6,
        "broker_cores": spent.cpu_s / spent.elapsed_s,
        "refused_per_transaction": sum(client.refused for client in clients) / done,
    }


def _run(clients: list[RawProducer], until_s: float, pause_s: float) -> None:
    """Every producer ends its last transaction, and begins none after that time; each has at least one."""
    clock = time.perf_counter
    by_number = {client.connection.fileno(): client for client in clients}
    received: dict[int, bytes] = dict.fromkeys(by_number, b"")
    paused: list[tuple[float, int]] = []
    working = set(by_number)
    with select.epoll() as poller:
        for number, client in by_number.items():
            poller.register(number, select.EPOLLIN)
            client.connection.sendall(client.next_frame())
        while working:
            timeout_s = max(0.0, paused[0][0] - clock()) if paused else -1
            for number, _ in poller.poll(timeout_s):
                client = by_number[number]
                got = client.connection.recv(_SCRATCH_BYTES)
                if not got:
                    raise ConnectionError("the broker has closed the connection")
                answer = received[number] + got
                if len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
                    received[number] = answer
                    continue
                received[number] = b""
                before = client.done
                if not client.take(answer[4:]):
                    heapq.heappush(paused, (clock() + pause_s, number))
                elif client.done > before and clock() >= until_s:
                    working.discard(number)
                else:
                    client.connection.sendall(client.next_frame())
            while paused and paused[0][0] <= clock():
                client = by_number[heapq.heappop(paused)[1]]
                client.connection.sendall(client.next_frame())
