"""Topics that come and go while a cluster has faults: what was deleted must be gone in the end, everywhere."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.log.names import PARTITION_METADATA
from ottla.testing.cluster import Cluster
from ottla.zookeeper import paths
from support.cluster.workload import RDKAFKA, Threaded

PREFIX: Final = "churn-"
_KEPT: Final = 3
_TIMEOUT_S: Final = 8.0


class Churn(Threaded):
    """Creates a topic from time to time, and deletes the oldest. Nobody produces to them."""

    def __init__(self, bootstrap: str, chance: random.Random, pause_s: float = 1.0) -> None:
        super().__init__("topics that come and go")
        self.created = 0
        self.errors: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **RDKAFKA})
        self._chance = chance
        self._pause_s = pause_s
        self._number = 0
        self._topics: list[str] = []

    def _work(self) -> None:
        self._number += 1
        name = f"{PREFIX}{self._number}"
        if self._is_done(self._admin.create_topics([NewTopic(name, 2, 3)], request_timeout=_TIMEOUT_S)):
            self.created += 1
        self._topics.append(name)  # it may be there all the same
        if len(self._topics) > _KEPT:
            self._is_done(self._admin.delete_topics([self._topics.pop(0)], request_timeout=_TIMEOUT_S))
        self._stop.wait(self._chance.uniform(0.0, 2 * self._pause_s))

    def _is_done(self, futures: dict[str, Any]) -> bool:
        try:
            for future in futures.values():
                future.result(_TIMEOUT_S + 5.0)
        except (KafkaException, TimeoutError) as error:
            self.errors.append(str(error))
            return False
        return True

    def finish(self, cluster: Cluster, timeout_s: float) -> list[str]:
        """Deletes all that are left. What is wrong afterwards."""
        self.end()
        deadline_s = time.monotonic() + timeout_s
        while True:
            topics = [name for name in cluster.view.ask(lambda tree: tree.children(paths.TOPICS)) if is_churn(name)]
            doomed = cluster.view.ask(lambda tree: tree.children(paths.DELETE_TOPICS))
            if not topics and not doomed:
                return []
            if time.monotonic() > deadline_s:
                return [f"topics are not deleted after {timeout_s:.0f} s: {topics}; to be deleted: {doomed}"]
            if topics:
                self._is_done(self._admin.delete_topics(topics, request_timeout=_TIMEOUT_S))
            time.sleep(0.2)


def is_churn(name: str) -> bool:
    return name.startswith(PREFIX)


def _was_made(log: Path) -> bool:
    metadata = log / PARTITION_METADATA
    return metadata.exists() and metadata.stat().st_size > 0


def left_on_disk(broker: int, logs: Path) -> list[str]:
    """Logs of deleted topics that are not even marked as deleted. Folders of logs that could not be made on a full disk
    do not count: they have no `partition.metadata`, or an empty one."""
    found = [
        each.name
        for each in logs.iterdir()
        if is_churn(each.name) and not each.name.endswith("-delete") and _was_made(each)
    ]
    return [f"broker {broker} still has {sorted(found)}"] if found else []
