"""Variable-length numbers of the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.varint import OverlongError, encode_unsigned, read_unsigned


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**31 - 1, "ffffffff07"), (2**32 - 1, "ffffffff0f")],
)
def test_known_encodings(value: int, encoded: str) -> None:
    assert encode_unsigned(value).hex() == encoded
    assert read_unsigned(bytes.fromhex(encoded), 0) == (value, len(encoded) // 2)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_a_number_is_found_where_it_stands(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_unsigned(value)
    assert read_unsigned(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80", b"\x80" * 9 + b"\x01"])
def test_more_than_32_bits(data: bytes) -> None:
    with pytest.raises(OverlongError):
        read_unsigned(data, 0)


def test_the_data_ends_within_a_number() -> None:
    with pytest.raises(IndexError):
        read_unsigned(b"\x80", 0)


@pytest.mark.parametrize("value", [-1, 2**32])
def test_what_is_no_unsigned_32_bit_number(value: int) -> None:
    with pytest.raises(OverflowError, match=str(value)):
        encode_unsigned(value)
