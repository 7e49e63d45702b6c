"""Writes the performance tables of README.md from bench/results/*.json.

`python tools/readme_figures.py` rewrites the text between the two markers in README.md; with `--check` it only reports
whether README.md is up to date. Every figure is the median that the benchmark saved, next to its peer in the same run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HOME: Final = Path(__file__).resolve().parent.parent
README: Final = HOME / "README.md"
RESULTS: Final = HOME / "bench" / "results"
BEGIN: Final = "<!-- figures: written by tools/readme_figures.py, do not edit -->"
END: Final = "<!-- /figures -->"

_ARROW: Final = "ottla, Arrow"


class FiguresError(Exception):
    """README.md has no markers, or a result file lacks a figure."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: a metric of one line of a result file. `ours` is the column, or the client, that is compared."""

    workload: str
    unit: str
    line: str
    metric: str
    is_less_better: bool = False
    ours: str = "ottla"


@dataclass(frozen=True, slots=True)
class Table:
    """One table: a result file and the peer that it measured."""

    title: str
    file: str
    peer: str
    shown_peer: str
    rows: tuple[Row, ...]
    shown_ours: str = "Ottla"


TABLES: Final = (
    Table(
        "Broker",
        "broker.json",
        "Kafka 4.3.1",
        "Kafka {kafka}",
        (
            Row("Start until the first acknowledged record", "s", "start", "start_s", is_less_better=True),
            Row("Memory when idle", "MB", "start", "rss_idle_mb", is_less_better=True),
            Row("Produce, one record per request, 1 in flight", "requests/s", "one-record-1", "requests_per_s"),
            Row("Produce, one record per request, 50 in flight", "requests/s", "one-record-50", "requests_per_s"),
            Row("Produce, large batches of 100-byte records", "MB/s", "raw-100", "mb_per_s"),
            Row("The same, sent by librdkafka", "MB/s", "librdkafka-100", "mb_per_s"),
            Row("Fetch from the start of the log", "MB/s", "fetch", "mb_per_s"),
            Row("End-to-end latency, 1,000 records/s, p50", "ms", "latency-1000", "p50_ms", is_less_better=True),
            Row("End-to-end latency, 1,000 records/s, p99", "ms", "latency-1000", "p99_ms", is_less_better=True),
        ),
    ),
    Table(
        "Broker with many partitions",
        "broker.json",
        "ottla, 10 partitions",
        "10 partitions",
        (
            Row(
                "Restart until the first acknowledged record",
                "s",
                "partitions",
                "start_s",
                is_less_better=True,
                ours="10,000 partitions",
            ),
            Row(
                "Produce to each partition in turn",
                "requests/s",
                "partitions",
                "requests_per_s",
                ours="10,000 partitions",
            ),
        ),
        shown_ours="10,000 partitions",
    ),
    Table(
        "Cluster of three brokers, three replicas, acks=all",
        "cluster.json",
        "Kafka 3.9.1",
        "Kafka {kafka}",
        (
            Row("Produce, large batches of 1 KiB records", "MB/s", "produce", "mb_per_s"),
            Row("Produce one record and wait, p50", "ms", "acknowledged", "ack_p50_ms", is_less_better=True),
            Row("Produce one record and wait, p99", "ms", "acknowledged", "ack_p99_ms", is_less_better=True),
            Row("kill -9 of a leader until the next record", "s", "leader-killed", "next_ack_s", is_less_better=True),
            Row(
                "kill -9 of the controller until the next record",
                "s",
                "controller-killed",
                "next_ack_s",
                is_less_better=True,
            ),
            Row("Follower that returns, from its start", "MB/s", "catch-up", "mb_per_s"),
            Row("Rolling restart", "s", "rolling", "restart_s", is_less_better=True),
            Row("Memory of the three brokers", "MB", "memory", "pss_mb", is_less_better=True),
        ),
    ),
    Table(
        "Consumer groups",
        "groups.json",
        "Kafka 4.3.1",
        "Kafka {kafka}",
        (
            Row("Offset commits, one consumer", "commits/s", "commits-alone", "requests_per_s"),
            Row("Offset commits, 1,000 groups", "commits/s", "commits-groups", "requests_per_s"),
            Row("New group of 500 members", "s", "rebalance-consumer", "form_s_500", is_less_better=True),
            Row(
                "Rebalance after one of 100 members fails",
                "s",
                "rebalance-consumer",
                "death_s_100",
                is_less_better=True,
            ),
            Row("Restart with 1,000,000 committed offsets", "s", "load", "start_s", is_less_better=True),
        ),
    ),
    Table(
        "Transactions",
        "transactions.json",
        "Kafka 4.3.1",
        "Kafka {kafka}",
        (
            Row("1 producer, 1 record each", "transactions/s", "rate-4.3-1", "transactions_per_s_1"),
            Row("1 producer, 100 records each", "transactions/s", "rate-4.3-1", "transactions_per_s_100"),
            Row("10 producers, 10 records each", "transactions/s", "rate-4.3-10", "transactions_per_s_10"),
            Row("50 producers, 1 record each", "transactions/s", "rate-4.3-50", "transactions_per_s_1"),
            Row("50 producers, 100 records each", "transactions/s", "rate-4.3-50", "transactions_per_s_100"),
            Row("From send to a read_committed consumer, p50", "ms", "latency-4.3", "p50_ms", is_less_better=True),
            Row("From send to a read_committed consumer, p99", "ms", "latency-4.3", "p99_ms", is_less_better=True),
        ),
    ),
    Table(
        "Python client",
        "clients.json",
        "confluent-kafka",
        "confluent-kafka {confluent-kafka}",
        (
            Row("Produce 100-byte records one by one", "records/s", "produce-100", "records_per_s"),
            Row("Produce 100-byte records as Arrow", "records/s", "produce-100", "records_per_s", ours=_ARROW),
            Row("Consume 100-byte records", "records/s", "consume-100", "records_per_s"),
            Row("Consume 100-byte records as Arrow", "records/s", "consume-100", "records_per_s", ours=_ARROW),
            Row("Consume 1 KiB records", "records/s", "consume-1024", "records_per_s"),
            Row("Send one record and wait, p50", "ms", "wait-100", "p50_ms", is_less_better=True),
        ),
    ),
    Table(
        "Spark",
        "spark.json",
        "Spark's own",
        "Spark's Kafka connector {pyspark beside it}",
        (
            Row("Batch read", "records/s", "batch-read", "records_per_s"),
            Row("Streaming read", "records/s", "stream-read", "records_per_s"),
            Row("Write", "records/s", "sink", "records_per_s"),
            Row("Micro-batch from topic to topic, p50", "ms", "latency", "p50_ms", is_less_better=True),
            Row("Start and stop a streaming query", "s", "stream-read", "once_s", is_less_better=True),
        ),
    ),
)


