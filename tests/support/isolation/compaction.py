"""Compacted partitions: each key has its last committed value, for consumers and on every replica.

Compaction may remove whatever has a later committed value with its key, and everything that is aborted. It must not
take an aborted record, or one that is not decided yet, for that later value. The last value of a key may be a
tombstone, which may be removed as well: then no older value may be left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from pathlib import Path

from ottla.records import decode_batch, iter_batches
from support.cluster.checker import Place
from support.isolation.anomalies import Anomaly, Finding
from support.isolation.history import TOMBSTONE, History, Outcome, Transaction, Write

_Records = Mapping[Place, Sequence[tuple[int, int]]]


def judge_latest(history: History) -> Iterator[Finding]:
    if not history.compacted:
        return
    committed = {write.value: (one, write) for one in history.committed() for write in one.writes}
    due: dict[tuple[Place, int], tuple[Transaction, Write]] = {}
    for one, write in committed.values():
        if write.key is not None and write.offset is not None:
            before = due.get((write.place, write.key))
            if before is None or (before[1].offset or 0) < write.offset:
                due[write.place, write.key] = (one, write)
    deleted = _deletions(history)
    views: dict[str, _Records] = {"the final reader": history.visible, **history.replicas}
    for who, records in views.items():
        yield from _judge_view(who, _last_offsets(history, records, committed), due, deleted)


def _deletions(history: History) -> dict[tuple[Place, int], float]:
    """Where the last tombstone of each key may be, committed or not known to be aborted. Once it is removed, nothing
    shows whether it was committed."""
    last: dict[tuple[Place, int], float] = {}
    for one in history.transactions:
        for write in one.writes:
            if write.is_tombstone and write.key is not None and one.outcome is not Outcome.ABORTED:
                offset = inf if write.offset is None else write.offset
                last[write.place, write.key] = max(offset, last.get((write.place, write.key), -1))
    return last


def _last_offsets(
    history: History, records: _Records, committed: Mapping[int, tuple[Transaction, Write]]
) -> dict[tuple[Place, int], int]:
    """Of each key, what is there and committed."""
    last: dict[tuple[Place, int], int] = {}
    for place in history.compacted:
        for offset, value in records.get(place, ()):
            found = committed.get(value)
            if found is not None and found[1].key is not None:
                key = place, found[1].key
                last[key] = max(offset, last.get(key, -1))
    return last


def _judge_view(
    who: str,
    last: Mapping[tuple[Place, int], int],
    due: Mapping[tuple[Place, int], tuple[Transaction, Write]],
    deleted: Mapping[tuple[Place, int], float],
) -> Iterator[Finding]:
    for spot, (one, write) in due.items():
        place, key = spot
        found = last.get(spot)
        if found is not None and found >= (write.offset or 0):
            continue
        if found is None and deleted.get(spot, -1) >= (write.offset or 0):
            continue  # the tombstone was removed, with everything that it deletes
        what = "nothing" if found is None else f"offset {found}"
        kind = "tombstone" if write.is_tombstone else f"value {write.value}"
        yield Finding(
            Anomaly.LATEST_LOST,
            f"{who} has {what} for key {key} of {place}; the {kind} at offset {write.offset} of {one} came last",
        )


def records_on_disk(logs: Path, place: Place, unpack: Callable[[bytes], int]) -> list[tuple[int, int]]:
    """The records of a stopped broker, tombstones as `TOMBSTONE`."""
    found: list[tuple[int, int]] = []
    for segment in sorted((logs / str(place)).glob("*.log")):
        for batch in iter_batches(segment.read_bytes()):
            if not batch.header.is_control:
                for record in decode_batch(batch):
                    value = None if record.value is None else bytes(record.value)
                    found.append((record.offset, TOMBSTONE if value is None else unpack(value)))
    return found
