"""Encodes the records of a batch: with the compiled codec if there are many, with the plain one if there are few.

The bytes do not identify the producer yet: its id and the sequence number are written when the batch is sent.
"""

from __future__ import annotations

import struct
from array import array
from time import thread_time
from typing import Any, Final

from crc32c import crc32c

from ottla.client.config import ProducerConfig
from ottla.client.produce import compiled
from ottla.client.produce.batch import Batch
from ottla.records import BatchOptions, BatchView, Compression, decode_batch, sequence_after
from ottla.records.batch import attributes_of
from ottla.records.fast_single import encode_single
from ottla.records.header_sections import header_section
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE, PRODUCER_ID_AT
from ottla.records.plain_columns import encode_plain_columns

_PRODUCER: Final = struct.Struct(">qhi")
_CRC: Final = struct.Struct(">I")
_KERNELS_FROM_RECORDS: Final = 64
"""Below this number plain Python is faster: kernels have a fixed cost of 25 µs, and a record takes 0.3 µs."""
_WORTH_COUNTING_RECORDS: Final = 64
"""The cost of smaller batches in plain Python is not counted: reading the clock would cost as much."""
_HEAVY_BYTES: Final = 64 * 1024
"""Larger batches are not compressed in the loop."""


def batch_options(config: ProducerConfig) -> BatchOptions:
    """What every batch of a producer says of itself."""
    return BatchOptions(
        compression=config.compression_type,
        compression_level=config.compression_level,
        transactional=config.transactional_id is not None,
    )


class Encoder:
    """Stateless. Any thread can use it, but only one at a time for the same batch."""

    def __init__(self, config: ProducerConfig) -> None:
        self._options = batch_options(config)
        self._is_plain = self._options.compression is Compression.NONE
        self._attributes = attributes_of(transactional=self._options.transactional)

    def is_heavy(self, batch: Batch) -> bool:
        """Whether encoding the batch would hold up the loop."""
        return self._options.compression is not Compression.NONE and batch.reserved_bytes >= _HEAVY_BYTES

    def encode(self, batch: Batch) -> bytearray:
        encoded: bytearray
        if batch.count == 1 and self._is_plain:
            return self._encode_single(batch)
        columns = compiled.columns()
        if columns is not None and batch.count >= _KERNELS_FROM_RECORDS:
            encoded = columns.encode_columns(
                batch.values,
                batch.keys,
                timestamps_ms=_timestamps_ms(batch),
                options=self._options,
                header_sections=batch.header_sections,
            )
            return encoded
        if batch.count < _WORTH_COUNTING_RECORDS:
            return self._encode_plainly(batch)
        begun_s = thread_time()
        encoded = self._encode_plainly(batch)
        compiled.spend(thread_time() - begun_s)
        return encoded

    def encode_signed(self, batch: Batch) -> bytearray:
        """The same, and writes its sequence number into it, if it has one."""
        identity, sequence = batch.identity, batch.sequence
        if batch.count == 1 and self._is_plain and identity is not None and sequence is not None:
            return self._encode_single(batch, identity.producer_id, identity.epoch, sequence)
        encoded = self.encode(batch)
        sign_bytes(encoded, batch)
        return encoded

    def _encode_single(self, batch: Batch, *signature: int) -> bytearray:
        value, key, section, _ = batch.cells if batch.is_wide else (*batch.cells, None, None, None)
        return encode_single(value, key, section, batch.time_ms_of(0), self._attributes, *signature)

    def _encode_plainly(self, batch: Batch) -> bytearray:
        return encode_plain_columns(batch.values, batch.keys, batch.header_sections, batch.time_runs(), self._options)


def _timestamps_ms(batch: Batch) -> Any:
    """The timestamps of all records, in the form that kernels accept."""
    import numpy as np

    if batch.has_own_times:
        return np.frombuffer(array("q", batch.timestamps_ms()), np.int64)
    runs = np.array([*batch.stamps, [batch.count, 0]], np.int64)
    return np.repeat(runs[:-1, 1], np.diff(runs[:, 0]))


def sign(batch: Batch) -> None:
    """Writes the producer's id and the batch's sequence number into its bytes."""
    if batch.encoded is not None:
        sign_bytes(batch.encoded, batch)


def sign_bytes(encoded: bytearray | memoryview, batch: Batch) -> None:
    """The same if the batch does not have its bytes."""
    if batch.identity is None or batch.sequence is None:
        return
    if len(encoded) < _HEAVY_BYTES or compiled.columns() is None:
        BatchView(encoded).assign_producer(*batch.identity, batch.sequence)
        return
    # The change is at the start of the bytes that the CRC covers, and a CRC is linear: the new one follows from the
    # change and the number of bytes after it. Reading the records again would cost more than everything else.
    from ottla.client.produce.kernels import crc32c_shifted

    before = crc32c(encoded[ATTRIBUTES_AT:HEADER_SIZE])
    _PRODUCER.pack_into(encoded, PRODUCER_ID_AT, *batch.identity, batch.sequence)
    change = before ^ crc32c(encoded[ATTRIBUTES_AT:HEADER_SIZE])
    (crc,) = _CRC.unpack_from(encoded, CRC_AT)
    _CRC.pack_into(encoded, CRC_AT, crc ^ crc32c_shifted(change, len(encoded) - HEADER_SIZE))


def halves(batch: Batch) -> list[Batch]:
    """Returns two closed batches that share the records of one, and the memory that it reserved."""
    records = decode_batch(batch.encoded or b"", verify_crc=False)
    middle, reserved_bytes = len(records) // 2, batch.reserved_bytes // 2
    parts = []
    sequence = batch.sequence
    for digit, (some, reserved) in enumerate(
        ((records[:middle], reserved_bytes), (records[middle:], batch.reserved_bytes - reserved_bytes))
    ):
        part = Batch(batch.queue, reserved, 0.0, batch.deadline_s)
        part.number = (*batch.number, digit)
        part.fill(
            [
                (one.value, one.key, header_section(one.headers) if one.headers else None, one.timestamp_ms)
                for one in some
            ]
        )
        if sequence is not None:
            part.identity, part.sequence = batch.identity, sequence
            sequence = sequence_after(sequence, part.count)
        parts.append(part)
    return parts
