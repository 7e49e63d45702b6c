"""Checks a broker's data directories before anything is written to them.

A mistake here (a moved path, a removed file, the wrong user) needs an error message that says what to do: a broker that
creates a new tree or takes a new id would serve none of the data on its disks.
"""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ottla.base.disk import Disk
from ottla.broker.configs.broker_config import BrokerConfig
from ottla.controller.state import TopicState
from ottla.log import names
from ottla.log.checkpoints import MetaProperties
from ottla.log.errors import FileError

_logger = logging.getLogger(__name__)

_OWN_FILES: Final = frozenset(
    {
        names.LOCK,
        names.META_PROPERTIES,
        names.RECOVERY_POINTS,
        names.HIGH_WATERMARKS,
        names.LOG_START_OFFSETS,
        names.CLEANER_OFFSETS,
        names.CLEAN_SHUTDOWN,
    }
)
_SHOWN_MAX: Final = 5


class DataDirectoryError(FileError):
    """Data that is inconsistent, or that this process cannot access."""


@dataclass(frozen=True, slots=True)
class FoundDirectory:
    """The contents of a log directory before the broker opens it."""

    path: Path
    meta: MetaProperties | None
    partition_count: int
    has_tree: bool

    @classmethod
    def look(cls, disk: Disk, path: Path, tree_name: str) -> FoundDirectory:
        entries = disk.list(path) if disk.exists(path) else []
        count = sum(names.parse_partition_folder(entry) is not None for entry in entries)
        meta = MetaProperties.read(disk, path / names.META_PROPERTIES) if names.META_PROPERTIES in entries else None
        return cls(path, meta, count, tree_name in entries)

    @property
    def is_used(self) -> bool:
        """Whether a broker has stored data here."""
        return self.partition_count > 0 or (self.meta is not None and self.meta.cluster_id is not None)


def place_of_tree(config: BrokerConfig, disk: Disk) -> Path:
    """The file of the coordination tree, which may not exist yet. If the log directories are listed in a different
    order, the tree is still in the one where it was created. Without a tree there must be no data either."""
    path = config.tree_path
    if disk.exists(path):
        return path
    directories = [FoundDirectory.look(disk, each, path.name) for each in config.log_dirs]
    if not config.tree_is_given:
        elsewhere = [each.path / path.name for each in directories if each.has_tree]
        if len(elsewhere) > 1:
            found = " and ".join(map(str, elsewhere))
            raise DataDirectoryError(path, f"it is missing, but {found} exist; set ottla.tree.file to the right one")
        if elsewhere:
            return elsewhere[0]
    if any(each.is_used for each in directories):
        raise DataDirectoryError(path, _without_tree(directories))
    return path


def _without_tree(directories: Sequence[FoundDirectory]) -> str:
    used = [each for each in directories if each.is_used]
    cluster = next((each.meta.cluster_id for each in used if each.meta is not None and each.meta.cluster_id), None)
    where = ", ".join(f"{_counted(each.partition_count, 'partition')} in {each.path}" for each in used)
    return (
        f"this file holds the topics and configs of the cluster and is missing, but there are {where}"
        f"{'' if cluster is None else f' (cluster {cluster})'}. Restore the file from a backup, or set ottla.tree.file "
        "to where it is now. For a new, empty cluster choose other log directories, or move these away"
    )


# --- who may use it -------------------------------------------------------------------------------------------------


def check_access(tree_path: Path, log_dirs: Sequence[Path]) -> None:
    """Raises `DataDirectoryError` if this process cannot use the tree, or any log directory."""
    fault = fault_of_directory(tree_path.parent, f"{tree_path.name}*")
    if fault is not None:
        raise fault
    check_log_directories(log_dirs)


def check_log_directories(log_dirs: Sequence[Path]) -> None:
    """Raises `DataDirectoryError` if this process can use none of them. If it can use some, the others go offline when
    they are opened."""
    faults = [fault_of_directory(path) for path in log_dirs]
    if faults[0] is not None and all(faults):
        raise faults[0]


def fault_of_directory(path: Path, *patterns: str) -> DataDirectoryError | None:
    """Why this process cannot store data there; None if it can. Checks the files of a log directory and those that
    match the patterns, but no others, such as `lost+found`."""
    existing = next(each for each in (path, *path.parents) if _is_visible(each))
    if not existing.is_dir():
        reason = "this is a file, and a directory is needed; choose another one with --data-dir (ottla.data.dir)"
        return DataDirectoryError(existing, f"{reason} or log.dirs")
    if not _may(existing, os.R_OK | os.W_OK | os.X_OK):
        return _denied(existing)
    if existing == path:
        for entry in sorted(path.iterdir()):
            is_ours = entry.name in _OWN_FILES or names.parse_partition_folder(entry.name) is not None
            if (is_ours or any(entry.match(each) for each in patterns)) and not _may(entry, os.R_OK | os.W_OK):
                return _denied(entry)
    return None


def _is_visible(path: Path) -> bool:
    try:
        path.stat()
    except OSError:
        return False
    return True


def _may(path: Path, mode: int) -> bool:
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


def _denied(path: Path) -> DataDirectoryError:
    return DataDirectoryError(path, denial(path, _user(path.stat().st_uid), _user(os.geteuid())))


def denial(path: Path, owner: str, user: str) -> str:
    """What to do when this process's user cannot write there."""
    if owner == user or user == "root":
        return f"user {user} cannot write here; check its permissions, and that the file system is not read-only"
    folder = path if path.is_dir() else path.parent
    return (
        f"it belongs to user {owner}, and the broker runs as {user}, who cannot write here. Run the broker as {owner}, "
        f"or give the data to {user}: chown -R {user} {folder}"
    )


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


# --- what to say of it at a start -----------------------------------------------------------------------------------


def lost_partitions_warning(partitions: Sequence[object]) -> str:
    """A warning for partitions that are in the tree but in no log directory."""
    return (
        f"{_counted(len(partitions), 'partition')} had no folder in the log directories, and a new, empty one is made "
        f"for each: {_shown(partitions)}. If they held records, stop the broker and restore the folders from a backup. "
        "Topics that were created just before a crash are expected here."
    )


def foreign_topics_warning(topics: Sequence[TopicState], broker_id: int) -> str | None:
    """A warning for topics that have no partition on this broker, the only one that could serve them."""
    foreign = [topic for topic in topics if not any(broker_id in partition.replicas for partition in topic.partitions)]
    if not foreign:
        return None
    owners = ", ".join(map(str, brokers_of(foreign)))
    return (
        f"{_counted(len(foreign), 'topic')} cannot be served, because this is broker {broker_id} and their partitions "
        f"belong to broker {owners}: {_shown([topic.name for topic in foreign])}. Start the broker with that broker.id "
        "in its config and in meta.properties of each log directory."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _shown(items: Sequence[object]) -> str:
    shown = sorted(map(str, items))
    return ", ".join(shown[:_SHOWN_MAX]) + (", …" if len(shown) > _SHOWN_MAX else "")


def brokers_of(topics: Sequence[TopicState]) -> Iterator[int]:
    """All brokers that have a replica, sorted."""
    yield from sorted({owner for topic in topics for partition in topic.partitions for owner in partition.replicas})
