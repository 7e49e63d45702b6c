"""Compaction: a log keeps only the last record of each key.

    plan (owner: which log) ──▶ run (worker: reads closed segments, writes new ones) ──▶ apply (owner: swaps them)

`cleaner` chooses among logs and stores their offsets; `compaction` is one pass over one log; an `engine`, compiled or
in plain Python, does the work per record. Only a running pass loads numba: importing this package does not.
"""

from __future__ import annotations

from ottla.log.compaction.cleaner import Cleaner
from ottla.log.compaction.compaction import CleanedGroup, Compaction, CompactionCancelledError
from ottla.log.compaction.options import CleanerOptions
from ottla.log.compaction.selection import Cleanable, find_cleanable

__all__ = [
    "Cleanable",
    "CleanedGroup",
    "Cleaner",
    "CleanerOptions",
    "Compaction",
    "CompactionCancelledError",
    "find_cleanable",
]
