"""Our client beside confluent-kafka, aiokafka and kafka-python, on one broker.

Run: python -m bench.clients [--rounds 3] [--only LINE …] [--quick] [--save] [--peer kafka] [--directory FOLDER]

All take turns at each line, in another order each round; medians count. A full run takes about thirteen minutes.
"""

from __future__ import annotations

import argparse
import compileall
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.broker.command import ROOT
from bench.broker.machine import machine, touch_memory, versions
from bench.broker.session import Session
from bench.broker.sides import Kafka, Ottla, Running, Side
from bench.clients.conditions import IN_WORDS
from bench.clients.lines import LINES, QUICK, Effort, Line
from bench.clients.report import Result, page_of
from bench.page import Run
from rich.console import Console

SIDES: Final[dict[str, Side]] = {"ottla": Ottla(), "kafka": Kafka()}
NOTES: Final = (
    f"The same for all: {IN_WORDS}. One partition, no keys. Where a client has no such setting, it is left as it is.",
    "Every turn is a process of its own, on cores that it shares with the broker: nothing is pinned, so that a client "
    "with several threads may use what the broker leaves. CPU is that of the client's process for each record, all its "
    "threads included. Sends of one record each: nobody looks at the outcome of each, the end of the partition is "
    "checked. Consumers look at every value. All work six seconds before the clock starts: a client that loads "
    "something then has it. To send and wait: no lingering.",
    "Most of the free memory is used once before it all begins: a virtual machine gets memory from its host when it "
    "first touches it, at a cost that would be counted as the client's.",
    "The ratio is to the best of the peers in the same metric. Arrow stands beside the peers' records, since they have "
    "no Arrow: what they would need to make a table comes on top.",
)


class OneBroker(Session):
    """Nothing is done before the first turn: each client warms up what it uses, and the broker with it."""

    def _warm_up(self, running: Running) -> None:
        if running.name != "ottla":
            super()._warm_up(running)


def measure(line: Line, session: Session, running: Running, effort: Effort, rounds: int) -> Result:
    clients = list(line.loads)
    result = Result(line, {client: [] for client in clients})
    with line.opened(session, running, effort) as turn:
        for number in range(rounds):
            first = number % len(clients)
            for client in clients[first:] + clients[:first]:
                result.rounds[client].append(turn(line.loads[client]))
    return result


def chosen(words: Sequence[str]) -> list[Line]:
    found = [line for line in LINES if not words or any(line.key.startswith(word) for word in words)]
    if not found:
        raise SystemExit(f"no line is called {' or '.join(words)}; there are {', '.join(line.key for line in LINES)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], metavar="LINE", help=f"such as {LINES[0].key}")
    parser.add_argument("--quick", action="store_true", help="a short look, whose figures are noisy")
    parser.add_argument("--save", action="store_true", help="write bench/results/clients.md, .json and .png")
    parser.add_argument("--peer", choices=SIDES, default="ottla", help="whose broker they use")
    parser.add_argument("--directory", type=Path, default=ROOT / ".build", help="on a real disk, not in memory")
    options = parser.parse_args()
    wanted, side = chosen(options.only), SIDES[options.peer]
    console = Console(width=max(Console().width, 150))
    facts, date, begun_s = machine(), f"{datetime.now(UTC):%Y-%m-%d}", time.monotonic()
    results = []
    options.directory.mkdir(parents=True, exist_ok=True)
    if not options.quick:
        touch_memory()
    compileall.compile_dir(ROOT / "src", quiet=1)  # as pip does when it installs
    with (
        tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as place,
        OneBroker(Path(place)) as session,
    ):
        running = session.broker(side)
        for line in wanted:
            results.append(measure(line, session, running, QUICK if options.quick else Effort(), options.rounds))
            told = "; ".join(f"{row.client} {row.ratio:.2f}x" for row in results[-1].rows() if row.is_ours)
            console.print(f"{time.monotonic() - begun_s:5.0f} s  {line.key}: {told}", highlight=False, markup=False)
    command = " ".join(["python -m bench.clients", *sys.argv[1:]])
    used = versions() | {name: version(name) for name in ("aiokafka", "kafka-python", "pyarrow", "numba")}
    page = page_of(results, side.name, NOTES, Run(command, date, options.rounds, facts, used))
    page.show(console)
    if options.save:
        page.save(ROOT / "bench" / "results")


if __name__ == "__main__":
    main()
