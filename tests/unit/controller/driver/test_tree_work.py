"""Effects on the tree: in parts, under the controller's epoch, and when connections break."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ottla.base.coordination import Create, Operation, SetData, WatchEvent
from ottla.base.ids import TopicPartition
from ottla.controller.core.effects import (
    ControllerMovedError,
    ControlRequest,
    CreateStates,
    Effect,
    ReadStates,
    ReadTopicConfigs,
    RemoveTopicNodes,
    Step,
    Write,
    WriteStates,
)
from ottla.controller.core.leadership import Leadership
from ottla.controller.driver.tree_work import TreeWork
from ottla.zookeeper import paths
from ottla.zookeeper.paths import ConfigKind
from ottla.zookeeper.znodes import encode_config
from support.trees.memory_tree import MemorySession, MemoryTree

EPOCH = 5
NAMES = [TopicPartition("t", index) for index in range(250)]
LED = Leadership(1, 0, (1, 2), EPOCH)


class Desk:
    """A tree with a topic without partitions, and the work of a controller on it."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.session: MemorySession = self.tree.connect()
        for path in ("/brokers", paths.TOPICS, paths.topic("t"), paths.CONTROLLER_EPOCH):
            self.tree.apply([Create(path, b"5")], 0)
        self.is_over = False
        self.work = TreeWork(self.session, EPOCH, 0, self._send, lambda: self.is_over, self._watch)

    def _send(self, request: ControlRequest) -> None:
        raise AssertionError(request)

    def _watch(self, event: WatchEvent) -> None:
        raise AssertionError(event)

    async def do(self, effect: Effect) -> Any:
        def step() -> Step[Any]:
            result = yield effect
            return result

        return await self.work.run(step())

    def lose(self, kind: str) -> None:
        """The answer of the next write to state nodes is lost."""
        losses = iter([kind])

        def loss(operations: Sequence[Operation]) -> str | None:
            return next(losses, None) if operations[-1].path.endswith("/state") else None

        self.session.lose = loss


def on_desk(test: Callable[..., Awaitable[None]]) -> Callable[[], None]:
    def wrapper() -> None:
        async def run() -> None:
            await test(Desk())

        asyncio.run(run())

    wrapper.__name__ = test.__name__
    return wrapper


@on_desk
async def test_states_are_created_in_parts(desk: Desk) -> None:
    created = await desk.do(CreateStates(dict.fromkeys(NAMES, LED)))
    assert list(created) == NAMES
    assert max(map(len, desk.tree.transactions)) == 201
    assert desk.tree.data(paths.partition_state("t", 249)) == LED.encode(EPOCH)


@on_desk
async def test_states_that_exist_are_left_alone(desk: Desk) -> None:
    other = Leadership(2, 7, (2,), EPOCH)
    await desk.do(CreateStates({NAMES[1]: other}))
    desk.tree.apply([Create(paths.partition(*NAMES[2]))], 0)  # a controller died after the first of two nodes
    created = await desk.do(CreateStates(dict.fromkeys(NAMES[:3], LED)))
    assert set(created) == {NAMES[0], NAMES[2]}
    assert desk.tree.data(paths.partition_state(*NAMES[1])) == other.encode(EPOCH)


@on_desk
async def test_states_of_a_topic_that_is_gone_are_not_created(desk: Desk) -> None:
    assert await desk.do(CreateStates({TopicPartition("gone", 0): LED})) == {}


@on_desk
async def test_only_states_that_nobody_else_wrote_are_written(desk: Desk) -> None:
    created = await desk.do(CreateStates(dict.fromkeys(NAMES, LED)))
    desk.tree.apply([SetData(paths.partition_state(*NAMES[3]), b"other")], 0)
    written = await desk.do(WriteStates({name: each.led_by(2) for name, each in created.items()}))
    assert set(NAMES) - set(written) == {NAMES[3]}
    assert {each.version for each in written.values()} == {1}
    assert desk.tree.data(paths.partition_state(*NAMES[3])) == b"other"


