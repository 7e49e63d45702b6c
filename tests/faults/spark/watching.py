"""Looks again and again at how far a job says to be, and at what is there by then."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from faults.client.traffic import PATIENT
from faults.spark.checkpoint import Checkpoint
from faults.spark.history import Claim, Offsets
from ottla import Admin, TopicPartition
from ottla.base.errors import OttlaError
from ottla.client.offsets import LATEST

_EVERY_S = 0.25
_LIMITS = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), 2000)


class Watching:
    """A thread; a broker that is away is asked again later."""

    def __init__(self, bootstrap: str, group: str, target: str, partitions: int, checkpoint: Checkpoint) -> None:
        self.claims: list[Claim] = []
        self._group = group
        self._places = {TopicPartition(target, index): LATEST for index in range(partitions)}
        self._checkpoint = checkpoint
        settings: Mapping[str, Any] = {"bootstrap.servers": bootstrap, **_LIMITS, **PATIENT}
        self._admin = Admin(settings)
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="watching")
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.wait(_EVERY_S):
                try:
                    self.look()
                except OttlaError:
                    continue
        except BaseException as error:
            self._failure = error

    def look(self) -> None:
        """What is said is read before what is there: the output may have grown in between, and nothing else."""
        said = {"the checkpoint": self._checkpoint.done(), "the group": self.shown()}
        found = self._admin.list_offsets(self._places)
        written = {partition.partition: one.offset or 0 for partition, one in found.items()}
        self.claims.extend(Claim(who, done, written) for who, done in said.items() if done)

    def shown(self) -> Offsets:
        """How far the group is."""
        offsets = self._admin.list_consumer_group_offsets(self._group)
        return {partition.partition: one.offset for partition, one in offsets.items()}

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._admin.close()
