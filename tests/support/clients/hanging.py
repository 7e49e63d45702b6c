"""A transaction that no coordinator knows: written by hand, with the leader's verification turned off."""

from __future__ import annotations

import asyncio
import time

from ottla.base.error_codes import ErrorCode
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin, ConfigResource
from ottla.net.client_connection import ClientConnection, parse_addresses
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from support.logs.batches import batch
from support.waiting import wait_until

FIRST_TRANSACTION_PROTOCOL = 11
"""The last version of Produce that does not add partitions to a transaction by itself."""
VERIFICATION = "transaction.partition.verification.enable"


def leave_hanging(admin: Admin, bootstrap: str, partition: TopicPartition, producer_id: int, count: int = 3) -> None:
    """The broker may be one of several only if it leads the partition."""
    everywhere = ConfigResource.broker(None)
    admin.incremental_alter_configs({everywhere: {VERIFICATION: "false"}})
    try:
        # Brokers of a KRaft cluster learn of the config a moment later.
        wait_until(lambda: _write(bootstrap, partition, producer_id, count), "the leader still verifies")
    finally:
        admin.incremental_alter_configs({everywhere: {VERIFICATION: None}})


def _write(bootstrap: str, partition: TopicPartition, producer_id: int, count: int) -> bool:
    return asyncio.run(_produce(bootstrap, partition, producer_id, count)) is ErrorCode.NONE


async def _produce(bootstrap: str, partition: TopicPartition, producer_id: int, count: int) -> ErrorCode:
    now_ms = int(time.time() * 1000)
    written = batch(
        count, timestamp_ms=now_ms, producer_id=producer_id, producer_epoch=0, sequence=0, transactional=True
    )
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            ProduceTopic(
                name=partition.topic, partition_data=[ProducePartition(index=partition.partition, records=written)]
            )
        ],
    )
    connection = await ClientConnection.open(parse_addresses(bootstrap)[0])
    try:
        answer = await connection.send(request, ProduceResponse, version=FIRST_TRANSACTION_PROTOCOL)
    finally:
        await connection.close()
    (topic,) = answer.responses
    (one,) = topic.partition_responses
    return ErrorCode.of(one.error_code)
