"""The state machine of one partition of `__consumer_offsets`: its groups, and their offsets.

What the protocols do with them is elsewhere: `offsets` (commits), `classic` (JoinGroup and its kin), `consumer`
(ConsumerGroupHeartbeat). Each registers here how its records are replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ottla.coordinator.groups.group import Group, GroupSettings, TopicImage
from ottla.coordinator.runtime import ShardContext

_logger = logging.getLogger(__name__)

Replayer = Callable[[bytes, "bytes | None", int, int, int], None]
"""Given key, value, offset, producer id (-1 outside of transactions) and timestamp."""


class GroupShard:
    """Made empty, filled by replay."""

    def __init__(self, context: ShardContext, settings: GroupSettings, topics: TopicImage) -> None:
        self.context = context
        self.settings = settings
        self.topics = topics
        self.groups: dict[str, Group] = {}
        self.replayers: dict[int, Replayer] = {}
        """By the number that a record's key begins with (an int16)."""
        self.make_simple_group: Callable[[str], Group]
        """An empty classic group without a protocol, for offsets of a group that has no members. Set by `classic`; not
        put among the groups."""
        self.on_loaded: list[Callable[[], None]] = []
        self.on_unload: list[Callable[[], None]] = []
        self.on_end_of_transaction: list[Callable[[int, bool], None]] = []

    def replay(self, key: bytes, value: bytes | None, offset: int, producer_id: int, timestamp_ms: int, /) -> None:
        replayer = self.replayers.get((key[0] << 8) | key[1]) if len(key) > 1 else None
        if replayer is None:
            _logger.warning("a record of an unknown kind is passed over: key %r at offset %d", key[:40], offset)
            return
        replayer(key, value, offset, producer_id, timestamp_ms)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        for each in self.on_end_of_transaction:
            each(producer_id, committed)

    def loaded(self) -> None:
        for each in self.on_loaded:
            each()

    def unload(self) -> None:
        for each in self.on_unload:
            each()
