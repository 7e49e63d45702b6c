"""Our error codes against those in Apache Kafka's own client."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_artifacts import classpath
from ottla.base.error_codes import ErrorCode

PRINTER = Path(__file__).parent / "java" / "ErrorCodes.java"

pytestmark = pytest.mark.compat


def test_codes_names_and_retriability_are_those_of_kafka() -> None:
    printed = subprocess.run(
        ["java", "-cp", classpath("4.3.1"), str(PRINTER)], check=True, capture_output=True, text=True, timeout=120
    )
    theirs = [tuple(line.split()) for line in printed.stdout.splitlines()]
    ours = [(str(error.value), error.name, str(error.retriable).lower()) for error in ErrorCode]
    assert ours == theirs
