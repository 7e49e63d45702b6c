"""Compiled loops of compaction: finding batches, hashing keys into the map, and copying what remains.

Importing this module loads every kernel from numba's cache, or compiles it if the cache is cold: seconds, once. Only a
running compaction and `ottla.log.compaction.warm` import it.

As in `ottla.records.kernels`, whose primitives and rules these share: bytes are accessed by address, every read is
guarded by the end of what may be read, and a kernel only says which batch is invalid. `scan_batches` checks each CRC,
so the others read what was once appended; a record with invalid headers is copied like any other.

The map of keys is an open-addressing table with three words per entry: 128 bits of hash, and the offset plus one, so
that zeros are an empty table. Keys are equal if their hashes are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np
from llvmlite import binding, ir  # type: ignore[import-untyped]  # It ships no types.
from numba import njit, types

from ottla.log.compaction.file_batches import ENDED, NOT_THIS_MAGIC, UNSOUND
from ottla.records import kernels
from ottla.records.kernels import (
    BEYOND,
    LAST_CODEC,
    MIN_INT64,
    NULL,
    Int64s,
    _inlined,
    _primitive,
    copy_bytes,
    load_byte,
    load_int64,
    read_int32,
    read_int64,
    read_uint32,
    read_varint,
    read_varlong,
    size_of_varint,
    store_byte,
    write_int32,
    write_int64,
    write_varint,
)
from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_TIMESTAMP_AT,
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    MAX_INT64,
    MAX_TIMESTAMP_AT,
    MINIMUM_RECORD_SIZE,
    NO_TIMESTAMP,
    PRODUCER_EPOCH_AT,
    PRODUCER_ID_AT,
    RECORD_COUNT_AT,
    TIMESTAMP_TYPE_BIT,
)

_F = TypeVar("_F", bound=Callable[..., Any])

KERNELS: Final[list[str]] = []
"""The names of all kernels, in the order they were compiled or loaded."""

_BORROWED: Final = Path(kernels.__file__).stat().st_mtime_ns
"""The modification time of the file whose functions are compiled into these kernels. numba only checks the time of this
file, so that time is part of the name of the cache."""


def _kernel(signature: str) -> Callable[[_F], _F]:
    def compiled(function: _F) -> _F:
        KERNELS.append(function.__name__)
        function.__qualname__ = f"{function.__name__}_{_BORROWED:x}"
        return cast("_F", njit(signature, cache=True, nogil=True, error_model="numpy")(function))

    return compiled


# CRC-32C: with the processor's own instruction if it has one, otherwise with a table.

_WORD = ir.IntType(64)


@_primitive
def crc_of_word(_typing: Any, _crc: Any, _word: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD, _WORD])
        return builder.call(builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", (), kind), arguments)

    return types.int64(types.int64, types.int64), emit


def _make_table() -> Int64s:
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0x82F6_3B78, table >> 1)
    return table


CRC_TABLE: Final = _make_table()


@_inlined
def _crc_by_table(at: int, end: int) -> int:
    crc = 0xFFFF_FFFF
    while at < end:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ load_byte(at)) & 0xFF]
        at += 1
    return crc ^ 0xFFFF_FFFF


@_inlined
def _crc_by_instruction(at: int, end: int) -> int:
    crc = 0xFFFF_FFFF
    while end - at >= 8:
        crc = crc_of_word(crc, load_int64(at))
        at += 8
    while at < end:
        crc = (crc >> 8) ^ CRC_TABLE[(crc ^ load_byte(at)) & 0xFF]
        at += 1
    return crc ^ 0xFFFF_FFFF


def _has_instruction() -> bool:
    features = binding.get_host_cpu_features()
    return bool(binding.get_default_triple().startswith("x86_64") and features.get("sse4.2", False))


crc_of = _crc_by_instruction if _has_instruction() else _crc_by_table


@_primitive
def prefetch(_typing: Any, _address: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        pointer = builder.inttoptr(arguments[0], ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        # Prefetch for reading, into all caches, data.
        hints = [ir.Constant(number, hint) for hint in (0, 3, 1)]
        builder.call(builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind), [pointer, *hints])
        return context.get_dummy_value()

    return types.void(types.int64), emit


# Batches.

(
    AT,
    SIZE,
    BASE_OFFSET,
    LAST_OFFSET,
    ATTRIBUTES,
    BASE_TIMESTAMP,
    MAX_TIMESTAMP,
    PRODUCER_ID,
    PRODUCER_EPOCH,
    RECORD_COUNT,
    RECORDS_AT,
    RECORDS_SIZE,
    VERDICT,
    WRITTEN,
    OUTCOME,
) = range(15)
"""The columns of a table of batches. `AT` and `SIZE` are those of the whole batch; the records are at the address of
their uncompressed bytes. The caller sets the verdict, `copy_batches` the last two columns."""
BATCH_FIELDS: Final = 15

BY_KEY, KEEP, DROP = range(3)
"""The verdict on records: look at each, keep all, drop all."""
VERDICT_MASK: Final = 0x3
AS_EMPTY: Final = 0x4
"""Flag of a verdict: a batch that has lost all its records stays as an empty one."""
HORIZON: Final = 0x8
"""Flag of a verdict: the batch gets a delete horizon if it has none."""

GONE, SAME, REWRITTEN, TO_COMPRESS = range(4)
"""The result for a batch. One to compress was written without compression and without its CRC."""


@_kernel("int64(int64, int64, int64[:,::1], int64[::1])")
def scan_batches(address: int, size: int, table: Int64s, stopped: Int64s) -> int:
    """Fills the table with the complete batches from the address on. Returns their number; `stopped` contains their
    size in bytes, and why it stopped."""
    position = batches = 0
    stopped[1] = ENDED
    while size - position > MAGIC_AT and batches < len(table):
        at = address + position
        whole = read_int32(at + LENGTH_AT) + LENGTH_PREFIX_SIZE
        if load_byte(at + MAGIC_AT) != MAGIC_V2:
            stopped[1] = NOT_THIS_MAGIC
            break
        if whole < HEADER_SIZE:
            stopped[1] = UNSOUND
            break
        if whole > size - position:
            break
        base_offset = read_int64(at + BASE_OFFSET_AT)
        last_offset_delta = read_int32(at + LAST_OFFSET_DELTA_AT)
        count = read_int32(at + RECORD_COUNT_AT)
        attributes = read_uint32(at + ATTRIBUTES_AT) >> 16
        codec = attributes & COMPRESSION_MASK
        if (
            codec > LAST_CODEC
            or last_offset_delta < 0
            or base_offset > MAX_INT64 - last_offset_delta
            or count < 0
            or count > last_offset_delta + 1
            or (codec == 0 and count * MINIMUM_RECORD_SIZE > whole - HEADER_SIZE)
            or crc_of(at + ATTRIBUTES_AT, at + whole) != read_uint32(at + CRC_AT)
        ):
            stopped[1] = UNSOUND
            break
        table[batches, AT] = at
        table[batches, SIZE] = whole
        table[batches, BASE_OFFSET] = base_offset
        table[batches, LAST_OFFSET] = base_offset + last_offset_delta
        table[batches, ATTRIBUTES] = attributes
        table[batches, BASE_TIMESTAMP] = read_int64(at + BASE_TIMESTAMP_AT)
        table[batches, MAX_TIMESTAMP] = read_int64(at + MAX_TIMESTAMP_AT)
        table[batches, PRODUCER_ID] = read_int64(at + PRODUCER_ID_AT)
        epoch = read_uint32(at + PRODUCER_EPOCH_AT) >> 16
        table[batches, PRODUCER_EPOCH] = epoch - ((epoch >> 15) << 16)
        table[batches, RECORD_COUNT] = count
        table[batches, RECORDS_AT] = at + HEADER_SIZE
        table[batches, RECORDS_SIZE] = whole - HEADER_SIZE
        table[batches, VERDICT] = KEEP if attributes & CONTROL_BIT else BY_KEY
        table[batches, WRITTEN] = 0
        table[batches, OUTCOME] = GONE
        position += whole
        batches += 1
    stopped[0] = position
    return batches


RecordFields = tuple[int, int, int, int, int, int]


@_inlined
def read_record(at: int, end: int) -> RecordFields:
    """Timestamp delta, offset delta, the position of the key, its size, that of the value, and the end of the record:
    `BEYOND` if it is not a record."""
    size, at = read_varint(at, end)
    if size < 0 or size > end - at:
        return 0, 0, 0, 0, 0, BEYOND
    record_end = at + size
    timestamp_delta, at = read_varlong(at + 1, record_end)
    offset_delta, at = read_varint(at, record_end)
    key_size, at = read_varint(at, record_end)
    key = at
    if key_size > 0:
        at += key_size
    value_size, at = read_varint(at, record_end)
    if value_size > 0:
        at += value_size
    if at >= record_end or key_size < NULL or value_size < NULL:
        return 0, 0, 0, 0, 0, BEYOND
    return timestamp_delta, offset_delta, key, key_size, value_size, record_end


# Keys: a 128-bit hash like MurmurHash3, eight bytes per step.

_MULTIPLIER_1: Final = -0x783C_846E_EEBD_AC2B
_MULTIPLIER_2: Final = 0x4CF5_AD43_2745_937F
_MIXER_1: Final = -0x00AE_5028_8135_3F93
_MIXER_2: Final = -0x3B31_4601_E57A_13AD
HASH_SEED_1: Final = 0x2545_F491_4F6C_DD1D
HASH_SEED_2: Final = 0x6A09_E667_F3BC_C908


@_inlined
def rotated(word: int, bits: int) -> int:
    return (word << bits) | ((word >> (64 - bits)) & ((1 << bits) - 1))


@_inlined
def mixed(word: int) -> int:
    word ^= (word >> 33) & 0x7FFF_FFFF
    word *= _MIXER_1
    word ^= (word >> 33) & 0x7FFF_FFFF
    word *= _MIXER_2
    return word ^ ((word >> 33) & 0x7FFF_FFFF)


@_inlined
def hash_key(at: int, size: int) -> tuple[int, int]:
    first, second = HASH_SEED_1, HASH_SEED_2
    end = at + size
    while end - at >= 16:
        first ^= rotated(load_int64(at) * _MULTIPLIER_1, 31) * _MULTIPLIER_2
        first = (rotated(first, 27) + second) * 5 + 0x52DC_E729
        second ^= rotated(load_int64(at + 8) * _MULTIPLIER_2, 33) * _MULTIPLIER_1
        second = (rotated(second, 31) + first) * 5 + 0x3849_5AB5
        at += 16
    low = high = 0
    if end - at >= 8:
        low = load_int64(at)
        at += 8
        shift = 0
        while at < end:
            high |= load_byte(at) << shift
            shift += 8
            at += 1
    else:
        shift = 0
        while at < end:
            low |= load_byte(at) << shift
            shift += 8
            at += 1
    first ^= rotated(low * _MULTIPLIER_1, 31) * _MULTIPLIER_2 ^ size
    second ^= rotated(high * _MULTIPLIER_2, 33) * _MULTIPLIER_1 ^ size
    first += second
    second += first
    first, second = mixed(first), mixed(second)
    first += second
    return first, second + first


@_kernel("void(int64, int64, int64[::1])")
def hash_into(at: int, size: int, target: Int64s) -> None:
    """The hash of one key: to look into a map outside a kernel."""
    target[0], target[1] = hash_key(at, size)


@_inlined
def find_slot(entries: Int64s, slot: int, first: int, second: int) -> int:
    """The slot of that hash, or the empty one where it would go, starting at its own slot."""
    while entries[slot, 2] != 0 and (entries[slot, 0] != first or entries[slot, 1] != second):
        slot += 1
        if slot == len(entries):
            slot = 0
    return slot


@_kernel("void(int64[:,::1], int64[:,::1])")
def move_entries(source: Int64s, target: Int64s) -> None:
    """Enters all entries of a map into a larger, empty one."""
    for index in range(len(source)):
        if source[index, 2] != 0:
            home = (source[index, 0] & MAX_INT64) % len(target)
            slot = find_slot(target, home, source[index, 0], source[index, 1])
            target[slot, 0] = source[index, 0]
            target[slot, 1] = source[index, 1]
            target[slot, 2] = source[index, 2]


END, OFFSET, TIMESTAMP, KIND, SLOT, HASH_1, HASH_2 = range(7)
"""The notes about each record of a batch: where it ends, and where in the map its key belongs."""
NOTE_FIELDS: Final = 7
HAS_KEY, HAS_VALUE = 1, 2
"""The bits of a kind."""


@_inlined
def note_records(batch: Int64s, entries: Int64s, first_offset: int, until_offset: int, notes: Int64s) -> bool:
    """Parses all records of a batch; hashes those with offsets in the range. Returns whether they are valid.

    The map is far larger than a cache: its slots are prefetched here, all at once, and read later.
    """
    at = batch[RECORDS_AT]
    end = at + batch[RECORDS_SIZE]
    base_offset = batch[BASE_OFFSET]
    base_timestamp = batch[BASE_TIMESTAMP]
    last_offset_delta = batch[LAST_OFFSET] - base_offset
    newest_delta = MAX_INT64 - max(base_timestamp, 0)
    oldest_delta = MIN_INT64 - min(base_timestamp, 0)
    slots, address = len(entries), entries.ctypes.data
    previous = -1
    for record in range(batch[RECORD_COUNT]):
        timestamp_delta, offset_delta, key, key_size, value_size, at = read_record(at, end)
        if (
            at > end
            or offset_delta <= previous
            or offset_delta > last_offset_delta
            or timestamp_delta > newest_delta
            or timestamp_delta < oldest_delta
        ):
            return False
        previous = offset_delta
        offset = base_offset + offset_delta
        notes[record, END] = at
        notes[record, OFFSET] = offset
        notes[record, TIMESTAMP] = base_timestamp + timestamp_delta
        notes[record, KIND] = (HAS_KEY if key_size >= 0 else 0) | (HAS_VALUE if value_size >= 0 else 0)
        if key_size >= 0 and first_offset <= offset < until_offset:
            first, second = hash_key(key, key_size)
            slot = (first & MAX_INT64) % slots
            prefetch(address + 24 * slot)
            notes[record, SLOT] = slot
            notes[record, HASH_1] = first
            notes[record, HASH_2] = second
    return bool(at == end)


MAPPED_KEYS, MAPPED_UNTIL, MAPPED_RECORDS = range(3)
"""What `map_keys` counts: the keys in the map, the offset after the last record it took, and the number of records."""


@_kernel("int64(int64[:,::1], int64, int64[:,::1], int64, int64[:,::1], int64[::1])")
def map_keys(table: Int64s, first_offset: int, entries: Int64s, limit: int, notes: Int64s, progress: Int64s) -> int:
    """Enters the keys of all batches with verdict `BY_KEY`, each with its last offset, from an offset on.

    Returns the number of batches entered: less than all if the map had `limit` keys and another one came. Records
    before that one are entered, and `progress` says how far that is. -1 - n if batch n is invalid. `notes` has room for
    the records of the largest batch.
    """
    keys = progress[MAPPED_KEYS]
    for batch in range(len(table)):
        count = 0
        if table[batch, VERDICT] & VERDICT_MASK == BY_KEY:
            count = table[batch, RECORD_COUNT]
            if not note_records(table[batch], entries, first_offset, MAX_INT64, notes):
                return -1 - batch
        for record in range(count):
            offset = notes[record, OFFSET]
            if offset < first_offset:
                continue
            progress[MAPPED_RECORDS] += 1
            if notes[record, KIND] & HAS_KEY == 0:
                continue
            first, second = notes[record, HASH_1], notes[record, HASH_2]
            slot = find_slot(entries, notes[record, SLOT], first, second)
            if entries[slot, 2] == 0:
                if keys >= limit:
                    progress[MAPPED_KEYS] = keys
                    progress[MAPPED_UNTIL] = max(progress[MAPPED_UNTIL], offset)
                    return batch
                keys += 1
                entries[slot, 0] = first
                entries[slot, 1] = second
            entries[slot, 2] = offset + 1
        progress[MAPPED_UNTIL] = max(progress[MAPPED_UNTIL], table[batch, LAST_OFFSET] + 1)
    progress[MAPPED_KEYS] = keys
    return len(table)


# What remains.

WRITTEN_BYTES, RECORDS_READ, RECORDS_KEPT, KEYLESS = range(4)
"""What `copy_batches` totals."""
TOTALS: Final = 4

RECORD_GROWTH: Final = 12
"""The most bytes that a record can gain from a new timestamp delta: nine there, and a few in its length."""


@_inlined
def write_empty_batch(target: int, batch_at: int, attributes: int) -> int:
    copy_bytes(target, batch_at, HEADER_SIZE)
    write_int32(target + LENGTH_AT, HEADER_SIZE - LENGTH_PREFIX_SIZE)
    attributes &= ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    store_byte(target + ATTRIBUTES_AT, attributes >> 8)
    store_byte(target + ATTRIBUTES_AT + 1, attributes)
    write_int64(target + BASE_TIMESTAMP_AT, NO_TIMESTAMP)
    write_int32(target + RECORD_COUNT_AT, 0)
    write_int32(target + CRC_AT, crc_of(target + ATTRIBUTES_AT, target + HEADER_SIZE))
    return HEADER_SIZE


@_inlined
def copy_record(target: int, at: int, record_end: int, base_timestamp: int, horizon_ms: int) -> int:
    """Copies a record with its timestamp relative to another base. Returns where the copy ends."""
    _, at = read_varint(at, record_end)
    timestamp_delta, rest = read_varlong(at + 1, record_end)
    delta = base_timestamp + timestamp_delta - horizon_ms
    target = write_varint(target, 1 + size_of_varint(delta) + record_end - rest)
    store_byte(target, load_byte(at))
    target = write_varint(target + 1, delta)
    copy_bytes(target, rest, record_end - rest)
    return target + record_end - rest


@_kernel("int64(int64[:,::1], int64[:,::1], int64, int64, int64, int64[:,::1], int64, int64[::1])")
def copy_batches(
    table: Int64s,
    entries: Int64s,
    mapped_until: int,
    now_ms: int,
    horizon_ms: int,
    notes: Int64s,
    target: int,
    totals: Int64s,
) -> int:
    """Writes what remains of all batches, one after the other, and notes the result for each.

    A record below `mapped_until` stays if the map has no later one of its key; a tombstone only until the delete
    horizon of its batch. A batch that loses nothing and gains no horizon is copied as it is. Otherwise base offset,
    last offset, producer and sequence number stay the same, and records are copied as they are: only a new horizon,
    which replaces the base timestamp, changes their deltas. `notes` has room for the records of the largest batch; the
    target for all batches uncompressed, each with a header, and each record grown. Returns 0, or -1 - n if batch n is
    invalid.
    """
    begin = target
    read = kept_in_all = keyless = 0
    for batch in range(len(table)):
        batch_at = table[batch, AT]
        attributes = table[batch, ATTRIBUTES]
        base_timestamp = table[batch, BASE_TIMESTAMP]
        verdict = table[batch, VERDICT]
        rule = verdict & VERDICT_MASK
        has_horizon = attributes & DELETE_HORIZON_BIT != 0
        may_gain_horizon = verdict & HORIZON != 0 and not has_horizon
        keeps_tombstones = not has_horizon or now_ms < base_timestamp
        count = table[batch, RECORD_COUNT]
        read += count
        kept = 0
        wants_horizon = rule == KEEP and may_gain_horizon
        newest = NO_TIMESTAMP
        oldest = MAX_INT64
        if rule != DROP:
            if not note_records(table[batch], entries, 0, mapped_until if rule == BY_KEY else 0, notes):
                return -1 - batch
            for record in range(count):
                kind = notes[record, KIND]
                offset = notes[record, OFFSET]
                keeps = rule == KEEP or offset >= mapped_until
                if not keeps and kind & HAS_KEY and (keeps_tombstones or kind & HAS_VALUE):
                    slot = find_slot(entries, notes[record, SLOT], notes[record, HASH_1], notes[record, HASH_2])
                    keeps = offset + 1 >= entries[slot, 2]
                keyless += rule == BY_KEY and kind & HAS_KEY == 0
                if keeps:
                    kept += 1
                    wants_horizon |= may_gain_horizon and kind & HAS_VALUE == 0
                    newest = max(newest, notes[record, TIMESTAMP])
                    oldest = min(oldest, notes[record, TIMESTAMP])
                else:
                    notes[record, END] = -notes[record, END]
        # Deltas from a horizon must fit 64 bits; no producer's clock is that wrong, but a batch can claim it.
        wants_horizon = wants_horizon and oldest >= NO_TIMESTAMP
        if kept == 0:
            if verdict & AS_EMPTY:
                table[batch, WRITTEN] = write_empty_batch(target, batch_at, attributes)
                table[batch, OUTCOME] = REWRITTEN
                target += HEADER_SIZE
            continue
        kept_in_all += kept
        if kept == count and not wants_horizon:
            copy_bytes(target, batch_at, table[batch, SIZE])
            table[batch, WRITTEN] = table[batch, SIZE]
            table[batch, OUTCOME] = SAME
            target += table[batch, SIZE]
            continue
        start = target
        target += HEADER_SIZE
        at = run = table[batch, RECORDS_AT]
        for record in range(count):
            record_end = abs(notes[record, END])
            if wants_horizon:
                if notes[record, END] > 0:
                    target = copy_record(target, at, record_end, base_timestamp, horizon_ms)
            elif notes[record, END] < 0:
                copy_bytes(target, run, at - run)
                target += at - run
                run = record_end
            at = record_end
        if not wants_horizon:
            copy_bytes(target, run, at - run)
            target += at - run
        copy_bytes(start, batch_at, HEADER_SIZE)
        write_int32(start + LENGTH_AT, target - start - LENGTH_PREFIX_SIZE)
        if wants_horizon:
            store_byte(start + ATTRIBUTES_AT + 1, attributes | DELETE_HORIZON_BIT)
            write_int64(start + BASE_TIMESTAMP_AT, horizon_ms)
        if attributes & TIMESTAMP_TYPE_BIT == 0:
            write_int64(start + MAX_TIMESTAMP_AT, newest)
            table[batch, MAX_TIMESTAMP] = newest
        write_int32(start + RECORD_COUNT_AT, kept)
        if attributes & COMPRESSION_MASK:
            table[batch, OUTCOME] = TO_COMPRESS
        else:
            write_int32(start + CRC_AT, crc_of(start + ATTRIBUTES_AT, target))
            table[batch, OUTCOME] = REWRITTEN
        table[batch, WRITTEN] = target - start
    totals[WRITTEN_BYTES] += target - begin
    totals[RECORDS_READ] += read
    totals[RECORDS_KEPT] += kept_in_all
    totals[KEYLESS] += keyless
    return 0
