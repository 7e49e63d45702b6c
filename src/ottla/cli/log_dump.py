"""`ottla log dump`: what is in the files of a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.commands import Commands
from ottla.cli.output import counted, text_of
from ottla.cli.session import CommandError

if TYPE_CHECKING:
    from ottla.cli.log_files import Line

app = Commands(help="Look into the files of a log, Ottla's or Kafka's.")


@app.callback()
def only_one_so_far() -> None:
    """Look into the files of a log, Ottla's or Kafka's."""


@app.command(epilog="Example: ottla log dump ottla-data/logs/orders-0 --values")
def dump(
    paths: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Files, or the folder of a partition.", show_default=False)
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Each record, not only batches.")] = False,
    values: Annotated[
        bool, typer.Option("--values", "-v", help="Records with their keys, values and headers.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only what is wrong.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line.")] = False,
) -> None:
    """Show what segments, indexes, snapshots and checkpoints hold, and what is wrong with them.

    Every batch is checked against its CRC, and index entries against the segment beside them. Files are only read: a
    broker may be using them. The exit code is 1 if anything is wrong.
    """
    from ottla.cli.log_files import PROBLEM, DumpOptions, UnknownFileError, dump_file, files_in

    options = DumpOptions(records=records or values or check, values=values)
    problems = 0
    try:
        for path in [file for given in paths for file in files_in(given)]:
            if not as_json and not check:
                typer.echo(f"{path}")
            for line in dump_file(path, options):
                problems += line.kind == PROBLEM
                if not check or line.kind == PROBLEM:
                    typer.echo(_as_json(path, line) if as_json else _as_text(path, line, check))
    except UnknownFileError as error:
        raise CommandError(str(error)) from None
    if problems:
        raise CommandError(f"found {counted(problems, 'problem')}")


def _as_text(path: Path, line: Line, check: bool) -> str:
    facts = " ".join(f"{name}={_quoted(value)}" for name, value in line.facts.items())
    return f"{path}: {facts}" if check else f"  {line.kind} {facts}"


def _quoted(value: Any) -> str:
    """A text that has blanks, or that could be taken for something else, stands in quotes."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    text = text_of(value)
    is_plain = not isinstance(value, str) or (text and not any(sign.isspace() or sign in '"=' for sign in text))
    return text if is_plain and (value is None or text != "-") else json.dumps(text, ensure_ascii=False)


def _as_json(path: Path, line: Line) -> str:
    return json.dumps({"file": str(path), "kind": line.kind, **line.facts}, ensure_ascii=False)
