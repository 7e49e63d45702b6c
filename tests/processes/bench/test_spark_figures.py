"""What the bench of Spark reckons with: its topic, its rates, CPU and latencies, and the page that tells them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.broker.control import Control
from bench.broker.lines import Figures
from bench.broker.report import Subject, page_of
from bench.broker.results import Result
from bench.page import Run
from bench.spark.latency import percentiles
from bench.spark.lines import QUICK, Amounts, lines_of, rates
from bench.spark.program import of_progress
from bench.spark.session import KEY_BYTES, KEYS, PARTITIONS, VALUE_BYTES, fill, tree_cpu_s

from ottla import Consumer, ConsumerRecord, TopicPartition
from ottla.testing.broker import Broker

RECORDS = 4 * KEYS


def test_rates_are_of_the_time_in_batches() -> None:
    progress = [
        {"numInputRows": 300, "durationMs": {"triggerExecution": 1500, "addBatch": 1000}},
        {"numInputRows": 100, "durationMs": {"triggerExecution": 500, "addBatch": 400}},
    ]
    found = of_progress(progress, elapsed_s=3.5)
    assert found == {"records": 400, "batches": 2, "seconds": 2.0, "once_s": 1.5}
    figures = rates({**found, "cpu_s": 0.8}, 400)
    assert figures["records_per_s"] == 200
    assert figures["cpu_us"] == pytest.approx(2000)


def test_a_query_that_missed_records_counts_for_nothing() -> None:
    with pytest.raises(RuntimeError, match="saw 399 records, and there are 400"):
        rates({"records": 399, "seconds": 1.0, "cpu_s": 1.0}, 400)


def test_percentiles() -> None:
    ages_ns = [number * 10**6 for number in range(1, 201)]
    assert percentiles(ages_ns[::-1]) == {"p50_ms": 101, "p99_ms": 199}


def test_cpu_is_that_of_a_process_and_all_below_it() -> None:
    busy = "import time\nuntil = time.process_time() + 0.4\nwhile time.process_time() < until: pass\n"
    nested = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy!r}])\nprint(flush=True)\ninput()"
    command = [sys.executable, "-c", nested]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert tree_cpu_s(process.pid) >= 0.4
        process.communicate(b"\n")


def test_the_topic_that_all_read() -> None:
    with Broker() as broker:
        with Control(broker.bootstrap) as control:
            control.create_topic("filled", PARTITIONS)
        fill(broker.bootstrap, "filled", RECORDS)
        with Consumer({"bootstrap.servers": broker.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([TopicPartition("filled", partition) for partition in range(PARTITIONS)])
            records: list[ConsumerRecord] = []
            while len(records) < RECORDS:
                records += consumer.poll(10)
    assert {len(record.key) for record in records} == {KEY_BYTES}
    assert {len(record.value) for record in records} == {VALUE_BYTES}
    assert len({record.key for record in records}) == KEYS
    for partition in range(PARTITIONS):
        times_ms = [record.timestamp for record in records if record.partition == partition]
        assert len(times_ms) == RECORDS // PARTITIONS
        assert times_ms == sorted(times_ms)
        assert times_ms[-1] - times_ms[0] > 9 * 60 * 1000


def test_a_short_look_has_the_lines_of_a_whole_one() -> None:
    short, whole = ([(line.key, line.title) for line in lines_of(amounts)] for amounts in (QUICK, Amounts()))
    assert short == whole
    assert len(dict(short)) == len(short)


def test_the_page_says_beside_what(tmp_path: Path) -> None:
    line = next(line for line in lines_of(QUICK) if line.key == "batch-read")
    rounds: list[Figures] = [{"records_per_s": rate, "cpu_us": 1.0} for rate in (60.0, 50.0, 70.0)]
    beside: list[Figures] = [{"records_per_s": 10.0, "cpu_us": 2.0}] * 3
    subject = Subject("spark", "Topics", ["A note."], beside="another connector", versions=lambda: {"spark": "1"})
    machine: dict[str, str | int | float] = {"cpu": "any", "cores": 2, "memory_gb": 8, "kernel": "6", "load": 0.1}
    result = Result(line, ("ottla", "theirs"), rounds, beside)
    page_of(subject, [result], Run("command", "today", 3, machine, subject.versions())).save(tmp_path)
    page = (tmp_path / "spark.md").read_text(encoding="utf-8")
    assert page.startswith("# Topics beside another connector\n")
    assert "| batch: keys and values | records/s | 60.0 | 10.0 | theirs | 6.00x | ≥ 5x: met |" in page
    assert "A note." in page
    saved = json.loads((tmp_path / "spark.json").read_text(encoding="utf-8"))
    assert saved["versions"] == {"spark": "1"}
    assert saved["lines"][0]["medians"][0]["ratio"] == 6
    assert (tmp_path / "spark.png").stat().st_size > 1000
