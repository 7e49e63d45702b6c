"""What a broker needs loads without the extras: no numba, numpy or pyarrow, and nothing that only developers have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXTRAS = (
    "numba",
    "numpy",
    "pyarrow",
    "llvmlite",
    "rich",
    "typer",
    "prometheus_client",
    "hypothesis",
    "kio",
    "kafka",
    "aiokafka",
    "pyspark",
)


@pytest.mark.parametrize(
    "room",
    [
        "ottla.base.config",
        "ottla.wire.framing",
        "ottla.records",
        "ottla.log.directories",
        "ottla.broker.run",
        "ottla.client",
    ],
)
def test_a_room_of_the_broker_loads_no_extra(room: str) -> None:
    program = f"import sys, {room}; print(*sorted(set({EXTRAS!r}) & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


COMPACTING = """
import sys

class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("numba", "numpy", "pyarrow", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())

import asyncio, logging, pathlib
from support.brokers import Client, with_client
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitPartition, OffsetCommitRequest, OffsetCommitResponse, OffsetCommitTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchGroup, OffsetFetchGroupTopic, OffsetFetchRequest, OffsetFetchResponse,
)

logging.basicConfig(level=logging.INFO, format="%(message)s")
COMMITS = 100

async def work(client):
    await client.create_topic("orders")
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), FindCoordinatorResponse, 4)
    while client.broker.groups.runtime.is_loading:
        await asyncio.sleep(0.001)
    for number in range(COMMITS):
        partition = OffsetCommitPartition(partition_index=0, committed_offset=number, committed_metadata="m" * 100)
        commit = OffsetCommitRequest(group_id="g", topics=[OffsetCommitTopic(name="orders", partitions=[partition])])
        answer = await client.ask(commit, OffsetCommitResponse, 8)
        assert answer.topics[0].partitions[0].error_code == 0, answer
    log = client.broker.replicas.get("__consumer_offsets", 0).log
    assert log.next_offset == COMMITS
    while log.size > COMMITS * 211 / 2:  # bytes of a commit
        await asyncio.sleep(0.005)
    print("compacted")

async def fetch(client):
    topic = OffsetFetchGroupTopic(name="orders", partition_indexes=[0])
    asked = OffsetFetchGroup(group_id="g", topics=[topic])
    while client.broker.groups.runtime.is_loading:
        await asyncio.sleep(0.001)
    answer = await client.ask(OffsetFetchRequest(groups=[asked]), OffsetFetchResponse, 8)
    print("fetched", answer.groups[0].topics[0].partitions[0].committed_offset)

settings = dict(
    offsets_topic_num_partitions="1",
    offsets_topic_segment_bytes="4000",
    log_cleaner_backoff_ms="10",
    log_cleaner_min_cleanable_ratio="0.01",
)
with_client(pathlib.Path(sys.argv[1]), work, **settings)
with_client(pathlib.Path(sys.argv[1]), fetch, **settings)
"""


def test_a_broker_without_extras_compacts_the_committed_offsets(tmp_path: Path) -> None:
    path = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    result = subprocess.run(
        [sys.executable, "-c", COMPACTING, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
    )
    assert result.stdout.split("\n")[:2] == ["compacted", "fetched 99"], result.stderr
    assert "numba, numpy: not installed" in result.stderr
    assert "logs are compacted in plain Python" in result.stderr


CONSUMING = """
import asyncio, sys
from ottla import AsyncConsumer

def loaded():
    return sorted(name for name in sys.modules if name.startswith(("ottla.zookeeper", "ottla.log", "ottla.broker")))

async def main():
    settings = {"bootstrap_servers": "127.0.0.1:1", "group_id": "g"}
    async with AsyncConsumer(settings):
        print(loaded())
    async with AsyncConsumer(settings, group_protocol="zookeeper", zookeeper_connect="127.0.0.1:1"):
        print("ottla.zookeeper.client.tree" in loaded())
        print([name for name in loaded() if not name.startswith("ottla.zookeeper")])
        print([name for name in loaded() if "server" in name or "local_tree" in name])

asyncio.run(main())
"""


def test_a_consumer_loads_zookeeper_only_when_it_is_chosen() -> None:
    result = subprocess.run([sys.executable, "-c", CONSUMING], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split("\n") == ["[]", "True", "[]", "[]", ""]
