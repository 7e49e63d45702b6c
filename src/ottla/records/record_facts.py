"""What a broker must know about the records of a batch."""

from __future__ import annotations

RecordFacts = tuple[int, int, int]
"""The newest timestamp, or -1 if no record has one; the oldest other than -1, or 2^63-1; the number without a key."""
