"""How commands print results: a table on a terminal, tab-separated lines in a pipe, JSON on request."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import typer

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def is_terminal() -> bool:
    return sys.stdout.isatty()


def show_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str | None = None) -> None:
    """A table on a terminal; otherwise one line per row with tab-separated cells and no header, for `cut` and `awk`."""
    cells = [[text_of(cell) for cell in row] for row in rows]
    if not is_terminal():
        for row in cells:
            typer.echo("\t".join(cell.replace("\t", " ").replace("\n", " ") for cell in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(cell) for cell in row] for row in cells]
    shown_title = None if title is None else Text(printable(title))  # a str would be read as markup
    console = Console()
    numeric = [bool(cells) and all(_is_number(row[index]) for row in cells) for index in range(len(columns))]
    halved = ["\n".join(name.rsplit(" ", 1)) for name in columns]
    broken = [name.replace(" ", "\n") for name in columns]
    # If space is short, headings are broken between words first, then columns stand closer, and last cells are broken.
    layouts = ((columns, False), (halved, False), (halved, True), (broken, True))
    headings, is_compact = next((one for one in layouts if _width(cells, *one) <= console.width), layouts[-1])
    table = Table(title=shown_title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    table.collapse_padding = is_compact
    for name, is_numeric in zip(headings, numeric, strict=True):
        table.add_column(name, justify="right" if is_numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    console.print(table)


def printable(text: str) -> str:
    """Without characters that a terminal acts upon: names that clients choose, such as group ids, can contain any."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def show_json(value: Any) -> None:
    """One JSON document, indented on a terminal."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2 if is_terminal() else None))


def json_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Mapping[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def show_listing(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    as_json: bool,
    empty: str,
    headings: Sequence[str] | None = None,
) -> None:
    """What a `list` command found: a table on a terminal, in a pipe only the first cell of each row, or JSON."""
    if as_json:
        show_json(json_rows(columns, rows))
    elif not is_terminal():
        for row in rows:
            typer.echo(row[0])
    elif rows:
        show_rows(headings or columns, rows)
    else:
        note(empty)


def note(text: str) -> None:
    """A message for the user on standard error, so that it does not mix with the output."""
    typer.echo(text, err=True)


def confirm(question: str, *, is_given: bool) -> bool:
    """Asks for confirmation on a terminal; otherwise, and with --yes, the answer is yes."""
    return is_given or not sys.stdin.isatty() or typer.confirm(question, err=True)


def silence_stdout() -> None:
    """The reader closed the pipe: buffered output must not fail when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def counted(count: int, noun: str) -> str:
    """`1 record`, `2 records`, `1,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def text_of(cell: Any) -> str:
    match cell:
        case None:
            return "-"
        case bool():
            return "yes" if cell else "no"
        case list() | tuple():
            return ",".join(map(text_of, cell)) or "-"
    return str(cell)


def size_text(size_in_bytes: int) -> str:
    """A size in bytes, rounded for display."""
    amount = float(size_in_bytes)
    for unit in _UNITS:
        if amount < 1024 or unit == _UNITS[-1]:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable: the last unit has no upper limit")


def _width(cells: Iterable[Sequence[str]], headings: Sequence[str], is_compact: bool) -> int:
    """Of the table, if nothing has to be broken."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, heading.split("\n"))) for heading in headings]
    for row in cells:
        widths = [max(width, cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
    return sum(widths) + (2 if is_compact else 3) * (len(widths) - 1) + 2  # one on each side


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(".", "", 1).removeprefix("-").split(" ")[0].isdecimal()
