"""What state costs: the bytes of a key in the checkpoint, and the rates at which keys are added and looked up.

Run: python -m bench.spark.streams.state [--keys 100000 1000000] [--records 200000] [--only WORK …] [--directory FOLDER]

Three kinds of state with that many keys: a table that a stream is joined with (`join_stream_table`), counts by key
(`count`), and counts by key that Spark keeps (`groupBy(…).count()`). A query first adds all keys; it then starts again,
and looks up records with random keys. CPU is that of all processes of the Spark; the broker's is not counted. Prints
the table of docs/spark/scaling.md.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.broker.command import ROOT
from bench.broker.control import Control
from bench.spark.lines import OURS
from bench.spark.session import PARTITIONS, VALUE_BYTES, SparkSession, SparkSide
from bench.spark.streams.inputs import COMPACTED, send

TITLES: Final = {
    "stream-table": "`join_stream_table`",
    "count": "`count`",
    "spark-count": "Spark's `groupBy(…).count()`",
}
BATCHES: Final = 4
"""For either half. The first one of a query is slower than the others."""
_COLUMNS: Final = ("State of", "Keys", "Keys added/s", "CPU µs/key", "Records/s", "CPU µs/record", "Bytes/key")


def measure(session: SparkSession, side: SparkSide, work: str, keys: int, records: int) -> list[str]:
    """A row of the table."""
    chance, now_ms = random.Random(keys), time.time_ns() // 10**6
    values = [chance.randbytes(VALUE_BYTES) for _ in range(1000)]
    address, checkpoint = session.running.address, session.new_place()
    with (
        session.topic(session.running, PARTITIONS) as stream,
        session.topic(session.running, PARTITIONS) as output,
        Control(address) as control,
    ):
        topics, added = [stream], stream
        if work == "stream-table":
            added = f"{stream}-table"
            control.create_topic(added, PARTITIONS, COMPACTED)
            topics.append(added)

        def look(topic: str, numbers: Sequence[int]) -> tuple[float, float]:
            """Sends records with these keys; the rate of the query until it has read them, and the CPU."""
            send(address, topic, numbers, values, [now_ms] * len(numbers))
            limit = {"maxOffsetsPerTrigger": str(len(numbers) // BATCHES)}
            found = side.ask(
                "operate",
                {},
                work=work,
                topics=topics,
                limits=[limit] * len(topics),
                sink=side.addressed({"topic": output}),
                checkpoint=str(checkpoint),
            )
            if found["records"] != len(numbers):
                raise RuntimeError(f"{work} saw {found['records']:,.0f} records instead of {len(numbers):,}")
            return len(numbers) / found["seconds"], found["cpu_s"] / len(numbers) * 1e6

        adding = look(added, range(keys))
        size = sum(file.stat().st_size for file in files_of_state(checkpoint))
        looking = look(stream, [chance.randrange(keys) for _ in range(records)])
    figures = (f"{adding[0]:,.0f}", f"{adding[1]:.1f}", f"{looking[0]:,.0f}", f"{looking[1]:.1f}", f"{size / keys:.0f}")
    return [TITLES[work], f"{keys:,}", *figures]


def files_of_state(checkpoint: Path) -> Iterator[Path]:
    """What a batch uploads: changes, or snapshots."""
    return (file for file in (checkpoint / "state").rglob("*") if file.suffix in (".changelog", ".zip", ".sst"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keys", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", nargs="+", choices=TITLES, default=list(TITLES), metavar="WORK")
    parser.add_argument("--directory", type=Path, default=ROOT / ".build", help="on a real disk, not in memory")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.directory) as place, ExitStack() as exits:
        it = SparkSession(Path(place))
        exits.enter_context(it)
        side = it.side(OURS)
        for work in options.only:  # for Java's compiler
            measure(it, side, work, options.records // 2, options.records // 2)
        print(f"| {' | '.join(_COLUMNS)} |")
        print(f"| {' | '.join('---' if number == 0 else '---:' for number in range(len(_COLUMNS)))} |")
        for work in options.only:
            for keys in options.keys:
                print(f"| {' | '.join(measure(it, side, work, keys, options.records))} |", flush=True)


if __name__ == "__main__":
    main()
