"""A log directory with two partitions, ways to damage its files, and a judge of what a broker makes of that.

One partition is damaged, the other must never notice. After the damage everything is read as a consumer reads it
(fetch, check, advance), records are appended, the log is rolled, retention runs, and the directory is closed and opened
again. Each outcome must be one of `OUTCOMES`; anything else raises `AssertionError`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

from ottla.base.ids import TopicPartition, Uuid
from ottla.log import names
from ottla.log.append_origin import AppendOrigin
from ottla.log.config import LogConfig
from ottla.log.directories import DirectoryOptions, LogDirectories
from ottla.log.errors import FileError, LogError
from ottla.log.local_disk import LocalDisk
from ottla.log.partition_log import PartitionLog
from ottla.log.retention import apply_retention
from ottla.log.scrub import scrub_segment
from ottla.records import BatchView, decode_batch, iter_batches
from ottla.records.errors import RecordError
from ottla.records.layout import HEADER_SIZE
from ottla.testing.manual_clock import ManualClock
from support.logs.batches import batch, marker

VICTIM: Final = TopicPartition("victim", 0)
BYSTANDER: Final = TopicPartition("bystander", 0)
CONFIG: Final = LogConfig(
    segment_bytes=2100, index_interval_bytes=250, retention_ms=-1, file_delete_delay_ms=0, max_message_bytes=2000
)
COMPACTED: Final = replace(CONFIG, compacts=True, deletes=False)
OPTIONS: Final = DirectoryOptions(broker_id=1, cluster_id="cluster", producer_id_expiration_ms=2**62)
OUTCOMES: Final = ("unaffected", "repaired", "told")
START: Final = 4
"""Records below it were deleted on request."""
KINDS: Final = (
    names.LOG,
    names.OFFSET_INDEX,
    names.TIME_INDEX,
    names.TRANSACTION_INDEX,
    names.PRODUCER_SNAPSHOT,
    names.LEADER_EPOCHS,
    names.PARTITION_METADATA,
    names.RECOVERY_POINTS,
    names.HIGH_WATERMARKS,
    names.LOG_START_OFFSETS,
    names.CLEANER_OFFSETS,
    names.META_PROPERTIES,
    names.CLEAN_SHUTDOWN,
)

Truth = dict[int, bytes]
"""Offset and value of every record that was acknowledged."""


# --- what there is before ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """A directory as a broker left it, cleanly stopped or killed, and what was acknowledged."""

    path: Path
    truth: Truth
    """Of either partition: both hold the same records."""


def make_template(path: Path, *, compacted: bool, clean: bool) -> Template:
    """Writes the records, and stops."""
    clock = ManualClock()
    directories = LogDirectories(LocalDisk(), clock, [path / "open"], OPTIONS)
    config = COMPACTED if compacted else CONFIG
    directories.open(lambda _: config)
    truth: Truth = {}
    for number, partition in enumerate((VICTIM, BYSTANDER)):
        log = directories.create(partition, config, topic_id=Uuid(bytes([number + 1] * 16)))
        truth = _fill(log, Random(7), clock)
        log.set_high_watermark(log.next_offset)
        log.advance_log_start(START)
    directories.checkpoint()
    if clean:
        directories.close()
        shutil.copytree(path / "open", path / "closed")
    else:
        for log in directories.logs():
            log.flush()
        directories.checkpoint()
        shutil.copytree(path / "open", path / "closed")
        directories.close()
    return Template(path / "closed", truth)


def _fill(log: PartitionLog, random: Random, clock: ManualClock) -> Truth:
    truth: Truth = {}
    sequences = [0, 0]
    for number in range(50):
        clock.advance_ms(10)
        count = random.randrange(1, 4)
        values = [b"%d:" % (log.next_offset + at) + random.randbytes(random.choice((3, 40, 90))) for at in range(count)]
        epoch = number // 20
        is_transactional = number % 10 == 0
        data = batch(
            values,
            timestamp_ms=clock.now_ms(),
            key=b"key %d" % number,
            producer_id=9 if is_transactional else 5,
            producer_epoch=0,
            sequence=sequences[is_transactional],
            transactional=is_transactional,
        )
        sequences[is_transactional] += count
        info = log.append_as_leader(memoryview(data), epoch)
        truth |= {info.first_offset + at: value for at, value in enumerate(values)}
        if is_transactional:
            end = marker(9, committed=number % 20 == 0, timestamp_ms=clock.now_ms())
            log.append_as_leader(memoryview(end), epoch, origin=AppendOrigin.COORDINATOR)
    return truth


# --- damage -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Damage:
    """What is done to one file."""

    file: str
    """Below the directory."""
    kind: str
    position: int
    count: int = 1

    def apply(self, root: Path) -> None:
        path = root / self.file
        content = bytearray(path.read_bytes())
        if self.kind == "flip":
            content[self.position] ^= self.count
        elif self.kind == "zero":
            content[self.position : self.position + self.count] = bytes(
                len(content[self.position : self.position + self.count])
            )
        elif self.kind == "random":
            noise = Random(self.position).randbytes(len(content[self.position : self.position + self.count]))
            content[self.position : self.position + self.count] = noise
        elif self.kind == "append":
            content += Random(self.position).randbytes(self.count)
        with path.open("r+b") as file:  # the same file, for a log that has it open
            if self.kind == "cut":
                file.truncate(self.position)
            else:
                file.write(content)


def files_of(root: Path, kind: str) -> list[str]:
    """The files of that kind that may be damaged: of the victim, or of the whole directory."""
    folder = root / str(VICTIM)
    inner = sorted(f"{VICTIM}/{path.name}" for path in folder.iterdir() if path.name.endswith(kind))
    return inner or [path.name for path in root.iterdir() if path.name == kind]


def random_damage(root: Path, random: Random) -> Damage:
    """Something to some file that has content."""
    while True:
        chosen = files_of(root, random.choice((*KINDS, names.LOG, names.LOG, names.OFFSET_INDEX)))
        file = random.choice(chosen) if chosen else ""
        size = (root / file).stat().st_size if file else 0
        if size:
            break
    kind = random.choice(("flip", "flip", "flip", "flip", "zero", "random", "cut", "append"))
    position = random.randrange(size)
    if kind == "flip":
        return Damage(file, kind, position, 1 << random.randrange(8))
    return Damage(file, kind, position, random.choice((1, 4, 20, 300)))


def header_damages(root: Path) -> list[Damage]:
    """Every byte of the header of the first, a middle and the last batch, in the first, a middle and the last segment;
    which of its bits is drawn from its place."""
    found = []
    logs = files_of(root, names.LOG)
    for file in (logs[0], logs[len(logs) // 2], logs[-1]):
        views = list(iter_batches((root / file).read_bytes()))
        for view in (views[0], views[len(views) // 2], views[-1]):
            found += [
                Damage(file, "flip", view.position + at, 1 << Random(f"{file} {view.position} {at}").randrange(8))
                for at in range(HEADER_SIZE)
            ]
    return found


def is_unverifiable(root: Path, damage: Damage) -> bool:
    """Whether it reaches to the base offset of the last batch of all. No CRC covers that, nothing follows, and after a
    kill nobody knows where the log ended: batches may have gaps between them."""
    last = files_of(root, names.LOG)[-1]
    views = list(iter_batches((root / last).read_bytes()))
    return damage.file == last and damage.kind != "cut" and views[-1].position <= damage.position + damage.count


def is_between_batches(root: Path, damage: Damage) -> bool:
    """Whether a file of records is cut off where one batch ends and the next begins. In an old segment of a compacted
    topic nobody can tell: compaction may have removed what followed, and Kafka's files do not keep sizes."""
    if damage.kind != "cut" or not damage.file.endswith(names.LOG):
        return False
    return any(view.position == damage.position for view in iter_batches((root / damage.file).read_bytes()))


