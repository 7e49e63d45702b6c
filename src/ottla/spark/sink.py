"""The sink: writes rows to topics, at least once; `exactly_once` says how it writes them exactly once.

The rows of a task go directly from Arrow columns into record batches. A task is done when all of them are acknowledged;
otherwise it fails, and Spark runs it again, so rows of the first run may be written twice. Producers are idempotent and
wait for all in-sync replicas, unless the query's options say otherwise, and stay open between tasks.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.spark.exactly_once.decisions import Execution, TaskReport
from ottla.spark.options import OptionError, WriteOptions
from ottla.spark.sink_columns import WriteColumns
from ottla.spark.worker_clients import PRODUCERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from ottla.client.produce import Producer
    from ottla.client.produce.table_delivery import BatchMetadata, TableDelivery

_FILE_END: Final = ".jsonl"
_GATHERED_BYTES: Final = 4 * 1024 * 1024


class WriteResult(NamedTuple):
    """Consecutive records of a partition, from an offset on."""

    topic: str
    partition: int
    base_offset: int
    records: int


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The results of a task's rows."""

    results: list[WriteResult]
    transaction: TaskReport | None = None
    """Of an exactly-once sink: what is to be committed."""


class _SinkWriter:
    """What both writers share. Created on the driver, where it rejects invalid schemas, and sent to the tasks; another
    one is created to commit or abort."""

    _is_stream = False

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("mode", "a topic cannot be overwritten: use mode append")
        self._options = options
        self._columns = WriteColumns.of(schema, options.topic)
        self._folder = None if options.results_path is None else _folder_of(options.results_path)
        self._execution = Execution(uuid.uuid4().hex, time.time())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        exactly_once, columns = self._options.exactly_once, self._columns
        if exactly_once is not None:
            from ottla.spark.exactly_once.tasks import run_task

            def write(producer: Producer, batches: Iterator[pa.RecordBatch]) -> list[WriteResult]:
                return _write(producer, columns, batches)

            report, results = run_task(exactly_once, self._execution, iterator, write, is_stream=self._is_stream)
            return Written(results, report)
        with PRODUCERS.lent(self._options.client_settings) as producer:
            return Written(_write(producer, self._columns, iterator))

    def _settle(self, messages: Sequence[WriterCommitMessage | None], *, commit: bool) -> None:
        """Commits or aborts the transactions of the tasks, if there are any."""
        reports = [one.transaction for one in messages if isinstance(one, Written) and one.transaction is not None]
        if self._options.exactly_once is not None and reports:
            from ottla.spark.exactly_once.driver import settle

            settle(self._options.exactly_once, reports, commit=commit)

    def _tell(self, name: str, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Writes a file with the results, completely or not at all."""
        if self._folder is None:
            return
        results = sorted(result for one in messages if isinstance(one, Written) for result in one.results)
        self._folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._folder / f".{name}-{uuid.uuid4().hex}"
        unfinished.write_text("".join(json.dumps(result._asdict()) + "\n" for result in results))
        unfinished.replace(self._folder / f"{name}{_FILE_END}")


class OttlaArrowWriter(_SinkWriter, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._settle(messages, commit=True)
        self._tell(f"write-{uuid.uuid4().hex}", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._settle(messages, commit=False)


class OttlaStreamArrowWriter(_SinkWriter, DataSourceStreamArrowWriter):
    """Writes a stream. A micro-batch that is run again replaces its file."""

    _is_stream = True

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name.
        self._settle(messages, commit=True)
        self._tell(f"batch-{batchId:010}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803
        self._settle(messages, commit=False)


def write(df: DataFrame, **options: str) -> list[WriteResult]:
    """Appends a DataFrame to topics, and returns where its rows are.

    Takes the options of `df.write.format("ottla")`. For batches, and for `foreachBatch`.
    """
    with tempfile.TemporaryDirectory(prefix="ottla-written-") as folder:
        df.write.format("ottla").options(**{**options, "resultsPath": folder}).mode("append").save()
        return list(read_results(folder))


def read_results(folder: str | os.PathLike[str]) -> Iterator[WriteResult]:
    """Reads the results in the files of a `resultsPath`, file by file."""
    for file in sorted(Path(folder).glob(f"*{_FILE_END}")):
        for line in file.read_text().splitlines():
            yield WriteResult(**json.loads(line))


def _folder_of(path: str) -> Path:
    """Spark may write paths as URLs; only files of the driver are supported."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise OptionError("resultsPath", f"{path!r} is not a local directory of the driver")
    return Path(unquote(parts.path) if parts.scheme else path)


def _write(producer: Producer, columns: WriteColumns, batches: Iterable[pa.RecordBatch]) -> list[WriteResult]:
    results: list[WriteResult] = []
    waiting: deque[TableDelivery] = deque()
    for batch in _gathered(batches):
        for topic, part in columns.by_topic(batch):
            waiting.append(producer.send_batch(topic, part))
        # Check results that are known by now, so that a failure is noticed soon and nothing piles up.
        while waiting and waiting[0].done():
            _add(results, waiting.popleft().result())
    if waiting:
        producer.flush()
    for delivery in waiting:
        _add(results, delivery.result())
    return _joined(results)


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Combines batches to a few megabytes. Spark's have ten thousand rows: few per partition if there are many."""
    some: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        some.append(batch)
        size += batch.nbytes
        if size >= _GATHERED_BYTES:
            yield _as_one(some)
            some, size = [], 0
    if some:
        yield _as_one(some)


def _as_one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _add(results: list[WriteResult], places: Iterable[BatchMetadata]) -> None:
    results.extend(WriteResult(*place) for place in places)


def _joined(results: list[WriteResult]) -> list[WriteResult]:
    """Joins consecutive results."""
    joined: list[WriteResult] = []
    for one in sorted(results):
        last = joined[-1] if joined else None
        if last is not None and one[:2] == last[:2] and one.base_offset == last.base_offset + last.records:
            joined[-1] = last._replace(records=last.records + one.records)
        else:
            joined.append(one)
    return joined
