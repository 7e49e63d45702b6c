"""What an assignor knows of a member."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from ottla.base.ids import Uuid

Partition: TypeAlias = tuple[Uuid, int]
Partitions: TypeAlias = frozenset[Partition]
NO_PARTITIONS: Final[Partitions] = frozenset()


class MemberSpec(NamedTuple):
    topics: frozenset[Uuid]
    """The subscribed topics. Members with the same subscription share the object, so comparing them is fast."""
    target: Partitions
    """Its target assignment until now."""
    instance_id: str | None
