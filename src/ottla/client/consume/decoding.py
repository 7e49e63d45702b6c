"""Decodes chunks of batches into records or Arrow columns, in the thread that polls.

Compiled kernels (the `columns` extra) decode large chunks, the plain codec decodes small ones. Kernels take a moment to
load: that begins, in a thread, with the first large chunk of records that are not similar, or when plain Python has
taken some time for similar ones. It is used until they are ready.

Bytes that are not records raise an error once all records before them were returned, and again at each poll until the
user seeks past them. The same holds for keys and values that cannot be deserialized.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import thread_time
from typing import Any, Final

from ottla.client.config import Coder, ConsumerConfig
from ottla.client.consume.arrow import ChosenColumns
from ottla.client.consume.fetch_buffer import FetchedChunk
from ottla.client.consume.kernels import KERNELS, LOAD_AFTER_S
from ottla.client.consume.record import ConsumerRecord, make_records
from ottla.client.errors import CorruptRecordError, SerializationError
from ottla.client.serializers.basic import BytesDeserializer
from ottla.client.serializers.contract import Part, bound_deserializer
from ottla.client.serializers.names import deserializer_of
from ottla.records import ByteBuffer, RecordError, RecordLists
from ottla.records.errors import DecompressionLimitError
from ottla.records.fast_lists import iter_lists
from ottla.records.layout import MAX_INT64

SMALL_BYTES: Final = 2048
"""Below this size the plain codec is as fast as the kernels."""
LARGE_BYTES: Final = 32 * 1024
"""From this size on, the time that plain Python takes is counted."""

KEPT_RECORDS: Final = 20_000
FEW_RECORDS: Final = 20
"""Below this number, pausing the garbage collector gains nothing."""

Deserialize = Callable[[str, Iterable[bytes | None]], list[Any]]


class DecodedChunk:
    """The records of a chunk that were not returned yet."""

    __slots__ = ("at", "failure", "left", "lists", "records")

    def __init__(self, lists: RecordLists, records: Iterator[ConsumerRecord], failure: Exception | None) -> None:
        self.lists = lists
        self.records = records
        self.failure = failure
        """The error that comes after them."""
        self.at = 0
        self.left = len(lists.offsets)


class Decoder:
    """Decodes records as the consumer's config says."""

    def __init__(self, config: ConsumerConfig) -> None:
        self._verify_crc = config.check_crcs
        self._max_decompressed_bytes = config.max_decompressed_batch_bytes
        self._kept: RecordLists | None = None
        """The records of the last chunk, kept while the next ones are created. Python returns memory that is entirely
        free to the system at once, and gets it back page by page, which would take a quarter of the decoding time."""
        self._keys = _deserialize(config.key_deserializer, "key")
        self._values = _deserialize(config.value_deserializer, "value")

    def take(self, chunk: FetchedChunk, most: int) -> list[ConsumerRecord]:
        """Returns the next records of the chunk; an empty list at its end. `chunk.rest` is what remains."""
        rest: DecodedChunk | None = chunk.rest
        if rest is None:
            rest = chunk.rest = self._decode(chunk)
        if not rest.left:
            if rest.failure is not None:
                raise rest.failure
            return []
        if self._keys is None and self._values is None:
            records = _listed(islice(rest.records, most), most, KERNELS.untrack)
        else:
            records = self._deserialized(chunk, rest, most)
        rest.left -= len(records)
        return records

    def take_lists(self, chunk: FetchedChunk) -> RecordLists:
        """Returns the rest of the chunk as lists, without deserializing anything. Call it again if the chunk ends with
        an error, which is then raised."""
        rest: DecodedChunk | None = chunk.rest
        if rest is None:
            rest = chunk.rest = self._decode(chunk)
        if not rest.left and rest.failure is not None:
            raise rest.failure
        lists = rest.lists.part(rest.at, rest.at + rest.left) if rest.at else rest.lists
        rest.left = 0
        return lists

    def take_columns(self, chunk: FetchedChunk, chosen: ChosenColumns) -> Any:
        """Returns the rest of the chunk as an Arrow record batch: the offsets, and the chosen columns that differ
        between records."""
        columns = KERNELS.load()
        data, begin, until = chunk.data, _begin(chunk), chunk.state.until
        rest: DecodedChunk | None = chunk.rest
        if rest is not None and rest.failure is not None and not rest.left:
            raise rest.failure

        def decode(data: ByteBuffer) -> Any:
            return columns.decode_columns(
                data,
                self._reading(columns, begin, until),
                keys=chosen.keys,
                values=chosen.values,
                headers=chosen.headers,
                timestamps=chosen.timestamps,
                timestamp_types=chosen.timestamp_types,
                partition=chunk.state.partition.partition if chosen.partitions else None,
            )

        try:
            batch, failure = decode(data), None
        except RecordError as error:
            batch, failure = self._sound_part(chunk, error, decode)
        chunk.rest = DecodedChunk(RecordLists([], [], [], [], []), iter(()), failure)
        return batch

    # Records.

    def _decode(self, chunk: FetchedChunk) -> DecodedChunk:
        begin, until = _begin(chunk), chunk.state.until

        def decode(data: ByteBuffer) -> RecordLists:
            return self._lists(data, begin, until)

        try:
            lists, failure = decode(chunk.data), None
        except RecordError as error:
            lists, failure = self._sound_part(chunk, error, decode)
        self._kept = lists if len(lists.offsets) <= KEPT_RECORDS else None
        topic, partition = chunk.state.partition
        records = make_records(topic, partition, chunk.timestamp_type, chunk.leader_epoch, lists)
        return DecodedChunk(lists, records, failure)

    def _lists(self, data: ByteBuffer, begin: int, until: int | None) -> RecordLists:
        size = len(data)
        if size >= SMALL_BYTES:
            kernels = KERNELS.module
            if kernels is not None:
                lists: RecordLists = kernels.decode_lists(data, self._reading(kernels, begin, until))
                return lists
            if size >= LARGE_BYTES:
                begun_s = thread_time()
                lists, is_fast = self._plain_lists(data, begin, until)
                KERNELS.spend(thread_time() - begun_s if is_fast else LOAD_AFTER_S)
                return lists
        return self._plain_lists(data, begin, until)[0]

    def _plain_lists(self, data: ByteBuffer, begin: int, until: int | None) -> tuple[RecordLists, bool]:
        """The records, and whether they were decoded almost as fast as kernels would."""
        end = MAX_INT64 if until is None else until
        found, is_fast = RecordLists([], [], [], [], []), True
        batches = iter_lists(data, verify_crc=self._verify_crc, max_decompressed_bytes=self._max_decompressed_bytes)
        for lists, was_fast in batches:
            found.extend(lists.between(begin, end))
            is_fast = is_fast and was_fast
        return found, is_fast

    def _reading(self, kernels: Any, begin: int, until: int | None) -> Any:
        return kernels.Reading(
            first_offset=begin,
            until_offset=until,
            verify_crc=self._verify_crc,
            max_decompressed_bytes=self._max_decompressed_bytes,
        )

    def _sound_part(
        self, chunk: FetchedChunk, error: RecordError, decode: Callable[[ByteBuffer], Any]
    ) -> tuple[Any, CorruptRecordError]:
        """Decodes what comes before the batch that cannot be read."""
        where = f"partition {chunk.state.partition}, the batch with base offset {error.base_offset}"
        remedy = "seek past it to continue"
        if isinstance(error, DecompressionLimitError):
            remedy = f"increase max.decompressed.batch.bytes, or {remedy}"
        failure = CorruptRecordError(f"{where}: {error.reason}; {remedy}")
        failure.__cause__ = error
        if not error.position:
            raise failure
        return decode(memoryview(chunk.data)[: error.position]), failure

    def _deserialized(self, chunk: FetchedChunk, rest: DecodedChunk, most: int) -> list[ConsumerRecord]:
        """Returns the next records, up to one that cannot be deserialized; raises its error if it is the first."""
        topic, partition = chunk.state.partition
        lists = rest.lists.part(rest.at, rest.at + most)
        keys: list[Any] = lists.keys
        values: list[Any] = lists.values
        try:
            if self._keys is not None:
                keys = self._keys(topic, keys)
            if self._values is not None:
                values = self._values(topic, values)
        except SerializationError as error:
            if not error.index:
                where = f"partition {partition}, offset {lists.offsets[0]}"
                raise SerializationError(
                    topic, error.part, f"{error.reason} ({where}; seek past it to continue)"
                ) from error
            return self._deserialized(chunk, rest, error.index)
        rest.at += len(keys)
        fields = RecordLists(lists.offsets, lists.timestamps_ms, keys, values, lists.headers)
        # Deserialized values may refer to each other, so the garbage collector has to track them.
        return _listed(make_records(topic, partition, chunk.timestamp_type, chunk.leader_epoch, fields), most, None)


def _listed(
    records: Iterator[ConsumerRecord], most: int, untrack: Callable[[list[Any]], None] | None
) -> list[ConsumerRecord]:
    """Creates all records. With many new objects the garbage collector would scan them, and everything else in the
    process, again and again: four fifths of the time. It cannot find anything, so it is paused meanwhile. Afterwards
    the records are untracked if possible."""
    if most < FEW_RECORDS or not gc.isenabled():
        return list(records)
    try:
        gc.disable()
        made = list(records)
        if untrack is not None:
            untrack(made)
    finally:
        gc.enable()
    return made


def _begin(chunk: FetchedChunk) -> int:
    """Where to begin in the chunk: the broker sends a whole batch even if only its end was requested."""
    position = chunk.state.position
    return position.offset if position is not None else 0


def _deserialize(setting: str | Coder | None, part: Part) -> Deserialize | None:
    deserializer = deserializer_of(setting, part)
    return None if isinstance(deserializer, BytesDeserializer) else bound_deserializer(deserializer, part)
