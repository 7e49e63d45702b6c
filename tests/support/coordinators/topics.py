"""Topics that a test makes up."""

from __future__ import annotations

import uuid

from ottla.base.ids import Uuid


class FakeTopics:
    """What a coordinator sees of a cluster's topics."""

    def __init__(self, **partition_counts: int) -> None:
        self.version = 0
        self._counts: dict[str, int] = {}
        self._ids: dict[str, Uuid] = {}
        for topic, count in partition_counts.items():
            self.put(topic, count)

    def put(self, topic: str, partition_count: int) -> None:
        """A topic comes, or grows."""
        self._counts[topic] = partition_count
        self._ids.setdefault(topic, Uuid(uuid.uuid5(uuid.NAMESPACE_URL, topic).bytes))
        self.version += 1

    def remove(self, topic: str) -> None:
        del self._counts[topic], self._ids[topic]
        self.version += 1

    def partition_count(self, topic: str) -> int | None:
        return self._counts.get(topic)

    def topic_id(self, topic: str) -> Uuid | None:
        return self._ids.get(topic)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, each in self._ids.items() if each == topic_id), None)

    def topic_names(self) -> list[str]:
        return list(self._counts)
