"""Our connector for Spark beside Spark's own, and our streams beside Kafka Streams; both peers come from Maven Central.

Run: python -m bench.spark [--rounds 3] [--only LINE …] [--quick] [--save] [--directory FOLDER]

The two take turns at each line; medians count.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from bench.broker.command import run
from bench.broker.lines import Line
from bench.broker.machine import versions
from bench.broker.report import Subject
from bench.spark.latency import RATE
from bench.spark.lines import BATCHES, QUICK, Amounts, lines_of
from bench.spark.session import KEY_BYTES, KEYS, PARTITIONS, VALUE_BYTES, SparkSession
from bench.spark.streams.lines import QUICK as QUICK_STREAMS
from bench.spark.streams.lines import StreamAmounts, stream_lines_of

import spark_artifacts

STREAMS: Final = StreamAmounts()
NOTES: Final = (
    "Both read the same topics of one broker of ours, and take turns; medians of the rounds, ratios of medians. Each "
    f"has a Spark that is up all the time, ours the newest, Spark's own connector {spark_artifacts.VERSION}, which is "
    "the last that it is to be had for; where a line says so, ours runs on that one as well. A turn of each "
    "line comes first and does not count: by then Java's compiler has seen the work, and workers of Python are there. "
    "Both have `local[2]`, and `local[1]` where a line says one core, on a machine whose cores they share with the "
    "broker; 2 GB of memory; RocksDB for state; otherwise the defaults of each. CPU is that of all processes of a "
    "Spark, Java and Python, the query's planning included.",
    f"Topics have {PARTITIONS} partitions, keys of {KEY_BYTES} B, {KEYS:,} of them, and values of {VALUE_BYTES} B, "
    'without compression. Rows of a batch go to a sink that does nothing with them, by `format("noop")`. Streams go '
    f"over the whole topic in {BATCHES} batches of one size (`availableNow`); their rate is that of the batches, and "
    "what a query needs once, to start and to end, stands apart. Windows are of ten seconds, with a watermark. What is "
    "written is in Spark's memory before. Latency: a producer sends "
    f"{RATE} records a second, one a request; a query copies them to a second topic, with a batch as soon as the last "
    "one is done; from before a record is sent to when a consumer has its copy.",
    "Lines called streams: `ottla.spark.streams` beside Kafka Streams 3.9.1, from topics to a topic on "
    "the same broker, at least once unless a line says otherwise. Both have two tasks or threads at a "
    "time, up to 2 GB of memory and their own defaults; a Java with Kafka Streams stays up as a Spark "
    "does, and a turn is a new application. Every turn must write the same results: the same records for "
    "the stream-table join, the same final table for the others. Records are those of all inputs. Rates "
    "of Kafka Streams run from the first record that is processed to the acknowledgement of the last one "
    "that is written, and leave out its start, with three seconds in which the broker waits for members "
    "of a new group, and its end; those of Spark are of the micro-batches, their planning and commits "
    "included. Starts and ends stand apart. Kafka Streams keeps its changelogs on the broker, whose CPU "
    f"is therefore listed too; Spark keeps them on the disk. Stream-table: {STREAMS.clicks:,} records with "
    f"random keys of a table with {STREAMS.users:,} rows. Foreign key: {STREAMS.orders:,} changes of "
    f"{STREAMS.orders // 2:,} left rows, and {STREAMS.customers:,} right rows, which come at the same "
    "time.",
)


def sparks() -> dict[str, str]:
    used = versions()
    del used["kafka"]  # which has no part in it
    return (
        used
        | {"pyspark": version("pyspark"), "pyspark beside it": spark_artifacts.VERSION}
        | {name: version(name) for name in ("pyarrow", "numba")}
    )


def every_line(quick: bool) -> tuple[Line, ...]:
    return lines_of(QUICK if quick else Amounts()) + stream_lines_of(QUICK_STREAMS if quick else STREAMS)


def main() -> None:
    run(
        Subject("spark", "Topics in Spark", NOTES, beside="Spark's own connector", versions=sparks),
        (__doc__ or "").splitlines()[0],
        every_line,
        SparkSession,
    )


if __name__ == "__main__":
    main()
