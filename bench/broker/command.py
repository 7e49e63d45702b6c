"""The command of a bench: takes turns at its lines, and tells and keeps what came out."""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.broker.lines import Line
from bench.broker.machine import machine, touch_memory
from bench.broker.report import Subject, page_of
from bench.broker.results import Result
from bench.broker.session import QUICK, Effort, Session
from bench.page import Run
from rich.console import Console

ROOT: Final = Path(__file__).resolve().parents[2]


def measure(line: Line, session: Session, effort: Effort, rounds: int) -> Result:
    with line.contenders(session, effort) as (ours, beside):
        if line.warms_up:
            for contender in (ours, beside):
                contender.turn(effort.warming_up())
        result = Result(line, (ours.name, beside.name), [], [])
        for number in range(rounds):
            turns = [(ours, result.ours), (beside, result.beside)]
            for contender, figures in turns if number % 2 else turns[::-1]:
                figures.append(contender.turn(effort))
    return result


def chosen(lines: Sequence[Line], words: Sequence[str]) -> list[Line]:
    found = [line for line in lines if not words or any(f"{line.key}-".startswith(f"{word}-") for word in words)]
    if not found:
        raise SystemExit(f"no line is called {' or '.join(words)}; there are {', '.join(line.key for line in lines)}")
    return found


def run(
    subject: Subject,
    summary: str,
    lines_of: Callable[[bool], Sequence[Line]],
    open_session: Callable[[Path], Session] = Session,
) -> None:
    """Runs what the command line asks for. `lines_of` gives the lines of a short look, or of a whole one."""
    program = f"python -m bench.{subject.name}"
    parser = argparse.ArgumentParser(prog=program, description=summary)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="LINE", help=f"such as {lines_of(True)[-1].key}")
    parser.add_argument("--seconds", type=float, help="Measure each rate for this long.")
    parser.add_argument("--quick", action="store_true", help="a short look: small amounts, and figures that are noisy")
    parser.add_argument("--save", action="store_true", help=f"write bench/results/{subject.name}.md, .json and .png")
    parser.add_argument("--directory", type=Path, default=ROOT / ".build", help="on a real disk, not in memory")
    options = parser.parse_args()
    wanted = chosen(lines_of(options.quick), options.only)
    console = Console(width=max(Console().width, 150))
    effort = QUICK if options.quick else Effort()
    if options.seconds is not None:
        effort = replace(effort, seconds=options.seconds)
    facts, date, begun_s = machine(), f"{datetime.now(UTC):%Y-%m-%d}", time.monotonic()
    results = []
    options.directory.mkdir(parents=True, exist_ok=True)
    if not options.quick:
        gigabytes = touch_memory()
        console.print(f"{time.monotonic() - begun_s:5.0f} s  used {gigabytes:.1f} GB of memory once", highlight=False)
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does when it installs
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as place,
        open_session(Path(place)) as session,
    ):
        for line in wanted:
            results.append(measure(line, session, effort, options.rounds))
            elapsed_s = time.monotonic() - begun_s
            summary = "; ".join(
                f"{row.metric.unit} {row.ratio:.2f}x" for row in results[-1].rows() if row.metric.target
            )
            console.print(f"{elapsed_s:5.0f} s  {line.key}: {summary}", highlight=False, markup=False)
    command = " ".join([program, *sys.argv[1:]])
    page = page_of(subject, results, Run(command, date, options.rounds, facts, subject.versions()))
    page.show(console)
    if options.save:
        page.save(ROOT / "bench" / "results")
