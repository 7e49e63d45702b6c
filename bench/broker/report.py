"""Tells the results: a table for people, a page and a plot to keep, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.broker.results import Result, Row, rows_of
from bench.broker.sides import KAFKA_VERSION
from rich.console import Console
from rich.table import Table

HEADINGS: Final = ["", "unit", "ottla", "beside it", "which is", "ratio", "target"]
_RIGHT: Final = frozenset(("ottla", "beside it", "ratio"))
_TICKS: Final = (0.5, 1, 2, 3, 5, 10, 20, 50)
NOTES: Final = (
    "Both brokers are up all the time and take turns; medians of the rounds, ratios of medians. Some of all work, and "
    "a turn of each line, come first and do not count, so that Kafka's compiler has seen them. Kafka runs with its own "
    "default config and the JVM options of its start script. CPU is that of the broker's process, user and system, "
    "from /proc.",
    "Raw: frames made beforehand, sent over blocking sockets by a process that looks into no answer; big batches are "
    "of 256 KiB, one a request, five in flight on each of two connections. Catch-up fetches ask for a MiB, four in "
    "flight on each of two connections, of what is in the page cache. Latency: one record a request, from before it is "
    "sent to when a long-polling consumer has it.",
    "Start: from the start of the process, in an empty directory (formatted, for Kafka), to a record acknowledged in a "
    "topic that the request for its metadata made.",
)


@dataclass(frozen=True, slots=True)
class Report:
    results: Sequence[Result]
    command: str
    date: str
    rounds: int
    machine: dict[str, str | int | float]
    versions: dict[str, str]

    def show(self, console: Console) -> None:
        table = Table(title=f"A broker beside Apache Kafka {KAFKA_VERSION}", title_justify="left")
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
        (folder / "broker.md").write_text(self._markdown(), encoding="utf-8")
        (folder / "broker.json").write_text(self._json(), encoding="utf-8")
        plot(rows_of(self.results), folder / "broker.png")

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
        title = f"# A broker beside Apache Kafka {KAFKA_VERSION}"
        picture = "![How many times better ours is, line by line, with the targets](broker.png)"
        return "\n".join([title, "", f"    {self.command}", "", *table, "", picture, "", facts, *_apart(NOTES), ""])

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


def plot(rows: Sequence[Row], file: Path) -> None:
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
    axes.set_title(f"A broker of Ottla beside Apache Kafka {KAFKA_VERSION}", loc="left", fontsize=10)
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
