"""Errors of processors, which PySpark sends as UTF-8."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues

from ottla.spark.streams.stateful import ProcessorError, Telling


class Failing(StatefulProcessor):
    def __init__(self, text: str) -> None:
        self.text = text

    def init(self, handle: StatefulProcessorHandle) -> None:
        pass

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        yield Row("key")
        try:
            raise ValueError(self.text)
        except ValueError as error:
            raise KeyError("outer") from error

    def close(self) -> None:
        pass


def test_an_error_with_a_lone_surrogate_becomes_text() -> None:
    times: Any = None
    rows = Telling(Failing("no \ud800 item")).handleInputRows(None, iter(()), times)
    assert next(rows) == Row("key")
    with pytest.raises(ProcessorError, match=r"(?s)'outer'.*no \\ud800 item") as raised:
        next(rows)
    assert "in handleInputRows" in str(raised.value)
    "".join(traceback.format_exception(raised.value)).encode()


def test_other_errors_stay_as_they_are() -> None:
    times: Any = None
    with pytest.raises(KeyError) as raised:
        list(Telling(Failing("no č item")).handleInputRows(None, iter(()), times))
    assert isinstance(raised.value.__cause__, ValueError)
