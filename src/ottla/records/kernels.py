"""Compiled loops over record bytes: the code that runs once per record, and nothing else.

Importing this module loads every kernel from numba's cache, or compiles it if the cache is cold: seconds, once. Only
the columns and `ottla.records.warm` import it, so a broker never pays for it. All compiled code is in this one file,
because numba detects a stale cache by the modification time of the kernel's own file.

Bytes are accessed by address, so that records in the caller's buffer and records that were just decompressed are both
read in place. Compiled code has no bounds checks; it is safe because of this: a reader gets the end of what it may read
and compares before it loads. After a failure its position is `BEYOND`, past every end, so that all further reads fail
as well and one comparison after the last field detects any failure. `parse_records` checks everything about records and
notes the positions of keys, values and headers; the kernels that copy only use its notes. The caller keeps every buffer
alive and unchanged until the last kernel has returned: they run without the GIL.

Kernels say which batch is invalid, not why: the plain codec then reads that batch and produces the error message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # It ships no types.
from numba import njit, types
from numba.extending import intrinsic, register_jitable
from numpy.typing import NDArray

from ottla.records.layout import (
    ATTRIBUTES_AT,
    BASE_OFFSET_AT,
    BASE_SEQUENCE_AT,
    BASE_TIMESTAMP_AT,
    COMPRESSION_MASK,
    CRC_AT,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_PREFIX_SIZE,
    MAGIC_AT,
    MAGIC_V2,
    MAX_INT32,
    MAX_INT64,
    MAX_TIMESTAMP_AT,
    MINIMUM_RECORD_SIZE,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    RECORD_COUNT_AT,
    TIMESTAMP_TYPE_BIT,
    Compression,
)

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Bits = NDArray[np.uint8]
_F = TypeVar("_F", bound=Callable[..., Any])

KERNELS: Final[list[str]] = []
"""The names of all kernels, in the order they were compiled or loaded."""

BEYOND: Final = 1 << 62
"""A position past the end of everything: that of a reader that has failed."""


def _kernel(signature: str) -> Callable[[_F], _F]:
    def compiled(function: _F) -> _F:
        KERNELS.append(function.__name__)
        return cast("_F", njit(signature, cache=True, nogil=True, error_model="numpy")(function))

    return compiled


def _inlined(function: _F) -> _F:
    inlined: _F = register_jitable(function)
    return inlined


def _primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast("Callable[..., Any]", intrinsic(function))


# Memory: loads, stores and copies at addresses of any alignment. Every number is a 64-bit integer.

_WORD = ir.IntType(64)


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


@_primitive
def load_byte(_typing: Any, _address: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, arguments[0], 8), align=1), _WORD)

    return types.int64(types.int64), emit


@_primitive
def load_int32(_typing: Any, _address: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.sext(builder.load(_pointer(builder, arguments[0], 32), align=1), _WORD)

    return types.int64(types.int64), emit


@_primitive
def load_int64(_typing: Any, _address: Any) -> Any:
    def emit(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.load(_pointer(builder, arguments[0], 64), align=1)

    return types.int64(types.int64), emit


@_primitive
def store_byte(_typing: Any, _address: Any, _value: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        narrowed = builder.trunc(arguments[1], ir.IntType(8))
        builder.store(narrowed, _pointer(builder, arguments[0], 8), align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@_primitive
def copy_bytes(_typing: Any, _target: Any, _source: Any, _size: Any) -> Any:
    def emit(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target, source = (_pointer(builder, address, 8) for address in arguments[:2])
        memcpy = builder.module.declare_intrinsic("llvm.memcpy", [target.type, source.type, _WORD])
        builder.call(memcpy, [target, source, arguments[2], ir.Constant(ir.IntType(1), 0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


# Batch headers.

ADDRESS, SIZE, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, MAX_TIMESTAMP, RECORD_COUNT, ATTRIBUTES, CRC = range(9)
"""The columns of a table of batches. Address and size are those of the records alone."""
BATCH_FIELDS: Final = 9
MIN_INT64: Final = -(2**63)
NOT_GIVEN: Final = MIN_INT64
"""A timestamp that the kernel determines."""
LAST_CODEC: Final = int(max(Compression))


@_inlined
def read_uint32(at: int) -> int:
    return int(load_byte(at) << 24 | load_byte(at + 1) << 16 | load_byte(at + 2) << 8 | load_byte(at + 3))


@_inlined
def read_int32(at: int) -> int:
    unsigned = read_uint32(at)
    return unsigned - ((unsigned >> 31) << 32)


@_inlined
def read_int64(at: int) -> int:
    return (read_int32(at) << 32) | read_uint32(at + 4)


@_kernel("int64(int64, int64)")
def count_batches(address: int, size: int) -> int:
    """The number of batches that `scan_batches` will find: complete consecutive ones of magic 2."""
    position = batches = 0
    while size - position >= HEADER_SIZE:
        length = read_int32(address + position + LENGTH_AT) + LENGTH_PREFIX_SIZE
        magic = load_byte(address + position + MAGIC_AT)
        if magic != MAGIC_V2 or length < HEADER_SIZE or length > size - position:
            break
        position += length
        batches += 1
    return batches


@_kernel("int64(int64, int64[:,::1])")
def scan_batches(address: int, table: Int64s) -> int:
    """Fills the table with the headers of that many batches. Returns how many of them, from the first on, are valid."""
    position = sound = 0
    for batch in range(len(table)):
        at = address + position
        size = read_int32(at + LENGTH_AT) + LENGTH_PREFIX_SIZE
        base_offset = read_int64(at + BASE_OFFSET_AT)
        last_offset_delta = read_int32(at + LAST_OFFSET_DELTA_AT)
        count = read_int32(at + RECORD_COUNT_AT)
        attributes = read_uint32(at + ATTRIBUTES_AT) >> 16
        codec = attributes & COMPRESSION_MASK
        table[batch, ADDRESS] = at + HEADER_SIZE
        table[batch, SIZE] = size - HEADER_SIZE
        table[batch, BASE_OFFSET] = base_offset
        table[batch, LAST_OFFSET_DELTA] = last_offset_delta
        table[batch, BASE_TIMESTAMP] = read_int64(at + BASE_TIMESTAMP_AT)
        table[batch, MAX_TIMESTAMP] = read_int64(at + MAX_TIMESTAMP_AT)
        table[batch, RECORD_COUNT] = count
        table[batch, ATTRIBUTES] = attributes
        table[batch, CRC] = read_uint32(at + CRC_AT)
        position += size
        if (
            sound == batch
            and codec <= LAST_CODEC
            and last_offset_delta >= 0
            and base_offset <= MAX_INT64 - last_offset_delta
            and 0 <= count <= last_offset_delta + 1
            and (codec != 0 or count * MINIMUM_RECORD_SIZE <= size - HEADER_SIZE)
        ):
            sound += 1
    return sound


# Records to columns.

NULL: Final = -1
"""The length of null, which is not the same as empty."""

KEY_BYTES, KEY_NULLS, VALUE_BYTES, VALUE_NULLS, HEADERS, HEADER_KEY_BYTES, HEADER_VALUE_BYTES = range(7)
"""What `parse_records` totals."""
TOTALS: Final = 7


@_inlined
def read_varint(at: int, end: int) -> tuple[int, int]:
    """A signed 32-bit varint and the position after it, or `BEYOND`."""
    if at >= end:
        return 0, BEYOND
    byte = load_byte(at)
    at += 1
    folded = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at >= end or shift > 28:
            return 0, BEYOND
        byte = load_byte(at)
        at += 1
        folded |= (byte & 0x7F) << shift
        shift += 7
    if folded > 0xFFFF_FFFF:
        return 0, BEYOND
    return (folded >> 1) ^ -(folded & 1), at


@_inlined
def read_varlong(at: int, end: int) -> tuple[int, int]:
    """A signed 64-bit varint and the position after it, or `BEYOND`."""
    if at >= end:
        return 0, BEYOND
    byte = load_byte(at)
    at += 1
    folded = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if at >= end:
            return 0, BEYOND
        byte = load_byte(at)
        at += 1
        if shift == 63 and byte > 1:
            return 0, BEYOND  # more bits than 64, or another byte to come
        folded |= (byte & 0x7F) << shift
        shift += 7
    return ((folded >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(folded & 1), at


@_inlined
def is_utf8(at: int, end: int) -> bool:
    """Whether the bytes are strict UTF-8: nothing overlong, no surrogates, nothing above U+10FFFF."""
    while at < end:
        byte = load_byte(at)
        at += 1
        if byte < 0x80:
            continue
        low, high = 0x80, 0xBF  # the range of the second byte; the others always have this one
        if 0xC2 <= byte <= 0xDF:
            more = 1
        elif 0xE0 <= byte <= 0xEF:
            more = 2
            low = 0xA0 if byte == 0xE0 else low
            high = 0x9F if byte == 0xED else high
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            low = 0x90 if byte == 0xF0 else low
            high = 0x8F if byte == 0xF4 else high
        else:
            return False
        if more > end - at:
            return False
        for _ in range(more):
            byte = load_byte(at)
            at += 1
            if byte < low or byte > high:
                return False
            low, high = 0x80, 0xBF
    return True


@_inlined
def skip_headers(at: int, end: int, count: int) -> tuple[int, int, int]:
    """The position after that many headers, or `BEYOND`; and the total size of their keys and values."""
    key_bytes = value_bytes = 0
    if count < 0 or count > (end - at) >> 1:
        return BEYOND, 0, 0
    for _ in range(count):
        size, at = read_varint(at, end)
        if size < 0 or size > end - at or not is_utf8(at, at + size):
            return BEYOND, 0, 0
        at += size
        key_bytes += size
        size, at = read_varint(at, end)
        if size < NULL or size > end - at:
            return BEYOND, 0, 0
        if size > 0:
            at += size
            value_bytes += size
    return at, key_bytes, value_bytes


@_inlined
def scaled(timestamp_ms: int, scale: int, most_ms: int) -> int:
    """The timestamp in a finer unit, clamped to 64 bits."""
    return min(max(timestamp_ms, -most_ms), most_ms) * scale


@_inlined
def clear_bit(bits: Bits, row: int) -> None:
    bits[row >> 3] &= 0xFF ^ (1 << (row & 7))


@_kernel(
    "int64(int64[:,::1], int64, int64, int64, int64[::1], int64[::1], int32[::1], int64[::1], uint8[::1],"
    " int32[::1], int64[::1], uint8[::1], int32[::1], int64[::1], int64[::1])"
)
def parse_records(
    sections: Int64s,
    first_offset: int,
    last_offset: int,
    ticks_per_ms: int,
    offsets: Int64s,
    timestamps: Int64s,
    key_ends: Int32s,
    key_at: Int64s,
    key_bits: Bits,
    value_ends: Int32s,
    value_at: Int64s,
    value_bits: Bits,
    header_ends: Int32s,
    header_at: Int64s,
    totals: Int64s,
) -> int:
    """Checks the records of every section; for those with an offset in the range, notes what the columns need.

    Sections are a table of batches with the address and size of uncompressed records; their record counts become their
    numbers of rows. The arrays have room for all records. Returns the number of rows, or -1 - n if section n is
    invalid.
    """
    most_ms = MAX_INT64 // ticks_per_ms
    key_ends[0] = value_ends[0] = header_ends[0] = 0
    key_bits[:] = 0xFF
    value_bits[:] = 0xFF
    row = key_end = value_end = header_end = key_nulls = value_nulls = header_key_bytes = header_value_bytes = 0
    for section in range(len(sections)):
        at = sections[section, ADDRESS]
        end = at + sections[section, SIZE]
        base_offset = sections[section, BASE_OFFSET]
        last_offset_delta = sections[section, LAST_OFFSET_DELTA]
        base_timestamp = sections[section, BASE_TIMESTAMP]
        appended = scaled(sections[section, MAX_TIMESTAMP], ticks_per_ms, most_ms)
        newest_delta = MAX_INT64 - max(base_timestamp, 0)
        oldest_delta = MIN_INT64 - min(base_timestamp, 0)
        append_time = sections[section, ATTRIBUTES] & TIMESTAMP_TYPE_BIT
        first_row = row
        previous = -1
        for _ in range(sections[section, RECORD_COUNT]):
            size, at = read_varint(at, end)
            if size < 0 or size > end - at:
                return -1 - section
            record_end = at + size
            at += 1  # the attributes of a record, which are unused
            timestamp_delta, at = read_varlong(at, record_end)
            offset_delta, at = read_varint(at, record_end)
            key_size, at = read_varint(at, record_end)
            key = at
            if key_size > 0:
                at += key_size
            value_size, at = read_varint(at, record_end)
            value = at
            if value_size > 0:
                at += value_size
            header_count, at = read_varint(at, record_end)
            header = at
            header_keys = header_values = 0
            if header_count != 0:
                at, header_keys, header_values = skip_headers(at, record_end, header_count)
            if (
                at != record_end
                or offset_delta <= previous
                or offset_delta > last_offset_delta
                or key_size < NULL
                or value_size < NULL
                or timestamp_delta > newest_delta
                or timestamp_delta < oldest_delta
            ):
                return -1 - section
            previous = offset_delta
            offset = base_offset + offset_delta
            if offset < first_offset or offset > last_offset:
                continue
            offsets[row] = offset
            if append_time:
                timestamps[row] = appended
            else:
                timestamps[row] = scaled(base_timestamp + timestamp_delta, ticks_per_ms, most_ms)
            if key_size >= 0:
                key_end += key_size
            else:
                clear_bit(key_bits, row)
                key_nulls += 1
            if value_size >= 0:
                value_end += value_size
            else:
                clear_bit(value_bits, row)
                value_nulls += 1
            header_end += header_count
            header_key_bytes += header_keys
            header_value_bytes += header_values
            key_at[row] = key
            value_at[row] = value
            header_at[row] = header
            row += 1
            key_ends[row] = key_end
            value_ends[row] = value_end
            header_ends[row] = header_end
        if at != end:
            return -1 - section
        sections[section, RECORD_COUNT] = row - first_row
    totals[KEY_BYTES] = key_end
    totals[KEY_NULLS] = key_nulls
    totals[VALUE_BYTES] = value_end
    totals[VALUE_NULLS] = value_nulls
    totals[HEADERS] = header_end
    totals[HEADER_KEY_BYTES] = header_key_bytes
    totals[HEADER_VALUE_BYTES] = header_value_bytes
    return row


@_kernel("void(int64, int32[::1], int64[::1], int64)")
def copy_cells(rows: int, ends: Int32s, at: Int64s, target: int) -> None:
    """Gathers the bytes of one column."""
    end = ends[0]
    for row in range(rows):
        begin = end
        end = ends[row + 1]
        if end > begin:
            copy_bytes(target + begin, at[row], end - begin)


@_kernel("int64(int64, int32[::1], int64[::1], int32[::1], int64, int32[::1], int64, uint8[::1])")
def copy_headers(
    rows: int,
    header_ends: Int32s,
    header_at: Int64s,
    key_ends: Int32s,
    keys: int,
    value_ends: Int32s,
    values: int,
    value_bits: Bits,
) -> int:
    """Gathers keys and values of all headers. Returns how many values are null."""
    key_end = value_end = nulls = 0
    key_ends[0] = value_ends[0] = 0
    value_bits[:] = 0xFF
    for row in range(rows):
        at = header_at[row]
        for header in range(header_ends[row], header_ends[row + 1]):
            size, at = read_varint(at, BEYOND)
            copy_bytes(keys + key_end, at, size)
            at += size
            key_end += size
            size, at = read_varint(at, BEYOND)
            if size >= 0:
                copy_bytes(values + value_end, at, size)
                at += size
                value_end += size
            else:
                clear_bit(value_bits, header)
                nulls += 1
            key_ends[header + 1] = key_end
            value_ends[header + 1] = value_end
    return nulls


# Columns to records.

VALUE, KEY, HEADER_KEY, HEADER_VALUE, HEADER_SECTION = range(5)
"""The rows of a table of columns. Headers are given one by one or as encoded sections, one for each record: the count
and all headers, as `header_sections` writes them."""
COLUMNS: Final = 5
ENDS, WIDTH, DATA, VALIDITY, FIRST_BIT = range(5)
"""The entries for each: address of the offsets, their width in bytes, address of the bytes, address of the validity
bits (0 for none), and the bit of row 0. A column whose offsets have address 0 is null in every row. One of width
`OBJECTS` is a Python list: the offsets are its references, and the address of the bytes is that of None."""
COLUMN_FIELDS: Final = 5
OBJECTS: Final = 1
OBJECT_TYPE_AT, OBJECT_SIZE_AT, OBJECT_BYTES_AT = 8, 16, 32
"""Their positions in CPython's bytes object, which `byte_lists` verifies."""

