"""Messages as Spark 4.3 gives them, and what is left of them for people."""

from __future__ import annotations

import pytest

from ottla.spark.pipelines.causes import java_message, root_cause

FROM_A_SOURCE = """[STREAM_FAILED] Query [id = c216, runId = 0e0b] terminated with exception: \
[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform initialOffset: \
Traceback (most recent call last):
  File "pyspark/sql/streaming/python_streaming_source_runner.py", line 267, in main
  File "ottla/spark/topics.py", line 189, in _described
    raise MissingTopicError(
ottla.spark.topics.MissingTopicError: topic 'nowhere' does not exist: create it first, or check the name
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: m [id = c216, runId = 0e0b]
Current Committed Offsets: {}
"""
FROM_A_FUNCTION = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "x.py", line 17, in boom
    raise ValueError("this value is bad")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
ValueError: this value is bad
 SQLSTATE: 38000"""
TWO_TRACEBACKS = """Traceback (most recent call last):
  File "x.py", line 1, in f
KeyError: 'a'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "x.py", line 3, in f
my.errors.OddError: cannot go on:
the second line of it
"""
FROM_A_TASK = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: \
Lost task 0.0 in stage 3.0 (TID 3) (127.0.0.1 executor driver): java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\tat org.apache.spark.util.Thing.run(Thing.scala:4)

Driver stacktrace:"""
FROM_ANALYSIS = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `valeu` cannot be resolved. \
Did you mean one of the following? [`value`, `timestamp`]. SQLSTATE: 42703; line 1 pos 0;
'Project ['valeu]
+- ~StreamingRelationV2 rate
"""
FROM_SQL = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)

== SQL ==
SELEC 1
^^^
"""


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (FROM_A_SOURCE, "topic 'nowhere' does not exist: create it first, or check the name"),
        (FROM_A_FUNCTION, "ValueError: this value is bad"),
        (TWO_TRACEBACKS, "OddError: cannot go on:\nthe second line of it"),
        (FROM_A_TASK, "No space left on device"),
        (
            FROM_ANALYSIS,
            "A column with name `valeu` cannot be resolved. Did you mean one of the following? [`value`, `timestamp`].",
        ),
        (FROM_SQL, "Syntax error at or near 'SELEC'."),
        ("[DIVIDE_BY_ZERO] Division by zero.\n== SQL (line 1, position 1) ==\n1/0\n^^^\n", "Division by zero."),
        (
            "requirement failed: it does not support Update mode.",
            "requirement failed: it does not support Update mode.",
        ),
        ("java.lang.IllegalStateException: no", "no"),
    ],
)
def test_java_message(message: str, words: str) -> None:
    assert java_message(message) == words


class _Java:
    """As an exception of Java's looks through the bridge."""

    def __init__(self, message: str | None, cause: _Java | None = None) -> None:
        self._message = message
        self._cause = cause

    def getMessage(self) -> str | None:  # noqa: N802
        return self._message

    def getCause(self) -> _Java | None:  # noqa: N802
        return self._cause


class _CapturedError(Exception):
    def __init__(self, message: str, origin: _Java) -> None:
        super().__init__(message)
        self._origin = origin


def test_the_first_cause_that_says_something() -> None:
    chain = _Java("Job aborted", _Java("[X_Y] the disk is full SQLSTATE: 12345", _Java(None)))
    assert root_cause(_CapturedError("outermost", chain)) == "the disk is full"


def test_an_error_without_words() -> None:
    assert root_cause(KeyError()) == "KeyError"


def test_causes_that_go_round_in_a_circle() -> None:
    round_and_round = _Java("again")
    round_and_round._cause = round_and_round
    assert root_cause(_CapturedError("x", round_and_round)) == "again"
