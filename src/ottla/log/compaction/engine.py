"""The seam between a pass of compaction and what reads, maps and copies its records.

Two engines keep it, and write the same bytes: `fast_engine`, compiled, which needs the `columns` extra, and
`plain_engine`, which needs nothing and takes many times as long. An engine is a module: it holds no state but that of
what it makes for a pass.
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
    """Which batches hold what is known of the producers."""

    data_offsets: tuple[int, ...]
    """The last offset of each producer's last batch."""
    marker_epochs: Mapping[int, int]
    """The epoch of each producer that has only markers."""


@dataclass(slots=True)
class CopyTotals:
    """What went in and what came out."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keyless_records: int = 0


class EngineChunk(Protocol):
    """Some batches of a file that follow each other. Only the engine that made it looks into it."""

    size: int
    """Bytes of the file."""


class KeyMap(Protocol):
    """The last offset of each key, within a bound of memory."""

    @property
    def key_count(self) -> int: ...
    @property
    def utilization(self) -> float: ...

    @property
    def until_offset(self) -> int:
        """How far the records are entered."""
        ...

    def pass_over(self, until_offset: int) -> None:
        """No records come before that offset."""
        ...


class BatchRewriter(Protocol):
    """For one pass over a log: segments, and chunks in them, must come in order."""

    totals: CopyTotals

    def copy(self, chunk: Any, target: Segment, /) -> int:
        """Appends what stays of a chunk. Returns the bytes written."""
        ...


class Engine(Protocol):
    """See the module. Whatever is wrong with the bytes of a file raises `CorruptRecordsError`."""

    ENTRY_BYTES: int
    """What a key takes of the memory for keys."""

    def read_chunks(self, file: File, size: int, chunk_bytes: int, /) -> Iterator[EngineChunk]:
        """All batches of a file of that size."""
        ...

    def new_map(self, max_bytes: int, load_factor: float, first_offset: int, /) -> KeyMap: ...

    def map_chunk(self, chunk: Any, offsets: Any, transactions: TransactionTracker, first_offset: int, /) -> bool:
        """Enters the keys of all records from an offset on, aborted ones aside. Whether all went in."""
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
