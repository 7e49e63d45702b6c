"""The cluster's topics, as the group coordinator sees them."""

from __future__ import annotations

from ottla.base.ids import Uuid
from ottla.broker.metadata.metadata_cache import MetadataCache


class GroupTopics:
    """Implements the coordinator's view of topics with the broker's metadata. Call `changed` after every change of
    it."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata
        self.version = 0

    def changed(self) -> None:
        self.version += 1

    def partition_count(self, topic: str) -> int | None:
        known = self._metadata.topic(topic)
        return None if known is None else len(known.partitions)

    def topic_id(self, topic: str) -> Uuid | None:
        known = self._metadata.topic(topic)
        return None if known is None else known.topic_id

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._metadata.name_of(topic_id)

    def topic_names(self) -> list[str]:
        return list(self._metadata.topics)
