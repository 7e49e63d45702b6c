"""The kernels one by one, interpreted and compiled.

Compiled code checks no bounds, so the same functions run here as plain Python too, on a memory that does: see the test
of `ottla.records.kernels`, whose memory this is.
"""

from __future__ import annotations

import hashlib
import mmap
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numba import njit

from ottla.log.compaction import kernels
from ottla.log.compaction.file_batches import ENDED
from ottla.log.compaction.offset_map import ENTRY_BYTES, OffsetMap
from ottla.records import kernels as record_kernels
from ottla.records.batch import BatchView, iter_batches
from ottla.records.layout import ATTRIBUTES_AT, HEADER_SIZE
from ottla.records.plain import BatchOptions, decode_batch, encode_batch
from ottla.records.record import Record
from support.examples import examples
from unit.records.test_kernels import Memory, interpreted, zeros

NOW_MS = 1_700_000_000_000


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """What the interpreted kernels see as memory. Hash and CRC, which need words that overflow, are made elsewhere."""
    memory = Memory()
    for module in (kernels, record_kernels):
        for name in ("load_byte", "load_int64", "store_byte", "copy_bytes"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(memory, name))

    def read(at: int, size: int) -> bytes:
        return bytes(memory.load_byte(at + index) for index in range(size))

    def hash_key(at: int, size: int) -> tuple[int, int]:
        first, second = struct.unpack("<qq", hashlib.md5(read(at, size)).digest())
        return first, second

    monkeypatch.setattr(kernels, "hash_key", hash_key)
    monkeypatch.setattr(kernels, "prefetch", lambda _address: None)
    monkeypatch.setattr(kernels, "crc_of", lambda at, end: crc32c(read(at, end - at)))
    return memory


keys = st.one_of(st.none(), st.binary(max_size=3))
batches = st.lists(
    st.builds(
        lambda records, options, first: (records, options, first),
        st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=90))), max_size=5),
        st.builds(
            BatchOptions,
            transactional=st.booleans(),
            delete_horizon_ms=st.sampled_from([None, NOW_MS - 1, NOW_MS, NOW_MS + 1]),
            producer_id=st.sampled_from([-1, 5]),
        ),
        st.integers(0, 2**40),
    ),
    max_size=5,
)


def encode(parts: list[Any]) -> bytes:
    data = bytearray()
    next_offset = 0
    for records, options, time_ms in parts:
        rows = [Record(0, time_ms + index, key, value) for index, (key, value) in enumerate(records)]
        batch = encode_batch(rows, options)
        BatchView(batch).assign_offset(next_offset)
        next_offset += max(len(records), 1)
        data += batch
    return bytes(data)


