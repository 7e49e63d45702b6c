"""Fills a shard from its partition: reads the log from its start and replays it, a piece at a time."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from ottla.base.error_codes import ErrorCode
from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.key_values import Record, iter_key_values
from ottla.coordinator.seams import CoordinatorTopic
from ottla.coordinator.shards import Shard

_PIECE_BYTES: Final = 256 << 10
"""Replaying this much takes some ten milliseconds; then the loop serves others."""
_NO_PRODUCER: Final = -1


def replay_log(log: CoordinatorTopic, index: int, shard: Shard) -> Generator[None, None, int]:
    """Yields after each piece; returns the log end offset. Raises `CoordinatorError` or `RecordError` if the log cannot
    be read."""
    offset = log.start_offset(index)
    while data := log.read(index, offset, _PIECE_BYTES):
        before, offset = offset, _replay_piece(shard, data, offset)
        if offset == before:
            raise CoordinatorError(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {offset} is truncated")
        yield
    return offset


def _replay_piece(shard: Shard, data: bytes, start: int) -> int:
    """Replays from the start offset, which may be inside the first batch; returns the offset after the last record."""
    offset = start
    for header, found in iter_key_values(data):
        if isinstance(found, list):
            records, offsets = list[Record](), list[int]()
            for at, _, key, value in found:
                if at >= start and key is not None:
                    records.append((key, value))
                    offsets.append(at)
            shard.replay(records, offsets, header.producer_id if header.is_transactional else _NO_PRODUCER)
        elif found is not None:
            shard.replay_end_of_transaction(found.producer_id, committed=found.committed)
        offset = header.next_offset
    return offset
