"""A log against a plain list of batches, through any sequence of what can happen to it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.errors import OutOfOrderSequenceError
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.records import Compression, Record, TimestampType, decode_batch, iter_batches
from ottla.testing.manual_clock import ManualClock
from ottla.testing.simulated_disk import SimulatedDisk
from support.examples import examples
from support.logs.batches import NOW_MS, batch, marker
from support.logs.checker import check
from support.logs.home import ROOT, Home

CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=120, retention_ms=-1)
PLAIN_PRODUCERS = (1, 2)
TRANSACTIONAL_PRODUCERS = (11, 12, 13)
COORDINATOR = AppendOrigin.COORDINATOR


@dataclass(frozen=True)
class Entry:
    """A batch, as the list remembers it."""

    base_offset: int
    records: tuple[Record, ...]
    epoch: int
    producer_id: int = -1
    sequence: int = -1
    committed: bool | None = None
    """What a marker says; None for data."""

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1


class LogModel(RuleBasedStateMachine):
    """`entries` is the log; `gone` is what was deleted at its start, of which producers are still remembered."""

    log: PartitionLog

    @initialize()
    def make(self) -> None:
        self.clock = ManualClock()
        self.disk = SimulatedDisk(clock=self.clock)
        self.home = Home(self.disk, self.clock, ROOT)
        self.config = CONFIG
        self.log = self.home.open(CONFIG)
        self.entries: list[Entry] = []
        self.gone: list[Entry] = []
        self.start = self.end = self.high_watermark = 0
        self.epoch = 0
        self.written = 0
        self.interval_changed = False
        self.reloaded = False
        """Since then, a transaction decided above the high watermark may count as decided."""

    # Appending

    def _values(self, count: int) -> list[bytes | None]:
        self.written += count
        return [b"value %d" % (self.written + index) for index in range(count)]

    def _note(
        self,
        values: list[bytes | None],
        timestamp_ms: int,
        producer_id: int = -1,
        sequence: int = -1,
        committed: bool | None = None,
    ) -> None:
        offset = self.end
        stamped = self.config.timestamp_type is TimestampType.LOG_APPEND_TIME
        if stamped:
            timestamp_ms = self.clock.now_ms()
        records = tuple(Record(offset + index, timestamp_ms, b"key", value) for index, value in enumerate(values))
        self.entries.append(Entry(offset, records, self.epoch, producer_id, sequence, committed))
        self.end = offset + len(values)

    def _next_sequence(self, producer_id: int) -> int:
        for entry in reversed((*self.gone, *self.entries)):
            if entry.producer_id == producer_id and entry.committed is None:
                return entry.sequence + len(entry.records)
        return 0

    @rule(
        count=st.integers(1, 4),
        codec=st.sampled_from(list(Compression)),
        age_ms=st.integers(0, 50),
        producer_id=st.sampled_from((-1, -1, *PLAIN_PRODUCERS)),
    )
    def append(self, count: int, codec: Compression, age_ms: int, producer_id: int) -> None:
        values, timestamp_ms = self._values(count), self.clock.now_ms() - age_ms
        sequence = self._next_sequence(producer_id) if producer_id >= 0 else -1
        data = batch(
            values,
            timestamp_ms=timestamp_ms,
            compression=codec,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            sequence=sequence,
        )
        info = self.log.append_as_leader(data, self.epoch)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        assert not info.is_duplicate
        self._note(values, timestamp_ms, producer_id=producer_id, sequence=sequence)

    @rule(producer_id=st.sampled_from(PLAIN_PRODUCERS), back=st.integers(0, 4))
    def append_again(self, producer_id: int, back: int) -> None:
        """Only of what the log surely remembers: one batch a producer, if it was reopened."""
        known = [entry for entry in self.entries if entry.producer_id == producer_id]
        if self.reloaded:
            known = known[-1:]
        if len(known) > back:
            entry = known[-1 - back]
            data = batch(len(entry.records), producer_id=producer_id, producer_epoch=0, sequence=entry.sequence)
            info = self.log.append_as_leader(data, self.epoch)
            assert info.is_duplicate
            assert (info.first_offset, info.last_offset) == (entry.base_offset, entry.end - 1)

    @rule(count=st.integers(1, 3), gap=st.sampled_from((0, 0, 1, 7)), batches=st.integers(1, 3), torn=st.booleans())
    def follow(self, count: int, gap: int, batches: int, torn: bool) -> None:
        data = b""
        for _ in range(batches):
            self.end += gap
            values, timestamp_ms = self._values(count), self.clock.now_ms()
            data += batch(values, base_offset=self.end, leader_epoch=self.epoch, timestamp_ms=timestamp_ms)
            stamped, self.config = self.config, replace(self.config, timestamp_type=TimestampType.CREATE_TIME)
            self._note(values, timestamp_ms)
            self.config = stamped
        self.log.append_as_follower(data + (batch(3, base_offset=self.end)[:50] if torn else b""))

    @rule(producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS), count=st.integers(1, 2))
    def append_in_transaction(self, producer_id: int, count: int) -> None:
        values, sequence = self._values(count), self._next_sequence(producer_id)
        data = batch(
            values,
            timestamp_ms=self.clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=0,
            sequence=sequence,
            transactional=True,
        )
        try:
            self.log.append_as_leader(data, self.epoch)
        except OutOfOrderSequenceError:
            # All that is left of the producer is the marker of a transaction whose records were deleted.
            assert self.reloaded
            assert self.start > 0
            return
        self._note(values, self.clock.now_ms(), producer_id=producer_id, sequence=sequence)

    @rule(producer_id=st.sampled_from(TRANSACTIONAL_PRODUCERS), committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        data = marker(producer_id, committed=committed, timestamp_ms=self.clock.now_ms())
        self.log.append_as_leader(data, self.epoch, origin=COORDINATOR)
        self._note([None], self.clock.now_ms(), producer_id=producer_id, committed=committed)

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @rule(duration_ms=st.integers(1, 100))
    def wait(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        self.high_watermark = max(self.high_watermark, self.start + int((self.end - self.start) * share))
        self.log.set_high_watermark(self.high_watermark)

    # Reading

    @rule(share=st.floats(0, 1), bound_share=st.floats(0, 1), max_bytes=st.integers(0, 1500), min_one=st.booleans())
    def read(self, share: float, bound_share: float, max_bytes: int, min_one: bool) -> None:
        offset = self.start + int((self.end - self.start) * share)
        bound = self.start + int((self.end - self.start + 1) * bound_share)
        found = self.log.read(offset, max_bytes, bound=bound, min_one=min_one).slice
        expected = [entry for entry in self.entries if entry.end > offset and entry.end <= bound]
        if found is None:
            if expected and offset < bound:
                first = self.log.read(offset, 0, bound=bound).slice
                assert first is not None
                assert not min_one
                assert first.size > max_bytes
            return
        assert offset < bound
        whole = list(iter_batches(found.read(), partial_tail=True))
        assert whole
        assert min_one or found.size <= max_bytes
        assert len(whole) == 1 or found.size <= max_bytes
        read = [tuple(decode_batch(view)) for view in whole]
        for records, entry in zip(read, expected, strict=False):
            assert entry.committed is not None or records == entry.records
        assert [view.base_offset for view in whole] == [entry.base_offset for entry in expected[: len(read)]]

    @rule(share=st.floats(0, 1), max_bytes=st.integers(1, 1500))
    def read_committed(self, share: float, max_bytes: int) -> None:
        stable = self.log.last_stable_offset
        offset = self.start + int((stable - self.start) * share)
        result = self.log.read(offset, max_bytes, bound=stable, with_aborted=True)
        if result.aborted_transactions is None:  # the bound lies within the first batch: there is nothing to read yet
            assert result.slice is None
            return
        if self.gone or self.start or result.slice is None:
            return
        told = {(each.producer_id, each.first_offset, each.last_offset) for each in result.aborted_transactions}
        assert len(told) == len(result.aborted_transactions)
        aborted = {each for each in self._transactions() if not each[3]}
        assert told <= {each[:3] for each in aborted}
        for view in iter_batches(result.slice.read(), partial_tail=True):
            for producer_id, first, last, _ in aborted:
                if view.producer_id == producer_id and not view.is_control and first <= view.base_offset < last:
                    assert view.last_offset < offset or (producer_id, first, last) in told

    def _transactions(self) -> list[tuple[int, int, int, bool]]:
        """Those that are decided: producer, first offset, marker, committed."""
        begun: dict[int, int] = {}
        decided = []
        for entry in (*self.gone, *self.entries):
            if entry.producer_id in TRANSACTIONAL_PRODUCERS:
                if entry.committed is None:
                    begun.setdefault(entry.producer_id, entry.base_offset)
                elif entry.producer_id in begun:
                    decided.append(
                        (entry.producer_id, begun.pop(entry.producer_id), entry.base_offset, entry.committed)
                    )
        self.undecided = begun
        return decided

    @rule(share=st.floats(0, 1.1))
    def find_by_time(self, share: float) -> None:
        timestamp_ms = NOW_MS + int((self.clock.now_ms() - NOW_MS) * share)
        found = self.log.offset_for_timestamp(timestamp_ms)
        expected = next(
            (
                record
                for entry in self.entries
                for record in entry.records
                if record.timestamp_ms >= timestamp_ms and record.offset >= self.start
            ),
            None,
        )
        assert (found.offset if found else None) == (expected.offset if expected else None)

    # Shortening

    @rule(share=st.floats(0, 1.05))
    def truncate(self, share: float) -> None:
        first = self.log.segments[0].base_offset
        offset = max(first, self.start - 5) + int((self.end - max(first, self.start - 5)) * share)
        self.log.truncate_to(offset)
        if offset < self.end:
            self.entries = [entry for entry in self.entries if entry.end <= offset]
            self.end = offset
            self.start = min(self.start, offset)
            self.high_watermark = min(self.high_watermark, offset)
            self.reloaded = True
        self.epoch += 1

    @precondition(lambda self: self.entries)
    @rule(ahead=st.integers(-3, 10))
    def start_anew(self, ahead: int) -> None:
        offset = max(0, self.end + ahead)
        self.log.truncate_fully_and_start_at(offset)
        self.entries, self.gone = [], []
        self.start = self.end = self.high_watermark = offset
        self.epoch += 1
        self.reloaded = False

    @rule()
    def roll(self) -> None:
        self.log.roll()
        assert self.log.active.size == 0

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.start + int((self.high_watermark - self.start) * share)
        self.log.advance_log_start(offset)
        self.start = offset

    @rule(limit=st.integers(0, 3000), age_ms=st.integers(-1, 300))
    def retain(self, limit: int, age_ms: int) -> None:
        self.log.update_config(replace(self.config, retention_bytes=limit, retention_ms=age_ms))
        size = self.log.size
        deleted = apply_retention(self.log)
        self.log.update_config(self.config)
        assert deleted == 0 or self.log.log_start_offset <= self.high_watermark
        assert self.log.size >= min(limit, size) or age_ms >= 0 or self.start > 0
        self.start = max(self.start, self.log.log_start_offset)
        first = self.log.segments[0].base_offset
        assert first <= self.start
        self.gone += [entry for entry in self.entries if entry.end <= first]
        self.entries = [entry for entry in self.entries if entry.end > first]

    @rule()
    def remove_files(self) -> None:
        self.clock.advance_ms(self.config.file_delete_delay_ms)
        self.log.remove_due()

    # Keeping

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        point = self.log.recovery_point
        if clean:
            self.log.flush()
            self.log.close()
        self.log = self.home.open(self.config, clean=clean, recovery_point=point, log_start_offset=self.start)
        self.log.set_high_watermark(self.high_watermark)
        last = self.entries[-1].end if self.entries else self.log.segments[-1].base_offset
        # The end of a truncation in the middle of a batch is not written down; nor is a high watermark behind it.
        assert last <= self.log.next_offset <= self.end
        self.end = self.log.next_offset
        self.high_watermark = self.log.high_watermark
        self.reloaded = True

    @rule(
        segment_bytes=st.sampled_from((700, 900, 3000)),
        interval=st.sampled_from((0, 120, 4096)),
        codec=st.sampled_from((None, Compression.NONE, Compression.ZSTD)),
        timestamp_type=st.sampled_from(list(TimestampType)),
    )
    def configure(
        self, segment_bytes: int, interval: int, codec: Compression | None, timestamp_type: TimestampType
    ) -> None:
        self.interval_changed |= interval != self.config.index_interval_bytes
        self.config = replace(
            self.config,
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            compression=codec,
            timestamp_type=timestamp_type,
        )
        self.log.update_config(self.config)

    # Always

    @invariant()
    def bounds_agree(self) -> None:
        if hasattr(self, "entries"):
            log = self.log
            assert (log.log_start_offset, log.next_offset, log.high_watermark) == (
                self.start,
                self.end,
                self.high_watermark,
            )
            if not self.reloaded and not self.start:
                decided = self._transactions()
                unstable = list(self.undecided.values())
                unstable += [first for _, first, last, _ in decided if last >= self.high_watermark]
                assert log.last_stable_offset == min([*unstable, self.high_watermark])

    def teardown(self) -> None:
        if hasattr(self, "entries"):
            first = self.log.segments[0].base_offset
            batches = check(self.log, exact_indexes=not self.interval_changed, deleted_below=self.start)
            assert [scanned.header.base_offset for scanned in batches] == [
                entry.base_offset for entry in self.entries if entry.end > first
            ]
            for scanned, entry in zip(batches, self.entries, strict=True):
                assert entry.committed is not None or tuple(scanned.records) == entry.records
                assert scanned.header.leader_epoch == entry.epoch


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    deadline=None, max_examples=examples(60), stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
