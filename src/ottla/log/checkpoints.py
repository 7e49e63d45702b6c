"""The small text files of a log directory, as Kafka 3.9 writes them: checkpoints, the clean shutdown marker, identity.

Every write is atomic and synced, so a reader finds the old content or the new. A file that cannot be read raises a
`CorruptCheckpointError` that names file, line and what to do; nothing is repaired silently. Objects here have no state
except their path: any thread may use them, but only one at a time for the same file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from zlib import crc32

from ottla.base.disk import Disk
from ottla.base.ids import TopicPartition, Uuid, format_uuid, parse_uuid
from ottla.log import names
from ottla.log.errors import CorruptCheckpointError

_Entry = TypeVar("_Entry")

CHECKPOINT_VERSION: Final = 0

# Java's rules: `readLine` ends a line at any of these, `\s` is ASCII, `parseInt` accepts no blanks or underscores.
_LINE_END = re.compile(r"\r\n|\n|\r")
_BLANKS = re.compile(r"[ \t\x0b\f]+")
_NUMBER = re.compile(r"[+-]?0*[0-9]{1,19}")
_MAX_INT32: Final = 2**31 - 1
_MAX_INT64: Final = 2**63 - 1

_CRCS: Final = "ottlaCheckpointCrcs"
_CHECKPOINTS: Final = (
    names.RECOVERY_POINTS,
    names.HIGH_WATERMARKS,
    names.LOG_START_OFFSETS,
    names.CLEANER_OFFSETS,
)

_AFTER_REMOVAL: Final = {
    names.RECOVERY_POINTS: "every segment is then checked at the next start, which takes a while",
    names.HIGH_WATERMARKS: "high watermarks then begin at the start of each log and rise again with replication",
    names.LOG_START_OFFSETS: "records that were deleted on request, but whose segment is still there, then come back",
    names.CLEANER_OFFSETS: "compaction then begins at the start of each log",
    names.LEADER_EPOCHS: "this replica then truncates by its high watermark when it next follows a leader",
}


def number(text: str, maximum: int) -> int | None:
    """Parses a number as Java does; None for anything else, or if it exceeds this maximum of its type."""
    if len(text) < 10 and text.isdigit() and text.isascii():
        return int(text)  # the usual case: a file has thousands
    if not _NUMBER.fullmatch(text):
        return None
    value = int(text)
    return value if -maximum - 1 <= value <= maximum else None


def lines_of(text: str) -> list[str]:
    """The lines of a file, from any system; a line end after the last line does not add an empty one."""
    lines = _LINE_END.split(text)
    if lines[-1] == "":
        lines.pop()
    return lines


def _corrupt(path: Path, reason: str) -> CorruptCheckpointError:
    consequence = _AFTER_REMOVAL.get(path.name)
    remedy = "restore the file from a copy, or remove it while the broker is stopped"
    return CorruptCheckpointError(path, reason, f"{remedy}{f': {consequence}' if consequence else ''}")


def _read_text(disk: Disk, path: Path) -> str:
    try:
        return disk.read(path).decode("utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise _corrupt(path, f"byte {error.start} is not UTF-8 text") from None


def _read_entries(disk: Disk, path: Path, form: str, parse: Callable[[list[str]], _Entry | None]) -> list[_Entry]:
    """Reads a version, a count, and that many entries, one per line. A missing or empty file has none, as in Kafka."""
    lines = lines_of(_read_text(disk, path))
    if not lines:
        return []
    version = number(lines[0], _MAX_INT32)
    if version is None:
        raise _corrupt(path, f"line 1 is {lines[0]!r}, not a version")
    if version != CHECKPOINT_VERSION:
        reason = f"line 1 says version {version}, and only version {CHECKPOINT_VERSION} is known"
        raise _corrupt(path, f"{reason} (was it written by a newer broker?)")
    if len(lines) == 1:
        return []
    count = number(lines[1], _MAX_INT32)
    if count is None:
        raise _corrupt(path, f"line 2 is {lines[1]!r}, not the number of entries")
    entries = []
    for line_number, line in enumerate(lines[2:], 3):
        entry = parse(_BLANKS.split(line.rstrip(" \t\x0b\f")))
        if entry is None:
            raise _corrupt(path, f"line {line_number} is {line!r}, not {form!r}")
        entries.append(entry)
    if len(entries) != count:
        raise _corrupt(path, f"line 2 promises {count} entries, {len(entries)} follow")
    return entries


def _write_entries(disk: Disk, path: Path, entries: Collection[str]) -> None:
    disk.write_atomically(path, "\n".join((str(CHECKPOINT_VERSION), str(len(entries)), *entries, "")).encode("utf-8"))


class OffsetCheckpoint:
    """An offset for each partition of a log directory: recovery point, high watermark, log start, or cleaner offset."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def read(self) -> dict[TopicPartition, int]:
        """Empty if there is no file."""
        return dict(_read_entries(self._disk, self.path, "topic partition offset", _parse_partition_offset))

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        _write_entries(self._disk, self.path, lines)


