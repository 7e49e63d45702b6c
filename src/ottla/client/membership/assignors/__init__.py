"""Assignors of the classic protocol, by the names that members of all clients know them by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.client.errors import ConfigError
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
    """The assignors of partition.assignment.strategy, best first."""
    chosen: dict[str, Assignor] = {}
    for strategy in strategies:
        assignor = ASSIGNORS.get(strategy) if isinstance(strategy, str) else strategy
        if assignor is None:
            known = ", ".join(ASSIGNORS)
            raise ConfigError(f"partition.assignment.strategy: there is no assignor {strategy!r}; there are {known}")
        chosen[assignor.name] = assignor
    if not chosen:
        raise ConfigError("partition.assignment.strategy names no assignor; the default is range, cooperative-sticky")
    return tuple(chosen.values())
