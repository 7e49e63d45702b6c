"""Kafka Streams in a Java of its own, which stays up: what comes first and does not count has warmed it up."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from bench.spark.session import tree_cpu_s
from bench.spark.streams.inputs import Input

from kafka_artifacts import streams_classpath

NAME: Final = "Kafka Streams"
_PROGRAM: Final = Path(__file__).with_name("KafkaStreamsWork.java")
_STOP_TIMEOUT_S: Final = 30.0


class KafkaStreamsSide:
    """`KafkaStreamsWork` on the broker of the session."""

    def __init__(self, process: subprocess.Popen[str], output: Path, address: str, threads: int, place: Path) -> None:
        self._process = process
        self._output = output
        self._address = address
        self._threads = threads
        self._place = place
        self._numbers = count()

    def ask(
        self, work: str, inputs: Sequence[Input], output: str, until: int, *, exactly_once: bool
    ) -> dict[str, float]:
        """What came out, and the CPU that the process used. `until` records are done when all is."""
        number = next(self._numbers)
        guarantee = "exactly_once_v2" if exactly_once else "at_least_once"
        topics = ",".join(one.topic for one in inputs)
        state = self._place / f"state-{number}"
        fields = [
            work,
            f"bench-streams-{number}",
            self._address,
            guarantee,
            self._threads,
            state,
            topics,
            output,
            until,
        ]
        before_s = tree_cpu_s(self._process.pid)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, fields)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        cpu_s = tree_cpu_s(self._process.pid) - before_s
        found = json.loads(answer) if answer else {"error": "it has ended"}
        if "error" in found:
            said = self._output.read_text(encoding="utf-8", errors="replace")
            raise RuntimeError(f"{NAME}: {found['error']}\n{said[-4000:]}")
        return {**found, "cpu_s": cpu_s}


@contextmanager
def kafka_streams(place: Path, address: str, threads: int, memory: str) -> Iterator[KafkaStreamsSide]:
    """Compiles the program and runs it, until the end of the context."""
    classes, output = place / "classes", place / "output.log"
    jars = streams_classpath()
    subprocess.run(["javac", "-cp", jars, "-d", str(classes), str(_PROGRAM)], check=True)
    command = ["java", f"-Xmx{memory}", "-cp", os.pathsep.join([str(classes), jars]), _PROGRAM.stem]
    with output.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=place
        )
    with process:
        try:
            yield KafkaStreamsSide(process, output, address, threads, place)
            assert process.stdin is not None
            process.stdin.close()
            process.wait(_STOP_TIMEOUT_S)
        finally:
            process.kill()
