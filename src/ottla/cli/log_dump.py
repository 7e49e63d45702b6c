"""`ottla log dump`: print the contents of log files."""

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

app = Commands(help="Inspect the log files of an Ottla or Kafka broker.")


@app.callback()
def only_one_so_far() -> None:
    """Inspect the log files of an Ottla or Kafka broker."""


@app.command(epilog="Example: ottla log dump ottla-data/logs/orders-0 --values")
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="FILE", help="One or more log files or partition directories.", show_default=False),
    ],
    records: Annotated[bool, typer.Option("--records", "-r", help="Print each record, not only batches.")] = False,
    values: Annotated[
        bool, typer.Option("--values", "-v", help="Print records with keys, values and headers.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Print problems only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the contents of segments, indexes, snapshots and checkpoints, and check them.

    Checks the CRC of every batch, and index entries against their segment. Files are only read, so this is safe while a
    broker is running. The exit code is 1 if a problem is found.
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
    """Quotes text that contains spaces or could be mistaken for another value."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    text = text_of(value)
    is_bare = not isinstance(value, str) or (text and not any(sign.isspace() or sign in '"=' for sign in text))
    return text if is_bare and (value is None or text != "-") else json.dumps(text, ensure_ascii=False)


def _as_json(path: Path, line: Line) -> str:
    return json.dumps({"file": str(path), "kind": line.kind, **line.facts}, ensure_ascii=False)
