"""The interface between a pass of compaction and the code that reads, maps and copies its records.

Two engines implement it, and write the same bytes: `fast_engine`, which is compiled and needs the `columns` extra, and
`plain_engine`, which needs nothing and is many times slower. An engine is a module: it has no state except that of the
objects it creates for a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ottla.base.disk import File
from ottla.log.compaction.transactions import TransactionTracker
from ottla.log.segment import Segment


@dataclass(frozen=True, slots=True)
class LastRecords:
    """The batches that contain the last state of producers."""

    data_offsets: tuple[int, ...]
    """The last offset of each producer's last batch."""
    marker_epochs: Mapping[int, int]
    """The epoch of each producer that has only markers."""


@dataclass(slots=True)
class CopyTotals:
    """The sizes before and after."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0


class EngineChunk(Protocol):
    """Consecutive batches of a file. Only the engine that created it uses its content."""

    size: int
    """Its size in the file."""


class KeyMap(Protocol):
    """The last offset of each key, within a limit of memory."""

    @property
    def key_count(self) -> int: ...
    @property
    def utilization(self) -> float: ...

    @property
    def until_offset(self) -> int:
        """Up to which offset records are entered."""
        ...

    def pass_over(self, until_offset: int) -> None:
        """There are no records before that offset."""
        ...


class BatchRewriter(Protocol):
    """For one pass over a log: segments, and chunks in them, must come in order."""

    totals: CopyTotals

    def copy(self, chunk: Any, target: Segment, /) -> int:
        """Appends what remains of a chunk. Returns the number of bytes written."""
        ...


class Engine(Protocol):
    """See the module docstring. Any error in the bytes of a file raises `CorruptRecordsError`."""

    ENTRY_BYTES: int
    """The memory that a key takes."""

    def read_chunks(self, file: File, size: int, chunk_bytes: int, /) -> Iterator[EngineChunk]:
        """All batches of a file of that size."""
        ...

    def new_map(self, max_bytes: int, load_factor: float, first_offset: int, /) -> KeyMap: ...

    def map_chunk(self, chunk: Any, offsets: Any, transactions: TransactionTracker, first_offset: int, /) -> bool:
        """Enters the keys of all records from an offset on, except aborted ones. Returns whether all were entered."""
        ...

    def new_rewriter(
        self,
        offsets: Any,
        transactions: TransactionTracker,
        last_records: LastRecords,
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> BatchRewriter: ...
