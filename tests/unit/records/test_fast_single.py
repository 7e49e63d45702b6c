"""Batches of one record have the same bytes, whichever code encodes them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import BatchOptions, Record, encode_batch
from ottla.records.batch import attributes_of
from ottla.records.fast_single import encode_single
from ottla.records.header_sections import header_section
from support.examples import examples

CELLS = st.none() | st.binary(max_size=70) | st.integers(60, 70_000).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)


@settings(max_examples=examples(100))
@given(
    CELLS,
    CELLS,
    HEADERS,
    st.integers(-1, 2**62),
    st.booleans(),
    st.integers(-1, 2**63 - 1),
    st.integers(-1, 2**15 - 1),
    st.integers(-1, 2**31 - 1),
)
def test_it_has_the_bytes_of_the_plain_codec(
    value: bytes | None,
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp_ms: int,
    transactional: bool,
    producer_id: int,
    epoch: int,
    sequence: int,
) -> None:
    options = BatchOptions(
        transactional=transactional, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )
    expected = encode_batch([Record(0, timestamp_ms, key, value, headers)], options)
    section = header_section(headers) if headers else None
    attributes = attributes_of(transactional=transactional)
    assert encode_single(value, key, section, timestamp_ms, attributes, producer_id, epoch, sequence) == expected


def test_a_time_before_the_epoch_is_refused() -> None:
    with pytest.raises(ValueError, match="timestamp -2"):
        encode_single(b"1", None, None, -2, 0)
