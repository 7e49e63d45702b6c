"""Topics that a new controller must not take from the tree."""

from __future__ import annotations

import asyncio

import pytest

from ottla.base.coordination import Create
from ottla.controller.driver.tree_reader import read_topics
from ottla.zookeeper import paths
from ottla.zookeeper.znodes import ReplicaAssignment, TopicAssignment
from support.trees.memory_tree import MemoryTree

ASSIGNMENT = TopicAssignment(None, {0: ReplicaAssignment((1, 2))})


@pytest.mark.parametrize(
    ("bad", "data"), [("L" * 300, ASSIGNMENT.encode()), ("a b*c", ASSIGNMENT.encode()), ("garbage", b"{")]
)
def test_only_topics_that_can_be_stored_are_read(bad: str, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    tree = MemoryTree()
    for path in ("/brokers", paths.TOPICS):
        tree.apply([Create(path)], 0)
    tree.apply([Create(paths.topic("good"), ASSIGNMENT.encode())], 0)
    tree.apply([Create(paths.topic(bad), data)], 0)
    assert asyncio.run(read(tree, [bad, "good", "gone"])) == {"good": ASSIGNMENT}
    assert "ignoring" in caplog.text


async def read(tree: MemoryTree, names: list[str]) -> dict[str, TopicAssignment]:
    return await read_topics(tree.connect(), names)
