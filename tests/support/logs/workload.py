"""Work on one partition's log, drawn from a seed, that says what it begins and what is done; and a judge who was told
so, and decides after a crash whether what is found can be.

`Told` may live in another process than the work: it is fed with events, which are plain values.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from ottla.base.ids import TopicPartition
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories import LogDirectories
from ottla.log.errors import LogDirectoryError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from support.logs.batches import batch, marker
from support.logs.checker import Scanned, check

PARTITION = TopicPartition("topic", 0)
CONFIG = LogConfig(
    segment_bytes=700, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=5, max_message_bytes=690
)
PRODUCERS = (1, 2)
TRANSACTIONAL_PRODUCERS = (11, 12)
FOREVER_MS = 2**62
"""For producers to be remembered."""


class Known(NamedTuple):
    """A batch that the log was given."""

    base_offset: int
    end: int
    epoch: int
    producer_id: int
    values: tuple[str, ...]
    """Of a marker, none."""

    @classmethod
    def of(cls, scanned: Scanned) -> Known:
        header = scanned.header
        values = () if header.is_control else tuple((record.value or b"").decode() for record in scanned.records)
        return cls(header.base_offset, header.next_offset, header.leader_epoch, header.producer_id, values)


Event = tuple[str, str, Any]
"""Whether it begins or is done, what, and with what."""


@dataclass
class Told:
    """What can be known from outside."""

    batches: list[Known] = field(default_factory=list)
    pending: Known | None = None
    acknowledged: int = 0
    """Everything below was appended, and that was answered."""
    safe: int = 0
    """Everything below was synced, and that was answered."""
    start: int = 0
    """Nothing below is asked for any more, though it may still be there."""
    deleted: int = 0
    """Of what is below, the epochs may be forgotten, even if a crash brings the records back."""
    is_emptied: bool = False
    """The log is being, or was just, begun anew."""
    is_created: bool = False

    def hear(self, event: Event) -> None:
        stage, name, value = event
        getattr(self, f"_{stage}_{name}", self._ignore)(value)

    def _ignore(self, _: object) -> None:
        return

    def _end_create(self, _: None) -> None:
        self.is_created = True

    def _begin_append(self, value: list[Any]) -> None:
        base_offset, end, epoch, producer_id, values = value
        self.pending = Known(base_offset, end, epoch, producer_id, tuple(values))

    def _end_append(self, _: None) -> None:
        assert self.pending is not None
        self.batches.append(self.pending)
        self.acknowledged = self.pending.end
        self.pending = None
        self.is_emptied = False

    def _end_flush(self, end: int) -> None:
        self.safe = max(self.safe, end)

    def _begin_truncate(self, offset: int) -> None:
        self.safe = min(self.safe, offset)
        self.acknowledged = min(self.acknowledged, offset)
        self.start = min(self.start, offset)

    def _end_truncate(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.end <= offset]
        self.deleted = min(self.deleted, offset)

    def _begin_start_anew(self, _: int) -> None:
        self.safe = self.acknowledged = 0
        self.is_emptied = True

    def _end_start_anew(self, offset: int) -> None:
        self.batches = []
        self.acknowledged = self.safe = self.start = self.deleted = offset

    def _begin_shorten(self, limit: int) -> None:
        self.start = max(self.start, limit)
        self.deleted = max(self.deleted, limit)

    def judge(self, log: PartitionLog, *, power_cut: bool) -> None:
        """Raises `AssertionError` for a log that cannot be; then takes it for what is there."""
        found = [Known.of(scanned) for scanned in check(log, deleted_below=max(self.start, self.deleted))]
        given = [*self.batches, *([self.pending] if self.pending else [])]
        least = self.safe if power_cut else self.acknowledged
        summary = f"found {_span(found)}, given {_span(given)}, at least to {least}, from {self.start} at the latest"
        assert self.is_emptied or log.log_start_offset <= max(self.start, least), f"begins too late: {summary}"
        if not (self.is_emptied and not found):
            needed = [batch for batch in given if self.start < batch.end <= least]
            assert not needed or found, f"all is lost: {summary}"
            if found:
                assert found[0] in given, f"{found[0]} was never given, or cut off: {summary}"
                first = given.index(found[0])
                assert found == given[first : first + len(found)], f"not what was given: {summary}"
                assert not needed or (
                    found[0].base_offset <= needed[0].base_offset and found[-1].end >= needed[-1].end
                ), f"something is lost: {summary}"
                assert log.next_offset == found[-1].end, f"ends at {log.next_offset}: {summary}"
            assert log.next_offset >= least, f"ends at {log.next_offset}: {summary}"
        self.start = log.log_start_offset if self.is_emptied and not found else max(self.start, log.log_start_offset)
        self.batches, self.pending, self.is_emptied = found, None, False
        self.acknowledged = log.next_offset
        # What a power cut has left is safe; what a killed process left may still be lost by one.
        self.safe = log.next_offset if power_cut else min(self.safe, log.next_offset)


def _span(batches: list[Known]) -> str:
    return f"{batches[0].base_offset}..{batches[-1].end} ({len(batches)})" if batches else "nothing"


class Work:
    """What is done, one step after the other. Each raises what goes wrong."""

    def __init__(
        self,
        directories: LogDirectories,
        random: Random,
        tell: Callable[[Event], None],
        *,
        advance_ms: Callable[[int], object] = lambda _: None,
        name: str = "",
    ) -> None:
        self.directories = directories
        self.random = random
        self.tell = tell
        self.advance_ms = advance_ms
        self.name = name
        self.written = 0
        self.epoch = 0

    def create(self) -> None:
        self.tell(("begin", "create", None))
        log = self.directories.create(PARTITION, CONFIG)
        self.tell(("end", "create", None))
        # Above all that were: also those of records below the log's start, which its epochs no longer know.
        used = [header.leader_epoch for segment in log.segments for _, header in segment.iter_headers()]
        self.epoch = max([*used, log.epochs.latest_epoch or 0]) + 1

    @property
    def log(self) -> PartitionLog:
        log = self.directories.get(PARTITION)
        if log is None:
            raise self.failure()
        return log

    def failure(self) -> OSError:
        """The directory failed in work that does not say so by raising."""
        return OSError(str(self.directories.directories[0].failure))

    def guard(self) -> AbstractContextManager[None]:
        return self.directories.guard(self.directories.directories[0])

    def step(self) -> None:
        """Does one thing or another."""
        names = ["append"] * 10 + ["follow", "follow", "transact", "transact", "flush", "flush", "checkpoint", "roll"]
        names += ["truncate", "retain", "delete", "remove", "new_leader"] + ["start_anew"] * (
            self.random.random() < 0.2
        )
        getattr(self, "_" + self.random.choice(names))()
        if self.directories.directories[0].failure is not None:
            raise self.failure()

    def _values(self, count: int) -> list[bytes]:
        self.written += count
        size = self.random.choice((0, 0, 10, 120))
        return [b"%s %d %s" % (self.name.encode(), self.written + index, b"x" * size) for index in range(count)]

    def _begin(self, count: int, producer_id: int, values: list[bytes]) -> None:
        offset = self.log.next_offset
        self.tell(
            ("begin", "append", [offset, offset + count, self.epoch, producer_id, [value.decode() for value in values]])
        )

    def _append(self) -> None:
        producer_id = self.random.choice((-1, *PRODUCERS, *TRANSACTIONAL_PRODUCERS))
        log, count = self.log, self.random.randint(1, 3)
        known = log.producers.entries.get(producer_id)
        sequence = -1
        if producer_id >= 0:
            sequence = known.last_sequence + 1 if known else 0
        values = self._values(count)
        data = batch(
            values,
            timestamp_ms=log.clock.now_ms() + self.random.randint(-3, 3),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            sequence=sequence,
            transactional=producer_id in TRANSACTIONAL_PRODUCERS,
        )
        self._begin(count, producer_id, values)
        with self.guard():
            log.append_as_leader(data, self.epoch)
        self.tell(("end", "append", None))

    def _follow(self) -> None:
        log, count = self.log, self.random.randint(1, 3)
        values = self._values(count)
        data = batch(values, base_offset=log.next_offset, leader_epoch=self.epoch, timestamp_ms=log.clock.now_ms())
        self._begin(count, -1, values)
        with self.guard():
            log.append_as_follower(data)
        self.tell(("end", "append", None))

    def _transact(self) -> None:
        producer_id = self.random.choice(TRANSACTIONAL_PRODUCERS)
        log = self.log
        data = marker(producer_id, committed=self.random.random() < 0.5, timestamp_ms=log.clock.now_ms())
        self._begin(1, producer_id, [])
        with self.guard():
            log.append_as_leader(data, self.epoch, origin=AppendOrigin.COORDINATOR)
        self.tell(("end", "append", None))

    def _flush(self) -> None:
        with self.guard():
            self.log.flush()
        self.tell(("end", "flush", self.log.next_offset))

    def _checkpoint(self) -> None:
        self.log.set_high_watermark(self.log.next_offset)
        self.directories.checkpoint()

    def _roll(self) -> None:
        with self.guard():
            self.log.roll()

    def _new_leader(self) -> None:
        self.epoch += 1

    def _truncate(self) -> None:
        log = self.log
        headers = [header for segment in log.segments for _, header in segment.iter_headers()]
        kept = [header.base_offset for header in headers if header.base_offset >= log.log_start_offset]
        if kept:
            # Mostly the last few, sometimes many.
            offset = self.random.choice(kept[-5:] if self.random.random() < 0.8 else kept)
            self.tell(("begin", "truncate", offset))
            self.directories.truncate_to({PARTITION: offset})
            if self.directories.directories[0].failure is None:
                self.tell(("end", "truncate", offset))
            self.epoch += 1

    def _start_anew(self) -> None:
        offset = max(0, self.log.next_offset + self.random.randint(-5, 20))
        self.tell(("begin", "start_anew", offset))
        self.directories.truncate_fully_and_start_at(PARTITION, offset)
        if self.directories.directories[0].failure is None:
            self.tell(("end", "start_anew", offset))
        self.epoch += 1

    def _retain(self) -> None:
        log = self.log
        log.set_high_watermark(log.next_offset)
        log.update_config(replace(CONFIG, retention_bytes=self.random.choice((600, 1500, 3000))))
        self.tell(("begin", "shorten", log.next_offset))
        with suppress(LogDirectoryError), self.directories.guard(self.directories.directories[0]):
            apply_retention(log)
            log.producers.remove_expired(self.directories.clock.now_ms())
        log.update_config(CONFIG)

    def _delete(self) -> None:
        log = self.log
        log.set_high_watermark(log.next_offset)
        span = log.next_offset - log.log_start_offset
        offset = log.log_start_offset + self.random.randint(0, span // 3)
        self.tell(("begin", "shorten", offset))
        with self.guard():
            log.advance_log_start(offset)

    def _remove(self) -> None:
        self.advance_ms(self.random.choice((1, 10)))
        self.directories.remove_due()


def config_of(_: TopicPartition) -> LogConfig:
    return CONFIG
