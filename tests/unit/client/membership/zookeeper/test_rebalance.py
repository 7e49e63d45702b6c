"""The state machine of a member: by hand along its table, and many of them by chance on one tree."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection

import pytest

from ottla.base.ids import TopicPartition
from ottla.client.membership.zookeeper.assignment import GroupView, assign_range, assign_round_robin
from ottla.client.membership.zookeeper.rebalance import TRANSITIONS, Phase, Rebalance, TransitionError
from ottla.zookeeper.znodes import ConsumerPattern, ConsumerRegistration

ME, OTHER = "g_a", "g_b"


def partitions(*indexes: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", index) for index in indexes)


def seen(*members: str, size: int = 4, brokers: Collection[int] = (1,)) -> GroupView:
    registrations = {name: ConsumerRegistration({"t": 1}, ConsumerPattern.STATIC, 0) for name in members}
    return GroupView(registrations, frozenset(brokers), {"t": tuple(range(size))})


def new(retries_max: int = 4) -> Rebalance:
    return Rebalance(assign_range, retries_max, with_internal=False)


def looking(retries_max: int = 4) -> Rebalance:
    member = new(retries_max)
    member.wanted(ME)
    member.registers()
    member.registered()
    member.looks()
    return member


def phase_of(member: Rebalance) -> Phase:
    """Read anew: type checkers do not see that events change it."""
    return member.phase


def stable(*members: str) -> Rebalance:
    member = looking()
    member.saw(seen(*(members or (ME,))))
    member.claimed(set(member.missing))
    assert phase_of(member) is Phase.STABLE
    return member


def test_from_the_first_poll_to_all_partitions() -> None:
    member = new()
    assert (phase_of(member), member.is_registered) == (Phase.OUT, False)
    member.wanted(ME)
    assert phase_of(member) is Phase.REGISTERING
    member.registers()
    member.registered()
    assert (phase_of(member), member.is_registered) == (Phase.LOOKING, True)
    member.looks()
    member.saw(seen(ME))
    assert (phase_of(member), member.owned) == (Phase.CLAIMING, frozenset())
    assert member.missing == dict.fromkeys(partitions(0, 1, 2, 3), "g_a-0")
    member.claimed(partitions(0, 1, 2, 3))
    assert (phase_of(member), member.owned, member.missing) == (Phase.STABLE, partitions(0, 1, 2, 3), {})


def test_only_what_others_are_to_have_is_given_up() -> None:
    member = stable()
    generation = member.generation
    member.changed()
    member.looks()
    member.saw(seen(ME, OTHER))
    assert (phase_of(member), member.going) == (Phase.GIVING_UP, partitions(2, 3))
    assert member.owned == partitions(0, 1, 2, 3)  # until the user let go
    member.given_up()
    assert (phase_of(member), member.owned, member.unreleased) == (Phase.RELEASING, partitions(0, 1), partitions(2, 3))
    assert member.generation > generation
    member.released()
    assert (phase_of(member), member.unreleased) == (Phase.STABLE, frozenset())


def test_what_is_claimed_counts_while_the_rest_is_waited_for() -> None:
    member = looking(retries_max=2)
    member.saw(seen(ME))
    member.claimed(partitions(0, 2))
    assert (phase_of(member), member.owned) == (Phase.WAITING, partitions(0, 2))
    member.retry()
    member.looks()
    member.saw(seen(ME))
    assert member.missing.keys() == partitions(1, 3)
    member.claimed(partitions(1))
    assert phase_of(member) is Phase.STUCK
    assert member.reason == "other consumers still own t-3 after 2 attempts"
    member.retry()
    member.looks()
    member.saw(seen(ME))
    member.claimed(())
    assert phase_of(member) is Phase.WAITING  # counted anew
    member.retry()
    member.looks()
    member.saw(seen(ME))
    member.claimed(partitions(3))
    assert phase_of(member) is Phase.STABLE


def test_a_change_resets_the_number_of_attempts() -> None:
    member = looking(retries_max=2)
    for _ in range(5):
        member.saw(seen(ME))
        member.claimed(())
        assert phase_of(member) is Phase.WAITING
        member.changed()
        assert phase_of(member) is Phase.LOOKING
        member.looks()


@pytest.mark.parametrize("during", ["look", "give up", "release", "claim"])
def test_what_changes_meanwhile_is_looked_at_again(during: str) -> None:
    member = stable() if during in ("give up", "release") else looking()
    if during == "look":
        member.changed()
        member.saw(seen(ME))
        assert (phase_of(member), member.plan) == (Phase.LOOKING, {})
        return
    if during == "claim":
        member.saw(seen(ME))
        member.changed()
        assert phase_of(member) is Phase.CLAIMING
        member.claimed(partitions(0, 1))
    else:
        member.changed()
        member.looks()
        member.saw(seen(ME, OTHER))
        if during == "give up":
            member.changed()
        member.given_up()
        if during == "release":
            member.changed()
        member.released()
    assert (phase_of(member), member.owned) == (Phase.LOOKING, partitions(0, 1))


def test_another_subscription_is_registered_after_what_is_under_way() -> None:
    member = stable()
    member.resubscribed()
    assert (phase_of(member), member.owned) == (Phase.REGISTERING, partitions(0, 1, 2, 3))
    member.registers()
    member.resubscribed()  # once more, before the answer
    member.registered()
    assert phase_of(member) is Phase.REGISTERING
    member.registers()
    member.registered()
    member.looks()
    member.saw(GroupView({ME: ConsumerRegistration({"u": 1}, ConsumerPattern.STATIC, 0)}, frozenset({1}), {"u": (0,)}))
    assert (phase_of(member), member.going) == (Phase.GIVING_UP, partitions(0, 1, 2, 3))
    member.resubscribed()
    assert phase_of(member) is Phase.GIVING_UP
    member.given_up()
    member.released()
    assert phase_of(member) is Phase.REGISTERING


def test_one_that_is_out_has_nothing_to_register() -> None:
    member = new()
    member.resubscribed()
    member.wanted(ME)
    member.registers()
    member.registered()
    assert phase_of(member) is Phase.LOOKING


def test_a_member_whose_node_was_removed_registers_again() -> None:
    member = stable()
    member.changed()
    member.looks()
    member.saw(seen(OTHER))
    assert (phase_of(member), member.owned) == (Phase.REGISTERING, partitions(0, 1, 2, 3))


def test_without_brokers_everything_stays() -> None:
    member = stable()
    member.changed()
    member.looks()
    member.saw(seen(ME, OTHER, brokers=()))
    assert (phase_of(member), member.owned, member.missing) == (Phase.STABLE, partitions(0, 1, 2, 3), {})
    member = looking()
    member.saw(seen(ME, brokers=()))
    assert (phase_of(member), member.missing) == (Phase.STABLE, {})


def test_an_assignment_that_is_not_possible() -> None:
    member = Rebalance(assign_round_robin, 4, with_internal=False)
    member.wanted(ME)
    member.registered()
    different = {
        ME: ConsumerRegistration({"t": 1}, ConsumerPattern.STATIC, 0),
        OTHER: ConsumerRegistration({"u": 1}, ConsumerPattern.STATIC, 0),
    }
    member.looks()
    member.saw(GroupView(different, frozenset({1}), {"t": (0,)}))
    assert phase_of(member) is Phase.STUCK
    assert "roundrobin needs members that all subscribe to the same topics" in member.reason
    member.changed()
    assert phase_of(member) is Phase.LOOKING


@pytest.mark.parametrize("end", [Rebalance.expired, Rebalance.left])
def test_the_end_of_a_session_takes_everything(end: Callable[[Rebalance], None]) -> None:
    member = stable()
    session, generation = member.session, member.generation
    end(member)
    assert member.session > session
    assert member.generation > generation
    assert (member.owned, member.plan, member.is_registered) == (frozenset(), {}, False)
    assert phase_of(member) is (Phase.REGISTERING if end is Rebalance.expired else Phase.OUT)


def test_a_release_that_failed_is_made_up_for_before_anything_is_claimed() -> None:
    member = stable()
    member.changed()
    member.looks()
    member.saw(seen(ME, OTHER))
    member.given_up()
    member.failed("no")
    assert (phase_of(member), member.reason, member.unreleased) == (Phase.STUCK, "no", partitions(2, 3))
    member.retry()
    member.looks()
    member.saw(seen(ME))
    assert phase_of(member) is Phase.RELEASING
    member.released()
    assert (phase_of(member), frozenset(member.missing)) == (Phase.CLAIMING, partitions(2, 3))


def test_claims_of_an_ended_session_are_released_first() -> None:
    member = looking()
    member.saw(seen(ME))
    missing = dict(member.missing)
    member.expired()
    member.doubts(missing)
    member.registered()
    member.looks()
    member.saw(seen(ME))
    assert (phase_of(member), member.unreleased) == (Phase.RELEASING, partitions(0, 1, 2, 3))


def test_events_that_a_phase_does_not_allow() -> None:
    with pytest.raises(TransitionError, match="a member that is OUT cannot be LOOKING by the event 'registered'"):
        new().registered()
    with pytest.raises(TransitionError, match="'given_up'"):
        stable().given_up()
    with pytest.raises(TransitionError, match="'wanted'"):
        stable().wanted(ME)


def test_the_table_names_phases_that_can_be_reached_and_left() -> None:
    reached = {to for by in TRANSITIONS.values() for some in by.values() for to in some}
    left = {phase for by in TRANSITIONS.values() for phase in by}
    assert reached == left == set(Phase)


class World:
    """One tree, and members that take their steps in any order: watches, claims and expiry as ZooKeeper has them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.size = chance.randint(1, 6)
        self.registered: set[str] = set()
        self.owners: dict[TopicPartition, str] = {}
        self.members = {f"g_{number}": new(retries_max=chance.randint(1, 3)) for number in range(chance.randint(1, 4))}
        self.used: dict[str, frozenset[TopicPartition]] = dict.fromkeys(self.members, frozenset())
        self.views: dict[str, GroupView] = {}

    def tell(self) -> None:
        for member in self.members.values():
            if member.phase is not Phase.OUT:
                member.changed()

    def view(self) -> GroupView:
        return seen(*self.registered, size=self.size)

    def step(self, name: str) -> None:
        member = self.members[name]
        match member.phase:
            case Phase.OUT:
                member.wanted(name)
            case Phase.REGISTERING:
                member.registers()
                if name not in self.registered:
                    self.registered.add(name)
                    self.tell()
                member.registered()
            case Phase.LOOKING if name not in self.views:
                member.looks()
                self.views[name] = self.view()
            case Phase.LOOKING:
                member.saw(self.views.pop(name))
            case Phase.GIVING_UP:
                self.used[name] -= member.going
                member.given_up()
            case Phase.RELEASING:
                for one in member.unreleased:
                    if self.owners.get(one) == name:
                        del self.owners[one]
                member.released()
            case Phase.CLAIMING:
                free = [one for one in member.missing if self.owners.get(one, name) == name]
                self.owners.update(dict.fromkeys(free, name))
                member.claimed(free)
            case Phase.WAITING | Phase.STUCK:
                member.retry()
        if member.phase is not Phase.LOOKING:
            self.views.pop(name, None)
        self.used[name] = member.owned
        self.check()

    def disturb(self) -> None:
        name = self.chance.choice(list(self.members))
        member = self.members[name]
        if self.chance.random() < 0.3:
            self.size += 1
        elif member.phase is Phase.OUT:
            return
        else:
            self.registered.discard(name)
            self.owners = {one: owner for one, owner in self.owners.items() if owner != name}
            self.views.pop(name, None)
            self.chance.choice([member.expired, member.left])()
            self.used[name] = frozenset()
        self.tell()
        self.check()

    def check(self) -> None:
        for name, used in self.used.items():
            for one in used:
                assert self.owners.get(one) == name, f"{name} uses {one}, which {self.owners.get(one)} owns"

    def settle(self) -> None:
        for _ in range(300):
            busy = [name for name, member in self.members.items() if member.phase is not Phase.STABLE]
            if not busy:
                return
            self.step(self.chance.choice(busy))
        raise AssertionError({name: member.phase for name, member in self.members.items()})


@pytest.mark.parametrize("seed", range(200))
def test_whatever_happens_no_partition_has_two_users_and_all_have_one_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    world = World(chance)
    for _ in range(chance.randint(0, 60)):
        if chance.random() < 0.15:
            world.disturb()
        else:
            world.step(chance.choice(list(world.members)))
    world.settle()
    assert world.owners.keys() == partitions(*range(world.size))
    counts = [len(one) for one in world.used.values()]
    assert sum(counts) == world.size
    assert max(counts) - min(counts) <= 1
