"""Logs of new partitions, many at once. Making their folders takes a while, so a thread does it:

new = directories.place([NewLog(partition, config, topic_id), ...])     owner: decides where each will lie
new.make()                                                              any thread
directories.adopt(new)                                                  owner: they are there

Nothing is synced. The coordination tree knows the partitions: what a power cut takes away before the first flush of a
log is made again at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.base.ids import ZERO_UUID, TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.log.errors import LogError
from ottla.log.loader import LoadOptions, load
from ottla.log.partition_log import PartitionLog


class NewLog(NamedTuple):
    """A log to be made."""

    partition: TopicPartition
    config: LogConfig
    topic_id: Uuid
    """`ZERO_UUID` for a topic without an id, as Kafka made them before 2.8."""


class NewLogs:
    """See the module. `places` says in which log directory each will lie; `before` what must be done in a directory
    before its first log is made."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        options: LoadOptions,
        places: Sequence[tuple[Path, NewLog]],
        before: Mapping[Path, Callable[[], None]] = MappingProxyType({}),
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._options = options
        self._places = places
        self._before = before
        self.made: list[tuple[Path, PartitionLog]] = []
        self.failures: dict[Path, OSError] = {}
        """By log directory; none of its logs counts as made."""
        self.refusals: dict[TopicPartition, LogError] = {}
        """Of single logs, whose folders hold something else."""

    def make(self) -> None:
        """Any thread may call it, once."""
        for path, prepare in self._before.items():
            try:
                prepare()
            except OSError as error:
                self.failures[path] = error
        made = [(path, log) for path, new in self._places if (log := self._make_one(path, new)) is not None]
        self.made = [(path, log) for path, log in made if path not in self.failures]

    def _make_one(self, path: Path, new: NewLog) -> PartitionLog | None:
        if path in self.failures:
            return None
        try:
            return make_log(self._disk, self._clock, path, new, self._options)
        except LogError as error:
            self.refusals[new.partition] = error
        except OSError as error:
            self.failures[path] = error
        return None


def make_log(disk: Disk, clock: Clock, path: Path, new: NewLog, options: LoadOptions) -> PartitionLog:
    """One log in the log directory; nothing of it is synced."""
    log = load(disk, clock, path / str(new.partition), new.partition, new.config, options)
    if new.topic_id != ZERO_UUID:
        log.metadata.assign(new.topic_id, sync=False)
    return log