UNTIL, RECORD_BYTES, FIRST_TIMESTAMP, LAST_TIMESTAMP = range(4)
"""The columns of a plan of batches: the row after each, the size of its records, its base and its newest timestamp."""
PLAN_FIELDS: Final = 4

ColumnFields = tuple[int, int, int, int, int]


@_inlined
def column_of(columns: Int64s, column: int) -> ColumnFields:
    """The table's row as separate numbers, which the compiler can keep in registers."""
    return (
        columns[column, ENDS],
        columns[column, WIDTH],
        columns[column, DATA],
        columns[column, VALIDITY],
        columns[column, FIRST_BIT],
    )


@_inlined
def find_cell(column: ColumnFields, row: int) -> tuple[int, int]:
    """The position of a cell and its size, or `NULL`."""
    ends, width, data, validity, first_bit = column
    if ends == 0:
        return 0, NULL
    if width == OBJECTS:
        found = load_int64(ends + 8 * row)
        if found == data:
            return 0, NULL
        return found + OBJECT_BYTES_AT, load_int64(found + OBJECT_SIZE_AT)
    if validity != 0:
        bit = row + first_bit
        if (load_byte(validity + (bit >> 3)) >> (bit & 7)) & 1 == 0:
            return 0, NULL
    if width == 4:
        begin = load_int32(ends + 4 * row)
        end = load_int32(ends + 4 * row + 4)
    else:
        begin = load_int64(ends + 8 * row)
        end = load_int64(ends + 8 * row + 8)
    return data + begin, end - begin


