"""Consume, transform, produce: each visible input has one output, and the group's offsets say which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from support.cluster.checker import Place
from support.isolation.anomalies import Anomaly, Finding
from support.isolation.history import History, Outcome, Transaction
from support.isolation.order import visible_between


def judge_processing(history: History) -> Iterator[Finding]:
    """If the run had processors."""
    if any(one.offsets for one in history.transactions):
        yield from _judge_outputs(history)
        yield from _judge_ranges(history)
        yield from _judge_observations(history)


def _judge_outputs(history: History) -> Iterator[Finding]:
    sources = {write.value: write.source for one in history.transactions for write in one.writes}
    outputs: dict[int, list[int]] = {}
    for records in history.visible.values():
        for _, value in records:
            source = sources.get(value)
            if source is not None:
                outputs.setdefault(source, []).append(value)
    for source, made in outputs.items():
        if len(made) > 1:
            yield Finding(Anomaly.PROCESSED_TWICE, f"input {source} has the outputs {made}")
    for place in _inputs(history):
        committed = history.group_offsets.get(place, 0)
        for offset, value in history.visible.get(place, ()):
            if offset < committed and value not in outputs:
                what = f"input {value} at {place}, offset {offset} has no output; the group committed {committed}"
                yield Finding(Anomaly.NOT_PROCESSED, what)
            if offset >= committed and value in outputs:
                what = f"input {value} at {place}, offset {offset} has an output; the group committed {committed}"
                yield Finding(Anomaly.OFFSET_INCONSISTENT, what)


def _judge_ranges(history: History) -> Iterator[Finding]:
    """A transaction's outputs are made of what it says that it consumed, and committed offsets go forward."""
    last: dict[Place, tuple[int, Transaction]] = {}
    for one in sorted(history.committed(), key=lambda one: one.ended_ns or one.began_ns):
        for place, offset in one.offsets.items():
            read = [read for read in one.reads if read.place == place]
            if read and read[-1].offset >= offset:
                what = f"{one} committed {offset} of {place}, and had consumed {read[-1].offset}"
                yield Finding(Anomaly.OFFSET_INCONSISTENT, what)
            if read:
                due = {value for _, value in visible_between(history, place, read[0].offset, offset)}
                missed = sorted(due - {each.value for each in read})
                if missed:
                    what = f"{one} committed {offset} of {place} without having consumed {missed[:5]}"
                    yield Finding(Anomaly.NOT_PROCESSED, what)
            before = last.get(place)
            if before is not None and before[1].precedes(one) and offset < before[0]:
                what = f"{one} committed {offset} of {place}, after {before[1]} had committed {before[0]}"
                yield Finding(Anomaly.OFFSET_REGRESSED, what)
            if before is None or offset > before[0]:
                last[place] = (offset, one)
    for place, (offset, one) in last.items():
        if one.outcome is Outcome.COMMITTED and history.group_offsets.get(place, 0) < offset:
            what = f"the group ends at {history.group_offsets.get(place, 0)} of {place}; {one} had committed {offset}"
            yield Finding(Anomaly.OFFSET_REGRESSED, what)


def _judge_observations(history: History) -> Iterator[Finding]:
    """Fetched offsets go forward, and are not behind what was committed before they were asked for."""
    best: dict[Place, tuple[int, int]] = {}
    for each in sorted(history.observations, key=lambda each: each.told_ns):
        offset, told_ns = best.get(each.place, (0, 0))
        if each.offset < offset and told_ns < each.asked_ns:
            what = f"{each.offset} of {each.place} was fetched after {offset}"
            yield Finding(Anomaly.OFFSET_REGRESSED, what)
        if each.offset > offset:
            best[each.place] = (each.offset, each.told_ns)
    for place, (offset, _) in best.items():
        if history.group_offsets.get(place, 0) < offset:
            what = f"the group ends at {history.group_offsets.get(place, 0)} of {place}; {offset} had been fetched"
            yield Finding(Anomaly.OFFSET_REGRESSED, what)


def _inputs(history: History) -> Mapping[Place, None]:
    return dict.fromkeys(place for one in history.transactions for place in one.offsets)
