"""A member of a consumer group (KIP-848): its subscription, and its progress towards its target assignment.

Both are immutable values, which replay replaces as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ottla.coordinator.groups.consumer.assignors.members import Partition, Partitions

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""The epoch of a static member that left temporarily: its partitions are kept until its session ends."""


class MemberState(IntEnum):
    """What a member still needs to reach its target. The numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It has to revoke partitions, and has not confirmed it."""
    UNRELEASED_PARTITIONS = 2
    """Other members still own partitions of its target."""
    UNKNOWN = 127
    """Written by a newer coordinator."""


@dataclass(frozen=True, slots=True)
class ClassicFace:
    """The classic side of a member that uses the classic protocol in a consumer group."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each protocol that it supports, in order of preference."""

    @property
    def protocol_name(self) -> str:
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member subscribes to, and its identity."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicFace | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A member's progress towards its target assignment."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    """Partitions that it has to revoke, and owns until it confirms."""
    assignment_epochs: Mapping[Partition, int] = field(default_factory=dict)
    """The epoch at which each partition was assigned (KIP-1251): the member may commit with that epoch or a later one,
    even if it does not know its newest epoch yet."""


class ConsumerMember:
    __slots__ = ("member_id", "standing", "subscription")

    def __init__(self, member_id: str, subscription: MemberSubscription, standing: Standing) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.standing = standing

    def is_reconciled_to(self, target_epoch: int) -> bool:
        standing = self.standing
        return standing.state is MemberState.STABLE and standing.epoch == target_epoch