@_kernel("boolean(int64, int64, int64, int64)")
def are_bytes(references: int, rows: int, bytes_type: int, none: int) -> bool:
    """Whether all references of a list are to bytes objects or to None."""
    for row in range(rows):
        found = load_int64(references + 8 * row)
        if found != none and load_int64(found + OBJECT_TYPE_AT) != bytes_type:
            return False
    return True


@_inlined
def fold(number: int) -> int:
    return (number << 1) ^ (number >> 63)


@_inlined
def size_of_varint(number: int) -> int:
    if -64 <= number < 64:
        return 1
    if -8192 <= number < 8192:
        return 2
    size = 2
    rest = (fold(number) >> 14) & 0x0003_FFFF_FFFF_FFFF
    while rest != 0:
        rest >>= 7
        size += 1
    return size


@_inlined
def write_varint(at: int, number: int) -> int:
    folded = fold(number)
    if 0 <= folded < 0x80:
        store_byte(at, folded)
        return at + 1
    store_byte(at, folded | 0x80)
    at += 1
    rest = (folded >> 7) & 0x01FF_FFFF_FFFF_FFFF
    while rest >= 0x80:
        store_byte(at, rest | 0x80)
        at += 1
        rest >>= 7
    store_byte(at, rest)
    return at + 1


