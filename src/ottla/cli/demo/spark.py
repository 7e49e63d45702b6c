"""The Spark side of `ottla demo`: the pipeline in its own process, and its results from a topic."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.demo import pipeline
from ottla.cli.demo.pipeline import REVENUE
from ottla.cli.demo.processes import end
from ottla.client.consume import AsyncConsumer

_STOP_TIMEOUT_S: Final = 20.0
_ERROR: Final = "Error: "


class Sum(NamedTuple):
    """The revenue of one category in one window."""

    revenue: float
    orders: int


@dataclass(slots=True)
class PipelineState:
    """The state of the pipeline, and its results so far."""

    missing: str | None = None
    """Why there is no pipeline, if there is none."""
    progress: str = ""
    """Its last progress line."""
    failure: str | None = None
    windows: dict[str, dict[str, Sum]] = field(default_factory=dict)
    """Sums by start of the window and category."""

    @property
    def orders(self) -> int:
        """The number of orders in the sums."""
        return sum(one.orders for sums in self.windows.values() for one in sums.values())

    def take(self, value: bytes) -> None:
        """Takes a result, which replaces the previous one of its window."""
        result = json.loads(value)
        sums = self.windows.setdefault(result["since"], {})
        sums[result["goods"]] = Sum(result["revenue"], result["orders"])


def lack_of_spark() -> str | None:
    """Why no pipeline can run; None if one can."""
    from ottla.spark.environment import SparkUnavailableError, check_java, check_pyspark

    try:
        check_pyspark()
        check_java()
    except SparkUnavailableError as error:
        return str(error)
    return None


@asynccontextmanager
async def running_pipeline(address: str, state: PipelineState) -> AsyncIterator[None]:
    """Runs the pipeline on the cluster at this address, stops it gracefully and cleans up."""
    # Java may still be cleaning up after the pipeline has ended.
    with tempfile.TemporaryDirectory(prefix="ottla-demo-spark-", ignore_cleanup_errors=True) as place:
        process = await asyncio.create_subprocess_exec(
            *_command(address, place),
            env={**os.environ, "TMPDIR": place},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C goes to the demo, which then stops it
        )
        listeners = [asyncio.create_task(_listen(process, state)), asyncio.create_task(_notice_failure(process, state))]
        try:
            yield
        finally:
            for listener in listeners:
                listener.cancel()
            await asyncio.gather(*listeners, return_exceptions=True)
            await end(process, _STOP_TIMEOUT_S)


def _command(address: str, place: str) -> list[str]:
    settings = {
        "spark.sql.shuffle.partitions": "1",  # there are only a few sums
        "spark.driver.memory": "1g",
        "spark.local.dir": place,
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={place}",
    }
    return [
        *(sys.executable, "-m", "ottla", "pipeline", "run", pipeline.__file__, "--bootstrap-server", address),
        *("--master", "local[2]", "--checkpoint", str(Path(place) / "checkpoint")),
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
    ]


async def _listen(process: asyncio.subprocess.Process, state: PipelineState) -> None:
    """Keeps the last progress line that the command prints."""
    if process.stdout is None:
        raise RuntimeError("the pipeline was started without a pipe for its output")
    while line := (await process.stdout.readline()).decode():
        if line.startswith(f"{REVENUE}: "):
            state.progress = line.removeprefix(f"{REVENUE}: ").strip()


async def _notice_failure(process: asyncio.subprocess.Process, state: PipelineState) -> None:
    if process.stderr is None:
        raise RuntimeError("the pipeline was started without a pipe for its errors")
    said = (await process.stderr.read()).decode(errors="replace")
    code = await process.wait()
    _, found, reason = said.rpartition(_ERROR)
    state.failure = reason.strip() if found else f"the pipeline ended with code {code}: {said.strip()}"


async def run_dashboard(address: str, state: PipelineState) -> None:
    """Consumes the results."""
    async with AsyncConsumer(bootstrap_servers=address, group_id="dashboard", auto_offset_reset="earliest") as consumer:
        consumer.subscribe([REVENUE])
        while True:
            for record in await consumer.poll(1.0):
                if record.value is not None:
                    state.take(record.value)