def figures(results: Path = RESULTS) -> str:
    """The text between the markers."""
    return "\n\n".join(_table(table, json.loads((results / table.file).read_text())) for table in saved_tables(results))


def saved_tables(results: Path = RESULTS) -> list[Table]:
    """Without those of benchmarks that were never saved."""
    return [table for table in TABLES if (results / table.file).exists()]


def rendered(readme: str, results: Path = RESULTS) -> str:
    """README.md with its tables as the result files are."""
    before, begin, rest = readme.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise FiguresError(f"README.md must contain {BEGIN!r} and {END!r}, in this order")
    return f"{before}{BEGIN}\n\n{figures(results)}\n\n{END}{after}"


def _table(table: Table, saved: Mapping[str, Any]) -> str:
    peer = table.shown_peer.format_map(saved["versions"])
    lines = [
        f"**{table.title}**, measured with `{saved['command']}` on {saved['date']}:",
        "",
        f"| Workload | Unit | {table.shown_ours} | {peer} | Result |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for row in table.rows:
        ours, theirs = _values(table, row, saved)
        lines.append(
            f"| {row.workload} | {row.unit} | {_number(ours)} | {_number(theirs)} | {_verdict(row, ours, theirs)} |"
        )
    return "\n".join(lines)


def _values(table: Table, row: Row, saved: Mapping[str, Any]) -> tuple[float, float]:
    medians = [
        median
        for line in saved["lines"]
        if line["line"] == row.line
        for median in line["medians"]
        if median["metric"] == row.metric
    ]
    by_client = {median["client"]: median["value"] for median in medians if "client" in median}
    found = by_client or (medians[0] if medians else {})
    if row.ours not in found or table.peer not in found:
        raise FiguresError(f"{table.file} has no {row.metric} of {row.line} for {row.ours!r} and {table.peer!r}")
    return float(found[row.ours]), float(found[table.peer])


def _verdict(row: Row, ours: float, theirs: float) -> str:
    """How many times better or worse; within 1 % it is a draw."""
    factor = theirs / ours if row.is_less_better else ours / theirs
    is_better = factor >= 1
    factor = factor if is_better else 1 / factor
    if factor < 1.01:
        return "equal"
    shown = f"{factor:.1f}" if factor >= 1.95 else f"{factor:.2f}"
    return f"{shown}x better" if is_better else f"**{shown}x worse**"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the performance tables of README.md from bench/results.")
    parser.add_argument("--check", action="store_true", help="only report whether README.md is up to date")
    arguments = parser.parse_args()
    old = README.read_text()
    new = rendered(old)
    if arguments.check:
        if old != new:
            print("README.md is out of date: run python tools/readme_figures.py", file=sys.stderr)
        return int(old != new)
    README.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
