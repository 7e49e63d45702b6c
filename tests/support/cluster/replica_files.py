"""Replicas as they lie on the disks of stopped brokers, Ottla's or Apache Kafka's, for `checker.judge_replicas`.

Reads only segments and the checkpoints of offsets: nothing that a broker says of its own log is believed.
"""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from ottla.base.ids import TopicPartition
from ottla.log.checkpoints import OffsetCheckpoint
from ottla.log.local_disk import LocalDisk
from ottla.log.names import HIGH_WATERMARKS, LOG_START_OFFSETS
from ottla.records.batch import iter_batches
from ottla.records.layout import ATTRIBUTES_AT
from support.cluster.checker import BatchMark, Place, Replica


def read_replica(broker: int, logs: Path, place: Place) -> Replica:
    """`logs` is the broker's log directory."""
    batches: list[BatchMark] = []
    segments = sorted((logs / str(place)).glob("*.log"))
    for segment in segments:
        data = segment.read_bytes()
        for view in iter_batches(data):
            batch = view.data
            is_whole = crc32c(batch[ATTRIBUTES_AT:]) == view.crc
            producer = view.producer_id, view.producer_epoch
            mark = BatchMark(view.base_offset, view.last_offset, view.leader_epoch, view.crc, is_whole, producer)
            batches.append(mark)
    first = int(segments[0].stem) if segments else 0
    start, high_watermark = (_checkpointed(logs / name, place) for name in (LOG_START_OFFSETS, HIGH_WATERMARKS))
    return Replica(broker, max(first, start), batches, high_watermark)


def _checkpointed(file: Path, place: Place) -> int:
    return OffsetCheckpoint(LocalDisk(), file).read().get(TopicPartition(*place), 0)
