"""`partition.metadata`: the id of the topic to which a partition's folder belongs, so that a topic that was deleted and
created again with the same name is never taken for the old one.

Belongs to the thread that owns the log, except `flush`. The file is written once, when the id becomes known. It is not
synced then: a log without flushed records can be created again. The first flush of records syncs it, with the folder
and the folder's own name, so flushed records are never found without them.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from ottla.base.disk import Disk
from ottla.base.error_codes import ErrorCode
from ottla.base.ids import ZERO_UUID, Uuid, format_uuid, parse_uuid
from ottla.log.checkpoints import lines_of, number
from ottla.log.errors import CorruptCheckpointError, FileError
from ottla.log.names import PARTITION_METADATA

VERSION: Final = 0
_MAX_INT32: Final = 2**31 - 1
_logger = logging.getLogger(__name__)
_FIELD = re.compile(r".*?:[ \t\x0b\f]+(\S+)[ \t\x0b\f]*")


class InconsistentTopicIdError(FileError):
    """The folder belongs to another topic of that name."""

    code = ErrorCode.INCONSISTENT_TOPIC_ID


class PartitionMetadata:
    """The topic id of one partition's folder; None until it is set, as in a folder older than topic ids."""

    __slots__ = ("_directory", "_disk", "_is_synced", "topic_id", "version")

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        topic_id: Uuid | None = None,
        version: int = VERSION,
        *,
        is_synced: bool = False,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._is_synced = is_synced
        """Whether the file, and the folder's name, are known to survive a power cut."""
        self.topic_id = topic_id
        self.version = version

    @property
    def path(self) -> Path:
        return self._directory / PARTITION_METADATA

    @classmethod
    def load(cls, disk: Disk, directory: Path, *, was_flushed: bool = True) -> PartitionMetadata:
        """Reads the folder's file; without an id if there is no file. `was_flushed` says whether records of the log
        were flushed: if not, the file may be incomplete, and is then treated as missing."""
        path = directory / PARTITION_METADATA
        try:
            content = disk.read(path)
        except FileNotFoundError:
            return cls(disk, directory)
        try:
            version, topic_id = _parse(path, content)
        except CorruptCheckpointError as error:
            if was_flushed:
                raise
            _logger.warning("The file was not synced before a crash and is written again: %s", error)
            return cls(disk, directory)
        return cls(disk, directory, topic_id, version, is_synced=was_flushed)

    def assign(self, topic_id: Uuid, *, sync: bool = True) -> None:
        """Writes the id, if there is none yet. Without `sync`, `flush` makes it survive a power cut."""
        if topic_id == ZERO_UUID:
            raise ValueError("an id of all zeros is not a topic id")
        if self.topic_id == topic_id:
            return
        if self.topic_id is not None:
            there, asked = format_uuid(self.topic_id), format_uuid(topic_id)
            raise InconsistentTopicIdError(
                self.path,
                f"the directory belongs to topic id {there}, not {asked}; delete the older directory first",
            )
        content = f"version: {VERSION}\ntopic_id: {format_uuid(topic_id)}".encode("ascii")
        if sync:
            self._disk.write_atomically(self.path, content)
        else:
            self._disk.write(self.path, content)
        self.topic_id = topic_id

    def flush(self) -> None:
        """Makes the file, the folder and the folder's name survive a power cut. Thread-safe; costs nothing once it was
        done."""
        if self._is_synced:
            return
        directory = self._directory
        if self.topic_id is not None:
            file = self._disk.open(directory / PARTITION_METADATA)
            try:
                file.sync()
            finally:
                file.close()
        self._disk.sync_directory(directory)
        self._disk.sync_directory(directory.parent)
        self._is_synced = True

    def move_to(self, directory: Path) -> None:
        """Called when the folder was renamed."""
        self._directory = directory


def _parse(path: Path, content: bytes) -> tuple[int, Uuid]:
    """Reads the known fields of a newer version, so that a broker can be replaced by an older one."""
    lines = lines_of(content.decode("utf-8", "replace"))
    version = number(_field(path, lines, 0, "version: <number>"), _MAX_INT32)
    if version is None or version < VERSION:
        raise _corrupt(path, f"line 1 is {lines[0]!r}, not 'version: <number>'")
    try:
        topic_id = parse_uuid(_field(path, lines, 1, "topic_id: <id>").rstrip("="))
    except ValueError as error:
        raise _corrupt(path, f"line 2: {error}") from None
    if topic_id == ZERO_UUID:
        raise _corrupt(path, "line 2: an id of all zeros is not a topic id")
    return version, topic_id


def _field(path: Path, lines: list[str], index: int, form: str) -> str:
    """Returns what follows the colon. The name before it is not checked, as in Kafka."""
    if index >= len(lines):
        raise _corrupt(path, f"line {index + 1}, {form!r}, is missing")
    field = _FIELD.fullmatch(lines[index])
    if field is None:
        raise _corrupt(path, f"line {index + 1} is {lines[index]!r}, not {form!r}")
    return field[1]


def _corrupt(path: Path, reason: str) -> CorruptCheckpointError:
    remedy = "restore the file, or delete it while the broker is stopped: the id is then written again"
    return CorruptCheckpointError(path, reason, remedy)
