"""Lines of a log file that people should see."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker.observability.logging_setup import JsonFormatter, TextFormatter
from ottla.cli.local_cluster.log_tail import Complaint, LogTail, complaint_of, last_complaint


def record(level: int, text: str) -> logging.LogRecord:
    return logging.makeLogRecord({"levelno": level, "levelname": logging.getLevelName(level), "msg": text})


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_warnings_and_errors_are_found_in_both_formats(formatter: logging.Formatter) -> None:
    assert complaint_of(formatter.format(record(logging.INFO, "fine"))) is None
    assert complaint_of(formatter.format(record(logging.WARNING, "hm"))) == Complaint(False, "hm")
    assert complaint_of(formatter.format(record(logging.ERROR, "oh"))) == Complaint(True, "oh")
    assert complaint_of(formatter.format(record(logging.CRITICAL, "oh"))) == Complaint(True, "oh")


def test_the_failure_of_a_command_is_an_error() -> None:
    assert complaint_of("Error: Port 9092 is in use.") == Complaint(True, "Port 9092 is in use.")


@pytest.mark.parametrize(
    "line", ["", "Traceback (most recent call last):", "Ottla is ready at here:1", "{", "{}", "[1]"]
)
def test_other_lines_are_not(line: str) -> None:
    assert complaint_of(line) is None


def test_a_tail_returns_complete_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert tail.lines() == []
    path.write_text("one\ntw")
    assert tail.lines() == ["one"]
    assert tail.lines() == []
    with path.open("a") as file:
        file.write("o\nthree\n")
    assert tail.lines() == ["two", "three"]
    tail.close()


def test_the_last_error_counts_more_than_later_warnings(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert last_complaint(path) is None
    warning = TextFormatter().format(record(logging.WARNING, "hm"))
    path.write_text(f"{warning}\n")
    assert last_complaint(path) == "hm"
    path.write_text(f"Error: first.\nError: second.\n{warning}\n")
    assert last_complaint(path) == "second."
