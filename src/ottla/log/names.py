"""Names of files and folders, exactly as in Kafka."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from ottla.base.ids import TopicPartition

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
PRODUCER_SNAPSHOT: Final = ".snapshot"
SEGMENT_SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

DELETED: Final = ".deleted"
"""Renamed, and removed later."""
CLEANED: Final = ".cleaned"
"""Being written by compaction: worthless after a crash."""
SWAP: Final = ".swap"
"""Written and synced by compaction, about to take its place: completed after a crash."""

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
LOCK: Final = ".lock"

DELETED_FOLDER: Final = re.compile(r"(?P<name>.+)\.(?P<id>[0-9a-f]{32})-delete")
FUTURE_FOLDER: Final = re.compile(r"(?P<name>.+)\.(?P<id>[0-9a-f]{32})-future")
"""A replica that is being moved into this directory: worthless after a crash."""
_PARTITION_FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>0|[1-9]\d*)")
_SEGMENT_FILE = re.compile(r"(?P<offset>\d{20})(?P<suffix>\.[a-z]+)(?P<state>\.(?:deleted|cleaned|swap))?")


class SegmentFile(NamedTuple):
    """The parts of a file name in a partition's folder."""

    base_offset: int
    suffix: str
    state: str


def segment_name(base_offset: int, suffix: str) -> str:
    return f"{base_offset:020d}{suffix}"


def parse_segment_file(name: str) -> SegmentFile | None:
    """None if the file does not belong to a segment."""
    form = _SEGMENT_FILE.fullmatch(name) if name[:1].isdigit() else None
    if form is None:
        return None
    offset, suffix, state = form.groups("")
    return SegmentFile(int(offset), suffix, state)


def parse_partition_folder(name: str) -> TopicPartition | None:
    """None if the folder is not that of a partition."""
    form = _PARTITION_FOLDER.fullmatch(name)
    return TopicPartition(form[1], int(form[2])) if form else None
