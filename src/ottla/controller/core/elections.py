"""Elects the next leader of a partition that has had one. Pure.

| election | candidates, in the order of the assignment | ISR afterwards | told |
| --- | --- | --- | --- |
| OFFLINE | live and in the ISR | live members | live replicas |
| OFFLINE, unclean | else any live replica | the new leader, recovering | live replicas |
| PREFERRED | the first replica, if live and in the ISR | as before | all replicas |
| REASSIGNED | target replicas, live and in the ISR | as before | target replicas |
| SHUTDOWN | usable, in the ISR, not shutting down | members not shutting down | replicas with a running broker |

A doubtful broker came back from a crash of its machine, and may lack committed records. Where another member of the
ISR is there and answers, that one leads, and the doubtful one is not in the ISR afterwards. Otherwise there is no
leader until another comes, or until the doubts are given up.

The leader epoch rises by one each time. The last member of an ISR stays: where no candidate is left, nothing changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from ottla.base.ids import TopicPartition
from ottla.controller.core.context import ControllerContext, target_replicas
from ottla.controller.core.leadership import Leadership


class Election(Enum):
    OFFLINE = auto()
    UNCLEAN = auto()
    """As OFFLINE, but unclean if necessary, whatever the topic's configs say."""
    PREFERRED = auto()
    REASSIGNED = auto()
    SHUTDOWN = auto()


@dataclass(frozen=True, slots=True)
class Elected:
    """The new leadership, and the brokers that must be told their role."""

    leadership: Leadership
    recipients: tuple[int, ...]


def elect(
    context: ControllerContext,
    name: TopicPartition,
    leadership: Leadership,
    election: Election,
    *,
    may_be_unclean: bool = False,
) -> Elected | None:
    """None if there is no eligible replica."""
    match election:
        case Election.OFFLINE | Election.UNCLEAN:
            return _offline(context, name, leadership, may_be_unclean=may_be_unclean or election is Election.UNCLEAN)
        case Election.PREFERRED:
            replicas = context.replicas(name)
            return _keeping_isr(context, name, leadership, replicas[:1], replicas)
        case Election.REASSIGNED:
            assignment = context.assignment(name)
            target = () if assignment is None else target_replicas(assignment)
            return _keeping_isr(context, name, leadership, target, target)
        case Election.SHUTDOWN:
            return _shutdown(context, name, leadership)


def has_live_in_sync(context: ControllerContext, name: TopicPartition, leadership: Leadership) -> bool:
    """Whether a clean election is possible: only else the topic's configs matter."""
    return any(context.is_online(member, name) for member in leadership.isr)


def _offline(
    context: ControllerContext, name: TopicPartition, leadership: Leadership, *, may_be_unclean: bool
) -> Elected | None:
    replicas = context.replicas(name)
    live = [replica for replica in replicas if context.is_online(replica, name)]
    told = (*live, *(replica for replica in replicas if replica in context.suspected))
    in_sync = [replica for replica in live if replica in leadership.isr]
    if any((name, replica) in context.doubtful for replica in in_sync):
        trusted = [replica for replica in in_sync if (name, replica) not in context.doubtful]
        reached = [replica for replica in trusted if replica in context.reached]
        if reached:
            isr = tuple(member for member in leadership.isr if member in trusted)
            return Elected(leadership.led_by(reached[0], isr), told)
        if any((name, member) not in context.doubtful for member in leadership.isr) and not may_be_unclean:
            return None  # until one of them is there, or the doubts are given up
    if in_sync:
        isr = tuple(member for member in leadership.isr if member in in_sync)
        return Elected(leadership.led_by(in_sync[0], isr), told)
    if may_be_unclean and live:
        return Elected(leadership.led_by(live[0], (live[0],), is_unclean=True), told)
    return None


def _keeping_isr(
    context: ControllerContext,
    name: TopicPartition,
    leadership: Leadership,
    candidates: tuple[int, ...],
    told: tuple[int, ...],
) -> Elected | None:
    for replica in candidates:
        if context.is_online(replica, name) and replica in leadership.isr and (name, replica) not in context.doubtful:
            return Elected(leadership.led_by(replica), told)
    return None


def _shutdown(context: ControllerContext, name: TopicPartition, leadership: Leadership) -> Elected | None:
    usable = tuple(
        replica for replica in context.replicas(name) if context.is_online(replica, name, with_shutting_down=True)
    )
    for replica in usable:
        if replica not in leadership.isr or (name, replica) in context.doubtful:
            continue
        if replica not in context.shutting_down:
            isr = tuple(member for member in leadership.isr if member not in context.shutting_down)
            return Elected(leadership.led_by(replica, isr), usable)
    return None
