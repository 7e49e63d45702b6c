"""Lists of bytes, read where they lie."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import byte_lists
from ottla.records.byte_lists import byte_list
from ottla.records.columns import encode_columns

CELLS = st.none() | st.binary(max_size=20) | st.binary(min_size=200, max_size=400)


class Named(bytes):
    """More than bytes, and laid out in another way."""


@given(st.lists(st.tuples(CELLS, CELLS), max_size=50))
def test_a_list_is_encoded_as_the_same_arrow_array_is(rows: list[tuple[bytes | None, bytes | None]]) -> None:
    values, keys = [value for value, _ in rows], [key for _, key in rows]
    arrow = encode_columns(pa.array(values, pa.binary()), pa.array(keys, pa.binary()), None, 1000)
    assert byte_list(values) is not None
    assert encode_columns(values, keys, None, 1000) == arrow
    assert encode_columns(tuple(values), keys, None, 1000) == arrow


@pytest.mark.parametrize(
    "other", ["text", bytearray(b"x"), memoryview(b"x"), Named(b"x"), 7], ids=lambda other: type(other).__name__
)
def test_what_is_not_just_bytes_is_not_read_so(other: object) -> None:
    assert byte_list([b"a", None, other]) is None
    assert byte_list((b"a",)) is None


def test_all_that_bytes_are_is_sent_still() -> None:
    assert encode_columns([b"a", Named(b"x")]) == encode_columns([b"a", b"x"])
    with pytest.raises((TypeError, pa.ArrowException)):
        encode_columns([b"a", 7])


def test_another_python_gets_arrow_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = encode_columns([b"a", None])
    monkeypatch.setattr(byte_lists, "_AS_KNOWN", False)
    assert byte_list([b"a"]) is None
    assert encode_columns([b"a", None]) == expected
