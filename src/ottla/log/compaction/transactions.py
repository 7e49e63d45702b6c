"""Follows transactions through the batches of a log: whose records were aborted, which markers are needed.

A marker is needed as long as a batch of its transaction exists, even an empty one: consumers with read_committed use it
to find the end of an aborted transaction. Only offsets below the last stable offset are considered, so all of them are
decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.transaction_index import AbortedTransaction


class TransactionTracker:
    """Batches must come in order of their offsets. `kept_aborted` collects the entries of a new transaction index."""

    __slots__ = ("_aborted", "_committed_producers", "_next", "_ongoing", "kept_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer: its current aborted transaction, and whether a batch of it was seen."""
        self._committed_producers: set[int] = set()
        """Producers with a batch since their last marker."""
        self.kept_aborted: list[AbortedTransaction] = []

    def _advance(self, last_offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= last_offset:
            transaction = self._aborted[self._next]
            self._ongoing.setdefault(transaction.producer_id, (transaction, False))
            self._next += 1

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether the next transactional data batch was aborted."""
        self._advance(last_offset)
        ongoing = self._ongoing.get(producer_id)
        if ongoing is None:
            self._committed_producers.add(producer_id)
            return False
        self._ongoing[producer_id] = (ongoing[0], True)
        return True

    def is_needless_marker(self, producer_id: int, last_offset: int, committed: bool | None) -> bool:
        """Whether the next control batch ends a transaction of which nothing is left.

        `committed` is None for a control batch that is not a marker, or that was emptied.
        """
        self._advance(last_offset)
        if committed is None:
            return False
        if committed:
            seen = producer_id in self._committed_producers
            self._committed_producers.discard(producer_id)
            return not seen
        transaction, seen = self._ongoing.pop(producer_id, (None, False))
        if transaction is not None and seen:
            self.kept_aborted.append(transaction)
            return False
        return True
