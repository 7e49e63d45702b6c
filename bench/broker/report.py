"""Tells the results: a table for people, a page and a plot to keep, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.broker.machine import versions
from bench.broker.results import Result, Row, rows_of
from bench.broker.sides import KAFKA_VERSION
from rich.console import Console
from rich.table import Table

HEADINGS: Final = ["", "unit", "ottla", "beside it", "which is", "ratio", "target"]
_RIGHT: Final = frozenset(("ottla", "beside it", "ratio"))
_TICKS: Final = (0.5, 1, 2, 3, 5, 10, 20, 50)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a bench is about: the name of its files, the title over them, how the figures were taken, and with what."""

    name: str
    title: str
    notes: Sequence[str]
    beside: str = f"Apache Kafka {KAFKA_VERSION}"
    versions: Callable[[], dict[str, str]] = versions


@dataclass(frozen=True, slots=True)
class Report:
    subject: Subject
    results: Sequence[Result]
    command: str
    date: str
    rounds: int
    machine: dict[str, str | int | float]
    versions: dict[str, str]

    def show(self, console: Console) -> None:
        table = Table(title=self._title(), title_justify="left")
        for heading in HEADINGS:
            table.add_column(heading, justify="right" if heading in _RIGHT else "left")
        for result in self.results:
            rows = list(result.rows())
            for index, row in enumerate(rows):
                cells = row.cells()
                table.add_row(
                    cells[0] if not index else "",
                    *cells[1:],
                    style="red" if row.verdict.endswith("MISSED") else "",
                    end_section=index == len(rows) - 1,
                )
        console.print(table)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        name = self.subject.name
        (folder / f"{name}.md").write_text(self._markdown(), encoding="utf-8")
        (folder / f"{name}.json").write_text(self._json(), encoding="utf-8")
        plot(rows_of(self.results), self._title(), folder / f"{name}.png")

    def _title(self) -> str:
        return f"{self.subject.title} beside {self.subject.beside}"

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
        rule = ["---:" if heading in _RIGHT else "---" for heading in HEADINGS]
        table = [line(HEADINGS), line(rule), *(line(row.cells()) for row in rows_of(self.results))]
        title = f"# {self._title()}"
        picture = f"![How many times better ours is, line by line, with the targets]({self.subject.name}.png)"
        notes = _apart(self.subject.notes)
        return "\n".join([title, "", f"    {self.command}", "", *table, "", picture, "", facts, *notes, ""])

    def _json(self) -> str:
        content = {
            "command": self.command,
            "date": self.date,
            "rounds": self.rounds,
            "machine": self.machine,
            "versions": self.versions,
            "lines": [result.as_json() for result in self.results],
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def plot(rows: Sequence[Row], title: str, file: Path) -> None:
    """How many times better ours is, for each line that has a target to compare with."""
    # Loaded only where something is drawn.
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in rows if row.metric.target is not None][::-1]
    figure, axes = pyplot.subplots(figsize=(11, 1.4 + 0.32 * len(shown)))
    widths = [row.advantage - 1 for row in shown]
    axes.barh(range(len(shown)), widths, left=1, color=[_colour(row) for row in shown], height=0.62)
    for index, row in enumerate(shown):
        target = row.target_advantage or 1.0
        axes.plot([target, target], [index - 0.42, index + 0.42], color="black", linewidth=2)
        label_at = max(row.advantage, target, 1.0)
        axes.annotate(f"  {row.advantage:.2g}x", (label_at, index), va="center", fontsize=8, color="#333333")
    axes.set_yticks(range(len(shown)), [f"{row.line.title}: {row.metric.unit}" for row in shown], fontsize=8)
    axes.set_xscale("log")
    axes.set_xlim(min(0.5, *(row.advantage for row in shown)) / 1.1, max(row.advantage for row in shown) * 1.4)
    axes.set_xticks(_TICKS, [f"{tick:g}" for tick in _TICKS])
    axes.minorticks_off()
    axes.axvline(1, color="grey", linewidth=0.8)
    axes.set_xlabel("times better than what is beside it (black: target, red: missed, grey: the client is the limit)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.margins(y=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    pyplot.close(figure)


def _colour(row: Row) -> str:
    if row.verdict.endswith("met"):
        return "#3b7dd8"
    return "#c0504d" if row.verdict.endswith("MISSED") else "#a0a0a0"


def _apart(paragraphs: Sequence[str]) -> list[str]:
    return [line for paragraph in paragraphs for line in ("", paragraph)]
