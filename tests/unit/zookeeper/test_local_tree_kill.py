"""A process that writes to a tree is killed, again and again: all that was answered is there, and nothing by halves."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from random import Random

from ottla.base.clock import SystemClock
from ottla.zookeeper.local_tree import LocalTree

WRITER = Path(__file__).parent / "tree_writer.py"
SOURCES = Path(__file__).parents[3] / "src"
KILLS = 12
MOST_ANSWERS = 400


def test_answered_writes_survive_a_kill(tmp_path: Path) -> None:
    random = Random(5)
    place = tmp_path / "tree.db"
    answered: dict[int, int] = {}
    left_behind = 0
    for kill in range(KILLS):
        _write_and_kill(place, random.randrange(1, MOST_ANSWERS), answered)
        left_behind += place.with_name("tree.db-wal").exists()
        asyncio.run(_judge(place, answered, kill))
    assert left_behind == KILLS, "each was killed with its log open"
    assert len(answered) == 8


def _write_and_kill(place: Path, answer_count: int, answered: dict[int, int]) -> None:
    """Kills in the midst of the work: the process goes on writing while this one still counts."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), str(place)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    ) as process:
        assert process.stdout is not None
        for count, line in enumerate(process.stdout, 1):
            if count == answer_count:
                process.kill()  # what it said until then is still read
            caller, number = map(int, line.split())
            answered[caller] = number
    assert process.returncode == -9


async def _judge(place: Path, answered: dict[int, int], kill: int) -> None:
    tree = await LocalTree.open(place, SystemClock())
    for caller, number in answered.items():
        node = await tree.get(f"/{caller}")
        assert node is not None
        kept = int(node.data)
        assert kept in (number, number + 1), f"kill {kill}: {kept} is kept, {number} was answered"
        last = range(max(1, kept - 2), kept + 1)
        expected = sorted(f"{side}-{each}" for side in ("left", "right") for each in last)
        assert await tree.children(f"/{caller}") == expected, f"kill {kill}"
    await tree.close()
