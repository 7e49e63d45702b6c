"""Differences that we want, or that Kafka's own versions have among themselves: each with its reason.

An entry applies to a single field that differs, and says as exactly as it can which: the field, the two answers and
what the dialogue did to bring it about. Those that no run needs any more are reported, so that the list stays short.
"""

from __future__ import annotations

from typing import Final

from differential.on_purpose import fetches, grouping, producing, topics
from differential.on_purpose.entry import Explanations, OnPurpose

__all__ = ["ENTRIES", "Explanations", "OnPurpose"]

ENTRIES: Final[tuple[OnPurpose, ...]] = (*producing.ENTRIES, *fetches.ENTRIES, *grouping.ENTRIES, *topics.ENTRIES)
