"""A member of a classic group."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ottla.coordinator.pending import PendingAnswer
from ottla.wire.messages.group_records import GroupMetadataMember
from ottla.wire.messages.join_group import JoinGroupProtocol, JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse


@dataclass(slots=True, eq=False, kw_only=True)
class ClassicMember:
    """What it told when it joined, what it was assigned, and what it waits for."""

    member_id: str
    instance_id: str | None
    """Of a static member, which may come back under another member id."""
    client_id: str
    client_host: str
    """As Kafka writes it: with a slash before the address."""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """The ways to assign that it knows, best first, with what it says of itself for each. Only the chosen one is in the
    log."""
    assignment: bytes = b""

    # Soft: lost when the shard moves.
    is_new: bool = False
    """Waits for its first generation: it cannot send heartbeats yet."""
    joining: PendingAnswer[JoinGroupResponse] | None = field(default=None, repr=False)
    syncing: PendingAnswer[SyncGroupResponse] | None = field(default=None, repr=False)
    session_ends_s: float = math.inf
    """By the monotonic clock. Heartbeats only move this; the timer looks whether it has come."""
    session_checked_s: float = math.inf
    """When the timer will look next; infinite while there is none."""

    @property
    def is_excused(self) -> bool:
        """Whether no heartbeats are expected of it: it waits for us."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def tells_the_same(self, protocols: dict[str, bytes]) -> bool:
        """The order counts too."""
        return list(self.protocols.items()) == list(protocols.items())

    def stored(self, protocol: str, assignment: bytes) -> GroupMetadataMember:
        return GroupMetadataMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.protocols[protocol],
            assignment=assignment,
        )

    @classmethod
    def loaded(cls, stored: GroupMetadataMember, protocol: str) -> ClassicMember:
        member = cls(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            protocols={},
        )
        member.load(stored, protocol)
        return member

    def load(self, stored: GroupMetadataMember, protocol: str) -> None:
        """What a record says that may change. What it tells for other protocols stays known if it still tells the same
        for this one. Records of before v1 have no rebalance timeout: the session's serves."""
        if self.protocols.get(protocol) != stored.subscription:
            self.protocols = {protocol: stored.subscription}
        self.session_timeout_ms = stored.session_timeout
        has_timeout = stored.rebalance_timeout != -1
        self.rebalance_timeout_ms = stored.rebalance_timeout if has_timeout else stored.session_timeout
        self.assignment = stored.assignment


def protocols_of(told: list[JoinGroupProtocol]) -> dict[str, bytes]:
    """By name, best first; of one that is named twice the first counts."""
    protocols: dict[str, bytes] = {}
    for each in told:
        protocols.setdefault(each.name, each.metadata)
    return protocols
