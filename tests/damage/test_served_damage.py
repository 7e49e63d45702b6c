"""Damaged files behind a broker: what its clients are answered, and that other topics are served as ever."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.error_codes import ErrorCode
from ottla.broker.observability.metrics import BrokerCollector
from ottla.broker.observability.request_stats import RequestStats
from ottla.broker.observability.upkeep_stats import UpkeepStats
from ottla.records import iter_batches
from ottla.records.layout import LENGTH_AT
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from support.brokers import Client, batch_of, broker_in_loop

COUNT = 40
TOPICS = ("damaged", "sound")
VERSION = 11


async def consume(client: Client, topic: str) -> tuple[list[int], ErrorCode]:
    """Offsets of batches, by headers alone: a client that checks no CRCs. And the error that ended it."""
    found: list[int] = []
    offset = 0
    while offset < COUNT:
        asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1500)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[asked])])
        answer = (await client.ask(request, FetchResponse, VERSION)).responses[0].partitions[0]
        if answer.error_code:
            return found, ErrorCode.of(answer.error_code)
        before = offset
        for view in iter_batches(bytes(answer.records or b""), partial_tail=True):
            found.append(view.base_offset)
            offset = view.header.next_offset
        assert offset > before, f"no progress at {offset}"
    return found, ErrorCode.NONE


async def fill(place: Path) -> None:
    async with broker_in_loop(place) as broker:
        client = Client(broker)
        for topic in TOPICS:
            await client.create_topic(topic, segment_bytes="5000", index_interval_bytes="1000")
            partition = broker.replicas.get(topic, 0)
            assert partition is not None
            for _ in range(COUNT):
                partition.append(bytearray(batch_of(b"x" * 300)), all_replicas=True)


@pytest.mark.parametrize(("at", "mask"), [(LENGTH_AT, 0x01), (LENGTH_AT + 2, 0x10), (LENGTH_AT + 3, 0x04), (6, 0x10)])
def test_a_consumer_gets_an_error_for_a_batch_that_leads_nowhere(
    tmp_path: Path, at: int, mask: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await fill(tmp_path)
        path = sorted((tmp_path / "data" / "logs" / "damaged-0").glob("*.log"))[1]
        content = bytearray(path.read_bytes())
        view = list(iter_batches(bytes(content)))[3]
        content[view.position + at] ^= mask
        path.write_bytes(content)
        async with broker_in_loop(tmp_path) as broker:
            client = Client(broker)
            assert await consume(client, "damaged") == (list(range(view.base_offset)), ErrorCode.CORRUPT_MESSAGE)
            assert f"{path} is damaged at byte {view.position}" in caplog.text
            assert await consume(client, "sound") == (list(range(COUNT)), ErrorCode.NONE)
            (family,) = (
                family
                for family in BrokerCollector(RequestStats(), broker.directories, UpkeepStats(SystemClock()))._logs()
                if family.name == "ottla_log_damaged_places"
            )
            counts = {sample.labels["topic"]: sample.value for sample in family.samples}
            assert (counts["damaged"] > 0, counts["sound"]) == (True, 0)

    asyncio.run(work())


def test_an_active_segment_that_lost_its_end_is_appended_to_and_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        await fill(tmp_path)
        path = max((tmp_path / "data" / "logs" / "damaged-0").glob("*.log"))
        path.write_bytes(path.read_bytes()[:-700])
        async with broker_in_loop(tmp_path) as broker:
            assert f"{path}: it is not as the clean stop left it, and was recovered" in caplog.text
            partition = broker.replicas.get("damaged", 0)
            assert partition is not None
            assert partition.log is not None
            while partition.log.next_offset < COUNT:
                partition.append(bytearray(batch_of(b"new")), all_replicas=True)
            assert await consume(Client(broker), "damaged") == (list(range(COUNT)), ErrorCode.NONE)

    asyncio.run(work())
