"""A member of a group of KIP-848: what it asked for, and where it stands.

Both halves are values, replaced as a whole when their record is replayed.
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
"""A static member that will be back: its partitions wait for it until its session ends."""


class MemberState(IntEnum):
    """What stands between a member and its target; the numbers are those in the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It was told to give up partitions, and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """Others still own partitions that it is to get."""
    UNKNOWN = 127
    """Written by a newer coordinator."""


@dataclass(frozen=True, slots=True)
class ClassicFace:
    """A member that speaks the classic protocol in a group of the new one."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """Name and metadata of each that it supports, the one it likes best first."""

    @property
    def protocol_name(self) -> str:
        return self.protocols[0][0]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSubscription:
    """What a member asked for, and who it is."""

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
    """How far a member has come towards its target."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = frozenset()
    revoking: Partitions = frozenset()
    """Told to give up, and its own until it said so."""
    assignment_epochs: Mapping[Partition, int] = field(default_factory=dict)
    """The epoch at which each partition of both came to be its own (KIP-1251): it may commit with that one or a later
    one, also when it has not heard of its newest epoch yet."""


class ConsumerMember:
    __slots__ = ("member_id", "standing", "subscription")

    def __init__(self, member_id: str, subscription: MemberSubscription, standing: Standing) -> None:
        self.member_id = member_id
        self.subscription = subscription
        self.standing = standing

    def is_reconciled_to(self, target_epoch: int) -> bool:
        standing = self.standing
        return standing.state is MemberState.STABLE and standing.epoch == target_epoch
