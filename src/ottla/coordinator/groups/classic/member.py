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
    """What the member sent when it joined, its assignment, and the requests that wait."""

    member_id: str
    instance_id: str | None
    """Set for a static member, which may return with another member id."""
    client_id: str
    client_host: str
    """The address after a slash, as Kafka writes it."""
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    """The assignment protocols that it supports, in order of preference, with its metadata for each. The log contains
    only the chosen one."""
    assignment: bytes = b""

    # Soft state, lost when the shard moves.
    is_new: bool = False
    """Whether it waits for its first generation, and cannot send heartbeats yet."""
    joining: PendingAnswer[JoinGroupResponse] | None = field(default=None, repr=False)
    syncing: PendingAnswer[SyncGroupResponse] | None = field(default=None, repr=False)
    session_ends_s: float = math.inf
    """Monotonic time. Heartbeats only move this; the timer checks whether it has passed."""
    session_checked_s: float = math.inf
    """When the timer checks next; infinite without a timer."""

    @property
    def is_excused(self) -> bool:
        """Whether it need not send heartbeats, because it waits for a response."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    def tells_the_same(self, protocols: dict[str, bytes]) -> bool:
        """Whether the protocols are equal, including their order."""
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
        """Applies a record. Keeps the metadata of other protocols if that of this one is unchanged. Records before v1
        have no rebalance timeout; the session timeout is used instead."""
        if self.protocols.get(protocol) != stored.subscription:
            self.protocols = {protocol: stored.subscription}
        self.session_timeout_ms = stored.session_timeout
        has_timeout = stored.rebalance_timeout != -1
        self.rebalance_timeout_ms = stored.rebalance_timeout if has_timeout else stored.session_timeout
        self.assignment = stored.assignment


def protocols_of(told: list[JoinGroupProtocol]) -> dict[str, bytes]:
    """Metadata by name, in order of preference. Of duplicates the first counts."""
    protocols: dict[str, bytes] = {}
    for each in told:
        protocols.setdefault(each.name, each.metadata)
    return protocols
