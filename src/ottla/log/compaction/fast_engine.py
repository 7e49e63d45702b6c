"""The engine of compiled kernels: see `ottla.log.compaction.engine`. Importing it loads numba, and compiles the kernels
if the cache is cold."""

from __future__ import annotations

from ottla.log.compaction.chunks import BatchChunk, read_chunks
from ottla.log.compaction.offset_map import ENTRY_BYTES, OffsetMap
from ottla.log.compaction.rewriter import Rewriter, drop_unmapped
from ottla.log.compaction.transactions import TransactionTracker

__all__ = ["ENTRY_BYTES", "map_chunk", "new_map", "new_rewriter", "read_chunks"]

new_map = OffsetMap
new_rewriter = Rewriter


def map_chunk(chunk: BatchChunk, offsets: OffsetMap, transactions: TransactionTracker, first_offset: int) -> bool:
    """Enters the keys of all records from an offset on, except aborted ones. Returns whether all were entered."""
    drop_unmapped(chunk, transactions, first_offset)
    for first, table in chunk.runs():
        entered = offsets.add(table, first_offset)
        if entered < 0:
            chunk.refuse(first - 1 - entered)
        if entered < len(table):
            return False
    return True
