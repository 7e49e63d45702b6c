"""A process that writes to a tree until it is killed, and says on standard output what it was answered.

Many callers write at once: each appends to a node of its own, and makes pairs of nodes that belong together.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from ottla.base.clock import SystemClock
from ottla.base.coordination import Create, Delete, Operation, SetData
from ottla.zookeeper.local_tree import LocalTree

CALLERS = 8


async def write(tree: LocalTree, caller: int) -> None:
    home = f"/{caller}"
    if await tree.get(home) is None:
        await tree.create(home, b"0")
    node = await tree.get(home)
    assert node is not None
    number = int(node.data)
    while True:
        number += 1
        operations: list[Operation] = [
            SetData(home, b"%d" % number),
            Create(f"{home}/left-{number}", bytes(200)),
            Create(f"{home}/right-{number}", bytes(200)),
        ]
        if number > 3:
            operations += [Delete(f"{home}/left-{number - 3}"), Delete(f"{home}/right-{number - 3}")]
        await tree.transact(operations)
        os.write(1, b"%d %d\n" % (caller, number))  # one write, short: it arrives as a whole, or not at all


async def main(path: Path) -> None:
    tree = await LocalTree.open(path, SystemClock())
    await asyncio.gather(*(write(tree, caller) for caller in range(CALLERS)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
