"""A place for one partition's log, on whatever disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition
from ottla.log.config import LogConfig
from ottla.log.loader import LoadOptions, load
from ottla.log.partition_log import PartitionLog
from ottla.testing.manual_clock import ManualClock

PARTITION = TopicPartition("topic", 0)
ROOT = Path("/data")
"""On a simulated disk."""


@dataclass
class Home:
    """A disk, a clock, and a place for one partition's log."""

    disk: Disk
    clock: ManualClock
    root: Path

    @property
    def folder(self) -> Path:
        return self.root / str(PARTITION)

    def open(self, config: LogConfig | None = None, *, clean: bool = True, **options: Any) -> PartitionLog:
        """Loads the log in the folder, or makes it."""
        config = config if config is not None else LogConfig()
        load_options = replace(LoadOptions(clean=clean), **options)
        return load(self.disk, self.clock, self.folder, PARTITION, config, load_options)

    def names(self) -> list[str]:
        return self.disk.list(self.folder)
