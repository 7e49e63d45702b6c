"""Whether a batch may begin a transaction in a partition (KIP-890).

The coordinator must confirm first that the partition belongs to the transaction: otherwise a delayed batch could open a
transaction that nobody ends. While its answer is awaited, a `Verification` stands for the batch. A marker that ends the
transaction, or the first batch of the transaction, ends it; an append that still refers to it is refused then.

It also remembers the lowest sequence number seen: if a batch fails with an error that the producer retries, batches
after it must not be appended before it. Owned by the thread that owns the log.
"""

from __future__ import annotations


class Verification:
    """The wait of one producer. Equal only to itself."""

    __slots__ = ("epoch_rises", "lowest_sequence", "producer_epoch", "started_ms")

    def __init__(self, producer_epoch: int, sequence: int, started_ms: int, *, epoch_rises: bool) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.started_ms = started_ms
        self.epoch_rises = epoch_rises

    def note(self, producer_epoch: int, sequence: int) -> None:
        """Another batch of the producer that has to wait."""
        if producer_epoch > self.producer_epoch:
            self.producer_epoch, self.lowest_sequence = producer_epoch, sequence
        elif producer_epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)

    def is_ended_by(self, marker_epoch: int) -> bool:
        """Whether a marker may be that of the transaction which waits. Where each transaction has its own epoch, its
        marker has a higher one: a marker with the same epoch ended the previous transaction, for which the coordinator
        waits before it confirms this one."""
        return not self.epoch_rises or marker_epoch > self.producer_epoch
