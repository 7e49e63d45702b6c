"""A Spark session in a process of its own, asked in lines of JSON: both ends of that.

So tests and benches have Sparks of several versions at a time, and each starts its Java once. A program is a module
that calls `serve` with what answers: each public method is a request, its result the answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOP_TIMEOUT_S = 60.0


class QueryFailedError(Exception):
    """What Spark said, without the places in Java."""


class SparkProgram:
    """The end that asks, one thing at a time."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process = process
        self._output = output
        self.version: str = self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, request: str, **arguments: Any) -> Any:
        """What the program's method of that name returns. Raises `QueryFailedError` where that raises."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": request, **arguments}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._output.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"Spark has ended:\n{said[-4000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise QueryFailedError(answer["error"])
        return answer["answer"]


@contextmanager
def running(
    module: str, master: str, place: Path, *, path: Path, settings: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[SparkProgram]:
    """Runs a module found from `path`. Whatever Spark writes by itself goes below `place`."""
    settings = {
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.local.dir": str(place / "scratch"),
        **settings,
    }
    whole = os.environ | environment
    places = [whole.get("PYTHONPATH"), str(path), str(Path(__file__).parent)]
    whole["PYTHONPATH"] = os.pathsep.join(filter(None, places))
    whole.pop("SPARK_HOME", None)  # of another Spark
    output = place / "output.log"
    with output.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, master, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=place,
            env=whole,
        )
    with process:
        try:
            yield SparkProgram(process, output)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(_STOP_TIMEOUT_S)
        finally:
            process.kill()


def serve(program_of: Callable[[SparkSession], object]) -> None:
    """The end that answers, until nobody asks any more."""
    from ottla.spark.sessions import session

    # Spark's Java says things on what it takes for the output.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    master, settings = sys.argv[1:]
    spark = session(master, **json.loads(settings))
    try:
        program = program_of(spark)
        print(json.dumps({"answer": spark.version}), file=answers, flush=True)
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = {"answer": getattr(program, request.pop("do"))(**request)}
            except Exception as error:
                said = [line for line in str(error).splitlines() if not line.startswith("\tat ")]
                answer = {"error": "\n".join(said)}
            print(json.dumps(answer), file=answers, flush=True)
    finally:
        spark.stop()
