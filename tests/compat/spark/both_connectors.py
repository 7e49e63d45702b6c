"""A process with a Spark that knows both connectors, and what it answers with as the tests compare it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import spark_artifacts
from spark_program import SparkProgram, running
from support.clients.dialect import Seen

SPARKS = "kafka"
"""The connector that Spark ships."""
OURS = "ottla"
CONNECTORS = (SPARKS, OURS)

_TESTS = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """A row of the columns that both connectors have."""

    topic: str
    partition: int
    offset: int
    timestamp_us: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] | None
    """None where the query did not ask for them, and where a record has none."""

    @classmethod
    def from_json(cls, cells: Mapping[str, Any]) -> Self:
        headers = cells.get("headers")
        return cls(
            cells["topic"],
            cells["partition"],
            cells["offset"],
            cells["timestamp"],
            cells["timestampType"],
            _bytes(cells["key"]),
            _bytes(cells["value"]),
            None if headers is None else tuple((key, _bytes(value)) for key, value in headers),
        )

    @classmethod
    def of(cls, topic: str, seen: Seen, with_headers: bool = False) -> Self:
        """How a record must come that another client saw."""
        return cls(
            topic,
            seen.partition,
            seen.offset,
            seen.timestamp_ms * 1000,
            seen.timestamp_type,
            seen.key,
            seen.value,
            (seen.headers or None) if with_headers else None,
        )


@dataclass(frozen=True, slots=True)
class Streamed:
    """What came of a streaming query."""

    batches: list[list[list[Row]]]
    """Each with the rows of its tasks."""
    progress: list[dict[str, Any]]

    @property
    def rows(self) -> list[Row]:
        return sorted(row for batch in self.batches for task in batch for row in task)

    @property
    def sizes(self) -> list[int]:
        """How many rows each batch had."""
        return [sum(map(len, batch)) for batch in self.batches]

    @property
    def end(self) -> Any:
        """The offsets up to which the query got, as its last progress tells them."""
        (source,) = self.progress[-1]["sources"]
        offset = source["endOffset"]
        told = json.loads(offset) if isinstance(offset, str) else offset
        return {topic: partitions for topic, partitions in told.items() if partitions}


class Spark:
    """Asks a running `program`."""

    def __init__(self, program: SparkProgram) -> None:
        self._ask = program.ask

    def schema(self, connector: str, options: Mapping[str, str]) -> Any:
        return self._ask("schema", connector=connector, options=dict(options))

    def read(self, connector: str, options: Mapping[str, str]) -> list[list[Row]]:
        """The rows of each task."""
        return _rows(self._ask("read", connector=connector, options=dict(options), columns=None))

    def read_columns(self, connector: str, options: Mapping[str, str], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Cells as they come in JSON: for queries that take some columns only."""
        tasks = self._ask("read", connector=connector, options=dict(options), columns=list(columns))
        return [row for task in tasks for row in task]

    def count(self, connector: str, options: Mapping[str, str]) -> int:
        answer: int = self._ask("count", connector=connector, options=dict(options))
        return answer

    def stream(self, connector: str, options: Mapping[str, str], checkpoint: Path) -> Streamed:
        """Up to what is there now, from where a query with this checkpoint was."""
        answer = self._ask("stream", connector=connector, options=dict(options), checkpoint=str(checkpoint))
        return Streamed([_rows(batch) for batch in answer["batches"]], answer["progress"])

    def write(self, connector: str, options: Mapping[str, str], schema: str, rows: Sequence[Sequence[Any]]) -> None:
        cells = [[_to_json(cell) for cell in row] for row in rows]
        self._ask("write", connector=connector, options=dict(options), schema=schema, rows=cells)

    def copy(
        self,
        source: str,
        source_options: Mapping[str, str],
        columns: Sequence[str],
        sink: str,
        sink_options: Mapping[str, str],
        checkpoint: Path,
    ) -> list[dict[str, Any]]:
        """Streams from topic to topic what is there now; how the query went."""
        answer = self._ask(
            "copy",
            source=source,
            source_options=dict(source_options),
            columns=list(columns),
            sink=sink,
            sink_options=dict(sink_options),
            checkpoint=str(checkpoint),
        )
        progress: list[dict[str, Any]] = answer["progress"]
        return progress


@contextmanager
def running_spark(place: Path) -> Iterator[Spark]:
    settings = {
        "spark.jars": spark_artifacts.jars(),
        "spark.driver.memory": "1g",
        # Queries are short here, and so is the life of the whole: compiling well never pays.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    environment = spark_artifacts.environment()
    with running(
        "compat.spark.program", "local[2]", place, path=_TESTS, settings=settings, environment=environment
    ) as program:
        yield Spark(program)


def _rows(tasks: list[list[dict[str, Any]]]) -> list[list[Row]]:
    return [[Row.from_json(row) for row in task] for task in tasks]


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def _to_json(cell: Any) -> Any:
    if isinstance(cell, bytes):
        return {"hex": cell.hex()}
    if isinstance(cell, list | tuple):
        return [[key, _to_json(value)] for key, value in cell]
    return cell
