"""The journal has every write of the tree, and its judge fails each bad history."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.base.clock import SystemClock
from ottla.base.coordination import Create, SetData
from ottla.zookeeper import paths
from ottla.zookeeper.local_tree import LocalTree
from ottla.zookeeper.znodes import PartitionLeader
from support.cluster.tree_audit import Write, install, judge_journal, leader_changes, read

STATE = paths.partition_state("orders", 0)


def states(*found: PartitionLeader) -> list[Write]:
    epochs = [Write(paths.CONTROLLER_EPOCH, version, 1, 0, b"%d" % version) for version in range(10)]
    return epochs + [Write(STATE, version, 20 + version, 0, each.encode()) for version, each in enumerate(found)]


FIRST = PartitionLeader(1, 0, (1, 2, 3), 1)


def test_a_good_history_passes() -> None:
    writes = states(
        FIRST,
        PartitionLeader(1, 0, (1, 2), 1),
        PartitionLeader(2, 1, (2,), 2),
        PartitionLeader(-1, 2, (2,), 2),
        PartitionLeader(2, 3, (2,), 3),
        PartitionLeader(2, 3, (2, 1, 3), 3),
    )
    assert judge_journal(writes) == []
    assert leader_changes(writes) == 1


@pytest.mark.parametrize(
    ("state", "what"),
    [
        (PartitionLeader(2, 0, (1, 2), 1), "within epoch 0"),
        (PartitionLeader(2, 0, (1, 2), 1), "has two leaders, 1 and 2"),
        (PartitionLeader(1, 1, (), 1), "the ISR is empty"),
        (PartitionLeader(1, 1, (2, 3), 1), "is not in the ISR"),
        (PartitionLeader(1, 1, (1, 1), 1), "twice"),
        (PartitionLeader(1, -1, (1, 2), 1), "the leader epoch fell"),
        (PartitionLeader(1, 1, (1, 2), 0), "the controller epoch fell"),
        (PartitionLeader(1, 1, (1, 2), 17), "there was only 9"),
        (PartitionLeader(4, 1, (4,), 1), "was not in the ISR before"),
    ],
)
def test_a_bad_step_fails(state: PartitionLeader, what: str) -> None:
    wrong = judge_journal(states(FIRST, state))
    assert any(what in each for each in wrong), wrong


def test_an_unclean_leader_may_come_from_anywhere() -> None:
    assert judge_journal(states(FIRST, PartitionLeader(4, 1, (4,), 1, is_recovering=True))) == []


def test_a_topic_that_is_made_again_begins_again() -> None:
    assert judge_journal(states(FIRST) + states(PartitionLeader(3, 0, (3,), 1))[10:]) == []


@pytest.mark.parametrize("epochs", [(0, 2), (0, 1, 1)])
def test_a_controller_epoch_that_does_not_rise_by_one_fails(epochs: tuple[int, ...]) -> None:
    writes = [Write(paths.CONTROLLER_EPOCH, version, 1, 0, b"%d" % epoch) for version, epoch in enumerate(epochs)]
    assert len(judge_journal(writes)) == 1


def test_the_journal_has_every_write(tmp_path: Path) -> None:
    file = tmp_path / "tree.db"
    install(file)

    async def work() -> None:
        tree = await LocalTree.open(file, SystemClock())
        try:
            await tree.create(STATE, b"a", parents=True)
            await tree.set(STATE, b"b")
            await tree.transact([SetData(STATE, b"c", 1), Create("/other", b"")])
        finally:
            await tree.close()

    asyncio.run(work())
    assert [(each.path, each.version, each.data) for each in read(file)] == [
        (STATE, 0, b"a"),
        (STATE, 1, b"b"),
        (STATE, 2, b"c"),
    ]
