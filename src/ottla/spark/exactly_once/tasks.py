"""What a task of an exactly-once sink does: writes its rows in a transaction of its own, and prepares it.

Runs in a Python worker of Spark. Nothing is committed here. The commit topic is read once per worker and run of a
query, because only the first batch of a run can have been written before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from pyspark import TaskContext

from ottla.client.administer import Admin
from ottla.spark.exactly_once.commit_log import admin_settings, newest_record
from ottla.spark.exactly_once.decisions import Execution, TaskReport, first_batch
from ottla.spark.exactly_once.errors import ExactlyOnceError
from ottla.spark.exactly_once.identifiers import (
    ONCE,
    Owner,
    run_token,
    sink_of_one_write,
    sink_of_query,
    sink_of_write,
)
from ottla.spark.exactly_once.places import place_of_this_process
from ottla.spark.exactly_once.settings import ExactlyOnceOptions
from ottla.spark.worker_clients import PRODUCERS

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.produce import Producer

T = TypeVar("T")

_QUERY: Final = "sql.streaming.queryId"
_BATCH: Final = "streaming.sql.batchId"
_RUN: Final = ("spark.app.id", "spark.jobGroup.id")
"""Spark groups the jobs of a streaming query by its run."""
_OF_STREAM: Final = "spark.sql.streaming.internal.stateStore.partitions"
"""Spark sets this in the session of a streaming query, to which the DataFrames of foreachBatch belong, and hands the
settings of a DataFrame's session to tasks, whatever thread started the job."""
_USE_THREAD: Final = (
    "write in the thread that calls your function, or wrap what other threads run in "
    "pyspark.inheritable_thread_target(frame.sparkSession)"
)
_KNOWN_MAX: Final = 64


class Assignment(NamedTuple):
    """What the rows of a task belong to."""

    sink: str
    run: str
    batch: int


def assignment_of(
    properties: Callable[[str], str | None],
    execution: str,
    *,
    name: str | None = None,
    job: str | None = None,
    is_stream: bool,
) -> Assignment:
    """Of a task with these properties of Spark. A batch write in a streaming query is one of foreachBatch.

    In a thread that a function of foreachBatch has started, Spark knows no micro-batch. Such a write must not be taken
    for that of a batch job: with a name it would repeat that of the first micro-batch, and its rows would be lost.
    """
    query, batch = properties(_QUERY), properties(_BATCH)
    if query is None or batch is None:
        if is_stream:
            raise ExactlyOnceError(
                "Spark did not say to which query and batch this task belongs: use PySpark 4.2 or newer"
            )
        if name is not None:
            raise ExactlyOnceError(
                f"exactlyOnceId={name!r} names a write in foreachBatch, but in this thread Spark knows no micro-batch. "
                f"In foreachBatch, {_USE_THREAD}. In a batch job, set exactlyOnceJob instead"
            )
        if properties(_OF_STREAM) is not None:
            raise ExactlyOnceError(
                "the DataFrame is from foreachBatch, but in this thread Spark knows no micro-batch, so the rows cannot "
                f"be written exactly once: set exactlyOnceId, and {_USE_THREAD}"
            )
        return Assignment(sink_of_one_write(execution) if job is None else sink_of_write(job), execution, 0)
    if job is not None:
        raise ExactlyOnceError(
            f"exactlyOnceJob={job!r} names the write of a batch job, but this is a streaming query: every micro-batch "
            "but the first would be lost. Set exactlyOnceId in foreachBatch, and nothing in writeStream"
        )
    if not is_stream and name is None:
        raise ExactlyOnceError(
            "a write with exactlyOnce in foreachBatch needs a name: set exactlyOnceId, to a different text for each "
            "write in the function and the same in every batch. Or use ottla.spark.write_stream"
        )
    run = "/".join(properties(key) or execution for key in _RUN)
    return Assignment(sink_of_query(query, name), run, int(batch))


_firsts: dict[tuple[str, str], int] = {}
"""By sink and run."""


def _first_batch(options: ExactlyOnceOptions, assigned: Assignment) -> int | None:
    sink, run, batch = assigned
    if sink.startswith(ONCE):
        return batch
    first = _firsts.get((sink, run))
    if first is None:
        with Admin(admin_settings(options.client_settings)) as admin:
            newest = newest_record(options.client_settings, admin, options.topic, sink)
        first = first_batch(newest, run, batch)
        if first is not None:
            _firsts[sink, run] = first
            while len(_firsts) > _KNOWN_MAX:
                del _firsts[next(iter(_firsts))]
    return first


def run_task(
    options: ExactlyOnceOptions,
    execution: Execution,
    batches: Iterator[pa.RecordBatch],
    write: Callable[[Producer, Iterator[pa.RecordBatch]], list[T]],
    *,
    is_stream: bool,
) -> tuple[TaskReport, list[T]]:
    """Writes the rows in a transaction and prepares it. Reads all rows in any case: Spark finishes the state of the
    steps before only then."""
    context = TaskContext.get()
    if context is None:
        raise ExactlyOnceError("rows are written outside of a task of Spark")
    names = {"name": options.name, "job": options.job}
    assigned = assignment_of(context.getLocalProperty, execution.token, **names, is_stream=is_stream)
    first = _first_batch(options, assigned)
    counted = _Counted(batches)
    results: list[T] = []
    transaction = None
    begin = next(counted, None)
    if first is not None and begin is not None:
        place = place_of_this_process()
        owner = Owner(first, run_token(assigned.run))
        number = place.next_number(f"{assigned.sink}/{owner.token}", assigned.batch)
        transactional_id = options.identifiers(assigned.sink).of_task(owner, place.name, number, assigned.batch)
        with PRODUCERS.lent(_producer_settings(options)) as producer:
            producer.change_transactional_id(transactional_id)
            producer.init_transactions()
            producer.begin_transaction()
            results = write(producer, chain([begin], counted))
            prepared = producer.prepare_transaction()
        transaction = None if prepared.is_empty else prepared
    else:
        for _ in counted:
            pass
    report = TaskReport(
        sink=assigned.sink,
        run=assigned.run,
        batch=assigned.batch,
        first=first,
        transaction=transaction,
        rows=counted.rows,
        began_s=execution.began_s,
        is_first_attempt=context.attemptNumber() == 0,
    )
    return report, results


def _producer_settings(options: ExactlyOnceOptions) -> Mapping[str, str]:
    """The same for all tasks of a sink, so that they share producers; the id is changed before it is used."""
    return {**options.client_settings, "transactional.id": f"{options.prefix}/unused"}


class _Counted:
    """Batches with rows, and how many rows they had."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = iter(batches)
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            batch = next(self._batches)
            if batch.num_rows:
                self.rows += batch.num_rows
                return batch
