"""Who an idempotent producer is to brokers, and how the batches of a partition are numbered.

Brokers keep a batch once, and in order, by three numbers: the producer's id, its epoch, and the sequence of the
batch's first record in the partition. A batch keeps its sequence over all attempts for as long as a broker may have
it. What must not happen is that a sequence is left out: nothing after it would be accepted. So when a batch is given
up, its partition goes on under the next epoch, from sequence 0, once everything that was sent under the last one is
decided (KIP-360). A broker takes a higher epoch of an idempotent producer from whoever brings it.

    whole ──a batch is given up, or its sequence refused──▶ broken ──nothing is in flight any more──▶ whole, next epoch

While it is broken no batch gets a sequence. One that has one is still sent, and the broker takes it, or has it, or
refuses its sequence. A refusal alone does not say that the batch is not there: a broker that was restarted may
remember only the last batch of a producer, and refuses those before it, which it has. So what was sent behind a
refused batch, and is not decided, is asked for first: if it is there, so is everything before it. Only when all of it
is refused, it is numbered anew (`queues`). That reasoning needs a broker that knows the producer: from one that it does
not know it takes any sequence. So the first batch under an identity is in flight alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.records import sequence_after

if TYPE_CHECKING:
    from ottla.client.produce.batch import Batch

LAST_EPOCH: Final = 2**15 - 1


class Identity(NamedTuple):
    """A producer's id, given by a broker, and epoch."""

    producer_id: int
    epoch: int


class Sequences:
    """Of one partition; belongs to the loop."""

    __slots__ = ("_next", "identity", "is_broken")

    def __init__(self) -> None:
        self.identity: Identity | None = None
        self.is_broken = False
        self._next = 0

    def can_go_on_as(self, producer: Identity) -> bool:
        """Whether the next batch can be numbered, once nothing is in flight; if not, the producer needs another id."""
        if self.identity is None or self.identity.producer_id != producer.producer_id:
            return True
        return not self.is_broken or self.identity.epoch < LAST_EPOCH

    def settle_as(self, producer: Identity) -> bool:
        """Nothing is in flight: mends what is broken, and takes on an id that changed. Whether numbering begins
        anew."""
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
        """Gives the batch its sequence."""
        batch.identity, batch.sequence = self.identity, self._next
        self._next = sequence_after(self._next, batch.count)
