"""Which commit may still be sent, and what is committed without the user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.membership.ledger import AskedCommit, CommitLedger
from ottla.client.membership.metadata import GroupMetadata
from ottla.client.offsets import EARLIEST, OffsetAndMetadata
from ottla.client.subscriptions.subscription import Position, Subscription

A = TopicPartition("a", 0)


class Consumed:
    """A consumer at work on records from 10 to 20: it is done with those before 10."""

    def __init__(self) -> None:
        self.subscription = Subscription()
        self.subscription.subscribe(["a"])
        self.subscription.assigned_by_group([A])
        self.member: GroupMetadata | None = GroupMetadata("group", 1, "member")
        self.ledger = CommitLedger(self.subscription, lambda: self.member)
        self.state = self.subscription.state(A)
        self.state.seek(Position(0))
        self.read_to(10)
        self.read_to(20)

    def read_to(self, offset: int) -> None:
        self.subscription.settle()
        self.subscription.hand_out(self.state, Position(offset))

    def ask(self, offset: int) -> AskedCommit:
        return self.ledger.ask({A: OffsetAndMetadata(offset)})

    def commit(self, offset: int) -> None:
        self.ledger.succeeded(self.ask(offset), A)

    def auto_commit(self) -> int | None:
        asked = self.ledger.ask_consumed()
        if asked is None:
            return None
        self.ledger.succeeded(asked, A)
        return asked.offsets[A].offset


@pytest.fixture
def consumed() -> Consumed:
    return Consumed()


def test_what_the_user_is_done_with_is_committed_again_and_again(consumed: Consumed) -> None:
    assert [consumed.auto_commit(), consumed.auto_commit()] == [10, 10]  # so that it does not expire
    consumed.read_to(30)
    assert consumed.auto_commit() == 20


def test_a_background_commit_does_not_go_back_before_the_users(consumed: Consumed) -> None:
    consumed.commit(20)
    assert consumed.auto_commit() is None
    consumed.read_to(30)
    assert consumed.auto_commit() == 20
    consumed.read_to(40)
    assert consumed.auto_commit() == 30


def test_a_background_commit_does_not_go_back_before_one_in_flight(consumed: Consumed) -> None:
    asked = consumed.ask(20)
    assert consumed.auto_commit() is None
    assert consumed.ledger.is_newest(asked, A)
    consumed.read_to(30)
    consumed.read_to(40)
    assert consumed.auto_commit() == 30
    assert not consumed.ledger.is_newest(asked, A)


@pytest.mark.parametrize(("in_doubt", "committed"), [(True, None), (False, 10)])
def test_a_commit_that_was_refused_holds_nothing_up(consumed: Consumed, in_doubt: bool, committed: int | None) -> None:
    consumed.ledger.failed(consumed.ask(20), A, in_doubt=in_doubt)
    assert consumed.auto_commit() == committed


@pytest.mark.parametrize(
    "seek",
    [
        lambda subscription: subscription.seek(A, Position(5)),
        lambda subscription: (subscription.seek_to([A], EARLIEST), subscription.state(A).seek(Position(5))),
    ],
    ids=["offset", "place"],
)
def test_a_seek_back_allows_committing_lower_offsets(
    consumed: Consumed, seek: Callable[[Subscription], object]
) -> None:
    consumed.commit(20)
    on_its_way = consumed.ask(20)
    seek(consumed.subscription)
    assert consumed.auto_commit() == 5
    consumed.ledger.succeeded(on_its_way, A)
    assert consumed.auto_commit() == 5


def test_an_explicit_commit_may_go_back(consumed: Consumed) -> None:
    consumed.commit(20)
    consumed.commit(3)
    assert consumed.auto_commit() == 10


def test_an_older_commit_gives_way_to_a_newer_one(consumed: Consumed) -> None:
    older, newer = consumed.ask(30), consumed.ask(20)
    assert not consumed.ledger.is_newest(older, A)
    assert consumed.ledger.is_newest(newer, A)


def test_a_commit_is_ours_as_long_as_nobody_else_can_have_the_partition(consumed: Consumed) -> None:
    asked = consumed.ask(20)
    consumed.member = GroupMetadata("group", 2, "member")
    assert consumed.ledger.is_ours(asked, A)  # kept in the next generation
    consumed.member = GroupMetadata("group", 1, "member")
    consumed.subscription.assigned_by_group([])
    assert consumed.ledger.is_ours(asked, A)  # given up, and the generation has not ended
    consumed.member = GroupMetadata("group", 2, "member")
    assert not consumed.ledger.is_ours(asked, A)
    consumed.subscription.assigned_by_group([A])
    assert not consumed.ledger.is_ours(asked, A)  # and came back: it may have been another's
    assert consumed.ledger.is_ours(consumed.ledger.ask({TopicPartition("b", 0): OffsetAndMetadata(1)}), A)


def test_a_failed_commit_is_worth_a_retry_only_where_nothing_happened_since(consumed: Consumed) -> None:
    asked = consumed.ask(20)
    consumed.ledger.failed(asked, A, in_doubt=True)
    assert consumed.ledger.is_worth_a_retry(asked, A)
    consumed.subscription.assigned_by_group([])
    assert not consumed.ledger.is_worth_a_retry(asked, A)
    consumed.subscription.assigned_by_group([A])
    assert not consumed.ledger.is_worth_a_retry(asked, A)


def test_partitions_assigned_by_hand_are_always_ours() -> None:
    subscription = Subscription()
    subscription.assign_manually([A])
    ledger = CommitLedger(subscription, lambda: GroupMetadata("group"))
    asked = ledger.ask({A: OffsetAndMetadata(1)})
    subscription.assign_manually([])
    assert ledger.is_ours(asked, A)


def test_nothing_is_read_nothing_is_committed() -> None:
    assert CommitLedger(Subscription(), lambda: None).ask_consumed() is None
