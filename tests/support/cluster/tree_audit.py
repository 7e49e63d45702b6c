"""Who led what, by the tree's own record of every write: a journal that the embedded ZooKeeper keeps for a test.

The embedded ZooKeeper's tree is a SQLite file, so a trigger can copy each write of the nodes in question into a table
of its own, in the same commit: no state is missed, as it would be with watches. `install` does that before the server
starts for the first time; `read` takes the journal out when it is stopped.

`judge_journal` then checks, without I/O:

- the controller epoch rises by one with each controller, and no partition's state falls behind in it;
- a partition's leader epoch never falls; a new leader has a new epoch, so there is one leader an epoch;
- the leader is in the ISR, and the ISR is never empty nor has brokers that have no replica;
- a leader that took over cleanly was in the ISR before (or among the last known members of it).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from ottla.zookeeper import paths
from ottla.zookeeper.tree_file import TreeFile
from ottla.zookeeper.znodes import PartitionLeader

_STATE_SUFFIX: Final = "/state"
_TOPICS: Final = f"{paths.TOPICS}/"
NO_LEADER: Final = -1
_TRIGGERS: Final = f"""
CREATE TABLE test_journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, version INTEGER NOT NULL, zxid INTEGER NOT NULL,
    time_ms INTEGER NOT NULL, data BLOB
);
CREATE TRIGGER test_journal_put AFTER INSERT ON node
    WHEN NEW.path IN ('{paths.CONTROLLER}', '{paths.CONTROLLER_EPOCH}')
        OR (NEW.path LIKE '{_TOPICS}%' AND NEW.path LIKE '%{_STATE_SUFFIX}')
BEGIN
    INSERT INTO test_journal (path, version, zxid, time_ms, data)
        VALUES (NEW.path, NEW.version, NEW.modified_zxid, NEW.modified_ms, NEW.data);
END;
"""


class Write(NamedTuple):
    """One state of a node."""

    path: str
    version: int
    """Counts from 0 in each life of the node."""
    zxid: int
    time_ms: int
    data: bytes


def install(tree: Path) -> None:
    """Makes the tree with its journal. The file must not be there yet."""
    TreeFile.open(tree).close()
    with closing(sqlite3.connect(tree)) as connection:
        connection.executescript(_TRIGGERS)


def read(tree: Path) -> list[Write]:
    """Everything since `install`, in order. The server must be stopped."""
    query = "SELECT path, version, zxid, time_ms, data FROM test_journal ORDER BY number"
    with closing(sqlite3.connect(tree)) as connection:
        rows = connection.execute(query).fetchall()
    writes = [Write(path, version, zxid, time_ms, data or b"") for path, version, zxid, time_ms, data in rows]
    # A node is stored again when its children change; only a new version or a new life is news.
    kept: list[Write] = []
    last: dict[str, tuple[int, int]] = {}
    for write in writes:
        if last.get(write.path) != (write.version, write.zxid):
            last[write.path] = (write.version, write.zxid)
            kept.append(write)
    return kept


def judge_journal(writes: Iterable[Write]) -> list[str]:
    wrong: list[str] = []
    controller_epoch = 0
    states: dict[str, PartitionLeader] = {}
    leaders: dict[tuple[str, int], int] = {}
    for write in writes:
        if write.path == paths.CONTROLLER_EPOCH:
            found = int(write.data)
            if write.version and found != controller_epoch + 1:
                wrong.append(f"the controller epoch went from {controller_epoch} to {found} (zxid {write.zxid})")
            controller_epoch = found
        elif write.path.endswith(_STATE_SUFFIX):
            state = PartitionLeader.decode(write.path, write.data)
            before = states.get(write.path) if write.version else None
            if not write.version:  # the topic is new, perhaps again
                leaders = {key: leader for key, leader in leaders.items() if key[0] != write.path}
            if state.controller_epoch > controller_epoch:
                epochs = f"controller epoch {state.controller_epoch}, and there was only {controller_epoch}"
                wrong.append(f"{_at(write)}: {epochs}")
            wrong += [f"{_at(write)}: {what}" for what in _judge_state(state, before, _may_lead_too(write, states))]
            if state.leader != NO_LEADER:
                led = leaders.setdefault((write.path, state.leader_epoch), state.leader)
                if led != state.leader:
                    wrong.append(f"{_at(write)}: epoch {state.leader_epoch} has two leaders, {led} and {state.leader}")
            states[write.path] = state
    return wrong


def _at(write: Write) -> str:
    return f"{write.path} (version {write.version}, zxid {write.zxid})"


def _may_lead_too(write: Write, states: dict[str, PartitionLeader]) -> tuple[int, ...]:
    """Brokers beside the ISR that had everything committed: an extra field of the state before this one."""
    before = states.get(write.path)
    return tuple(getattr(before, "last_known_isr", ())) if before is not None else ()


def _judge_state(
    state: PartitionLeader, before: PartitionLeader | None, may_lead_too: Sequence[int] = ()
) -> Iterable[str]:
    if not state.isr:
        yield "the ISR is empty"
    if len(set(state.isr)) != len(state.isr):
        yield f"the ISR has a broker twice: {list(state.isr)}"
    if state.leader != NO_LEADER and state.leader not in state.isr:
        yield f"the leader {state.leader} is not in the ISR {list(state.isr)}"
    if before is None:
        return
    if state.leader_epoch < before.leader_epoch:
        yield f"the leader epoch fell from {before.leader_epoch} to {state.leader_epoch}"
    if state.controller_epoch < before.controller_epoch:
        yield f"the controller epoch fell from {before.controller_epoch} to {state.controller_epoch}"
    if state.leader != before.leader and state.leader_epoch == before.leader_epoch:
        yield f"the leader went from {before.leader} to {state.leader} within epoch {state.leader_epoch}"
    took_over = state.leader not in (NO_LEADER, before.leader)
    if took_over and not state.is_recovering and state.leader not in (*before.isr, *may_lead_too):
        yield f"the leader {state.leader} was not in the ISR before, {list(before.isr)}"


def leader_changes(writes: Iterable[Write]) -> int:
    """How often another broker took over a partition."""
    last: dict[str, int] = {}
    count = 0
    for write in writes:
        if write.path.endswith(_STATE_SUFFIX):
            leader = json.loads(write.data)["leader"]
            count += leader != NO_LEADER and last.get(write.path, leader) != leader
            if leader != NO_LEADER:
                last[write.path] = leader
    return count
