"""Batches of similar records, decoded column by column: the same as the plain codec decodes, or left to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import BatchOptions, Compression, Record, RecordError, decode_batch, encode_batch, iter_records
from ottla.records import fast_lists as fast_lists_module
from ottla.records.fast_lists import iter_lists
from ottla.records.layout import TimestampType


def rows_of(data: bytes | bytearray) -> list[tuple[object, ...]]:
    return [row for lists, _ in iter_lists(data) for row in zip(*lists, strict=True)]


def expected(data: bytes | bytearray) -> list[tuple[object, ...]]:
    return [tuple(one) for one in iter_records(data)]


def batch(
    count: int, value_size: int | None, key_size: int | None, stamps: list[int], options: BatchOptions | None = None
) -> bytearray:
    def cell(size: int | None, index: int) -> bytes | None:
        return None if size is None else bytes([index % 256]) * size

    return encode_batch(
        [
            Record(index, stamps[index % len(stamps)], cell(key_size, index), cell(value_size, index))
            for index in range(count)
        ],
        options or BatchOptions(),
    )


@pytest.fixture
def plainly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batches that were left to the plain codec."""
    left: list[int] = []
    decode = decode_batch

    def counting(*args: object, **keywords: object) -> list[Record]:
        left.append(1)
        return decode(*args, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(fast_lists_module, "decode_batch", counting)
    return left


@pytest.mark.parametrize("count", [8, 63, 64, 65, 200, 8191, 8192, 8193, 9000])
@pytest.mark.parametrize(
    "stamps",
    [[1000, 1001, 1063], [1000 + index // 40 for index in range(10_000)], [5, *[9000, 9001] * 5000]],
    ids=["short", "longer", "long"],
)
@pytest.mark.parametrize(("value_size", "key_size"), [(100, None), (63, 8), (0, 0), (None, 70), (None, None)])
def test_similar_records_need_no_plain_codec(
    plainly: list[int], count: int, value_size: int | None, key_size: int | None, stamps: list[int]
) -> None:
    data = batch(count, value_size, key_size, stamps)
    assert rows_of(data) == expected(data)
    assert not plainly


@pytest.mark.parametrize("compression", list(Compression))
def test_compressed_batches(plainly: list[int], compression: Compression) -> None:
    data = batch(300, 50, 5, [7], BatchOptions(compression=compression, base_offset=12_345))
    data += batch(20, 50, 5, [7], BatchOptions(base_offset=20_000, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert rows_of(data) == expected(data)
    assert not plainly


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=3), st.none() | st.binary(max_size=2), st.integers(0, 200)),
        max_size=40,
    ),
    st.booleans(),
)
def test_any_records(some: list[tuple[bytes | None, bytes | None, int]], has_headers: bool) -> None:
    headers = (("h", b"x"),) if has_headers else ()
    data = encode_batch([Record(0, 1000 + time, key, value, headers) for value, key, time in some], BatchOptions())
    assert rows_of(data) == expected(data)


@given(st.integers(8, 40), st.data())
def test_damaged_batches_fail_as_in_the_plain_codec(count: int, data: st.DataObject) -> None:
    damaged = batch(count, 5, 2, [1000, 1001])
    at = data.draw(st.integers(61, len(damaged) - 1))
    damaged[at] ^= 1 << data.draw(st.integers(0, 7))

    def outcome(decode: object) -> object:
        try:
            return decode()  # type: ignore[operator]
        except RecordError as error:
            return type(error), str(error)

    quickly = outcome(
        lambda: [row for lists, _ in iter_lists(damaged, verify_crc=False) for row in zip(*lists, strict=True)]
    )
    assert quickly == outcome(lambda: [tuple(one) for one in iter_records(damaged, verify_crc=False)])