@_inlined
def size_of_cell(size: int) -> int:
    return size_of_varint(size) + max(size, 0)


@_inlined
def write_cell(at: int, column: ColumnFields, row: int) -> int:
    source, size = find_cell(column, row)
    at = write_varint(at, size)
    if size > 0:
        copy_bytes(at, source, size)
        at += size
    return at


@_inlined
def size_of_headers(columns: Int64s, header_ends: Int64s, row: int) -> int:
    """The size of a record's headers and of their count."""
    size = size_of_varint(header_ends[row + 1] - header_ends[row])
    for header in range(header_ends[row], header_ends[row + 1]):
        size += size_of_cell(find_cell(column_of(columns, HEADER_KEY), header)[1])
        size += size_of_cell(find_cell(column_of(columns, HEADER_VALUE), header)[1])
    return size


@_inlined
def write_headers(at: int, columns: Int64s, header_ends: Int64s, row: int) -> int:
    at = write_varint(at, header_ends[row + 1] - header_ends[row])
    for header in range(header_ends[row], header_ends[row + 1]):
        at = write_cell(at, column_of(columns, HEADER_KEY), header)
        at = write_cell(at, column_of(columns, HEADER_VALUE), header)
    return at


@_inlined
def write_section(at: int, sections: ColumnFields, row: int) -> int:
    source, size = find_cell(sections, row)
    if size <= 0:
        store_byte(at, 0)
        return at + 1
    copy_bytes(at, source, size)
    return at + size