class Run:
    """One chunk through all kernels."""

    def __init__(self, run: Callable[[Any], Callable[..., Any]], allocate: Callable[[bytes], int]) -> None:
        self._run = run
        self._allocate = allocate

    def array(self, shape: int | tuple[int, int]) -> Any:
        return zeros(shape, np.int64) if self._run is interpreted else np.zeros(shape, np.int64)

    def __call__(self, data: bytes, verdicts: list[int]) -> tuple[Any, ...]:
        """The address of the output, what was written there, and what the kernels told."""
        table, stopped = self.array((len(data) // HEADER_SIZE + 1, kernels.BATCH_FIELDS)), self.array(2)
        source = self._allocate(data)
        count = self._run(kernels.scan_batches)(source, len(data), table, stopped)
        table = table[:count]
        entries, progress = self.array((64, 3)), self.array(3)
        most = max((int(row[kernels.RECORD_COUNT]) for row in table), default=0)
        notes = self.array((most, kernels.NOTE_FIELDS))
        mapped = self._run(kernels.map_keys)(table, 0, entries, 60, notes, progress)
        told = [count, stopped.tolist(), mapped, progress.tolist()]
        if mapped < 0:
            return 0, 0, told
        for batch, verdict in zip(range(count), verdicts, strict=False):
            table[batch, kernels.VERDICT] = verdict
        records = sum(int(row[kernels.RECORD_COUNT]) for row in table)
        room = len(data) + HEADER_SIZE * count + records * kernels.RECORD_GROWTH
        target, totals = self._allocate(bytes(room)), self.array(kernels.TOTALS)
        wrong = self._run(kernels.copy_batches)(
            table, entries, int(progress[1]), NOW_MS, NOW_MS + 1000, notes, target, totals
        )
        told += [wrong, totals.tolist(), table[:, kernels.WRITTEN :].tolist()]
        return target, int(totals[kernels.WRITTEN_BYTES]), told


def compiled_run() -> tuple[Run, list[Any]]:
    held: list[Any] = []

    def allocate(data: bytes) -> int:
        held.append(np.frombuffer(bytearray(data) or bytearray(1), np.uint8))
        return int(held[-1].ctypes.data)

    return Run(lambda kernel: kernel, allocate), held


some_verdicts = st.lists(st.integers(0, 15).filter(lambda verdict: verdict & 3 != 3), max_size=5)
quickly = settings(
    deadline=None,
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@quickly
@given(batches, some_verdicts)
def test_compiled_and_interpreted_write_the_same(memory: Memory, parts: list[Any], verdicts: list[int]) -> None:
    data = encode(parts)
    run, held = compiled_run()
    _, written, told = run(data, verdicts)
    target, written_too, told_too = Run(interpreted, memory.add)(data, verdicts)
    assert told_too == told
    assert written_too == written
    output = bytes(held[-1][:written])
    assert memory.bytes_at(target)[:written] == output
    for view in iter_batches(output):
        decode_batch(view)


@quickly
@given(batches, some_verdicts, st.data())
def test_broken_records_are_found_within_bounds(
    memory: Memory, parts: list[Any], verdicts: list[int], chance: st.DataObject
) -> None:
    """With a CRC that fits, so that only the records themselves are wrong."""
    data = bytearray(encode(parts))
    for view in iter_batches(bytes(data)):
        at = chance.draw(st.integers(view.position + ATTRIBUTES_AT, view.position + view.size_in_bytes - 1))
        data[at] ^= chance.draw(st.integers(1, 255))
        data[view.position + 17 : view.position + 21] = crc32c(
            data[view.position + ATTRIBUTES_AT : view.position + view.size_in_bytes]
        ).to_bytes(4, "big")
    run, _ = compiled_run()
    assert run(bytes(data), verdicts)[2] == Run(interpreted, memory.add)(bytes(data), verdicts)[2]


@quickly
@given(st.binary(max_size=200))
def test_noise_is_scanned_within_bounds(memory: Memory, data: bytes) -> None:
    table, stopped = zeros((len(data) // HEADER_SIZE + 1, kernels.BATCH_FIELDS), np.int64), zeros(2, np.int64)
    interpreted(kernels.scan_batches)(memory.add(data), len(data), table, stopped)


@pytest.mark.parametrize("cut", [0, 1, 60, 61])
def test_a_torn_batch_is_left_to_the_next_read(cut: int) -> None:
    whole = encode([([(b"k", b"v")], BatchOptions(), 5)] * 2)
    size = len(whole) // 2
    data = np.frombuffer(whole[: size + cut], np.uint8)
    table, stopped = np.zeros((4, kernels.BATCH_FIELDS), np.int64), np.zeros(2, np.int64)
    assert kernels.scan_batches(data.ctypes.data, len(data), table, stopped) == 1
    assert stopped.tolist() == [size, ENDED]


# --- CRC and hash ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compute_crc", {kernels._crc_by_table, kernels.crc_of})
def test_every_crc_is_that_of_the_library(compute_crc: Callable[[int, int], int]) -> None:
    compute = njit("int64(int64, int64)")(compute_crc)
    chance = random.Random(1)
    for size in [*range(40), 1000, 65_537]:
        data = np.frombuffer(chance.randbytes(size) or b"\0", np.uint8)[:size]
        assert compute(data.ctypes.data, data.ctypes.data + size) == crc32c(data.tobytes())


def hashed(key: bytes) -> tuple[int, int]:
    """With the key at the end of a page, behind which nothing may be read."""
    page = mmap.mmap(-1, mmap.PAGESIZE)
    buffer = np.frombuffer(page, np.uint8)
    buffer[len(buffer) - len(key) :] = np.frombuffer(key, np.uint8)
    target = np.zeros(2, np.int64)
    kernels.hash_into(buffer.ctypes.data + len(buffer) - len(key), len(key), target)
    first, second = target.tolist()
    return first, second


def test_no_two_keys_have_one_hash() -> None:
    chance = random.Random(2)
    seen: dict[tuple[int, int], bytes] = {}
    # Short ones, ones that differ in length only, in one bit only, and counters as people use them.
    some = [bytes(size) for size in range(70)] + [b"\xff" * size for size in range(70)]
    some += [bytes([byte]) for byte in range(256)] + [struct.pack(">i", number) for number in range(3000)]
    some += [struct.pack("<q", number) for number in range(3000)] + [b"user-%d" % number for number in range(3000)]
    for size in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33):
        base = chance.randbytes(size)
        for bit in range(8 * size):
            flipped = bytearray(base)
            flipped[bit >> 3] ^= 1 << (bit & 7)
            some.append(bytes(flipped))
    for key in set(some):
        assert seen.setdefault(hashed(key), key) == key
    halves = [{pair[half] for pair in seen} for half in (0, 1)]
    assert [len(half) for half in halves] == [len(seen)] * 2, "each half alone should do for so few"


def test_one_bit_of_a_key_changes_half_of_the_bits_of_its_hash() -> None:
    chance = random.Random(3)
    changed = np.zeros(128)
    rounds = 2000
    for _ in range(rounds):
        key = bytearray(chance.randbytes(chance.randrange(1, 40)))
        before = hashed(bytes(key))
        key[chance.randrange(len(key))] ^= 1 << chance.randrange(8)
        after = hashed(bytes(key))
        difference = [(one ^ other) & (2**64 - 1) for one, other in zip(before, after, strict=True)]
        changed += [(difference[bit >> 6] >> (bit & 63)) & 1 for bit in range(128)]
    share = changed / rounds
    assert 0.45 < share.min() < share.max() < 0.55


# --- the map --------------------------------------------------------------------------------------------------------


def table_of(data: bytes, held: list[Any]) -> Any:
    buffer = np.frombuffer(data, np.uint8)
    held.append(buffer)
    table, stopped = np.zeros((len(data) // HEADER_SIZE + 1, kernels.BATCH_FIELDS), np.int64), np.zeros(2, np.int64)
    return table[: kernels.scan_batches(buffer.ctypes.data, len(data), table, stopped)]


def test_the_map_grows_and_stays_within_its_bytes() -> None:
    limit = 4 * 2**20
    offsets = OffsetMap(limit, 0.9, 0)
    assert offsets.size_in_bytes < limit / 8, "it begins small"
    held: list[Any] = []
    sizes = {offsets.size_in_bytes}
    expected = {}
    full = False
    for turn in range(100):
        records = [Record(0, 0, b"%d" % (turn * 1500 + index), b"") for index in range(2000)]  # a quarter again
        batch = encode_batch(records)
        BatchView(batch).assign_offset(turn * 2000)
        before = offsets.until_offset
        full = offsets.add(table_of(bytes(batch), held), 0) == 0
        if offsets.size_in_bytes not in sizes:
            assert max(sizes) + offsets.size_in_bytes <= limit
        sizes.add(offsets.size_in_bytes)
        for index in range(offsets.until_offset - before):
            expected[b"%d" % (turn * 1500 + index)] = turn * 2000 + index
        if full:
            break
    assert full
    assert offsets.key_count == len(expected) >= 0.79 * limit / ENTRY_BYTES
    assert len(sizes) >= 2
    found = {(int(first), int(second)): int(offset) - 1 for first, second, offset in offsets.entries if offset}
    assert found == {hashed(key): offset for key, offset in expected.items()}


def test_a_map_that_can_hold_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        OffsetMap(24, 0.9, 0)
