"""How a member comes from what it owns to what it is to own, one step a heartbeat.

    STABLE ──target changed──▶ something to give up?  ──yes──▶ UNREVOKED_PARTITIONS ──member says it did──┐
       ▲                              │ no  ◀───────────────────────────────────────────────────────────┘
       │                              ▼
       └──all free, and given── something owned by others? ──yes──▶ UNRELEASED_PARTITIONS (what is free is given)

A member gives up before it gets, and gets only what no other owns, so a partition never has two owners; and what it
keeps is never taken from it in between. While it gives up, it stays in its epoch; after that it has the target's.
What it keeps or gives up has the assignment epoch that it had, what it gets that of the target, also if it is its own
again.
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
    """The next step; the same object if there is none. `owned` is what the member says it owns, None if it says
    nothing; `free_of` gives those of some partitions that no other owns."""
    if now.state is MemberState.STABLE and now.epoch == target_epoch:
        return now
    if now.state is MemberState.UNREVOKED_PARTITIONS and _still_has(owned, now.revoking):
        return now
    if now.state is MemberState.UNKNOWN and (owned is None or owned):
        raise CoordinatorError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The member is in a state that this coordinator does not know. It must give up its partitions and rejoin.",
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