def _lost(kind: str) -> None:
    @on_desk
    async def lost(desk: Desk) -> None:
        desk.lose(kind)
        created = await desk.do(CreateStates(dict.fromkeys(NAMES[:3], LED)))
        assert list(created) == NAMES[:3]
        desk.lose(kind)
        written = await desk.do(WriteStates({name: each.led_by(2) for name, each in created.items()}))
        assert {name: each.version for name, each in written.items()} == dict.fromkeys(NAMES[:3], 1)

    lost()


@pytest.mark.parametrize("kind", ["before", "after"])
def test_a_lost_answer_is_detected(kind: str) -> None:
    _lost(kind)


@on_desk
async def test_a_replaced_controller_writes_nothing(desk: Desk) -> None:
    created = await desk.do(CreateStates({NAMES[0]: LED}))
    desk.tree.apply([SetData(paths.CONTROLLER_EPOCH, b"6")], 0)
    before = len(desk.tree.transactions)
    effects: list[Effect] = [
        WriteStates({NAMES[0]: created[NAMES[0]].led_by(2)}),
        CreateStates({NAMES[1]: LED}),
        Write([Create("/other")]),
        RemoveTopicNodes("t"),
    ]
    for effect in effects:
        with pytest.raises(ControllerMovedError):
            await desk.do(effect)
    assert len(desk.tree.transactions) == before


@on_desk
async def test_a_reign_that_is_over_does_nothing(desk: Desk) -> None:
    desk.is_over = True
    with pytest.raises(ControllerMovedError):
        await desk.do(CreateStates({NAMES[0]: LED}))
    assert desk.tree.data(paths.partition_state(*NAMES[0])) is None


@on_desk
async def test_all_nodes_of_a_topic_are_removed(desk: Desk) -> None:
    before = set(desk.tree.nodes) - {paths.topic("t")}
    await desk.do(CreateStates(dict.fromkeys(NAMES, LED)))
    for path in ("/config", "/config/topics", paths.config(ConfigKind.TOPICS, "t"), "/admin", paths.DELETE_TOPICS):
        desk.tree.apply([Create(path)], 0)
    desk.tree.apply([Create(paths.deleted_topic("t"))], 0)
    desk.tree.apply([Create(f"{paths.topic('t')}/other")], 0)  # not one of Kafka's nodes
    await desk.do(RemoveTopicNodes("t"))
    assert set(desk.tree.nodes) - before == {"/config", "/config/topics", "/admin", paths.DELETE_TOPICS}


@on_desk
async def test_large_writes_are_split(desk: Desk) -> None:
    await desk.do(Write([Create(f"/n{index}", b"x" * 100_000) for index in range(12)]))
    sizes = [sum(len(getattr(each, "data", b"") or b"") for each in part) for part in desk.tree.transactions]
    assert max(sizes) <= 512 * 1024
    assert desk.tree.data("/n11") is not None


@on_desk
async def test_states_that_cannot_be_understood_are_left_out(desk: Desk) -> None:
    await desk.do(CreateStates(dict.fromkeys(NAMES[:3], LED)))
    desk.tree.apply([SetData(paths.partition_state(*NAMES[1]), b"garbage")], 0)
    assert list(await desk.do(ReadStates(NAMES[:3]))) == [NAMES[0], NAMES[2]]


@on_desk
async def test_configs_that_cannot_be_understood_are_empty(desk: Desk) -> None:
    for path in ("/config", "/config/topics"):
        desk.tree.apply([Create(path)], 0)
    desk.tree.apply([Create(paths.config(ConfigKind.TOPICS, "bad"), b"garbage")], 0)
    desk.tree.apply([Create(paths.config(ConfigKind.TOPICS, "good"), encode_config({"a": "1"}))], 0)
    assert await desk.do(ReadTopicConfigs(["bad", "good", "none"])) == {"bad": {}, "good": {"a": "1"}, "none": {}}
