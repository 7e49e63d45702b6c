"""Logs of new partitions, many at once. Making and syncing their folders takes long, so it is done in threads:

new = directories.place(partitions, config, topic_id)     owner: decides where each will lie
new.make()                                                any thread
directories.adopt(new)                                    owner: they are there
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ottla.base.clock import Clock
from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition, Uuid
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.partition_log import PartitionLog

_THREADS: Final = 8
"""They wait for syncs, which a file system does together when they come together."""
_FEW: Final = 4


class NewLogs:
    """See the module. `place` says in which log directory each partition will lie; `before` what must be done in a
    directory before its first log is made."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        config: LogConfig,
        topic_id: Uuid,
        options: LoadOptions,
        place: Sequence[tuple[Path, TopicPartition]],
        before: Mapping[Path, Callable[[], None]] = MappingProxyType({}),
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._config = config
        self._topic_id = topic_id
        self._options = options
        self._place = place
        self._before = before
        self.made: list[tuple[Path, PartitionLog]] = []
        self.failures: dict[Path, OSError] = {}
        """By log directory; none of its logs counts as made."""

    def make(self) -> None:
        """Any thread may call it, once."""
        for path, prepare in self._before.items():
            try:
                prepare()
            except OSError as error:
                self.failures[path] = error
        made = [(path, log) for path, partition in self._place if (log := self._make_one(path, partition)) is not None]
        # In the threads only what waits: the rest would be slower in many than in one.
        if len(made) <= _FEW:
            for each in made:
                self._name(*each)
        else:
            with ThreadPoolExecutor(_THREADS, "ottla-new-logs") as pool:
                for _ in pool.map(self._name, *zip(*made, strict=True)):
                    pass
        for path in {path for path, _ in self._place}:
            try:
                self._disk.sync_directory(path)
            except OSError as error:
                self.failures.setdefault(path, error)
        self.made = [(path, log) for path, log in made if path not in self.failures]

    def _make_one(self, path: Path, partition: TopicPartition) -> PartitionLog | None:
        if path in self.failures:
            return None
        try:
            return load(self._disk, self._clock, path / str(partition), partition, self._config, self._options)
        except OSError as error:
            self.failures.setdefault(path, error)
            return None

    def _name(self, path: Path, log: PartitionLog) -> None:
        """Writes down whose log it is, which syncs the folder too."""
        if path in self.failures:
            return
        try:
            log.metadata.assign(self._topic_id)
        except OSError as error:
            self.failures.setdefault(path, error)
