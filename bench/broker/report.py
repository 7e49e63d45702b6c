"""Tells the results of ours beside something else, as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.broker.machine import versions
from bench.broker.results import Result, Row, rows_of
from bench.broker.sides import KAFKA_VERSION
from bench.page import MISSED, OTHERS, OURS, Bar, Page, Picture, Run, TableRow

HEADINGS: Final = ["", "unit", "ottla", "beside it", "which is", "ratio", "target"]
_RIGHT: Final = frozenset((2, 3, 5))


@dataclass(frozen=True, slots=True)
class Subject:
    """What a bench is about: the name of its files, the title over them, how the figures were taken, and with what."""

    name: str
    title: str
    notes: Sequence[str]
    beside: str = f"Apache Kafka {KAFKA_VERSION}"
    versions: Callable[[], dict[str, str]] = versions


def page_of(subject: Subject, results: Sequence[Result], run: Run) -> Page:
    bars = [
        Bar(f"{row.line.title}: {row.metric.unit}", row.advantage, _colour(row), row.target_advantage)
        for row in rows_of(results)
        if row.metric.target is not None
    ]
    axis = "times better than what is beside it (black: target, red: missed, grey: the client is the limit)"
    return Page(
        subject.name,
        f"{subject.title} beside {subject.beside}",
        HEADINGS,
        _RIGHT,
        [[TableRow(row.cells(), _style(row)) for row in result.rows()] for result in results],
        Picture("How many times better ours is, line by line, with the targets", axis, bars),
        run,
        [result.as_json() for result in results],
        subject.notes,
    )


def _style(row: Row) -> str:
    return "red" if row.verdict.endswith("MISSED") else ""


def _colour(row: Row) -> str:
    if row.verdict.endswith("met"):
        return OURS
    return MISSED if row.verdict.endswith("MISSED") else OTHERS
