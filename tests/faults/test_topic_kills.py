"""Brokers that are killed right after topics were created, grown and deleted: what was answered holds when they come
back, in the tree and on the disk."""

from __future__ import annotations

import logging
import os
import random
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from ottla.testing.broker import Broker

_logger = logging.getLogger(__name__)

SEED = int(os.environ.get("OTTLA_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)


def answered(futures: dict[str, Future[Any]]) -> None:
    for future in futures.values():
        future.result(60)


class Topics:
    """What there is to be, by name: the number of partitions."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.counts: dict[str, int] = {}
        self._made = 0

    def change(self, admin: AdminClient) -> None:
        some = self.chance.sample(sorted(self.counts), min(len(self.counts), self.chance.randint(1, 40)))
        what = self.chance.choice(["create", "delete", "recreate", "grow"]) if some else "create"
        if what == "create":
            names = [f"topic-{self._made + number}" for number in range(self.chance.randint(1, 40))]
            self._made += len(names)
            self._create(admin, names, 3)
        elif what == "grow":
            growing = [name for name in some if self.counts[name] < 5]
            if growing:
                answered(admin.create_partitions([NewPartitions(name, 5) for name in growing]))
                self.counts.update(dict.fromkeys(growing, 5))
        else:
            answered(admin.delete_topics(some))
            for name in some:
                del self.counts[name]
            if what == "recreate":
                self._create(admin, some[:5], 2)

    def _create(self, admin: AdminClient, names: list[str], partitions: int) -> None:
        answered(admin.create_topics([NewTopic(name, partitions, 1) for name in names]))
        self.counts.update(dict.fromkeys(names, partitions))


def found(admin: AdminClient) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in admin.list_topics(timeout=60).topics.items()}


def folders(directory: Path) -> set[str]:
    names = {path.name for path in directory.rglob("*-*") if path.is_dir()}
    return {name for name in names if not name.endswith("-delete")}


@pytest.mark.soak
def test_topics_are_as_they_were_answered_after_any_kill(tmp_path: Path) -> None:
    _logger.info("OTTLA_SEED=%d", SEED)
    topics = Topics(random.Random(SEED))
    with Broker(directory=tmp_path / "data") as broker:
        for _ in range(25):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            for _ in range(topics.chance.randint(1, 3)):
                topics.change(admin)
            broker.kill()
            broker.start()
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            assert found(admin) == topics.counts
            expected = {f"{name}-{index}" for name, count in topics.counts.items() for index in range(count)}
            assert folders(tmp_path / "data") == expected
