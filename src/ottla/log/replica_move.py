"""Moves a replica to another log directory of its broker.

It is copied like a follower copies a leader, batch by batch, into a separate folder in the target directory. When
nothing is missing, the folder gets the partition's name, and the old one is removed. Until then the complete old
replica serves: a copy that is left by a crash, a failure or a cancelled move is worthless and is removed.

    while (piece := move.next_piece()) is not None:      owner
        move.copy(piece)                                 any thread
    directories.finish_move(move, …)                     owner, which also copies what was appended meanwhile

The steps follow each other: the copy belongs to the thread that executes one. An `OSError` of any step concerns the
target; a problem of the source is a `MoveError`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ottla.base.file_slice import FileSlice
from ottla.log.errors import FileError
from ottla.log.loader import LoadOptions, load
from ottla.log.partition_log import PartitionLog

_PIECE_BYTES: Final = 2**20
_NEVER: Final = 2**63
_BASE_OFFSET_BYTES: Final = 8


class MoveError(FileError):
    """The source could not be read; the copy is useless."""


class ReplicaMove:
    """`source` serves now; `copy_log`, in `target`, will replace it. Created by `LogDirectories.begin_move`."""

    def __init__(self, source: PartitionLog, folder: Path) -> None:
        """Creates the folder, next to the partitions of its directory."""
        self.source = source
        self.partition = source.partition
        self.target_path = folder.parent
        options = LoadOptions(
            clean=True,
            log_start_offset=self._first_offset(),
            cleaned_offset=source.compacted_below,
            producer_id_expiration_ms=source.producers.expiration_ms,
        )
        self.copy_log = load(source.disk, source.clock, folder, source.partition, source.config, options)
        self._cut_at = _NEVER

    @property
    def lag(self) -> int:
        """The number of offsets that the copy lacks."""
        return max(self.source.next_offset - self.copy_log.next_offset, 0)

    def source_truncated(self, offset: int) -> None:
        """From this offset on the copy differs from the source."""
        self._cut_at = min(self._cut_at, offset)

    def next_piece(self) -> FileSlice | None:
        """Returns what to copy next; None if nothing is missing."""
        source, copy = self.source, self.copy_log
        if self._cut_at < copy.next_offset:
            copy.truncate_to(self._cut_at)
        self._cut_at = _NEVER
        if copy.next_offset < source.log_start_offset and copy.next_offset < (first := self._first_offset()):
            copy.truncate_fully_and_start_at(first)  # the records between were deleted before they were copied
        if copy.next_offset >= source.next_offset:
            return None
        start = max(copy.next_offset, source.log_start_offset)
        found = self._read(start, min(_PIECE_BYTES, source.config.segment_bytes))
        if found is None:  # compaction left nothing up to the end, but the end offset is kept
            copy.roll(source.next_offset)
            copy.next_offset = source.next_offset
        return found

    def copy(self, piece: FileSlice) -> None:
        """Appends the piece to the copy."""
        try:
            data = piece.read()
        except OSError as error:
            raise self._unreadable(error) from error
        self.copy_log.append_as_follower(data)

    def catch_up(self) -> None:
        """Copies what is missing, and all state of the source. Nothing may be appended before the copy has taken its
        place. Everything that was synced before is synced again, not only the records."""
        while (piece := self.next_piece()) is not None:
            self.copy(piece)
        source, copy = self.source, self.copy_log
        copy.update_config(source.config)
        copy.compacted_below = max(copy.compacted_below, source.compacted_below)
        copy.on_roll, copy.on_flush_due = source.on_roll, source.on_flush_due
        copy.producers.take_over_verifications(source.producers)
        if copy.epochs.entries != source.epochs.entries:
            copy.epochs.clear(write=False)
            for epoch, start_offset in source.epochs.entries:
                copy.epochs.assign(epoch, start_offset)
        copy.set_high_watermark(source.high_watermark)
        copy.advance_log_start(source.log_start_offset)
        if source.topic_id is not None:
            copy.metadata.assign(source.topic_id)
        copy.flush()

    def _first_offset(self) -> int:
        """Where the first batch begins: the log start of the source may be within a batch."""
        start = self.source.log_start_offset
        found = self._read(start, 1)
        if found is None:
            return start
        try:
            return int.from_bytes(found.file.read_at(found.position, _BASE_OFFSET_BYTES), "big")
        except OSError as error:
            raise self._unreadable(error) from error

    def _read(self, offset: int, size: int) -> FileSlice | None:
        try:
            return self.source.read(offset, size).slice
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> MoveError:
        return MoveError(self.source.directory, f"it cannot be read for a move: {error}")


def relocate(log: PartitionLog, folder: Path) -> None:
    """Called when the folder of an open log was renamed."""
    log.directory = folder
    for segment in log.segments:
        segment.relocate(folder)
    log.producers.move_to(folder)
    log.epochs.move_to(folder)
    log.metadata.move_to(folder)