@_kernel("int64(int64[:,::1], int64[::1], int64[::1], int64, int64[::1], int64, int64, int64[::1], int64[:,::1])")
def plan_batches(
    columns: Int64s,
    header_ends: Int64s,
    timestamps_ms: Int64s,
    base_timestamp_ms: int,
    offsets: Int64s,
    base_offset: int,
    limit: int,
    sizes: Int64s,
    plan: Int64s,
) -> int:
    """Measures every record, and divides the rows into batches of at most `limit` bytes of records, or a single longer
    one.

    The base timestamp is that of a batch's first record if `NOT_GIVEN`. Offsets are empty if they are consecutive;
    otherwise they are for a single batch. Returns the number of batches; the plan contains as many as it has room for.
    """
    key, value, section = column_of(columns, KEY), column_of(columns, VALUE), column_of(columns, HEADER_SECTION)
    has_headers = len(header_ends) != 0  # here, because passing arrays to a function costs more than a row without them
    has_sections = section[ENDS] != 0
    first = total = batches = 0
    base_ms = newest_ms = NO_TIMESTAMP
    for row in range(len(sizes)):
        timestamp_ms = timestamps_ms[row]
        body = 1 + (size_of_headers(columns, header_ends, row) if has_headers else 1)
        if has_sections:
            body += max(find_cell(section, row)[1], 1) - 1
        body += size_of_cell(find_cell(key, row)[1]) + size_of_cell(find_cell(value, row)[1])
        fits = False
        if row > first:
            offset_delta = offsets[row] - base_offset if len(offsets) != 0 else row - first
            size = body + size_of_varint(timestamp_ms - base_ms) + size_of_varint(offset_delta)
            fits = total + size_of_cell(size) <= limit
            if not fits:
                batches += 1
                first = row
        if not fits:
            base_ms = timestamp_ms if base_timestamp_ms == NOT_GIVEN else base_timestamp_ms
            offset_delta = offsets[row] - base_offset if len(offsets) != 0 else 0
            size = body + size_of_varint(timestamp_ms - base_ms) + size_of_varint(offset_delta)
            newest_ms = NO_TIMESTAMP
            total = 0
        sizes[row] = size
        total += size_of_cell(size)
        newest_ms = max(newest_ms, timestamp_ms)
        if batches < len(plan):
            plan[batches, UNTIL] = row + 1
            plan[batches, RECORD_BYTES] = total
            plan[batches, FIRST_TIMESTAMP] = base_ms
            plan[batches, LAST_TIMESTAMP] = newest_ms
    return batches + 1