# --- the judge --------------------------------------------------------------------------------------------------------


class Heard(logging.Handler):
    """The warnings and errors that were logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def heard() -> Iterator[Heard]:
    handler = Heard()
    logger = logging.getLogger("ottla")
    logger.addHandler(handler)
    propagates, logger.propagate = logger.propagate, False
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


class Case:
    """One directory, damaged once. `run` says the outcome."""

    def __init__(self, root: Path, truth: Truth, config: LogConfig, random: Random) -> None:
        self.root = root
        self.truth = truth
        self.config = config
        self.random = random
        self.clock = ManualClock()
        self.clock.advance_ms(100_000)

    def open(self) -> LogDirectories:
        directories = LogDirectories(LocalDisk(), self.clock, [self.root], OPTIONS)
        directories.open(lambda _: self.config)
        for log in directories.logs():
            log.set_high_watermark(log.next_offset)
        return directories

    def run(self, damage: Damage, *, live: bool, clean: bool = True) -> str:
        """`clean`: the directory has the mark of a clean stop, by which text files are known to be whole. Without it a
        changed number in Kafka's format looks like any other: then the log starts where the file says."""
        self.is_live = live
        self.is_start_unsure = damage.file == names.LOG_START_OFFSETS and not clean
        with heard() as told:
            if not live:
                damage.apply(self.root)
            try:
                directories = self.open()
            except FileError:
                if damage.file != names.META_PROPERTIES:
                    raise
                return "told"
            if live:
                if self.random.random() < 0.5:
                    self.consume(directories, VICTIM)
                damage.apply(self.root)
            try:
                outcome = self.work(directories, told, live=live)
                # What was acknowledged after the damage must be there after a clean restart.
                directories.close()
                before = len(told.lines)
                try:
                    directories = self.open()
                except FileError:
                    if damage.file != names.META_PROPERTIES:
                        raise
                    return "told"
                self.check_appended(directories, told, before)
                self.check_bystander(directories)
            finally:
                for log in directories.logs():
                    for segment in log.segments:
                        segment.abandon()
                directories._release_locks()
            return outcome

    def work(self, directories: LogDirectories, told: Heard, *, live: bool) -> str:
        log = directories.get(VICTIM)
        if log is None:
            assert told.lines, "the partition is gone, and nobody says so"
            self.appended: Truth = {}
            return "told"
        records, error = self.consume(directories, VICTIM)
        start = log.log_start_offset if self.is_start_unsure else START
        expected = {offset: value for offset, value in self.truth.items() if offset >= start}
        if live and error is None and records != expected and not told.lines:
            self.scrub(log)  # what was served before the damage is not followed again with every read
        wrong = [offset for offset, value in records.items() if self.truth.get(offset) != value]
        assert not wrong or (live and told.lines), f"records that never were, at {wrong}"
        outcome = "unaffected"
        if error is not None:
            cut = max(records, default=start - 1)
            missing = [offset for offset in expected if offset <= cut and offset not in records]
            assert not missing or told.lines, f"{missing} are passed over in silence, before {error}"
            outcome = "told"
        elif records != expected:
            assert told.lines, f"silence: {_difference(expected, records)}"
            outcome = "repaired"
        elif told.lines:
            outcome = "repaired"
        self.appended = self.append(log)
        log.roll()
        self.appended |= self.append(log)
        log.update_config(replace(self.config, retention_bytes=int(log.size * 0.7)))
        with suppress(LogError):
            apply_retention(log)
        log.remove_due()
        assert not directories.directories[0].failure, directories.directories[0].failure
        before = len(told.lines)
        self.check_appended(directories, told, before)
        return outcome

    def append(self, log: PartitionLog) -> Truth:
        added: Truth = {}
        for _ in range(3):
            values = [b"new" + self.random.randbytes(50) for _ in range(2)]
            info = log.append_as_leader(memoryview(batch(values, timestamp_ms=self.clock.now_ms())), 3)
            added |= {info.first_offset + at: value for at, value in enumerate(values)}
        log.set_high_watermark(log.next_offset)
        return added

    def scrub(self, log: PartitionLog) -> None:
        for segment, end_offset in log.segment_ends():
            scrub_segment(log, segment, end_offset)

    def check_appended(self, directories: LogDirectories, told: Heard, before: int) -> None:
        """Records that were acknowledged after the damage can be read, by themselves, or it is said why not."""
        log = directories.get(VICTIM)
        if log is None:
            assert len(told.lines) > before or not self.appended, "the partition is gone, and nobody says so"
            return
        found: Truth = {}
        for offset in self.appended:
            if offset < log.log_start_offset:
                found[offset] = self.appended[offset]
                continue
            if offset in found:
                continue
            try:
                read = log.read(offset, 1)
                assert read.slice is not None, f"offset {offset} was acknowledged, and is not there"
                view = BatchView(read.slice.read())
                found |= {record.offset: record.value or b"" for record in decode_batch(view)}
            except (LogError, RecordError, EOFError):  # told
                found[offset] = self.appended[offset]
        if found != self.appended and self.is_live and not told.lines:
            self.scrub(log)
        for offset, value in self.appended.items():
            is_told = self.is_live and told.lines
            assert found.get(offset) == value or is_told, f"offset {offset} was acknowledged, and is another record"

    def check_bystander(self, directories: LogDirectories) -> None:
        records, error = self.consume(directories, BYSTANDER)
        assert error is None, f"the other partition fails: {error}"
        log = directories.get(BYSTANDER)
        assert log is not None
        expected = {offset: value for offset, value in self.truth.items() if offset >= log.log_start_offset}
        if not self.is_start_unsure:
            assert log.log_start_offset in (START, 0), f"the other partition starts at {log.log_start_offset}"
        assert records == expected, f"the other partition: {_difference(expected, records)}"

    def consume(self, directories: LogDirectories, partition: TopicPartition) -> tuple[Truth, Exception | None]:
        """All data records from the log's start, and the error that ended the reading early."""
        log = directories.get(partition)
        assert log is not None
        found: Truth = {}
        offset = log.log_start_offset
        while offset < log.high_watermark:
            try:
                read = log.read(offset, self.random.choice((1, 400, 1000, 5000)), bound=log.high_watermark)
                assert read.slice is not None, f"a consumer waits for ever at offset {offset} of {log.high_watermark}"
                data = read.slice.read()
                behind = offset
                for view in iter_batches(data, partial_tail=True):
                    for record in decode_batch(view):
                        if record.offset >= offset and not view.header.is_control:
                            found[record.offset] = record.value or b""
                    behind = max(behind, view.header.next_offset)  # clients pass over batches of lower offsets
            except (LogError, RecordError, EOFError) as error:  # the last ends the connection, and is logged
                return found, error
            assert behind > offset, f"a consumer makes no progress at offset {offset}"
            offset = behind
        return found, None


def _difference(expected: Truth, found: Truth) -> str:
    missing = sorted(expected.keys() - found.keys())
    added = sorted(found.keys() - expected.keys())
    return f"missing {missing[:5]}…({len(missing)}), added {added[:5]}…({len(added)})"
