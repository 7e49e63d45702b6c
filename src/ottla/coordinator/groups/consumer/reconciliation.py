"""Moves a member from its current to its target assignment, one step per heartbeat.

    STABLE ──target changed──▶ something to revoke?  ──yes──▶ UNREVOKED_PARTITIONS ──member confirms──────┐
       ▲                              │ no  ◀───────────────────────────────────────────────────────────┘
       │                              ▼
       └──all free, assigned── something owned by others? ──yes──▶ UNRELEASED_PARTITIONS (gets what is free)

A member revokes partitions before it gets new ones, and gets only partitions that no other member owns, so a partition
never has two owners; and it never loses in between what it keeps. It keeps its epoch while it revokes, and has the
target epoch after that. Partitions that it keeps or revokes retain their assignment epoch; those that it gets have the
target epoch, even if it owned them before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.groups.consumer.assignors.members import Partition, Partitions
from ottla.coordinator.groups.consumer.member import MemberState, Standing


def reconcile(
    now: Standing,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    free_of: Callable[[Partitions], Partitions],
) -> Standing:
    """The member's state after the next step; the same object if there is none. `owned` are the partitions in its
    request, None if it sent none; `free_of` returns those of some partitions that no other member owns."""
    if now.state is MemberState.STABLE and now.epoch == target_epoch:
        return now
    if now.state is MemberState.UNREVOKED_PARTITIONS and _still_has(owned, now.revoking):
        return now
    if now.state is MemberState.UNKNOWN and (owned is None or owned):
        raise CoordinatorError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The coordinator does not know the state of the member. It must abandon all its partitions and rejoin.",
        )
    kept = now.assigned & target
    revoking = now.assigned - kept
    if revoking and _still_has(owned, revoking):
        epochs = _epochs_of(now.assigned, now.assignment_epochs)
        return Standing(now.epoch, now.previous_epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking, epochs)
    wanted = target - kept if kept else target
    free = free_of(wanted)
    state = MemberState.STABLE if len(free) == len(wanted) else MemberState.UNRELEASED_PARTITIONS
    previous_epoch = now.previous_epoch if now.epoch == target_epoch else now.epoch
    epochs = _epochs_of(kept, now.assignment_epochs)
    assigned = kept | free if kept and free else kept or free
    if free:
        epochs = {**epochs, **dict.fromkeys(free, target_epoch)}
    after = Standing(target_epoch, previous_epoch, state, assigned, assignment_epochs=epochs)
    return now if after == now else after


def _epochs_of(some: Partitions, epochs: Mapping[Partition, int]) -> Mapping[Partition, int]:
    return epochs if len(epochs) == len(some) else {partition: epochs[partition] for partition in some}


def _still_has(owned: Partitions | None, revoked: Partitions) -> bool:
    return owned is None or not revoked.isdisjoint(owned)
