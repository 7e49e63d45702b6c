"""Tells what came out: a table for people, a page and a plot to keep, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.clients.lines import OURS, Figures, Line, Metric
from rich.console import Console
from rich.table import Table

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


@dataclass(frozen=True, slots=True)
class Report:
    results: Sequence[Result]
    broker: str
    command: str
    date: str
    rounds: int
    machine: dict[str, str | int | float]
    versions: dict[str, str]
    notes: Sequence[str]

    @property
    def _title(self) -> str:
        return f"Python clients on one broker ({self.broker})"

    @property
    def _rows(self) -> list[Row]:
        return [row for result in self.results for row in result.rows()]

    def show(self, console: Console) -> None:
        table = Table(title=self._title, title_justify="left")
        for number, heading in enumerate(HEADINGS):
            table.add_column(heading, justify="right" if number in _RIGHT else "left")
        rows = self._rows
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            ends = following is None or (following.line.key, following.metric.key) != (row.line.key, row.metric.key)
            style = "red" if row.verdict.endswith("MISSED") else "bold" if row.is_ours else ""
            table.add_row(*row.cells(), style=style, end_section=ends)
        console.print(table)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "clients.md").write_text(self._markdown(), encoding="utf-8")
        (folder / "clients.json").write_text(self._json(), encoding="utf-8")
        plot(self._rows, self._title, folder / "clients.png")

    def _markdown(self) -> str:
        def line(cells: Sequence[str]) -> str:
            return f"| {' | '.join(cells)} |"

        machine = self.machine
        facts = (
            f"{self.date}, {self.rounds} rounds, on {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory_gb']} GB of memory, Linux {machine['kernel']}, load {machine['load']} before it began. "
            + ", ".join(f"{name} {version}" for name, version in self.versions.items())
            + "."
        )
        rule = ["---:" if number in _RIGHT else "---" for number in range(len(HEADINGS))]
        table = [line(HEADINGS), line(rule), *(line(row.cells()) for row in self._rows)]
        picture = "![How each client does beside the best of the others, line by line](clients.png)"
        notes = [text for note in self.notes for text in ("", note)]
        return "\n".join(
            [f"# {self._title}", "", f"    {self.command}", "", *table, "", picture, "", facts, *notes, ""]
        )

    def _json(self) -> str:
        content = {
            "command": self.command,
            "date": self.date,
            "rounds": self.rounds,
            "broker": self.broker,
            "machine": self.machine,
            "versions": self.versions,
            "lines": [result.as_json() for result in self.results],
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def plot(rows: Sequence[Row], title: str, file: Path) -> None:
    """How many times better than the best peer each client is."""
    # Loaded only where something is drawn.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = list(rows)[::-1]
    figure, axes = pyplot.subplots(figsize=(11, 1.4 + 0.26 * len(shown)))
    colours = ["#3b7dd8" if row.is_ours else "#a0a0a0" for row in shown]
    axes.barh(range(len(shown)), [row.advantage for row in shown], color=colours, height=0.68)
    for index, row in enumerate(shown):
        target = row.target
        if target is not None:
            axes.plot([target, target], [index - 0.42, index + 0.42], color="black", linewidth=2)
        label_at = max(row.advantage, target or 0.0)
        axes.annotate(f"  {row.advantage:.2g}x", (label_at, index), va="center", fontsize=8, color="#333333")
    labels = [f"{row.line.title}, {row.metric.unit}: {row.client}" for row in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("times better than the best of the other clients (blue: ours, black: target)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.margins(y=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
