"""Our ZooKeeper consumer in one group with the one of Kafka 0.8.2.2, on Kafka 3.9.1 and Apache ZooKeeper."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafka_artifacts import OLD_VERSION, classpath
from ottla.base.ids import TopicPartition
from support.clients.peers import WITH_ZOOKEEPER
from support.groups.zookeeper_members import Site, create_topic, members, run, running_site, send, until

pytestmark = pytest.mark.compat

PROGRAM = Path(__file__).parents[1] / "java" / "OldConsumer.java"
PATIENT = {"rebalance_backoff_ms": 200, "rebalance_max_retries": 50}
END_TIMEOUT_S = 30


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_TEST_PEER", WITH_ZOOKEEPER)
        with running_site(tmp_path_factory.mktemp("site")) as site:
            yield site


@pytest.fixture
def kazoo(site: Site) -> Iterator[KazooClient]:
    client = KazooClient(hosts=site.zookeeper)
    client.start(timeout=30)
    yield client
    client.stop()
    client.close()


class OldConsumer:
    """Runs from `with` on, and leaves the group at its end."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.values: list[str] = []
        assert process.stdout is not None
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.values.append(line.split()[-1])

    async def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.to_thread(self._process.wait, END_TIMEOUT_S) == 0


@contextmanager
def old_consumer(place: Path, site: Site, group: str, topics: str, *settings: str) -> Iterator[OldConsumer]:
    command = ["java", "-cp", classpath(OLD_VERSION), str(PROGRAM), site.zookeeper, group, topics, *settings]
    with (
        (place / "old-consumer.log").open("w") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            yield OldConsumer(process)
        finally:
            process.kill()


def owners(kazoo: KazooClient, group: str, topic: str) -> dict[int, str]:
    """The member that owns each partition."""
    path = f"/consumers/{group}/owners/{topic}"
    found = {}
    try:
        for index in kazoo.get_children(path):
            found[int(index)] = kazoo.get(f"{path}/{index}")[0].decode().removesuffix("-0")
    except NoNodeError:
        return {}  # they change hands
    return found


def test_both_share_a_topic_and_its_offsets(site: Site, kazoo: KazooClient, tmp_path: Path) -> None:
    async def scenario() -> None:
        await create_topic(site, "shared", 4)
        await send(site, "shared", {index: [b"a%d" % index] for index in range(4)})
        with old_consumer(tmp_path, site, "g", "shared") as old:
            await until(lambda: sorted(old.values) == ["a0", "a1", "a2", "a3"])
            [old_id] = kazoo.get_children("/consumers/g/ids")
            await until(lambda: kazoo.exists("/consumers/g/offsets/shared/3") is not None)
            async with members(site, "g", "shared", 1, **PATIENT) as [ours]:
                # Ids begin with group and host, and then the time: the older one comes first.
                await until(lambda: ours.indexes == [2, 3])
                await until(lambda: owners(kazoo, "g", "shared") == {0: old_id, 1: old_id, 2: ours.id, 3: ours.id})
                theirs, mine = (
                    json.loads(kazoo.get(f"/consumers/g/ids/{one}")[0]) | {"timestamp": ""} for one in (old_id, ours.id)
                )
                assert theirs == mine
                await send(site, "shared", {index: [b"b%d" % index] for index in range(4)})
                await until(lambda: sorted(ours.values) == [b"b2", b"b3"])  # and nothing that was committed
                await until(lambda: sorted(old.values)[4:] == ["b0", "b1"])
                await old.leave()
                await until(lambda: ours.indexes == [0, 1, 2, 3])
                assert ours.failures == []
        with old_consumer(tmp_path, site, "g", "shared") as old:
            await send(site, "shared", {0: [b"c0"]})
            await until(lambda: old.values == ["c0"])  # goes on where ours committed
            await old.leave()

    run(scenario)


def test_both_deal_topics_of_a_pattern_in_turn(site: Site, kazoo: KazooClient, tmp_path: Path) -> None:
    async def scenario() -> None:
        await create_topic(site, "dealt-a", 3)
        pattern = "dealt-.*|more"
        strategy = "roundrobin"
        settings = (f"partition.assignment.strategy={strategy}", "offsets.storage=kafka")
        ours_too = {"partition_assignment_strategy": strategy, "offsets_storage": "kafka", **PATIENT}
        with old_consumer(tmp_path, site, "h", f"~{pattern}", *settings) as old:
            await until(lambda: len(owners(kazoo, "h", "dealt-a")) == 3)
            async with members(site, "h", re.compile(pattern), 1, **ours_too) as [ours]:
                await until(lambda: len(set(owners(kazoo, "h", "dealt-a").values())) == 2)
                await create_topic(site, "dealt-b", 4)

                def is_shared() -> bool:
                    found = [owners(kazoo, "h", topic) for topic in ("dealt-a", "dealt-b")]
                    names = [name for one in found for name in one.values()]
                    return len(names) == 7 and abs(2 * names.count(ours.id) - 7) == 1

                await until(is_shared)
                await until(lambda: len(ours.consumer.assignment()) in (3, 4))
                assert ours.failures == []
                await send(site, "dealt-b", {index: [b"%d" % index] for index in range(4)})
                await until(lambda: sorted([*old.values, *map(bytes.decode, ours.values)]) == ["0", "1", "2", "3"])
                await old.leave()
                await until(lambda: len(ours.consumer.assignment()) == 7)
                theirs = [TopicPartition("dealt-b", int(value)) for value in old.values]
                assert {at and at.offset for at in (await ours.consumer.committed(theirs)).values()} == {1}

    run(scenario)
