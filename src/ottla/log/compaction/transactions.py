"""Follows transactions through a log as its batches go by: whose records were aborted, which markers are needed.

A marker is needed as long as a batch of its transaction is there, an empty one too: a reader of committed records
knows by it where an aborted transaction ends. What is looked at lies below the last stable offset, so all of it is
decided.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.transaction_index import AbortedTransaction


class TransactionTracker:
    """Batches must come in order of their offsets. `kept_aborted` gathers the entries of a new transaction index."""

    __slots__ = ("_aborted", "_committed_producers", "_next", "_ongoing", "kept_aborted")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset)
        self._next = 0
        self._ongoing: dict[int, tuple[AbortedTransaction, bool]] = {}
        """By producer: the aborted transaction that it is in, and whether a batch of it was seen."""
        self._committed_producers: set[int] = set()
        """Those with a batch since their last marker."""
        self.kept_aborted: list[AbortedTransaction] = []

    def _advance(self, last_offset: int) -> None:
        while self._next < len(self._aborted) and self._aborted[self._next].first_offset <= last_offset:
            transaction = self._aborted[self._next]
            self._ongoing.setdefault(transaction.producer_id, (transaction, False))
            self._next += 1

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional batch of data, which goes by now, was aborted."""
        self._advance(last_offset)
        ongoing = self._ongoing.get(producer_id)
        if ongoing is None:
            self._committed_producers.add(producer_id)
            return False
        self._ongoing[producer_id] = (ongoing[0], True)
        return True

    def is_needless_marker(self, producer_id: int, last_offset: int, committed: bool | None) -> bool:
        """Whether a control batch, which goes by now, ends a transaction of which nothing is left.

        `committed` is None for a control batch that is no marker, or has been emptied.
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
