"""Creates the logs of many new partitions. Creating their folders takes a while, so a thread does it:

new = directories.place([NewLog(partition, config, topic_id), ...])     owner: decides where each goes
new.make()                                                              any thread
directories.adopt(new)                                                  owner: adds them

Nothing is synced. The coordination tree contains the partitions: a log that a power cut removes before its first flush
is created again at the next start.
"""

from __future__ import annotations

import errno
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
    """A log to create."""

    partition: TopicPartition
    config: LogConfig
    topic_id: Uuid
    """`ZERO_UUID` for a topic without an id, as created by Kafka before 2.8."""


class NewLogs:
    """See the module docstring. `places` has the log directory of each; `before` is called for a directory before its
    first log is created."""

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
        """By log directory; none of its logs counts as created."""
        self.refusals: dict[TopicPartition, LogError] = {}
        """Errors of single logs, whose folders contain something else."""

    def make(self) -> None:
        """Can be called in any thread, once."""
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
    """Creates one log in the log directory; syncs nothing. A log directory that is gone is not created again: it would
    hide that its replicas are lost."""
    if not disk.is_directory(path):
        raise FileNotFoundError(errno.ENOENT, "the log directory is gone", str(path))
    log = load(disk, clock, path / str(new.partition), new.partition, new.config, options)
    if new.topic_id != ZERO_UUID:
        log.metadata.assign(new.topic_id, sync=False)
    return log