def _parse_partition_offset(words: list[str]) -> tuple[TopicPartition, int] | None:
    if len(words) != 3 or not words[0]:
        return None
    partition, offset = number(words[1], _MAX_INT32), number(words[2], _MAX_INT64)
    if partition is None or partition < 0 or offset is None:
        return None
    return TopicPartition(words[0], partition), offset


class EpochEntry(NamedTuple):
    """A leader epoch, and the offset of its first record."""

    epoch: int
    start_offset: int


class LeaderEpochCheckpoint:
    """The leader epochs of one partition."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self.path = path

    def read(self) -> list[EpochEntry]:
        """In the order of the file, oldest first; empty if there is no file."""
        return _read_entries(self._disk, self.path, "epoch offset", _parse_epoch)

    def write(self, entries: Iterable[EpochEntry]) -> None:
        _write_entries(self._disk, self.path, [f"{epoch} {start_offset}" for epoch, start_offset in entries])


def _parse_epoch(words: list[str]) -> EpochEntry | None:
    if len(words) != 2:
        return None
    epoch, start_offset = number(words[0], _MAX_INT32), number(words[1], _MAX_INT64)
    if epoch is None or epoch < 0 or start_offset is None or start_offset < 0:
        return None
    return EpochEntry(epoch, start_offset)


class CleanShutdownFile:
    """Marks a log directory that was closed cleanly, and contains the epoch of the broker that did it.

    The existence of the file means that the stop was clean. It must be removed, durably, before the first record is
    appended.

    In addition to Kafka's fields, ours contains the CRC of each checkpoint of the directory. Checkpoints are plain
    numbers in text, and a damaged digit is still a number: the CRC detects it. Kafka ignores unknown fields, and a file
    written by Kafka has no CRCs.
    """

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self.path = directory / names.CLEAN_SHUTDOWN

    def exists(self) -> bool:
        return self._disk.exists(self.path)

    def is_whole(self) -> bool:
        """Whether the content is complete: Kafka before 3.8 wrote an empty file."""
        return self.exists() and (not self._disk.read(self.path).strip() or "version" in self._content())

    def read(self) -> int | None:
        """The broker epoch; None if there is no file or it has none, as before Kafka 3.8."""
        epoch = self._content().get("brokerEpoch")
        return epoch if isinstance(epoch, int) and not isinstance(epoch, bool) else None

    def changed_checkpoints(self) -> list[str]:
        """The names of the directory's checkpoints that have changed since the clean stop."""
        crcs = self._content().get(_CRCS)
        if not isinstance(crcs, dict):
            return []
        return [name for name in _CHECKPOINTS if name in crcs and crcs[name] != self._crc(name)]

    def _content(self) -> dict[str, Any]:
        try:
            content = json.loads(self._disk.read(self.path))
        except (FileNotFoundError, ValueError):
            return {}
        return content if isinstance(content, dict) else {}

    def _crc(self, name: str) -> int:
        try:
            return crc32(self._disk.read(self.path.parent / name))
        except FileNotFoundError:
            return 0

    def write(self, broker_epoch: int = -1) -> None:
        """Must be the last write: all checkpoints exist."""
        content = {
            "version": CHECKPOINT_VERSION,
            "brokerEpoch": broker_epoch,
            _CRCS: {name: self._crc(name) for name in _CHECKPOINTS},
        }
        self._disk.write_atomically(self.path, json.dumps(content, separators=(",", ":")).encode("utf-8"))

    def remove(self) -> None:
        if self.exists():
            self._disk.remove(self.path)
            self._disk.sync_directory(self.path.parent)


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log directory: `meta.properties`. Version 0 is for brokers with ZooKeeper, 1 for KRaft.

    In version 0 everything may be missing: a directory exists before its broker knows its id or its cluster.
    """

    broker_id: int | None = None
    cluster_id: str | None = None
    directory_id: Uuid | None = None
    version: int = 0

    @classmethod
    def read(cls, disk: Disk, path: Path) -> MetaProperties | None:
        """None if there is no file."""
        try:
            text = disk.read(path).decode("latin-1")  # Java's rule for property files
        except FileNotFoundError:
            return None
        properties = _parse_properties(text)
        version = properties.get("version", "0")
        if version not in ("0", "1"):
            raise _not_ours(path, f"version={version} is not known, only 0 and 1 (was it written by a newer broker?)")
        id_name = "broker.id" if version == "0" else "node.id"
        id_text = properties.get(id_name)
        broker_id = None if id_text is None else number(id_text, _MAX_INT32)
        if id_text is not None and broker_id is None:
            raise _not_ours(path, f"{id_name}={id_text} is not a number")
        cluster_id = properties.get("cluster.id")
        if version == "1" and (broker_id is None or cluster_id is None):
            raise _not_ours(path, f"{id_name if broker_id is None else 'cluster.id'} is missing")
        return cls(broker_id, cluster_id, _directory_id(path, properties), int(version))

    def write(self, disk: Disk, path: Path) -> None:
        directory_id = None if self.directory_id is None else format_uuid(self.directory_id)
        properties = {
            "version": self.version,
            "broker.id" if self.version == 0 else "node.id": self.broker_id,
            "cluster.id": self.cluster_id,
            "directory.id": directory_id,
        }
        lines = [f"{key}={_escape(str(value))}" for key, value in properties.items() if value is not None]
        disk.write_atomically(path, "\n".join(("#", *lines, "")).encode("latin-1"))


def _not_ours(path: Path, reason: str) -> CorruptCheckpointError:
    remedy = (
        "check that log.dirs names this broker's own directory, or restore the file from another of its directories"
    )
    return CorruptCheckpointError(path, reason, remedy)


def _directory_id(path: Path, properties: Mapping[str, str]) -> Uuid | None:
    text = properties.get("directory.id")
    if text is None:
        return None
    try:
        return parse_uuid(text)
    except ValueError as error:
        raise _not_ours(path, f"directory.id={text}: {error}") from None


# Java's property files, limited to what Java itself writes.

_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*(?:[=:][ \t\f]*)?(.*)")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|(.))")
_ESCAPED_CHARACTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


def _parse_properties(text: str) -> dict[str, str]:
    """Names and values; the last one wins if a name occurs twice."""
    return {
        _unescape(name): _unescape(value)
        for line in _logical_lines(text)
        for name, value in _PROPERTY.findall(line)[:1]
    }


def _logical_lines(text: str) -> Iterator[str]:
    """Lines with content; a line that ends with an odd number of backslashes continues in the next."""
    begun = ""
    for line in lines_of(text):
        line = line.lstrip(" \t\f")
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
        else:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    units = _ESCAPE.sub(
        lambda form: chr(int(form[1], 16)) if form[1] else _ESCAPED_CHARACTERS.get(form[2], form[2]), text
    )
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _escape(text: str) -> str:
    return _NOT_PLAIN.sub(lambda form: re.sub("(....)", r"\\u\1", form[0].encode("utf-16-be").hex()), text)
