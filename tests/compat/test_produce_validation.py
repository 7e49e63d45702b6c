"""Batches that are not what they say: refused as by Kafka, and by us with an error that producers do not retry."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from ottla.base.error_codes import ErrorCode
from ottla.net.client_connection import Address, ClientConnection, ConnectionOptions
from ottla.records import Compression, compress
from ottla.testing.broker import Broker
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.produce import ProducePartition, ProduceRequest, ProduceResponse, ProduceTopic
from support.kafka_process import kraft_broker, stop
from support.logs.record_bytes import header_bytes, record_bytes, sealed

pytestmark = pytest.mark.compat

NONE, INVALID, UNKNOWN = ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR
TOPICS: Final = {
    "plain": {"message.timestamp.before.max.ms": "9223372036854775807"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "packed": {"compression.type": "zstd"},
}
TWO = record_bytes(0) + record_bytes(1)
GZIP, LZ4 = Compression.GZIP, Compression.LZ4

# What a batch is answered with, by both.
SAME: Final = {
    "two records": (sealed(TWO, 2), NONE),
    "two compressed records": (sealed(compress(GZIP, TWO), 2, GZIP), NONE),
    "null header value": (sealed(record_bytes(0, headers=header_bytes((b"h", None))), 1), NONE),
    "header key that is not UTF-8": (sealed(record_bytes(0, headers=header_bytes((b"\xff", b""))), 1), NONE),
    "attributes of a record": (sealed(record_bytes(0, attributes=7), 1), NONE),
    "zeros": (sealed(bytes(50), 1), INVALID),
    "more records than there are": (sealed(TWO, 3), INVALID),
    "fewer records than there are": (sealed(TWO, 1), INVALID),
    "fewer compressed records than there are": (sealed(compress(LZ4, TWO), 1, LZ4), INVALID),
    "bytes behind the last record": (sealed(TWO + b"zzz", 2), INVALID),
    "compressed bytes behind the last record": (sealed(compress(GZIP, TWO + b"zzz"), 2, GZIP), INVALID),
    "bytes behind a record's headers": (sealed(record_bytes(0, tail=b"xx"), 1), INVALID),
    "a record that is too long": (sealed(record_bytes(0, size=60), 1), INVALID),
    "a record that is too short": (sealed(record_bytes(0, size=3), 1), INVALID),
    "a key beyond the record": (sealed(record_bytes(0, key_size=9999), 1), INVALID),
    "a negative number of headers": (sealed(record_bytes(0, headers=header_bytes(count=-1)), 1), INVALID),
    "a header without a key": (sealed(record_bytes(0, headers=header_bytes((None, b""))), 1), INVALID),
    "no records": (sealed(compress(GZIP, b""), 1, GZIP), INVALID),
    "a piece of a batch": (sealed(TWO, 2)[:-1], INVALID),
    "two billion records in two bytes": (sealed(b"zz", 2**31 - 1), INVALID),
}
# What Kafka answers, where we say INVALID_RECORD: it meets an error of its own, or takes what its readers then face.
OTHER: Final = {
    "noise": (sealed(b"\xff" * 50, 1), UNKNOWN),
    "noise instead of gzip": (sealed(b"garbage" * 9, 1, GZIP), UNKNOWN),
    "noise instead of lz4": (sealed(b"garbage" * 9, 1, LZ4), UNKNOWN),
    "two billion compressed records in two bytes": (sealed(b"zz", 2**31 - 1, Compression.ZSTD), UNKNOWN),
    "offset deltas that fall": (sealed(record_bytes(1) + record_bytes(0), 2), NONE),
    "a key of a negative size": (sealed(record_bytes(0, key=None, key_size=-2), 1), NONE),
}


async def answer(connection: ClientConnection, topic: str, records: bytes) -> ErrorCode:
    data = ProduceTopic(name=topic, partition_data=[ProducePartition(index=0, records=records)])
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    while True:
        response = await connection.send(request, ProduceResponse, version=9)
        code = ErrorCode.of(response.responses[0].partition_responses[0].error_code)
        if code not in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER):  # a new topic
            return code
        await asyncio.sleep(0.05)


async def answers(address: str) -> dict[tuple[str, str], ErrorCode]:
    """What each batch is answered with on each topic."""
    host, port = address.rsplit(":", 1)
    connection = await ClientConnection.open(Address(host, int(port)), ConnectionOptions())
    try:
        topics = [
            CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[
                    CreatableTopicConfig(name=key, value=value)
                    for key, value in {"message.timestamp.after.max.ms": str(2**63 - 1), **configs}.items()
                ],
            )
            for name, configs in TOPICS.items()
        ]
        request = CreateTopicsRequest(topics=topics, timeout_ms=30_000)
        created = await connection.send(request, CreateTopicsResponse, version=5)
        assert [topic.error_code for topic in created.topics] == [0] * len(topics)
        found = {}
        for what, (records, _) in {**SAME, **OTHER}.items():
            for topic in TOPICS:
                found[what, topic] = await answer(connection, topic, records)
        return found
    finally:
        await connection.close()


def expected(*, kafka: bool) -> dict[tuple[str, str], ErrorCode]:
    codes = {what: code for what, (_, code) in SAME.items()}
    codes |= {what: code if kafka else INVALID for what, (_, code) in OTHER.items()}
    return {(what, topic): code for what, code in codes.items() for topic in TOPICS}


def test_batches_are_taken_and_refused_as_by_kafka(tmp_path: Path) -> None:
    with Broker() as broker:
        assert asyncio.run(answers(broker.bootstrap)) == expected(kafka=False)
    kafka = kraft_broker(tmp_path / "kafka", {})
    try:
        assert asyncio.run(answers(kafka.address)) == expected(kafka=True)
    finally:
        stop(kafka.process)
