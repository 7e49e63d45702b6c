"""Assignors of the classic protocol, by the names that all Kafka clients use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.client.membership.assignors.assignor import Assignment, Assignor, GroupMember, Topics
from ottla.client.membership.assignors.range import RangeAssignor
from ottla.client.membership.assignors.round_robin import RoundRobinAssignor
from ottla.client.membership.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = [
    "ASSIGNORS",
    "Assignment",
    "Assignor",
    "CooperativeStickyAssignor",
    "GroupMember",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Topics",
    "assignors_of",
]

ASSIGNORS: Final[dict[str, Assignor]] = {
    one.name: one for one in (RangeAssignor(), RoundRobinAssignor(), StickyAssignor(), CooperativeStickyAssignor())
}


def assignors_of(strategies: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors of partition.assignment.strategy, in order of preference."""
    return tuple(ASSIGNORS[one] if isinstance(one, str) else one for one in strategies)
