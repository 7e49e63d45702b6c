"""What `ottla demo` shows: rates, lag and the latest records while it runs, and a summary at its end."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ottla.cli.demo_traffic import TOPICS, Traffic
from ottla.cli.output import size_text

_COLOURS: Final = {"orders": "cyan", "payments": "green", "page-views": "magenta"}
_BAR_RECORDS: Final = 150
"""How much lag one block of the bar stands for."""


def screen(traffic: Traffic, address: str) -> RenderableType:
    """The whole screen, now."""
    return Group(
        Panel(_rates(traffic), title="Ottla", subtitle=f"a broker at {address}", border_style="bold"),
        Panel(_latest(traffic), title="latest records", border_style="dim"),
        Panel(_commands(address), title="try in another terminal", border_style="dim"),
    )


def summary(traffic: Traffic, seconds: float) -> RenderableType:
    """What went through, when it is over."""
    table = Table(box=box.SIMPLE_HEAD, title=f"{seconds:.0f} seconds of a shop, through one broker")
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
    return table


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


def _commands(address: str) -> Text:
    return Text(
        f"ottla consume orders -b {address}\n"
        f"ottla topics describe -b {address}\n"
        f"ottla groups describe -b {address}\n"
        f"kcat -b {address} -t payments -C -o end\n"
        "Ctrl-C ends the demo and leaves nothing behind."
    )
