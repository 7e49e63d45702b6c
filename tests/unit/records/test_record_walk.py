"""The walks over records agree, and with the codec, about whatever bytes there are."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.records import Record, RecordError, encode_batch, record_walk, walk_kernel
from ottla.records.layout import HEADER_SIZE, MAX_INT64, ByteBuffer
from ottla.records.record_facts import RecordFacts
from ottla.records.record_walk import fast_walk, iter_marks, walk, walk_one, walker
from support.examples import examples
from support.logs.record_bytes import header_bytes, record_bytes

MIN_INT64 = -MAX_INT64 - 1


def oracle(payload: ByteBuffer, count: int, base_ms: int) -> RecordFacts | None:
    try:
        marks = list(iter_marks(payload, count, base_ms))
    except RecordError:
        return None
    times = [mark.timestamp_ms for mark in marks]
    oldest = min((time_ms for time_ms in times if time_ms != -1), default=MAX_INT64)
    return max([*times, -1]), oldest, sum(not mark.has_key for mark in marks)


def interpreted(data: ByteBuffer, start: int, count: int, base_ms: int) -> RecordFacts | None:
    """The kernel as plain Python over an array, where a read beyond the end raises."""
    array = np.frombuffer(memoryview(data), np.uint8)
    sound, *facts = map(int, walk_kernel._walk(array, start, count, base_ms))
    return (facts[0], facts[1], facts[2]) if sound else None


def one_by_itself(data: ByteBuffer, start: int, count: int, base_ms: int) -> RecordFacts | None:
    return walk_one(data, start, base_ms) if count == 1 else fast_walk(data, start, count, base_ms)


WALKS: list[Callable[[ByteBuffer, int, int, int], RecordFacts | None]] = [
    fast_walk,
    one_by_itself,
    walk_kernel.walk,
    interpreted,
]

cells = st.none() | st.binary(max_size=3) | st.binary(min_size=60, max_size=300)
deltas = st.sampled_from([0, 0, 1, -1, 63, -64, 64, 8191, 8192, 10**6, 2**40, MAX_INT64, MIN_INT64])
bases = st.sampled_from([0, -1, 1_700_000_000_000, MAX_INT64, MIN_INT64])
headers = st.lists(st.tuples(st.binary(max_size=3), cells), max_size=2).map(lambda pairs: header_bytes(*pairs))


@st.composite
def payloads(draw: st.DrawFn) -> tuple[bytearray, int]:
    count = draw(st.integers(1, 3))
    records = bytearray()
    for index in range(count):
        records += record_bytes(
            index, timestamp_delta=draw(deltas), key=draw(cells), value=draw(cells), headers=draw(headers)
        )
    return records, count


@settings(deadline=None, max_examples=examples(60))
@given(payloads(), bases, st.integers(0, 3))
@example((bytearray(record_bytes(0, timestamp_delta=-1)), 1), 0, 0)
def test_sound_records_are_told_alike(given_: tuple[bytearray, int], base_ms: int, start: int) -> None:
    payload, count = given_
    expected = oracle(payload, count, base_ms)
    for each in WALKS:
        for data in (bytearray(start) + payload, bytes(start) + payload):
            assert each(data, start, count, base_ms) == expected
            assert each(memoryview(data), start, count, base_ms) == expected


@settings(deadline=None, max_examples=examples(100))
@given(payloads(), st.data())
def test_broken_records_are_refused_alike(given_: tuple[bytearray, int], data: st.DataObject) -> None:
    payload, count = given_
    kind = data.draw(st.sampled_from(["flip", "cut", "more", "count", "noise"]))
    if kind == "flip" and payload:
        payload[data.draw(st.integers(0, min(len(payload) - 1, 40)))] ^= 1 << data.draw(st.integers(0, 7))
    elif kind == "cut":
        del payload[data.draw(st.integers(0, len(payload))) :]
    elif kind == "more":
        payload += data.draw(st.binary(max_size=3))
    elif kind == "count":
        count = data.draw(st.integers(1, 9) | st.just(2**31 - 1))
    else:
        payload = bytearray(data.draw(st.binary(max_size=40)))
    base_ms = data.draw(bases)
    expected = oracle(payload, count, base_ms)
    for each in WALKS:
        assert each(payload, 0, count, base_ms) == expected


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 8191, 8192, 8193, 20_000])
def test_what_the_codec_writes_is_sound(count: int) -> None:
    batch = encode_batch(
        Record(index, 1000 + index % 9, b"k" if index % 3 else None, b"value") for index in range(count)
    )
    expected = (1000 + min(count - 1, 8), 1000, (count + 2) // 3)
    for each in (fast_walk, walk_kernel.walk):
        assert each(memoryview(batch), HEADER_SIZE, count, 1000) == expected


@pytest.mark.parametrize("key", [None, b"", b"k", b"k" * 63, b"k" * 64])
@pytest.mark.parametrize("size", [0, 1, 40, 55, 56, 57, 63, 64, 8100, 8170, 8180, 8191, 8192])
@pytest.mark.parametrize("base_ms", [-1, 0, 1_700_000_000_000, -5])
def test_a_single_record_is_told_alike(key: bytes | None, size: int, base_ms: int) -> None:
    sound = record_bytes(0, key=key, value=bytes(size))
    expected = oracle(sound, 1, base_ms)
    assert expected is not None
    assert walk_one(sound, 0, base_ms) == expected
    for broken in (sound[:-1], sound + b"\0", record_bytes(0, key=key, value=bytes(size), size=size)):
        assert walk_one(broken, 0, base_ms) == oracle(broken, 1, base_ms)
    for at in range(min(len(sound), 8)):
        for bit in range(8):
            flipped = bytearray(sound)
            flipped[at] ^= 1 << bit
            assert walk_one(flipped, 0, base_ms) == oracle(flipped, 1, base_ms)


# Which walk is taken


@pytest.fixture(autouse=True)
def _without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_walk, "walker", type(walker)())


def test_a_thread_with_a_lot_to_walk_waits_for_the_kernel() -> None:
    record_walk.walker.wait()
    assert record_walk.walker.kernel is walk_kernel.walk


def loads(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    begun: list[bool] = []
    monkeypatch.setattr(record_walk.walker.loading, "begin", lambda: begun.append(True))
    return begun


def test_the_kernel_is_loaded_when_many_records_come_in_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [1000.0]
    monkeypatch.setattr(record_walk, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(record_walk, "LOAD_AT_RECORDS", 6)
    begun = loads(monkeypatch)
    three = b"".join(map(record_bytes, range(3)))
    for _ in range(8):  # slowly
        walk(three, 0, 3, 0)
        now_s[0] += 0.6
    assert not begun
    for _ in range(2):
        walk(three, 0, 3, 0)
    assert begun


def test_single_records_load_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_walk, "LOAD_AT_RECORDS", 2)
    begun = loads(monkeypatch)
    for _ in range(20):
        walk(record_bytes(0), 0, 1, 0)
    assert not begun


def test_the_kernel_is_taken_once_it_is_loaded() -> None:
    record_walk.walker.load()
    assert record_walk.walker.kernel is walk_kernel.walk
    calls: list[int] = []
    record_walk.walker.kernel = lambda *given: calls.append(given[2])
    assert walk(record_bytes(0) + record_bytes(1), 0, 2, 5) is None
    assert calls == [2]


def test_a_kernel_that_cannot_be_loaded_is_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ottla.records.walk_kernel", None)
    record_walk.walker.load()
    assert record_walk.walker.kernel is None
    assert "validated in Python" in caplog.text
    assert walk(record_bytes(0), 0, 1, 5) == (5, 5, 0)
