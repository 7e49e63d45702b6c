"""The screen of `ottla demo`: rates, lag and the latest records while it runs, and a summary at the end."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ottla.cli.demo.pipeline import REVENUE, WINDOW_S
from ottla.cli.demo.spark import PipelineState, Sum
from ottla.cli.demo.traffic import TOPICS, Traffic
from ottla.cli.output import size_text

_COLOURS: Final = {"orders": "cyan", "payments": "green", "page-views": "magenta"}
_BAR_RECORDS: Final = 150
"""The lag that one block of the bar represents."""
_WINDOWS_SHOWN: Final = 4
_BAR_CHARS: Final = 12


def screen(traffic: Traffic, state: PipelineState, address: str) -> RenderableType:
    """The complete screen."""
    return Group(
        Panel(_rates(traffic), title="Ottla", subtitle=f"a broker at {address}", border_style="bold"),
        _pipeline(state),
        Panel(_latest(traffic), title="latest records", border_style="dim"),
        Panel(_commands(state, address), title="try this in another terminal", border_style="dim"),
    )


def summary(traffic: Traffic, state: PipelineState, seconds: float) -> RenderableType:
    """The final summary."""
    table = Table(box=box.SIMPLE_HEAD, title=f"{seconds:.0f} seconds of traffic")
    for name in ("topic", "partitions", "sent", "received", "a second", "data"):
        table.add_column(name, justify="left" if name == "topic" else "right")
    for name, counts in traffic.topics.items():
        table.add_row(
            name,
            str(TOPICS[name]),
            f"{counts.sent.total:,}",
            f"{counts.received.total:,}",
            f"{counts.sent.total / max(seconds, 0.001):,.0f}",
            size_text(counts.bytes_sent),
        )
    if not state.windows:
        return table
    sums = _revenue(state)
    sums.title = f"Spark results in topic {REVENUE}: revenue in windows of {WINDOW_S} s"
    sums.box, sums.expand = box.SIMPLE_HEAD, False
    return Group(table, sums)


def _rates(traffic: Traffic) -> Table:
    table = Table(box=None, expand=True, pad_edge=False)
    for name in ("topic", "in/s", "out/s", "records", "lag"):
        table.add_column(name, justify="left" if name in ("topic", "lag") else "right", header_style="dim")
    for name, counts in traffic.topics.items():
        table.add_row(
            Text(name, style=_COLOURS[name]),
            f"{counts.sent.rate:,.0f}",
            f"{counts.received.rate:,.0f}",
            f"{counts.sent.total:,}",
            _lag(counts.lag),
        )
    return table


def _pipeline(state: PipelineState) -> Panel:
    title = f"Spark: orders joined with the catalogue, to topic {REVENUE} (€ per {WINDOW_S} s)"
    if state.missing is not None:
        return Panel(Text(f"Not running: {state.missing}", style="yellow"), title="Spark", border_style="dim")
    if state.failure is not None:
        return Panel(Text(state.failure, style="red"), title=title, border_style="red")
    if not state.windows:
        return Panel(Text(state.progress or "Java is starting …", style="dim"), title=title, border_style="blue")
    return Panel(_revenue(state), title=title, subtitle=state.progress, border_style="blue")


def _revenue(state: PipelineState) -> Table:
    """The last windows side by side, one row per category; bars for the newest complete window."""
    shown = sorted(state.windows)[-_WINDOWS_SHOWN:]
    goods = sorted({name for sums in state.windows.values() for name in sums})
    table = Table(box=None, expand=True, pad_edge=False)
    table.add_column("goods", header_style="dim")
    for since in shown:
        table.add_column(since[11:19], justify="right", header_style="dim")
    table.add_column("", ratio=1)
    whole = state.windows[shown[-2] if len(shown) > 1 else shown[-1]]
    most = max((one.revenue for one in whole.values()), default=0) or 1
    nothing = Sum(0, 0)
    for name in goods:
        bar = "█" * round(_BAR_CHARS * whole.get(name, nothing).revenue / most)
        amounts = (f"{state.windows[since].get(name, nothing).revenue:,.2f}" for since in shown)
        table.add_row(name, *amounts, Text(bar, style="blue"))
    return table


def _lag(lag: int) -> Text:
    blocks = min(30, -(-lag // _BAR_RECORDS))
    colour = "green" if blocks < 5 else "yellow" if blocks < 15 else "red"
    return Text.assemble((f"{lag:>6,} ", "default"), ("█" * blocks, colour))


def _latest(traffic: Traffic) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for latest in list(traffic.latest):
        place = f"{latest.event.topic}-{latest.partition} @{latest.offset}"
        table.add_row(Text(place, style=_COLOURS[latest.event.topic]), Text(latest.event.sentence()))
    return table


def _commands(state: PipelineState, address: str) -> Text:
    topic = "orders" if state.missing is not None else REVENUE
    return Text(
        f"ottla consume {topic} -b {address}\n"
        f"ottla groups describe -b {address}\n"
        f"kcat -b {address} -t payments -C -o end\n"
        "Press Ctrl-C to stop the demo and delete its data."
    )
