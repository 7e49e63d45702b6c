"""The state machine of one partition of `__consumer_offsets`: its groups, and their offsets.

The sub-packages work on it: `offsets` (commits), `classic` (JoinGroup and related requests) and `consumer`
(ConsumerGroupHeartbeat). Each registers here how its records are replayed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from ottla.coordinator.groups.group import Group, GroupSettings, TopicImage
from ottla.coordinator.groups.offsets.records import OffsetColumn
from ottla.coordinator.key_values import Record
from ottla.coordinator.shards import ShardContext

_logger = logging.getLogger(__name__)

Replayer = Callable[[bytes, "bytes | None", int, int], None]
"""Given key, value, offset and producer id (-1 outside of transactions)."""
ColumnReplayer = Callable[[bytes, Sequence[int], Sequence[bytes], Sequence[int], int], None]
"""Given the head of the keys, partitions, values, offsets and the producer id."""


class GroupShard:
    """Starts empty; only replay fills it."""

    def __init__(self, context: ShardContext, settings: GroupSettings, topics: TopicImage) -> None:
        self.context = context
        self.settings = settings
        self.topics = topics
        self.groups: dict[str, Group] = {}
        self.replayers: dict[int, Replayer] = {}
        """By the number that a record's key begins with (an int16)."""
        self.replay_offsets: ColumnReplayer
        """Set by `offsets`, whose replayer of single records ends here as well."""
        self.make_simple_group: Callable[[str], Group]
        """Makes an empty classic group without a protocol, for offsets of a group without members. Does not add it to
        `groups`. Set by `classic`."""
        self.on_loaded: list[Callable[[], None]] = []
        self.on_unload: list[Callable[[], None]] = []
        self.on_end_of_transaction: list[Callable[[int, bool], None]] = []

    def replay(self, records: Collection[Record], offsets: Sequence[int], producer_id: int, /) -> None:
        if isinstance(records, OffsetColumn):
            self.replay_offsets(records.head, records.partitions, records.values, offsets, producer_id)
            return
        replayers = self.replayers
        for (key, value), offset in zip(records, offsets, strict=True):
            replayer = replayers.get((key[0] << 8) | key[1]) if len(key) > 1 else None
            if replayer is None:
                _logger.warning("Skipped a record of an unknown kind: key %r at offset %d.", key[:40], offset)
            else:
                replayer(key, value, offset, producer_id)

    def replay_end_of_transaction(self, producer_id: int, *, committed: bool) -> None:
        for each in self.on_end_of_transaction:
            each(producer_id, committed)

    def loaded(self) -> None:
        for each in self.on_loaded:
            each()

    def unload(self) -> None:
        for each in self.on_unload:
            each()
