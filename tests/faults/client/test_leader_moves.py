"""Our client while the lead of its partition moves, again and again, between two scripted brokers."""

from __future__ import annotations

import asyncio
import os
import random

import pytest

from faults.client.moving_leader import TOPIC, MovingLeader
from faults.client.traffic import PATIENT, check_partition, seeded
from ottla import AsyncConsumer, AsyncProducer, TopicPartition
from ottla.client.produce.delivery import Delivery
from ottla.records import decode_batch

MOVES = int(os.environ.get("OTTLA_LEADER_MOVES", "15"))
TIMEOUT_S = 120


@pytest.mark.parametrize("remembered", [5, 1], ids=["remembers", "forgets"])
@pytest.mark.parametrize("in_flight", [1, 5])
def test_nothing_is_lost_doubled_or_skipped(in_flight: int, remembered: int) -> None:
    chance = seeded()

    async def scenario() -> None:
        async with MovingLeader(chance, remembered) as cluster:
            common = {"bootstrap.servers": cluster.bootstrap, **PATIENT}
            own = {"linger.ms": 0, "batch.size": 500, "max.in.flight.requests.per.connection": in_flight}
            async with (
                AsyncProducer({**common, **own}) as producer,
                AsyncConsumer({**common, "auto.offset.reset": "earliest"}) as consumer,
            ):
                consumer.assign([TopicPartition(TOPIC, 0)])
                deliveries = asyncio.create_task(send_and_move(producer, cluster, chance))
                seen: list[tuple[int, bytes]] = []
                while not (deliveries.done() and len(seen) >= cluster.end_offset):
                    seen += [(record.offset, record.value or b"") for record in await consumer.poll(0.05)]
                outcomes = await deliveries
            stored = [
                (record.offset, bytes(record.value or b""))
                for batch in cluster.batches
                for record in decode_batch(batch)
            ]
            assert all(offset is not None for _, offset in outcomes)
            check_partition(outcomes, stored, TOPIC)
            assert seen == stored
            assert len(stored) == len(outcomes)

    asyncio.run(asyncio.wait_for(scenario(), TIMEOUT_S))


async def send_and_move(
    producer: AsyncProducer, cluster: MovingLeader, chance: random.Random
) -> list[tuple[int, int | None]]:
    """The numbers that were sent, with the offsets that were told."""
    deliveries: list[Delivery] = []
    for _ in range(MOVES):
        for _ in range(chance.randrange(1, 200)):
            deliveries.append(await producer.send(TOPIC, b"%d" % len(deliveries), partition=0))
            if chance.random() < 0.05:
                await asyncio.sleep(0)
        match chance.randrange(3):
            case 0:
                await deliveries[-1]
            case 1:
                cluster.fall_silent()
                for _ in range(60):
                    deliveries.append(await producer.send(TOPIC, b"%d" % len(deliveries), partition=0))
                await asyncio.sleep(0.02)
        cluster.move()
    await producer.flush()
    return [(number, (await delivery).offset) for number, delivery in enumerate(deliveries)]
