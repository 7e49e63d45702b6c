"""What came out of a line's rounds, and how it stands to its targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any, Final

from bench.broker.lines import Figures, Line, Metric

_BUSY_CORES: Final = 0.8
"""A broker of one loop that had more than a fifth of a core to spare was not what a client waited for."""


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of every round of a line, in order."""

    line: Line
    names: tuple[str, str]
    ours: list[Figures]
    beside: list[Figures]

    def as_json(self) -> dict[str, Any]:
        return {
            "line": self.line.key,
            "title": self.line.title,
            "rounds": {
                self.names[0]: [dict(turn) for turn in self.ours],
                self.names[1]: [dict(t) for t in self.beside],
            },
            "medians": [row.as_json() for row in self.rows()],
        }

    def rows(self) -> Iterator[Row]:
        for metric in self.line.metrics:
            ours, beside = (median(turn[metric.key] for turn in turns) for turns in (self.ours, self.beside))
            spare = "broker_cores" in self.ours[0] and median(turn["broker_cores"] for turn in self.ours) < _BUSY_CORES
            yield Row(self.line, self.names, metric, ours, beside, client_bound=metric.may_be_client_bound and spare)


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of one metric."""

    line: Line
    names: tuple[str, str]
    metric: Metric
    ours: float
    beside: float
    client_bound: bool

    @property
    def ratio(self) -> float:
        return self.ours / self.beside if self.beside else float("nan")

    @property
    def advantage(self) -> float:
        """How many times better ours is, whichever way the metric goes."""
        return self.ratio if self.metric.more_is_better else 1 / self.ratio

    @property
    def target_advantage(self) -> float | None:
        if self.metric.target is None:
            return None
        return self.metric.target if self.metric.more_is_better else 1 / self.metric.target

    @property
    def verdict(self) -> str:
        metric = self.metric
        if metric.limit is not None:
            wanted = f"≤ {metric.limit:g} {metric.unit}"
        elif metric.target is not None:
            wanted = f"{'≥' if metric.more_is_better else '≤'} {metric.target:.3g}x"
        else:
            return ""
        if metric.met(self.ours, self.ratio):
            return f"{wanted}: met"
        return f"{wanted}: the client is the limit" if self.client_bound else f"{wanted}: MISSED"

    def cells(self) -> list[str]:
        unit = self.metric.unit
        return [
            self.line.title,
            unit,
            _number(self.ours),
            _number(self.beside),
            self.names[1],
            f"{self.ratio:.2f}x" if isfinite(self.ratio) else "",
            self.verdict,
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "metric": self.metric.key,
            "unit": self.metric.unit,
            self.names[0]: self.ours,
            self.names[1]: self.beside,
            "ratio": self.ratio if isfinite(self.ratio) else None,
            "target": self.verdict,
        }


def rows_of(results: Iterable[Result]) -> list[Row]:
    return [row for result in results for row in result.rows()]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"
