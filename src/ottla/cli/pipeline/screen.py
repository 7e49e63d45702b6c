"""The output of `ottla pipeline run`: a table on a terminal, otherwise a line from time to time; and the final
progress."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ottla.cli.meters import Meter

if TYPE_CHECKING:
    from ottla.spark.pipelines.progress import QueryProgress

_COLUMNS: Final = ("query", "batch", "rows", "rows/s", "batch time", "lag", "state rows", "too late", "watermark")
_RATE_WINDOW_S: Final = 10.0
"""Micro-batches take seconds."""
_PARTITIONS_SHOWN: Final = 8


@dataclass(frozen=True, slots=True)
class Heading:
    """Facts that do not change: what runs, where, and where its checkpoint is."""

    name: str
    master: str
    checkpoint: str


class QueryRates:
    """Rows per second of each query."""

    def __init__(self) -> None:
        self._meters: dict[str, Meter] = {}

    def sample(self, queries: Iterable[QueryProgress], now_s: float) -> None:
        for progress in queries:
            meter = self._meters.setdefault(progress.name, Meter(_RATE_WINDOW_S))
            meter.total = progress.rows
            meter.sample(now_s)

    def __getitem__(self, name: str) -> float:
        return self._meters[name].rate if name in self._meters else 0.0


def screen(
    heading: Heading, queries: Iterable[QueryProgress], rates: QueryRates, statuses: Mapping[str, str], hint: str
) -> RenderableType:
    """The complete screen."""
    table = Table(box=None, expand=True, pad_edge=False)
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in ("query", "watermark") else "right", header_style="dim")
    for progress in queries:
        table.add_row(Text(progress.name, style="cyan"), *_cells(progress, rates[progress.name]))
        table.add_row(Text(f"  {statuses.get(progress.name, '')}", style="dim", overflow="ellipsis", no_wrap=True))
    where = f"on {heading.master} · checkpoint {heading.checkpoint}"
    return Group(Panel(table, title=heading.name, subtitle=where, border_style="bold"), Text(f" {hint}", style="dim"))


def line(progress: QueryProgress, rate: float) -> str:
    """A query in one line, for logs."""
    words = [
        f"batch {progress.batch}",
        f"{progress.rows:,} rows",
        f"{rate:,.0f}/s",
        f"took {progress.batch_seconds:.1f} s",
    ]
    if progress.lag is not None:
        words.append(f"lag {progress.lag:,}")
    if progress.state_rows is not None:
        words.append(f"state {progress.state_rows:,}")
    if progress.late_rows:
        words.append(f"late rows {progress.late_rows:,}")
    if progress.watermark is not None:
        words.append(f"watermark {_moment(progress)}")
    return f"{progress.name}: {', '.join(words)}"


def stand(queries: Iterable[QueryProgress]) -> RenderableType:
    """The final progress of the queries."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("query", "batches", "rows", "last batch", "next offsets"):
        table.add_column(name, justify="left" if name in ("query", "next offsets") else "right", overflow="fold")
    for progress in queries:
        last = "-" if progress.batch is None else str(progress.batch)
        table.add_row(progress.name, f"{progress.batches:,}", f"{progress.rows:,}", last, _offsets(progress))
    return table


def _cells(progress: QueryProgress, rate: float) -> list[str]:
    return [
        "-" if progress.batch is None else f"{progress.batch:,}",
        f"{progress.rows:,}",
        f"{rate:,.0f}",
        f"{progress.batch_seconds:.1f} s" if progress.batches else "-",
        "-" if progress.lag is None else f"{progress.lag:,}",
        "-" if progress.state_rows is None else f"{progress.state_rows:,}",
        f"{progress.late_rows:,}" if progress.state_rows is not None else "-",
        "-" if progress.watermark is None else _moment(progress),
    ]


def _moment(progress: QueryProgress) -> str:
    return "-" if progress.watermark is None else progress.watermark.strftime("%Y-%m-%d %H:%M:%S UTC")


def _offsets(progress: QueryProgress) -> str:
    topics = []
    for topic, partitions in sorted(progress.offsets.items()):
        shown = [f"{number}:{offset}" for number, offset in sorted(partitions.items())]
        more = f" and {len(shown) - _PARTITIONS_SHOWN} more" if len(shown) > _PARTITIONS_SHOWN else ""
        topics.append(f"{topic} {' '.join(shown[:_PARTITIONS_SHOWN])}{more}")
    return "; ".join(topics) or "-"
