"""How batches are numbered, and what happens when a number is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.client.produce.identity import LAST_EPOCH, Sequences
from ottla.client.transactions.identity import Identity


def batch(count: int) -> Any:
    return SimpleNamespace(count=count, identity=None, sequence=None)


def numbered(sequences: Sequences, *counts: int) -> list[tuple[Identity, int]]:
    made = [batch(count) for count in counts]
    for one in made:
        sequences.number(one)
    return [(one.identity, one.sequence) for one in made]


def test_sequences_go_on_from_batch_to_batch_and_begin_again_after_the_last() -> None:
    sequences, me = Sequences(), Identity(5, 0)
    assert sequences.settle_as(me)
    assert numbered(sequences, 3, 2**31 - 5, 4, 1) == [(me, 0), (me, 3), (me, 2**31 - 2), (me, 2)]
    assert not sequences.settle_as(me)
    assert numbered(sequences, 1) == [(me, 3)]


def test_a_gap_is_repaired_by_the_next_epoch() -> None:
    sequences, me = Sequences(), Identity(5, 7)
    sequences.settle_as(me)
    numbered(sequences, 10)
    sequences.is_broken = True
    assert sequences.can_go_on_as(me)
    assert sequences.settle_as(me)
    assert not sequences.is_broken
    assert numbered(sequences, 10, 1) == [((5, 8), 0), ((5, 8), 10)]


def test_after_the_last_epoch_another_producer_is_needed() -> None:
    sequences, me = Sequences(), Identity(5, LAST_EPOCH)
    sequences.settle_as(me)
    assert sequences.can_go_on_as(me)
    sequences.is_broken = True
    assert not sequences.can_go_on_as(me)
    other = Identity(6, 0)
    assert sequences.can_go_on_as(other)
    assert sequences.settle_as(other)
    assert numbered(sequences, 1) == [(other, 0)]
