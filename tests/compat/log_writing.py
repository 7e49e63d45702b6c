"""Logs written by ours, with a plain account of what was appended, from which all that is expected follows.

The account is kept beside the log, never read from it: batches in a list, producers and aborted transactions by
walking over that list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ottla.base.clock import Clock
from ottla.log.append_origin import AppendOrigin
from ottla.log.compaction import Cleaner, CleanerOptions
from ottla.log.partition_log import PartitionLog
from ottla.records import BatchOptions, Compression, Record, encode_batch, encode_transaction_marker

NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class Appended:
    """A batch in the log, of which compaction may have left some records or none. `commits` is None for data; a marker
    has one record, which consumers never see."""

    first_offset: int
    count: int
    """Of records once appended."""
    records: tuple[Record, ...]
    max_timestamp_ms: int
    leader_epoch: int
    codec: Compression = Compression.NONE
    producer_id: int = NO_PRODUCER
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    commits: bool | None = None
    coordinator_epoch: int = -1

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.count - 1


@dataclass(slots=True)
class Producer:
    """An idempotent producer: the sequence number that comes next."""

    producer_id: int
    epoch: int = 0
    next_sequence: int = 0


@dataclass(slots=True)
class Writer:
    """Appends to a log of ours as a leader and keeps the account."""

    log: PartitionLog
    clock: Clock
    one_leader: bool = False
    leader_epoch: int = 0
    batches: list[Appended] = field(default_factory=list)
    start_ms: int = 0

    def __post_init__(self) -> None:
        self.start_ms = self.clock.now_ms()

    @property
    def next_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @property
    def records(self) -> list[Record]:
        """All data."""
        return [record for batch in self.batches if batch.commits is None for record in batch.records]

    def new_leader(self, epoch: int) -> None:
        """Of whom nothing is seen in a log that is to have only one."""
        if not self.one_leader:
            self.leader_epoch = epoch

    def append(
        self,
        given: Sequence[Record],
        *,
        codec: Compression = Compression.NONE,
        producer: Producer | None = None,
        transactional: bool = False,
    ) -> None:
        options = BatchOptions(compression=codec, transactional=transactional)
        if producer is not None:
            options = BatchOptions(
                compression=codec,
                transactional=transactional,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.next_sequence,
            )
            producer.next_sequence += len(given)
        info = self.log.append_as_leader(encode_batch(given, options), self.leader_epoch)
        if info.log_append_time_ms >= 0:
            given = [record._replace(timestamp_ms=info.log_append_time_ms) for record in given]
        first = self.next_offset
        self._account(
            Appended(
                first,
                len(given),
                tuple(record._replace(offset=first + index) for index, record in enumerate(given)),
                max(record.timestamp_ms for record in given),
                self.leader_epoch,
                self.log.config.compression if self.log.config.compression is not None else codec,
                options.producer_id,
                options.producer_epoch,
                options.base_sequence,
                transactional,
            ),
            info.first_offset,
        )

    def end_transaction(self, producer: Producer, *, commit: bool, coordinator_epoch: int = 0) -> None:
        now_ms = self.clock.now_ms()
        marker = encode_transaction_marker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        info = self.log.append_as_leader(marker, self.leader_epoch, origin=AppendOrigin.COORDINATOR)
        first = self.next_offset
        self._account(
            Appended(
                first,
                1,
                (Record(first, now_ms, None, None),),
                now_ms,
                self.leader_epoch,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transactional=True,
                commits=commit,
                coordinator_epoch=coordinator_epoch,
            ),
            info.first_offset,
        )

    def _account(self, batch: Appended, acknowledged: int) -> None:
        if acknowledged != batch.first_offset:
            raise AssertionError(f"{self.log.partition}: {batch.first_offset} was next, {acknowledged} acknowledged")
        self.batches.append(batch)
        self.log.set_high_watermark(self.log.next_offset)

    def truncate_to(self, offset: int) -> None:
        """A batch goes as a whole; the offset must be where one begins."""
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if batch.first_offset < offset]

    def compact(self) -> None:
        """One pass of the cleaner: of each key below the offset it came to, the last record that was not aborted."""
        cleaner = Cleaner(self.log.disk, self.clock, CleanerOptions(dedupe_buffer_bytes=2 * 2**20))
        compaction = cleaner.choose([self.log])
        if compaction is None:
            raise AssertionError(f"{self.log.partition}: nothing to compact")
        cleaner.run(compaction)
        self.batches = compacted(self.batches, compaction.end_offset)

    def some_records(self, count: int, size: int = 40, *, keyed: bool = False) -> list[Record]:
        """Different from each other, with text that a terminal can show; time goes forth and sometimes back. The first
        header names the topic."""
        topic, start = self.log.partition.topic, self.next_offset
        result = []
        for number in range(start, start + count):
            key = None if number % 7 == 3 and not keyed else b"key-%d" % (number % 23)
            value = None if number % 11 == 5 else b"%d:" % number + b"abcdefgh" * (1 + number % (size // 8))
            headers = (("topic", topic.encode()),) + ((("more", b"of it"),) if number % 3 == 0 else ())
            timestamp_ms = self.start_ms - 3_600_000 + number * 10 - (25 if number % 5 == 0 else 0)
            result.append(Record(0, timestamp_ms, key, value, headers))
        return result


# What follows from an account.


def compacted(batches: Sequence[Appended], end: int) -> list[Appended]:
    """The account after compaction up to an offset."""
    valid = {
        batch.first_offset: batch.records
        for batch, marker in _with_ends(batches)
        if batch.commits is None and batch.last_offset < end and (marker is None or marker.commits)
    }
    last = {record.key: record.offset for records in valid.values() for record in records}
    return [
        batch
        if batch.commits is not None or batch.last_offset >= end
        else replace(
            batch,
            records=tuple(record for record in valid.get(batch.first_offset, ()) if last[record.key] == record.offset),
        )
        for batch in batches
    ]


def committed(batches: Sequence[Appended]) -> list[Record]:
    """What a consumer of committed records gets: up to the first open transaction, without the aborted."""
    return [
        record
        for batch, end in _with_ends(batches)
        if batch.commits is None and batch.last_offset < last_stable_offset(batches)
        if end is None or end.commits
        for record in batch.records
    ]


def last_stable_offset(batches: Sequence[Appended]) -> int:
    open_starts = [batch.first_offset for batch, end in _with_ends(batches) if batch.transactional and end is None]
    return min(open_starts, default=batches[-1].last_offset + 1)


def aborted_transactions(batches: Sequence[Appended]) -> list[tuple[int, int, int, int]]:
    """Producer, first offset, last offset, last stable offset of each; in order of their markers."""
    starts: dict[int, int] = {}
    aborted = []
    for batch in batches:
        if batch.commits is None:
            if batch.transactional:
                starts.setdefault(batch.producer_id, batch.first_offset)
            continue
        start = starts.pop(batch.producer_id, None)
        if start is not None and not batch.commits:
            stable = min(starts.values(), default=batch.first_offset + 1)
            aborted.append((batch.producer_id, start, batch.first_offset, stable))
    return aborted


def producers_at(batches: Sequence[Appended], offset: int) -> dict[int, dict[str, int]]:
    """What a snapshot at that offset says of each producer, under the names of Kafka's dump tool."""
    states: dict[int, dict[str, int]] = {}
    for batch in batches:
        if batch.producer_id == NO_PRODUCER or batch.last_offset >= offset:
            continue
        nothing = {"coordinatorEpoch": -1, "currentTxnFirstOffset": -1, "producerId": batch.producer_id}
        state = states.setdefault(batch.producer_id, nothing)
        state |= {"producerEpoch": batch.producer_epoch, "lastTimestamp": batch.max_timestamp_ms}
        if batch.commits is not None:
            state |= {"coordinatorEpoch": batch.coordinator_epoch, "currentTxnFirstOffset": -1}
            continue
        if batch.transactional and state["currentTxnFirstOffset"] == -1:
            state["currentTxnFirstOffset"] = batch.first_offset
        delta = batch.count - 1
        state |= {
            "firstSequence": batch.base_sequence,
            "lastSequence": batch.base_sequence + delta,
            "lastOffset": batch.last_offset,
            "offsetDelta": delta,
        }
    for state in states.values():
        if "lastSequence" in state:
            state["timestamp"] = state["lastTimestamp"]  # the file has only one of the two, so the tool shows it twice
    return states


def _with_ends(batches: Sequence[Appended]) -> Iterator[tuple[Appended, Appended | None]]:
    """Each batch with the marker that ends its transaction."""
    for index, batch in enumerate(batches):
        end = None
        if batch.transactional:
            later = (each for each in batches[index:] if each.producer_id == batch.producer_id)
            end = next((each for each in later if each.commits is not None), None)
        yield batch, end
