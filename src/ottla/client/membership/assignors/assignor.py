"""What an assignor is: who of a classic group gets which partitions, decided by the member that leads the group.

Every member brings the assignors it knows, best first, and the coordinator takes one that all of them know. Built-in
ones are pure functions behind an object; anything with these attributes can be given in their place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from ottla.base.ids import TopicPartition

NO_GENERATION: Final = -1

Racks: TypeAlias = frozenset[str]
Topics: TypeAlias = Mapping[str, Sequence[Racks]]
"""For each topic, the racks on which each of its partitions has replicas; empty sets where brokers tell of none."""
Assignment: TypeAlias = dict[str, list[TopicPartition]]
"""By member id; every member is in it."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What the leader knows of a member when it assigns."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    rack: str | None = None
    owned: Sequence[TopicPartition] = ()
    """What it says that it holds on to while the group rebalances."""
    generation: int = NO_GENERATION
    """In which it was given these."""
    user_data: bytes | None = None
    """What its assignor added."""


class Assignor(Protocol):
    """One way to assign. `name` is what members of all clients call it by."""

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool:
        """Whether members keep their partitions while the group rebalances (KIP-429)."""

    def user_data(self, owned: Collection[TopicPartition] | None, generation: int) -> bytes | None:
        """What a member tells the leader beside its subscription, given its last assignment (None: never had one)."""

    def assign(self, topics: Topics, members: Sequence[GroupMember]) -> Assignment:
        """Each member's partitions. Topics that are not known are left out of `topics`."""


def in_order(members: Sequence[GroupMember]) -> list[GroupMember]:
    """Static members by their instance ids, so that a restart changes nothing; behind them all others, by member id."""
    return sorted(members, key=lambda member: (member.instance_id is None, member.instance_id or member.member_id))
