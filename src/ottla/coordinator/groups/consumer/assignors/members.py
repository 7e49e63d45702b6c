"""What an assignor is told of a member."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from ottla.base.ids import Uuid

Partition: TypeAlias = tuple[Uuid, int]
Partitions: TypeAlias = frozenset[Partition]
NO_PARTITIONS: Final[Partitions] = frozenset()


class MemberSpec(NamedTuple):
    topics: frozenset[Uuid]
    """Subscribed to. Members with the same subscription share the object, which makes equal ones quick to find."""
    target: Partitions
    """What it was to own until now."""
    instance_id: str | None
