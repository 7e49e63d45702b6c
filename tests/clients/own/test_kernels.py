"""Programs with a lot to do get the compiled kernels soon, in a fresh interpreter, and do not work on without them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.clients.peers import Peer

BOUND_S = 120
RECORDS = 100_000
FEW_BATCHES = 15
"""Of some forty: those before the kernels were asked for, and those of a busy machine that are told late."""

PRELUDE = """
import sys
bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
settings = {"bootstrap.servers": bootstrap}
plain = []

def counting(function):
    def counted(*args, **keywords):
        plain.append(1)
        return function(*args, **keywords)
    return counted
"""
PRODUCER = """
from ottla import Producer
from ottla.client.produce import compiled, encoding
compiled.LOAD_AFTER_S = 0.001  # else they would be loaded after millions of records
encoding.encode_plain_columns = counting(encoding.encode_plain_columns)
with Producer(settings, batch_size=262144, linger_ms=1000) as producer:
    for _ in range(count):
        producer.send(topic, bytes(100), partition=0)
print(compiled.columns() is not None, len(plain))
"""
ASYNC_PRODUCER = """
import asyncio
from ottla import AsyncProducer
from ottla.client.produce import compiled, encoding
compiled.LOAD_AFTER_S = 0.001  # else they would be loaded after millions of records
encoding.encode_plain_columns = counting(encoding.encode_plain_columns)
async def main():
    async with AsyncProducer(settings, batch_size=262144, linger_ms=1000) as producer:
        for _ in range(count):
            await producer.send(topic, bytes(100), partition=0)
asyncio.run(main())
print(compiled.columns() is not None, len(plain))
"""
CONSUMER = """
from ottla import Consumer
from ottla.client.consume import decoding, kernels
kernels.LOAD_AFTER_S = 0.001  # else they would be loaded after a million records
decoding.iter_lists = counting(decoding.iter_lists)
with Consumer(settings, auto_offset_reset="earliest") as consumer:
    consumer.assign([(topic, 0)])
    while count > 0:
        count -= len(consumer.poll())
print(decoding.KERNELS.module is not None, len(plain))
"""
ASYNC_CONSUMER = """
import asyncio
from ottla import AsyncConsumer
from ottla.client.consume import decoding, kernels
kernels.LOAD_AFTER_S = 0.001  # else they would be loaded after a million records
decoding.iter_lists = counting(decoding.iter_lists)
async def main(count):
    async with AsyncConsumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        while count > 0:
            count -= len(await consumer.poll())
asyncio.run(main(count))
print(decoding.KERNELS.module is not None, len(plain))
"""


def run(peer: Peer, topic: str, program: str) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, peer.bootstrap, topic, str(RECORDS)],
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    loaded, count = done.stdout.split()
    return loaded, int(count)


@pytest.mark.parametrize("producer", [PRODUCER, ASYNC_PRODUCER], ids=["blocking", "asyncio"])
def test_busy_producers_and_consumers_wait_a_moment_for_kernels(broker: Peer, topic: str, producer: str) -> None:
    loaded, batches = run(broker, topic, producer)
    assert loaded == "True"
    assert batches <= FEW_BATCHES
    for consumer in (CONSUMER, ASYNC_CONSUMER):
        loaded, chunks = run(broker, topic, consumer)
        assert loaded == "True"
        assert chunks <= FEW_BATCHES
