"""What an assignor is: it decides which member of a classic group gets which partitions, in the group's leader.

Every member lists the assignors that it supports, in order of preference, and the coordinator picks one that all
support. Built-in assignors are objects around pure functions; any object with these attributes can be used instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ottla.base.ids import TopicPartition

NO_GENERATION: Final = -1

Racks: TypeAlias = frozenset[str]
Topics: TypeAlias = Mapping[str, Sequence[Racks]]
"""For each topic, the racks on which each of its partitions has replicas; empty sets if brokers have no racks."""
Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""By member id; contains every member."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What the leader knows about a member when it assigns."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    rack: str | None = None
    owned: Sequence[TopicPartition] = ()
    """The partitions that it reports to keep while the group rebalances."""
    generation: int = NO_GENERATION
    """The generation in which it was assigned them."""
    user_data: bytes | None = None
    """What its assignor added to its subscription."""


class Assignor(Protocol):
    """One assignment strategy. `name` is the same in all Kafka clients."""

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while the group rebalances (KIP-429)."""

    def user_data(self, owned: Collection[TopicPartition] | None, generation: int) -> bytes | None:
        """What a member tells the leader besides its subscription, given its last assignment (None if it had none)."""

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        """Returns each member's partitions. `topics` does not contain unknown topics."""


def in_order(members: Sequence[GroupMember]) -> list[GroupMember]:
    """Static members by instance id, so that a restart changes nothing; after them all others, by member id."""
    return sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
