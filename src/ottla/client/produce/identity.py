"""The identity of an idempotent producer, and how the batches of a partition are numbered.

Brokers store each batch once, and in order, by three numbers: the producer's id, its epoch, and the sequence number of
the batch's first record in the partition. A batch keeps its sequence number for all attempts, as long as a broker may
have it. No sequence number may be left out: nothing after it would be accepted. So when a batch is given up, its
partition continues with the next epoch, from sequence number 0, once everything sent under the previous one is decided
(KIP-360). A broker accepts a higher epoch of an idempotent producer without further checks.

    whole ──a batch is given up, or its sequence refused──▶ broken ──nothing is in flight any more──▶ whole, next epoch

While it is broken, no batch gets a sequence number. A batch that has one is still sent, and the broker takes it, or
already has it, or refuses its sequence number. A refusal alone does not mean that the batch is missing: a restarted
broker may remember only the last batch of a producer, and refuse earlier ones that it has. So batches that were sent
after a refused one, and are not decided, are sent again first: if the broker has them, it has everything before them.
Only if all of them are refused are they numbered again (`queues`). This reasoning needs a broker that knows the
producer: it accepts any sequence number from an unknown one. So the first batch under an identity is in flight alone.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from ottla.client.transactions.identity import Identity
from ottla.records import sequence_after

if TYPE_CHECKING:
    from ottla.client.produce.batch import Batch

LAST_EPOCH: Final = 2**15 - 1


class Sequences:
    """The sequence numbers of one partition; belongs to the loop."""

    __slots__ = ("_next", "identity", "is_broken")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.is_broken = False
        self._next = 0

    def can_go_on_as(self, producer: Identity) -> bool:
        """Whether the next batch can be numbered once nothing is in flight; if not, the producer needs another id."""
        if self.identity is None or self.identity.producer_id != producer.producer_id:
            return True
        return not self.is_broken or self.identity.epoch < LAST_EPOCH

    def settle_as(self, producer: Identity) -> bool:
        """Called when nothing is in flight: repairs a broken state, and adopts a changed id. Returns whether numbering
        starts again."""
        is_broken, self.is_broken = self.is_broken, False
        if self.identity is None or self.identity.producer_id != producer.producer_id:
            self.identity = producer
        elif is_broken:
            self.identity = Identity(producer.producer_id, self.identity.epoch + 1)
        else:
            return False
        self._next = 0
        return True

    def number(self, batch: Batch) -> None:
        """Gives the batch its sequence number."""
        batch.identity, batch.sequence = self.identity, self._next
        self._next = sequence_after(self._next, batch.count)

    def number_owned(self, batch: Batch, owned: Container[Batch]) -> bool:
        """The same in one step, for a thread that sends the batch itself: returns False if it does not own it any more.
        As long as it does, the loop numbers no batch of this partition."""
        following = sequence_after(self._next, batch.count)
        # No call from here on.
        if batch not in owned:
            return False
        batch.identity = self.identity
        batch.sequence = self._next
        self._next = following
        return True


class TransactionSequences(Sequences):
    """Of one partition, for a transactional producer: its epoch comes from the coordinator and is the same for all
    partitions. A sequence that is lost cannot be mended here: the transaction fails, and the coordinator gives the
    producer another epoch when it is aborted."""

    __slots__ = ()

    def can_go_on_as(self, producer: Identity) -> bool:
        return not self.is_broken or self.identity != producer

    def settle_as(self, producer: Identity) -> bool:
        if self.identity == producer:
            return False
        self.identity, self.is_broken, self._next = producer, False, 0
        return True
