"""A broker of ours beside Apache Kafka 4.3.1, which is brought from Maven Central and started here.

Run: python -m bench.broker [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The two take turns at each line; medians count. Files are real and are removed afterwards, on a disk that should have
20 GB to spare. A full run takes about ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.broker.lines import LINES, Line
from bench.broker.machine import machine, versions
from bench.broker.report import Report
from bench.broker.results import Result
from bench.broker.session import QUICK, Effort, Session
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


def chosen(words: Sequence[str]) -> list[Line]:
    lines = [line for line in LINES if not words or any(f"{line.key}-".startswith(f"{word}-") for word in words)]
    if not lines:
        raise SystemExit(f"no line is called {' or '.join(words)}; there are {', '.join(line.key for line in LINES)}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.broker", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="LINE", help="such as raw, or raw-100")
    parser.add_argument("--quick", action="store_true", help="a short look: small amounts, and figures that are noisy")
    parser.add_argument("--save", action="store_true", help="write bench/results/broker.md, .json and .png")
    parser.add_argument("--directory", type=Path, default=ROOT / ".build", help="on a real disk, not in memory")
    options = parser.parse_args()
    lines = chosen(options.only)
    console = Console(width=max(Console().width, 150))
    effort = QUICK if options.quick else Effort()
    facts, date, begun_s = machine(), f"{datetime.now(UTC):%Y-%m-%d}", time.monotonic()
    results = []
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as place, Session(Path(place)) as session:
        for line in lines:
            results.append(measure(line, session, effort, options.rounds))
            elapsed_s = time.monotonic() - begun_s
            summary = "; ".join(f"{row.metric.unit} {row.ratio:.2f}x" for row in results[-1].rows())
            console.print(f"{elapsed_s:5.0f} s  {line.key}: {summary}", highlight=False, markup=False)
    command = " ".join(["python -m bench.broker", *sys.argv[1:]])
    report = Report(results, command, date, options.rounds, facts, versions())
    report.show(console)
    if options.save:
        report.save(ROOT / "bench" / "results")


if __name__ == "__main__":
    main()