@_inlined
def write_int32(at: int, number: int) -> None:
    for index in range(4):
        store_byte(at + index, number >> (24 - 8 * index))


@_inlined
def write_int64(at: int, number: int) -> None:
    for index in range(8):
        store_byte(at + index, number >> (56 - 8 * index))


@_kernel(
    "void(int64[:,::1], int64[::1], int64[::1], int64[::1], int64, int64, int64,"
    " int64[::1], int64[:,::1], int64, int64)"
)
def write_batches(
    columns: Int64s,
    header_ends: Int64s,
    timestamps_ms: Int64s,
    offsets: Int64s,
    base_offset: int,
    base_sequence: int,
    max_timestamp_ms: int,
    sizes: Int64s,
    plan: Int64s,
    template: int,
    at: int,
) -> None:
    """Writes the planned batches, one after the other, without CRCs; the template contains what they share.

    Offsets and sequence numbers are continuous. The max timestamp is that of the newest record if `NOT_GIVEN`.
    """
    key, value, section = column_of(columns, KEY), column_of(columns, VALUE), column_of(columns, HEADER_SECTION)
    has_headers = len(header_ends) != 0
    has_sections = section[ENDS] != 0
    first = 0
    for batch in range(len(plan)):
        until, base_ms = plan[batch, UNTIL], plan[batch, FIRST_TIMESTAMP]
        last_delta = offsets[until - 1] - base_offset if len(offsets) != 0 else max(until - first - 1, 0)
        newest_ms = plan[batch, LAST_TIMESTAMP] if max_timestamp_ms == NOT_GIVEN else max_timestamp_ms
        copy_bytes(at, template, HEADER_SIZE)
        write_int64(at + BASE_OFFSET_AT, base_offset + first)
        write_int32(at + LENGTH_AT, plan[batch, RECORD_BYTES] + HEADER_SIZE - LENGTH_PREFIX_SIZE)
        write_int32(at + LAST_OFFSET_DELTA_AT, last_delta)
        write_int64(at + BASE_TIMESTAMP_AT, base_ms)
        write_int64(at + MAX_TIMESTAMP_AT, newest_ms)
        write_int32(at + BASE_SEQUENCE_AT, NO_SEQUENCE if base_sequence < 0 else (base_sequence + first) & MAX_INT32)
        write_int32(at + RECORD_COUNT_AT, until - first)
        at += HEADER_SIZE
        for row in range(first, until):
            at = write_varint(at, sizes[row])
            store_byte(at, 0)
            at = write_varint(at + 1, timestamps_ms[row] - base_ms)
            at = write_varint(at, offsets[row] - base_offset if len(offsets) != 0 else row - first)
            at = write_cell(at, key, row)
            at = write_cell(at, value, row)
            if has_headers:
                at = write_headers(at, columns, header_ends, row)
            elif has_sections:
                at = write_section(at, section, row)
            else:
                store_byte(at, 0)
                at += 1
        first = until
