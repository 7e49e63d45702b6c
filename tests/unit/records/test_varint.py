from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.util import encode_varint as kafka_python_varint

from ottla.records import MalformedRecordError
from ottla.records.varint import (
    read_unsigned_varint,
    read_varint,
    read_varlong,
    size_of_unsigned_varint,
    size_of_varint,
    write_varint,
    write_varlong,
)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UINT32 = st.integers(0, 2**32 - 1)

Reader = Callable[[bytes, int], tuple[int, int]]
Writer = Callable[[bytearray, int], None]


def written(write: Writer, value: int) -> bytes:
    out = bytearray()
    write(out, value)
    return bytes(out)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert written(write_varint, value).hex() == encoded
    assert written(write_varlong, value).hex() == encoded
    assert read_varint(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)
    assert read_varlong(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


def test_the_longest_ones() -> None:
    assert written(write_varlong, 2**63 - 1) == b"\xfe" + b"\xff" * 8 + b"\x01"
    assert written(write_varlong, -(2**63)) == b"\xff" * 9 + b"\x01"
    assert read_unsigned_varint(b"\xff\xff\xff\xff\x0f", 0) == (2**32 - 1, 5)


@settings(deadline=None)
@given(INT64)
def test_varlong_round_trip_as_kafka_python_writes_it(value: int) -> None:
    theirs = bytearray()
    kafka_python_varint(value, theirs.append)
    encoded = written(write_varlong, value)
    assert encoded == theirs
    assert read_varlong(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))
    assert size_of_varint(value) == len(encoded)


@settings(deadline=None)
@given(INT32)
def test_varint_round_trip(value: int) -> None:
    encoded = written(write_varint, value)
    assert read_varint(memoryview(encoded), 0) == (value, len(encoded))
    assert size_of_varint(value) == len(encoded)


@settings(deadline=None)
@given(UINT32)
def test_unsigned_varint_round_trip(value: int) -> None:
    encoded = written(write_varint, value >> 1 if not value & 1 else ~(value >> 1))  # which folds to the value
    assert read_unsigned_varint(bytearray(encoded), 0) == (value, len(encoded))
    assert size_of_unsigned_varint(value) == len(encoded)


@pytest.mark.parametrize(
    ("write", "value"),
    [
        (write_varint, 2**31),
        (write_varint, -(2**31) - 1),
        (write_varlong, 2**63),
        (write_varlong, -(2**63) - 1),
    ],
)
def test_what_does_not_fit_is_not_written(write: Writer, value: int) -> None:
    with pytest.raises(ValueError, match=str(value)):
        write(bytearray(), value)


@pytest.mark.parametrize("read", [read_varint, read_varlong, read_unsigned_varint])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_cut_off(read: Reader, data: bytes) -> None:
    with pytest.raises(MalformedRecordError, match="cut off"):
        read(data, 0)


@pytest.mark.parametrize(
    ("read", "data"),
    [(read_varint, b"\x80" * 5 + b"\x00"), (read_unsigned_varint, b"\x80" * 5), (read_varlong, b"\x80" * 10 + b"\x00")],
)
def test_longer_than_it_can_be(read: Reader, data: bytes) -> None:
    with pytest.raises(MalformedRecordError, match="its maximum length"):
        read(data, 0)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (read_varint, b"\x80\x80\x80\x80\x10"),
        (read_unsigned_varint, b"\xff\xff\xff\xff\x1f"),
        (read_varlong, b"\x80" * 9 + b"\x02"),
    ],
)
def test_bits_beyond_the_type(read: Reader, data: bytes) -> None:
    with pytest.raises(MalformedRecordError, match="does not fit"):
        read(data, 0)


def test_padding_within_the_length_is_read() -> None:
    assert read_varint(b"\x82\x00", 0) == (1, 2)
