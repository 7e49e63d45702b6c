"""What came out of the clients' turns, and the page that tells it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any, Final

from bench.clients.lines import OURS, Figures, Line, Metric
from bench.page import OTHERS, Bar, Page, Picture, Run, TableRow
from bench.page import OURS as OUR_COLOUR

HEADINGS: Final = ["", "client", "", "unit", "CPU µs a record", "broker's cores", "to the best peer", "target"]
_RIGHT: Final = frozenset((2, 4, 5, 6))
_BUSY_CORES: Final = 0.9
"""A broker of one loop that had hardly anything of a core to spare was what the client waited for."""


@dataclass(frozen=True, slots=True)
class Row:
    """The medians of one metric of one client."""

    line: Line
    metric: Metric
    client: str
    value: float
    ratio: float
    """To the best of the peers."""
    figures: dict[str, float]

    @property
    def is_ours(self) -> bool:
        return self.client in OURS

    @property
    def advantage(self) -> float:
        """How many times better than the best peer, whichever way the metric goes."""
        return self.ratio if self.metric.more_is_better else 1 / self.ratio

    @property
    def target(self) -> float | None:
        return self.line.targets.get(self.client)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        wanted = f"≥ {self.target:g}x"
        if self.ratio >= self.target:
            return f"{wanted}: met"
        waited = self.figures.get("broker_cores", 0.0) >= _BUSY_CORES
        return f"{wanted}: the broker is the limit" if waited else f"{wanted}: MISSED"

    def cells(self) -> list[str]:
        cpu_us, cores = self.figures.get("client_us_per_record"), self.figures.get("broker_cores")
        return [
            self.line.title,
            self.client,
            f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.3f}",
            self.metric.unit,
            "" if cpu_us is None else f"{cpu_us:.2f}",
            "" if cores is None else f"{cores:.2f}",
            f"{self.ratio:.2f}x",
            self.verdict,
        ]


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of every round of a line, by client."""

    line: Line
    rounds: dict[str, list[Figures]]

    def rows(self) -> Iterator[Row]:
        medians = {
            client: {key: median(turn[key] for turn in turns) for key in turns[0]}
            for client, turns in self.rounds.items()
        }
        for metric in self.line.metrics:
            values = [medians[name][metric.key] for name in self.line.peers]
            best = max(values) if metric.more_is_better else min(values)
            for client, figures in medians.items():
                value = figures[metric.key]
                yield Row(self.line, metric, client, value, value / best, figures)

    def as_json(self) -> dict[str, Any]:
        return {
            "line": self.line.key,
            "title": self.line.title,
            "rounds": {client: [dict(turn) for turn in turns] for client, turns in self.rounds.items()},
            "medians": [
                {
                    "client": row.client,
                    "metric": row.metric.key,
                    "value": row.value,
                    "ratio": row.ratio,
                    "target": row.verdict,
                }
                for row in self.rows()
            ],
        }


def page_of(results: Sequence[Result], broker: str, notes: Sequence[str], run: Run) -> Page:
    rows = [row for result in results for row in result.rows()]
    sections = groupby(rows, lambda row: (row.line.key, row.metric.key))
    bars = [
        Bar(
            f"{row.line.title}, {row.metric.unit}: {row.client}",
            row.advantage,
            OUR_COLOUR if row.is_ours else OTHERS,
            row.target,
        )
        for row in rows
    ]
    axis = "times better than the best of the other clients (blue: ours, black: target)"
    return Page(
        "clients",
        f"Python clients on one broker ({broker})",
        HEADINGS,
        _RIGHT,
        [[TableRow(row.cells(), _style(row)) for row in section] for _, section in sections],
        Picture("How each client does beside the best of the others, line by line", axis, bars),
        run,
        [result.as_json() for result in results],
        notes,
        {"broker": broker},
    )


def _style(row: Row) -> str:
    return "red" if row.verdict.endswith("MISSED") else "bold" if row.is_ours else ""
