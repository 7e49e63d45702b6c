"""Rows with one field of bytes, as Spark pickles them."""

from __future__ import annotations

import pickle

import pytest

from ottla.spark.streams.pickled_bytes import PickledBytes

BEFORE = (
    b"\x80\x02(cbuiltins\nbytes\nX\x10\x00\x00\x00some description0"  # which the pickle reads and drops
    b"c__builtin__\nbytearray\n"
)
AFTER = b"X\x07\x00\x00\x00latin-1\x86R\x85R\x85."


class Reader:
    """Reads pickles, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, row: bytes) -> tuple[bytes]:
        self.count += 1
        found: tuple[bytes] = pickle.loads(row)
        return found


def row_of(field: bytes, before: bytes = BEFORE, after: bytes = AFTER) -> bytes:
    """A pickled tuple with the field, as Java writes it: as text, with opcodes around it."""
    text = field.decode("latin-1").encode()
    return before + b"X" + len(text).to_bytes(4, "little") + text + after


def test_rows_are_read_without_their_pickle() -> None:
    reader = Reader()
    rows = PickledBytes(reader)
    fields = [b"", b"\x00", b"abcd", bytes(range(256)), b"\xff" * 1000, b"latin-1", AFTER, BEFORE]
    assert [rows.bytes_of(row_of(field)) for field in fields] == fields
    assert reader.count == 4  # two that are too short to learn from, the first long one, and the check of what it says


def test_other_rows_are_read_as_pickles() -> None:
    rows = PickledBytes(Reader())
    assert rows.bytes_of(row_of(b"the first")) == b"the first"
    other_codec = AFTER.replace(b"latin-1", b"utf---8")  # which is as long
    assert rows.bytes_of(row_of(b"\xe9t\xe9", after=other_codec)) == "\xe9t\xe9".encode()
    with pytest.raises(TypeError):  # a text is no bytes
        rows.bytes_of(row_of(b"the third", BEFORE.replace(b"bytes", b"ascii")))
    assert rows.bytes_of(row_of(b"the fourth", BEFORE + b"X\x04\x00\x00\x00some0")) == b"the fourth"
    assert rows.bytes_of(row_of(b"\xe9t\xe9")) == b"\xe9t\xe9"


def test_nothing_is_learned_from_another_codec() -> None:
    rows = PickledBytes(Reader())
    other_codec = AFTER.replace(b"latin-1", b"utf---8")
    for field in (b"the first", b"\xe9t\xe9 "):
        assert rows.bytes_of(row_of(field, after=other_codec)) == field.decode("latin-1").encode()


def test_bytes_that_are_not_pickled_as_text() -> None:
    reader = Reader()
    rows = PickledBytes(reader)
    fields = [b"some bytes", b"others", b"X\x04\x00\x00\x00some"]
    assert [rows.bytes_of(pickle.dumps((field,))) for field in fields] == fields
    assert reader.count == len(fields)


def test_a_field_that_occurs_twice() -> None:
    """The first place is the description; changing it changes nothing, so it is not taken for the field."""
    rows = PickledBytes(Reader())
    assert rows.bytes_of(row_of(b"some description")) == b"some description"
    assert rows.bytes_of(row_of(b"some other")) == b"some other"
