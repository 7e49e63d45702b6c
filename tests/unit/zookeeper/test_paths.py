"""Where nodes are, and the nodes that every broker makes sure of."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.base.clock import SystemClock
from ottla.zookeeper import paths
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.transaction import check_path


def test_paths_are_kafka_s() -> None:
    assert paths.broker(7) == "/brokers/ids/7"
    assert paths.topic("t") == "/brokers/topics/t"
    assert paths.partitions("t") == "/brokers/topics/t/partitions"
    assert paths.partition("t", 3) == "/brokers/topics/t/partitions/3"
    assert paths.partition_state("t", 3) == "/brokers/topics/t/partitions/3/state"
    assert paths.deleted_topic("t") == "/admin/delete_topics/t"
    assert paths.config(paths.ConfigKind.TOPICS, "t") == "/config/topics/t"
    assert paths.config(paths.ConfigKind.BROKERS, paths.DEFAULT_ENTITY) == "/config/brokers/<default>"
    assert paths.user_client_config("u", "c") == "/config/users/u/clients/c"
    assert paths.consumer_ids("g") == "/consumers/g/ids"
    assert paths.consumer_id("g", "g_host-1-2") == "/consumers/g/ids/g_host-1-2"
    assert paths.consumer_owner("g", "t", 3) == "/consumers/g/owners/t/3"
    assert paths.consumer_offset("g", "t", 3) == "/consumers/g/offsets/t/3"


@pytest.mark.parametrize(
    ("group_id", "node_name"), [("g", "g"), ("a/b", "a%2Fb"), (".", "%2E"), ("..", "%2E%2E"), ("...", "%2E%2E%2E")]
)
def test_any_name_of_a_group_fits_a_node(group_id: str, node_name: str) -> None:
    path = paths.group_config(group_id)
    assert path == f"/config/groups/{node_name}"
    check_path(path)
    assert paths.parse_entity_name(node_name) == group_id


@pytest.mark.parametrize(
    ("name", "node_name"),
    [
        ("alice", "alice"),
        ("CN=a, O=b/c", "CN%3Da%2C%20O%3Db%2Fc"),
        ("*+~", "%2A%2B%7E"),
        ("é", "%C3%A9"),
        ("a-b_c.d", "a-b_c.d"),
    ],
)
def test_names_of_users_are_made_fit_for_a_node(name: str, node_name: str) -> None:
    assert paths.entity_name(name) == node_name
    assert paths.parse_entity_name(node_name) == name


def test_a_space_may_be_a_plus() -> None:
    assert paths.parse_entity_name("a+b%2Bc") == "a b+c"


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(lambda name: name not in (".", "..")))
def test_any_name_fits_a_node(name: str) -> None:
    node_name = paths.entity_name(name)
    assert paths.parse_entity_name(node_name) == name
    assert node_name.isascii()
    assert "/" not in node_name
    check_path(f"/{node_name}")


def test_missing_paths_are_made_and_others_kept(tmp_path: Path) -> None:
    async def run() -> None:
        tree = await LocalTree.open(tmp_path / "tree.db", SystemClock())
        await tree.create(paths.PRODUCER_ID_BLOCK, b"kept")
        for _ in range(2):
            await paths.ensure_persistent_paths(tree)
        made = paths.persistent_paths()
        nodes = dict(zip(made, await tree.get_many(made), strict=True))
        assert {path: node and (node.data, node.version) for path, node in nodes.items()} == {
            path: (b"kept" if path == paths.PRODUCER_ID_BLOCK else b"", 0) for path in made
        }
        assert await tree.children("/config") == ["brokers", "changes", "clients", "ips", "topics", "users"]
        await tree.close()

    asyncio.run(run())


def test_two_brokers_may_start_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        tree = await LocalTree.open(tmp_path / "tree.db", SystemClock())
        await asyncio.gather(*(paths.ensure_persistent_paths(tree) for _ in range(3)))
        assert None not in await tree.get_many(paths.persistent_paths())
        await tree.close()

    asyncio.run(run())
