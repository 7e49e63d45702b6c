"""Which values became visible: none of an aborted transaction, all of a committed one, all or none otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from support.cluster.checker import Place
from support.isolation.anomalies import Anomaly, Finding
from support.isolation.history import TOMBSTONE, History, Outcome


def judge_reads(history: History) -> Iterator[Finding]:
    """What consumers with read_committed saw."""
    writers = history.writers()
    told: set[tuple[Anomaly, str, int]] = set()
    for who, read in history.all_reads():
        if read.value == TOMBSTONE:
            continue
        found = writers.get(read.value)
        spot = f"{who} saw {read.value} at {read.place}, offset {read.offset}"
        if found is None:
            yield Finding(Anomaly.INVENTED, spot)
            continue
        transaction, write = found
        if write.place != read.place:
            yield Finding(Anomaly.INVENTED, f"{spot}; it was written to {write.place}")
        anomaly = None
        if transaction.outcome is Outcome.ABORTED:
            anomaly = Anomaly.ABORTED_READ
        elif transaction.asked_ns is not None and read.at_ns < transaction.asked_ns:
            anomaly = Anomaly.DIRTY_READ
        if anomaly is not None and (key := (anomaly, who, transaction.number)) not in told:
            told.add(key)
            yield Finding(anomaly, f"{spot}, of {transaction}")


def judge_outcomes(history: History) -> Iterator[Finding]:
    """What is visible at the end."""
    there: dict[int, list[tuple[Place, int]]] = {}
    for place, records in history.visible.items():
        for offset, value in records:
            if value != TOMBSTONE:
                there.setdefault(value, []).append((place, offset))
    for value, spots in there.items():
        if len(spots) > 1:
            where = ", ".join(f"{place} at {offset}" for place, offset in spots)
            yield Finding(Anomaly.DUPLICATE, f"{value} is visible at {where}")
    for one in history.transactions:
        # What compaction may remove is judged by its keys.
        kept = [write for write in one.writes if write.place not in history.compacted]
        missing = [write for write in kept if write.value not in there]
        if not missing or one.outcome is Outcome.ABORTED:
            continue
        is_partly_there = any(write.value in there for write in one.writes)
        places = ", ".join(sorted({str(write.place) for write in missing}))
        what = f"{len(missing)} of {len(kept)} writes of {one} are missing, in {places}"
        if is_partly_there:
            yield Finding(Anomaly.TORN, what)
        if one.outcome is Outcome.COMMITTED:
            yield Finding(Anomaly.LOST, what)
