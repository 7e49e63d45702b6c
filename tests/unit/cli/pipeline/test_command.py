"""`ottla pipeline` as far as it goes without Spark, and what it shows."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from ottla.cli.main import run
from ottla.cli.pipeline.screen import Heading, QueryRates, line, screen, stand
from ottla.spark.pipelines.progress import QueryProgress


def test_new_writes_an_example_and_says_what_to_try(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["pipeline", "new", str(tmp_path / "a")]) == 0
    assert run(["pipeline", "new", str(tmp_path / "b"), "--yaml"]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["customers.csv", "orders.jsonl", "spending.py"]
    assert (tmp_path / "b" / "spending.yaml").is_file()
    assert f"ottla pipeline run {tmp_path / 'a' / 'spending.py'} --once" in printed
    assert run(["pipeline", "new", str(tmp_path / "a")]) == 1
    assert "spending.py already exists" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "text", "arguments", "told"),
    [
        ("missing.py", None, [], "missing.py does not exist. Create an example with `ottla pipeline new`."),
        ("a.sql", "", [], "a.sql is not a pipeline: use a .py or .yaml file."),
        ("a.yaml", "sauces: {}", [], "a.yaml:1: sauces: unknown key; did you mean sources?"),
        ("a.py", "x = 1", [], "a.py has no function `pipeline(spark)`. Create an example with `ottla pipeline new`."),
        ("a.py", "x = 1\ndef pipeline(", [], "a.py:2: '(' was never closed."),
        ("a.py", "", ["--conf", "x"], "--conf x: use KEY=VALUE with a Spark config"),
        ("a.py", "", ["--conf", "sql.x=1"], "--conf sql.x=1: use KEY=VALUE with a Spark config"),
    ],
)
def test_wrong_options_are_reported_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, arguments: list[str], told: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert run(["pipeline", "run", str(tmp_path / name), *arguments]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.spark
def test_java_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("def pipeline(spark): pass\n")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert run(["pipeline", "run", str(tmp_path / "a.py")]) == 1
    printed = capsys.readouterr()
    assert f"Error: Spark needs Java 17 or newer, but JAVA_HOME is {tmp_path}, which has no bin/java." in printed.err
    assert "Checkpoint" not in printed.err


def test_help_loads_no_spark() -> None:
    program = (
        "import sys; from ottla.cli.main import run; code = run(['pipeline', 'run', '--help']);"
        "print(code, 'pyspark' in sys.modules, 'ottla.spark.pipelines' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1].split() == ["0", "False", "False"]


def progress() -> QueryProgress:
    made = QueryProgress("totals", batch=12, batches=3, rows=4_000, batch_seconds=0.84, lag=1_500, state_rows=77)
    made.watermark = datetime(2026, 11, 16, 5, 39, 2, tzinfo=UTC)
    made.late_rows = 5
    made.offsets = {"orders": {number: number * 10 for number in range(10)}}
    return made


def test_a_query_in_a_line() -> None:
    assert line(progress(), 250.4) == (
        "totals: batch 12, 4,000 rows, 250/s, took 0.8 s, lag 1,500, state 77, late rows 5, "
        "watermark 2026-11-16 05:39:02 UTC"
    )
    assert line(QueryProgress("q", batch=0, rows=1, batch_seconds=1), 0) == "q: batch 0, 1 rows, 0/s, took 1.0 s"


def test_the_screen_has_everything() -> None:
    console = Console(width=140, record=True, file=StringIO())
    rates = QueryRates()
    rates.sample([QueryProgress("totals")], 0.0)
    rates.sample([progress()], 8.0)
    shown = screen(Heading("shop", "local[2]", "here"), [progress()], rates, {"totals": "Waiting"}, "hint")
    console.print(shown)
    text = console.export_text()
    for word in (
        "shop",
        "local[2]",
        "checkpoint here",
        "12",
        "4,000",
        "500",
        "0.8 s",
        "1,500",
        "77",
        "05:39:02",
        "Waiting",
    ):
        assert word in text


def test_where_queries_stand() -> None:
    console = Console(width=140, record=True, file=StringIO())
    console.print(stand([progress(), QueryProgress("idle")]))
    text = console.export_text()
    assert "orders 0:0 1:10 2:20 3:30 4:40 5:50 6:60 7:70 and 2 more" in text
    assert "idle" in text
