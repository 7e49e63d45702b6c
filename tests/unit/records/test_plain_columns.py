"""Columns encoded without kernels, and headers that come encoded: byte for byte what the plain codec writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import BatchOptions, Compression, Header, Record, decode_batch, encode_batch
from ottla.records.columns import encode_columns
from ottla.records.header_sections import fast_header_section, header_section
from ottla.records.layout import MAX_INT64
from ottla.records.plain_columns import encode_plain_columns, runs_of

Row = tuple[bytes | None, bytes | None, tuple[Header, ...], int]

cells = st.none() | st.binary(max_size=5) | st.sampled_from([bytes(63), bytes(64), bytes(200), bytes(9000)])
names = st.text(max_size=5) | st.sampled_from(["trace", "ünïcode", "n" * 100])
headers = st.lists(st.tuples(names, cells), max_size=3).map(tuple)
times = st.integers(0, 5) | st.integers(0, MAX_INT64) | st.just(1_700_000_000_000)
rows = st.lists(st.tuples(cells, cells, headers, times), max_size=20)


def expected(some: list[Row], options: BatchOptions) -> bytearray:
    return encode_batch([Record(0, stamp, key, value, pairs) for value, key, pairs, stamp in some], options)


def encoded(some: list[Row], options: BatchOptions, *, compiled: bool) -> bytearray:
    """By columns; those that are None in all rows may be left out."""
    values = [value for value, *_ in some]
    keys = [key for _, key, *_ in some]
    sections = [header_section(pairs) if pairs else None for _, _, pairs, _ in some]
    stamps = [stamp for *_, stamp in some]
    if compiled:
        return encode_columns(values, keys, timestamps_ms=stamps, options=options, header_sections=sections)
    return encode_plain_columns(
        values,
        keys if any(keys) or b"" in keys else None,
        sections if any(sections) else None,
        runs_of(stamps),
        options,
    )


@given(rows)
def test_any_records(some: list[Row]) -> None:
    options = BatchOptions()
    assert encoded(some, options, compiled=False) == expected(some, options)
    assert encoded(some, options, compiled=True) == expected(some, options)


@given(
    st.integers(1, 200),
    st.none() | st.integers(0, 200),
    st.none() | st.integers(0, 200),
    st.none() | st.integers(0, 200),
    st.lists(st.integers(0, 100), min_size=200, max_size=200).map(sorted),
)
def test_records_of_one_size(
    count: int, value_size: int | None, key_size: int | None, header_size: int | None, stamps: list[int]
) -> None:
    def cell(size: int | None, index: int) -> bytes | None:
        return None if size is None else bytes([index % 256]) * size

    some: list[Row] = [
        (
            cell(value_size, index),
            cell(key_size, index),
            () if header_size is None else (("h", cell(header_size, index)),),
            stamps[index],
        )
        for index in range(count)
    ]
    options = BatchOptions()
    assert encoded(some, options, compiled=False) == expected(some, options)
    assert encoded(some, options, compiled=True) == expected(some, options)


@pytest.mark.parametrize("count", [63, 64, 65, 8191, 8192, 8193])
def test_offsets_of_every_length(count: int) -> None:
    some: list[Row] = [(b"value", None, (), 5 + index // 1000) for index in range(count)]
    assert encoded(some, BatchOptions(), compiled=False) == expected(some, BatchOptions())


def test_a_batch_that_is_compressed_has_the_same_records() -> None:
    some: list[Row] = [(b"value %d" % index, b"k", (("h", None),), 7) for index in range(50)]
    options = BatchOptions(compression=Compression.ZSTD)
    assert decode_batch(encoded(some, options, compiled=False)) == decode_batch(expected(some, options))


def test_a_timestamp_that_no_record_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="timestamp -2"):
        encoded([(b"", None, (), 5), (b"", None, (), -2)], BatchOptions(), compiled=False)


def test_sections_for_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2 values, but 1 sections of headers"):
        encode_columns([b"", b""], header_sections=[b"\0"])
    with pytest.raises(ValueError, match="given twice"):
        encode_columns([b""], headers=[()], header_sections=[b"\0"])


@given(st.lists(st.tuples(names, st.binary(max_size=2000)), max_size=70))
def test_headers_as_people_give_them(pairs: list[tuple[str, bytes]]) -> None:
    section = header_section(pairs)
    if all(len(content) < 1024 for _, content in pairs):
        assert fast_header_section(pairs) == fast_header_section(tuple(pairs)) == section
        assert fast_header_section(dict(pairs)) == header_section(list(dict(pairs).items()))


@pytest.mark.parametrize(
    "odd",
    [
        5,
        "ab",
        iter([("a", b"")]),
        [("a", "text")],
        [("a", None)],
        [("a", bytearray(b"x"))],
        [(b"a", b"")],
        [1],
        [("a",)],
    ],
)
def test_what_is_not_plain_headers_is_left_to_be_checked(odd: object) -> None:
    assert fast_header_section(odd) is None
