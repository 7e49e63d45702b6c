"""What every bench tells in the same way: a table for people, a page and a plot to keep, and all figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

OURS: Final = "#3b7dd8"
MISSED: Final = "#c0504d"
OTHERS: Final = "#a0a0a0"
_TICKS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100)


@dataclass(frozen=True, slots=True)
class TableRow:
    cells: Sequence[str]
    """The first one says what the whole section is about."""
    style: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    advantage: float
    """How many times better than what it is compared with."""
    colour: str
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """How, when and on what the figures were taken."""

    command: str
    date: str
    rounds: int
    machine: dict[str, str | int | float]
    versions: dict[str, str]

    def in_words(self) -> str:
        machine = self.machine
        used = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{self.date}, {self.rounds} rounds, on {machine['cpu']}, {machine['cores']} cores, "
            f"{machine['memory_gb']} GB of memory, Linux {machine['kernel']}, load {machine['load']} before it began. "
            f"{used}."
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """Bars from 1 on, to the right where something is better, on a scale of ratios."""

    words: str
    axis: str
    bars: Sequence[Bar]

    def draw(self, title: str, file: Path) -> None:
        # Loaded only where something is drawn.
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        bars = list(self.bars)[::-1]
        figure, axes = pyplot.subplots(figsize=(11, 1.4 + 0.3 * len(bars)))
        widths = [bar.advantage - 1 for bar in bars]
        axes.barh(range(len(bars)), widths, left=1, color=[bar.colour for bar in bars], height=0.64)
        for index, bar in enumerate(bars):
            if bar.target is not None:
                axes.plot([bar.target, bar.target], [index - 0.42, index + 0.42], color="black", linewidth=2)
            label_at = max(bar.advantage, bar.target or 1.0, 1.0)
            axes.annotate(f"  {bar.advantage:.2g}x", (label_at, index), va="center", fontsize=8, color="#333333")
        axes.set_yticks(range(len(bars)), [bar.label for bar in bars], fontsize=8)
        axes.set_xscale("log")
        low = min(0.5, *(bar.advantage for bar in bars)) / 1.1
        high = max(2.0, *(max(bar.advantage, bar.target or 1.0) for bar in bars)) * 1.4
        ticks = [tick for tick in _TICKS if low <= tick <= high]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xlim(low, high)
        axes.minorticks_off()
        axes.axvline(1, color="grey", linewidth=0.8)
        axes.set_xlabel(self.axis)
        axes.set_title(title, loc="left", fontsize=10)
        axes.margins(y=0.01)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        figure.tight_layout()
        figure.savefig(file, dpi=110)
        pyplot.close(figure)


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    """Of its files."""
    title: str
    headings: Sequence[str]
    right: frozenset[int]
    """Columns of figures, which stand to the right."""
    sections: Sequence[Sequence[TableRow]]
    picture: Picture
    run: Run
    lines: Sequence[dict[str, Any]]
    """All figures."""
    notes: Sequence[str] = ()
    more: dict[str, Any] = field(default_factory=dict)
    """What the JSON says beside that."""

    def show(self, console: Console) -> None:
        table = Table(title=self.title, title_justify="left")
        for number, heading in enumerate(self.headings):
            table.add_column(heading, justify="right" if number in self.right else "left")
        for section in self.sections:
            for index, row in enumerate(section):
                first, *others = row.cells
                ends = index == len(section) - 1
                table.add_row("" if index else first, *others, style=row.style, end_section=ends)
        console.print(table)

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{self.name}.md").write_text(self._markdown(), encoding="utf-8")
        (folder / f"{self.name}.json").write_text(self._json(), encoding="utf-8")
        self.picture.draw(self.title, folder / f"{self.name}.png")

    def _markdown(self) -> str:
        rule = ["---:" if number in self.right else "---" for number in range(len(self.headings))]
        rows = [row.cells for section in self.sections for row in section]
        table = [f"| {' | '.join(cells)} |" for cells in (self.headings, rule, *rows)]
        picture = f"![{self.picture.words}]({self.name}.png)"
        notes = [text for note in self.notes for text in ("", note)]
        run = self.run
        return "\n".join(
            [f"# {self.title}", "", f"    {run.command}", "", *table, "", picture, "", run.in_words(), *notes, ""]
        )

    def _json(self) -> str:
        run = self.run
        content = {
            "command": run.command,
            "date": run.date,
            "rounds": run.rounds,
            **self.more,
            "machine": run.machine,
            "versions": run.versions,
            "lines": list(self.lines),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
