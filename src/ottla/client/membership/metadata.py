"""The identity of a consumer in its group."""

from __future__ import annotations

from typing import Final, NamedTuple

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1


class GroupMetadata(NamedTuple):
    """A member, and the generation of the group that it knows, or its own epoch with KIP-848; -1 and no member id
    outside the group."""

    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
