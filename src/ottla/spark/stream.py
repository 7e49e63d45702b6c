"""A stream: what a query reads next within its limits, and its progress, for others to see.

`OttlaStreamReader` is used in three kinds of processes. In the helper process of the query it keeps a client and its
state; in the planner and in tasks it is only options and columns.

Spark keeps the offsets of a query in its checkpoint, and nowhere else. Offsets that are committed to a consumer group
are for tools that show lag: they are never read back, and a failed commit is only logged. Unless it is set
(commitGroup, kafka.group.id), the name of the group is derived from what is read, so that it is the same at every
start: Spark tells a source neither its query nor its checkpoint. Queries that read the same then share a group, and it
shows the last commit.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla.base.errors import OttlaError
from ottla.base.ids import TopicPartition
from ottla.client.administer import Admin
from ottla.spark.columns import ReadColumns
from ottla.spark.data_loss import lose
from ottla.spark.offsets import (
    LATEST_OFFSET,
    JsonOffsets,
    PartitionOffsets,
    TopicIds,
    from_json,
    ids_from_json,
    named,
    recreated,
    to_json,
)
from ottla.spark.options import ReadOptions
from ottla.spark.planning import admit, is_enough, ranges_between, split
from ottla.spark.ranges import RangePartition
from ottla.spark.topics import ClusterView

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger(__name__)

_COMMIT_TIMEOUT_MS: Final = 5000
"""How long a query waits for a commit that it does not need."""


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Answers Spark's questions about a stream, trigger by trigger."""

    def __init__(self, options: ReadOptions, columns: ReadColumns) -> None:
        options.stream_start()
        self._options = options
        self._columns = columns
        self._driver: StreamDriver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_columns": self._columns, "_driver": None}

    @property
    def _side(self) -> StreamDriver:
        if self._driver is None:
            self._driver = StreamDriver(self._options)
        return self._driver

    def initialOffset(self) -> JsonOffsets:  # noqa: N802 (this and what follows: PySpark's names)
        return to_json(self._side.begin(), self._side.topic_ids)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark passes this back, and knows no limit for both sides: `latestOffset` uses the options.
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._side.end_with_what_is_there()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        starts, ids = from_json(start), ids_from_json(start)
        end = self._side.next_end(starts, ids, is_limited=not isinstance(limit, ReadAllAvailable))
        if end == starts and not recreated(ids, self._side.topic_ids):
            return start  # unchanged, so that a checkpoint without ids does not cause an empty batch
        return to_json(end, self._side.topic_ids)

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        return to_json(self._side.latest) or None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[RangePartition]:
        starts = self._side.starts(from_json(start), from_json(end), ids_from_json(start), ids_from_json(end))
        ranges = ranges_between(starts, from_json(end))
        pieces = split(ranges, self._options.min_partitions, self._options.max_records_per_partition)
        return [RangePartition(one) for one in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from ottla.spark.reading import read_partition

        return read_partition(self._options, self._columns, partition)

    def commit(self, end: JsonOffsets) -> None:
        self._side.show(from_json(end))

    def stop(self) -> None:
        if self._driver is not None:
            self._driver.close()


class StreamDriver:
    """The part of a stream that runs in the helper process of the query."""

    def __init__(self, options: ReadOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._view = ClusterView(options)
        self._group = None if options.commit_group is None else _ProgressGroup(options, options.commit_group)
        self._is_bounded = False
        self._bound: PartitionOffsets | None = None
        self._last_batch_s: float | None = None
        self._begun: PartitionOffsets | None = None
        self._held: PartitionOffsets = {}
        """Where the first batch ends in partitions that begin at the latest offset."""
        self.latest: PartitionOffsets = {}
        """The latest offsets when they were last requested."""

    def close(self) -> None:
        self._view.close()
        if self._group is not None:
            self._group.close()

    def begin(self) -> PartitionOffsets:
        """Returns where a query without a checkpoint begins. Spark asks again when it plans the first batch, and the
        latest offset may then be beyond the end of that batch."""
        if self._begun is None:
            told = self._view.position(self._options.stream_start(), "startingOffsets", is_start=True)
            self._begun = self._view.resolved(told)
            self._held = {one: self._begun[one] for one, offset in told.items() if offset == LATEST_OFFSET}
        return self._begun

    def end_with_what_is_there(self) -> None:
        """Leaves records that arrive from now on to the next run."""
        self._is_bounded = True

    @property
    def topic_ids(self) -> TopicIds:
        """The ids of the topics, as of the last check."""
        return self._view.topic_ids

    def next_end(
        self, starts: PartitionOffsets, start_ids: Mapping[str, str] | None = None, *, is_limited: bool
    ) -> PartitionOffsets:
        """Returns where the next micro-batch ends; its start, if there should be none yet."""
        # Everything before it is done. Spark says so only when there is a next batch, not after the last.
        self.show(starts)
        end = self._end_after(starts, start_ids, is_limited=is_limited)
        if starts == self._begun:
            # The checkpoint of a query that fails in its first batch contains only the end of that. The latest offset
            # is then another one, so what the batch had read would be lost: it ends where it begins.
            end = end | {partition: offset for partition, offset in self._held.items() if partition in end}
        self._held = {}
        if end == starts and self._group is not None:
            self._group.settle()  # Spark may end the query now, and this process with it
        return end

    def _end_after(
        self, starts: PartitionOffsets, start_ids: Mapping[str, str] | None, *, is_limited: bool
    ) -> PartitionOffsets:
        if self._is_bounded:
            if self._bound is None:
                self._bound = self._view.latest(starts)
            self.latest = self._bound
        else:
            self.latest = self._view.latest(starts)
        if not is_limited:
            return self.latest
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        others = recreated(start_ids or {}, self.topic_ids)
        if others:  # they are read from the beginning if the query continues
            starts = {partition: start for partition, start in starts.items() if partition.topic not in others}
        elif least is not None and self._is_to_wait(starts, least):
            return starts
        if most is None:
            return self.latest
        begins = {**self._view.earliest(self.latest.keys() - starts.keys()), **starts}
        known = {partition: end for partition, end in self.latest.items() if partition in begins}
        return admit(begins, known, most)

    def _is_to_wait(self, starts: PartitionOffsets, least: int) -> bool:
        """Whether there is too little data, and the last batch was recent. Never for a query that ends with the
        available data: it would wait forever."""
        now_s = self._clock()
        delay_s = self._options.max_trigger_delay_ms / 1000
        is_due = self._is_bounded or self._last_batch_s is None or now_s - self._last_batch_s >= delay_s
        if not is_due and not is_enough(starts, self.latest, least):
            return True
        self._last_batch_s = now_s
        return False

    def starts(
        self,
        starts: PartitionOffsets,
        ends: PartitionOffsets,
        start_ids: Mapping[str, str] | None = None,
        end_ids: Mapping[str, str] | None = None,
    ) -> PartitionOffsets:
        """Returns where a micro-batch begins, including new partitions. Reports data that can no longer be read."""
        if end_ids:
            starts = self._of_these_topics(starts, ends, start_ids or {}, end_ids)
        added = ends.keys() - starts.keys()
        firsts = self._view.earliest(added)
        gone = starts.keys() - ends.keys() | added - firsts.keys()
        if gone:
            words = f"partitions {named(gone)} no longer exist, and their unread records are lost"
            self._lost(f"{words}: their topics were deleted, or the query no longer reads them")
        for partition, first in firsts.items():
            if first > 0:
                self._lost(
                    f"offsets 0 to {first - 1} of the new partition {partition} were deleted before they were read"
                )
        begun = self._begun or {}
        for partition in sorted(starts.keys() & ends.keys()):
            start, end = starts[partition], ends[partition]
            if start > end and start == begun.get(partition):
                # The first batch of a query that stopped during it: the checkpoint contains only its end.
                words = "was stopped in its first micro-batch and starts again at offset"
                _logger.warning(
                    "the query %s %d of partition %s, after the end of that micro-batch", words, start, partition
                )
                starts = {**starts, partition: end}
            elif start > end:
                words = f"partition {partition} ends at offset {end}, but the next offset to read is {start}"
                self._lost(f"{words}: the topic was created again, or the starting offset is beyond its end")
        return {**firsts, **starts}

    def _of_these_topics(
        self,
        starts: PartitionOffsets,
        ends: PartitionOffsets,
        start_ids: Mapping[str, str],
        end_ids: Mapping[str, str],
    ) -> PartitionOffsets:
        """Adjusts the starts for topics that were deleted and created again: before the batch was planned, they are
        read from the beginning; after that, nothing of them is read."""
        if not self.topic_ids:  # a query that resumes the batch during which it stopped
            self._view.partitions(but_missing=True)
        before, since = recreated(start_ids, end_ids), recreated(end_ids, self.topic_ids)
        for topic in sorted(before | since):
            there = [f"{start} of {one}" for one, start in sorted(starts.items()) if one.topic == topic]
            words = f"topic {topic} was deleted and created again; unread records of the old topic are lost"
            self._lost(f"{words} (next offsets: {', '.join(there) or 'none'})")
        kept = {partition: start for partition, start in starts.items() if partition.topic not in before}
        return kept | {partition: end for partition, end in ends.items() if partition.topic in since}

    def _lost(self, what: str) -> None:
        lose(what, fail=self._options.fail_on_data_loss)

    def show(self, ends: Mapping[TopicPartition, int]) -> None:
        if self._group is not None:
            self._group.commit(ends)


class _ProgressGroup:
    """The consumer group that shows the progress of a query. It has no members.

    Commits are sent by a thread, so that no micro-batch waits for them. If several are waiting, only the last is sent.
    """

    def __init__(self, options: ReadOptions, name: str) -> None:
        # A separate client with short timeouts: a query does not wait for it.
        self._settings = options.admin_settings
        for key in ("default.api.timeout.ms", "request.timeout.ms"):
            given_ms = int(self._settings.get(key, _COMMIT_TIMEOUT_MS))
            self._settings[key] = str(min(given_ms, _COMMIT_TIMEOUT_MS))
        self._name = name
        self._admin: Admin | None = None
        self._last: Mapping[TopicPartition, int] = {}
        self._is_refused = False
        self._lock = threading.Lock()
        self._waiting: Mapping[TopicPartition, int] | None = None
        self._sending: threading.Thread | None = None

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if offsets == self._last:
            return
        self._last = offsets
        with self._lock:
            self._waiting = offsets
            if self._sending is None:
                self._sending = threading.Thread(target=self._send_all, name="ottla-progress", daemon=True)
                self._sending.start()

    def settle(self) -> None:
        """Waits for the commits."""
        sending = self._sending
        if sending is not None:
            sending.join()

    def _send_all(self) -> None:
        while True:
            with self._lock:
                offsets, self._waiting = self._waiting, None
                if offsets is None:
                    self._sending = None
                    return
            self._send(offsets)

    def _send(self, offsets: Mapping[TopicPartition, int]) -> None:
        try:
            if self._admin is None:
                self._admin = Admin(self._settings)
            self._admin.alter_consumer_group_offsets(self._name, offsets)
            self._is_refused = False
        except OttlaError as error:
            # Once, not for every batch.
            level = logging.DEBUG if self._is_refused else logging.WARNING
            _logger.log(level, "offsets could not be committed to group %s: %s", self._name, error)
            self._is_refused = True

    def close(self) -> None:
        self.settle()
        if self._admin is not None:
            self._admin.close()
