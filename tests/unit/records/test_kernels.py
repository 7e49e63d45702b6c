"""The kernels one by one, interpreted and compiled.

Compiled code checks no bounds, so the same functions run here as plain Python too, on a memory that does: every address
must lie in a region that was given to the kernel, every index inside its array.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ottla.records import kernels
from ottla.records.header_sections import header_section
from ottla.records.layout import ATTRIBUTES_AT, CRC_AT, HEADER_SIZE
from ottla.records.plain import BatchOptions, encode_batch
from ottla.records.record import Record
from ottla.records.varint import read_varint, read_varlong, write_varlong
from support.examples import examples

PAGE = 1 << 32


class Memory:
    """Regions far apart from each other, each readable and writable from its first byte to its last."""

    def __init__(self) -> None:
        self._regions: list[bytearray] = []

    def add(self, data: bytes | bytearray) -> int:
        """The address of a new region with these bytes."""
        self._regions.append(bytearray(data))
        return len(self._regions) * PAGE

    def bytes_at(self, address: int) -> bytes:
        return bytes(self._region(address, 0)[0])

    def _region(self, address: int, size: int) -> tuple[bytearray, int]:
        index, at = divmod(int(address), PAGE)
        if not 1 <= index <= len(self._regions) or at + size > len(self._regions[index - 1]):
            raise AssertionError(f"{size} bytes at {address:#x} are outside of what the kernel was given")
        return self._regions[index - 1], at

    def load_byte(self, address: int) -> int:
        region, at = self._region(address, 1)
        return region[at]

    def load_int32(self, address: int) -> int:
        region, at = self._region(address, 4)
        return int.from_bytes(region[at : at + 4], sys.byteorder, signed=True)

    def load_int64(self, address: int) -> int:
        region, at = self._region(address, 8)
        return int.from_bytes(region[at : at + 8], sys.byteorder, signed=True)

    def store_byte(self, address: int, value: int) -> None:
        region, at = self._region(address, 1)
        region[at] = value & 0xFF

    def copy_bytes(self, target: int, source: int, size: int) -> None:
        source_region, source_at = self._region(source, int(size))
        target_region, target_at = self._region(target, int(size))
        target_region[target_at : target_at + size] = source_region[source_at : source_at + size]


class Checked(np.ndarray[Any, Any]):
    """An array that takes no negative index for one from the end."""

    def _check(self, index: Any) -> None:
        for part in index if isinstance(index, tuple) else (index,):
            if not isinstance(part, slice) and part < 0:
                raise AssertionError(f"index {part} is outside of the array")

    def __getitem__(self, index: Any) -> Any:
        self._check(index)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._check(index)
        super().__setitem__(index, value)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """What the interpreted kernels see as memory."""
    memory = Memory()
    for name in ("load_byte", "load_int32", "load_int64", "store_byte", "copy_bytes"):
        # A test may run many examples: each uses the regions it added itself.
        monkeypatch.setattr(kernels, name, getattr(memory, name))
    return memory


def interpreted(kernel: Any) -> Callable[..., Any]:
    function: Callable[..., Any] = kernel.py_func
    return function


def zeros(shape: int | tuple[int, int], kind: type[np.generic]) -> Any:
    return np.zeros(shape, kind).view(Checked)


def parse(run: Callable[..., Any], address: int, size: int, fields: dict[int, int], room: int) -> list[Any]:
    """What `parse_records` returns and fills in, for one section."""
    sections = zeros((1, kernels.BATCH_FIELDS), np.int64)
    sections[0, kernels.ADDRESS], sections[0, kernels.SIZE] = address, size
    for field, value in fields.items():
        sections[0, field] = value
    ends = [zeros(room + 1, np.int32) for _ in range(3)]
    at = [zeros(room, np.int64) for _ in range(3)]
    bits = [zeros((room + 7) // 8, np.uint8) for _ in range(2)]
    offsets, timestamps, totals = zeros(room, np.int64), zeros(room, np.int64), zeros(kernels.TOTALS, np.int64)
    arrays = [ends[0], at[0], bits[0], ends[1], at[1], bits[1], ends[2], at[2], totals]
    plain = [np.asarray(array) for array in (sections, offsets, timestamps, *arrays)]
    if run is not interpreted(kernels.parse_records):
        sections, offsets, timestamps, *arrays = plain
    rows = run(sections, kernels.MIN_INT64, 2**63 - 1, 1, offsets, timestamps, *arrays)
    for positions in at:
        positions -= address
    return [rows, [array.tolist() for array in plain[1:]] if rows >= 0 else None]


RECORDS = [
    Record(0, 1_700_000_000_000, b"key", b"value" * 30, (("trace", b"\x01\x02"), ("\u00fc\U0001f600", None))),
    Record(1, 1_700_000_000_100, None, None),
    Record(2, 1_699_999_999_000, b"", b"x" * 70, (("", b""),)),
]
PAYLOAD = bytes(encode_batch(RECORDS)[HEADER_SIZE:])
FIELDS = {kernels.LAST_OFFSET_DELTA: 2, kernels.BASE_TIMESTAMP: 1_700_000_000_000, kernels.RECORD_COUNT: 3}


@st.composite
def broken_payloads(draw: st.DrawFn) -> bytes:
    """A payload with some bytes changed, cut out or put in: lengths and counts often, sometimes nothing of weight."""
    payload = bytearray(PAYLOAD)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(payload) - 1))
        change = draw(st.sampled_from(["replace", "insert", "cut", "truncate"]))
        if change == "replace":
            payload[at] = draw(st.integers(0, 255))
        elif change == "insert":
            payload[at:at] = draw(st.binary(min_size=1, max_size=12))
        elif change == "cut" and at:
            del payload[at]
        else:
            del payload[max(at, 1) :]
    return bytes(payload)


EXAMPLES = settings(
    deadline=None,
    max_examples=examples(120),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@EXAMPLES
@given(broken_payloads(), st.integers(0, 5), st.integers(0, 5))
def test_parsing_reads_and_writes_only_what_it_was_given(
    memory: Memory, payload: bytes, count: int, last_offset_delta: int
) -> None:
    fields = FIELDS | {kernels.RECORD_COUNT: count, kernels.LAST_OFFSET_DELTA: last_offset_delta}
    slowly = parse(interpreted(kernels.parse_records), memory.add(payload), len(payload), fields, count)
    compiled = parse(kernels.parse_records, pa.py_buffer(payload).address, len(payload), fields, count)
    assert compiled == slowly


@EXAMPLES
@given(broken_payloads())
def test_copying_reads_and_writes_only_what_it_was_given(memory: Memory, payload: bytes) -> None:
    address = memory.add(payload)
    rows, arrays = parse(interpreted(kernels.parse_records), address, len(payload), FIELDS, 3)
    if rows < 0:
        return
    _, _, key_ends, key_at, _, value_ends, value_at, _, header_ends, header_at, totals = (
        np.array(array).view(Checked) for array in arrays
    )
    for ends, at, size in ((key_ends, key_at, kernels.KEY_BYTES), (value_ends, value_at, kernels.VALUE_BYTES)):
        target = memory.add(bytes(totals[size]))
        interpreted(kernels.copy_cells)(rows, ends, at + address, target)
    headers = int(totals[kernels.HEADERS])
    interpreted(kernels.copy_headers)(
        rows,
        header_ends,
        header_at + address,
        zeros(headers + 1, np.int32),
        memory.add(bytes(totals[kernels.HEADER_KEY_BYTES])),
        zeros(headers + 1, np.int32),
        memory.add(bytes(totals[kernels.HEADER_VALUE_BYTES])),
        zeros((headers + 7) // 8, np.uint8),
    )


@EXAMPLES
@given(st.binary(max_size=200), st.lists(st.sampled_from([49, 60, 100, -1, 0, 48]), max_size=3))
def test_scanning_reads_only_what_it_was_given(memory: Memory, tail: bytes, lengths: list[int]) -> None:
    data = b"".join(
        bytes(8) + length.to_bytes(4, "big", signed=True) + bytes(4) + b"\x02" + bytes(max(length - 5, 0))
        for length in lengths
    )
    data += tail
    address = memory.add(data)
    count = interpreted(kernels.count_batches)(address, len(data))
    assert count == kernels.count_batches(pa.py_buffer(data).address, len(data))
    slowly, compiled = zeros((count, kernels.BATCH_FIELDS), np.int64), np.zeros((count, kernels.BATCH_FIELDS), np.int64)
    sound = interpreted(kernels.scan_batches)(address, slowly)
    assert sound == kernels.scan_batches(pa.py_buffer(data).address, compiled)
    assert np.asarray(slowly)[:, kernels.SIZE :].tolist() == compiled[:, kernels.SIZE :].tolist()


def numbers(bits: int) -> st.SearchStrategy[int]:
    """Of all lengths alike, so that the long ones are not the only ones."""
    return st.integers(0, bits - 1).flatmap(lambda most: st.integers(-(1 << most), (1 << most) - 1))


@EXAMPLES
@given(numbers(64))
def test_varints_are_written_as_by_the_plain_codec(memory: Memory, number: int) -> None:
    expected = bytearray()
    write_varlong(expected, number)
    address = memory.add(bytes(len(expected)))
    word: Any = np.int64(number)  # Shifts lose bits beyond the 64th, as in compiled code.
    assert kernels.size_of_varint(word) == len(expected)
    assert kernels.write_varint(address, word) == address + len(expected)
    assert memory.bytes_at(address) == expected


@EXAMPLES
@given(st.binary(min_size=1, max_size=12) | numbers(64).map(lambda number: _varlong(number)))
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\xff\xff\xff\xff\x10")
@example(b"\x80\x80\x80\x80\x80\x00")
@example(b"\xff" * 9 + b"\x01")
@example(b"\xff" * 9 + b"\x02")
@example(b"\x80" * 10 + b"\x00")
@example(b"\x80" * 10)
def test_varints_are_read_as_by_the_plain_codec(memory: Memory, data: bytes) -> None:
    address = memory.add(data)
    for ours, plain in ((kernels.read_varint, read_varint), (kernels.read_varlong, read_varlong)):
        try:
            number, position = plain(data, 0)
        except ValueError:
            assert ours(address, address + len(data))[1] == kernels.BEYOND
        else:
            assert ours(address, address + len(data)) == (number, address + position)


def _varlong(number: int) -> bytes:
    out = bytearray()
    write_varlong(out, number)
    return bytes(out)


@EXAMPLES
@given(
    st.binary(max_size=6)
    | st.text(max_size=4).map(str.encode)
    | st.integers(0xD700, 0xE100).map(lambda point: chr(point).encode("utf-8", "surrogatepass"))
    | st.integers(0, 0xFFFF).map(
        lambda low: b"\xf4" + bytes([0x80 | low >> 12, 0x80 | low >> 6 & 0x3F, 0x80 | low & 0x3F])
    )
)
@example(b"\xc1\xbf")
@example(b"\xe0\x9f\xbf")
@example(b"\xe0\xa0\x80")
@example(b"\xed\x9f\xbf")
@example(b"\xed\xa0\x80")
@example(b"\xf0\x8f\xbf\xbf")
@example(b"\xf0\x90\x80\x80")
@example(b"\xf4\x8f\xbf\xbf")
@example(b"\xf4\x90\x80\x80")
@example(b"\xf5\x80\x80\x80")
@example(b"\xe2\x82")
@example(b"\xf0\x9f\x98\x28")
@example(b"\xe2\x82\xc0")
def test_utf8_is_what_python_takes_for_it(memory: Memory, data: bytes) -> None:
    try:
        data.decode()
        expected = True
    except UnicodeDecodeError:
        expected = False
    address = memory.add(data)
    assert kernels.is_utf8(address, address + len(data)) == expected


def columns_in(memory: Memory, cells: list[bytes | None], width: int, first_bit: int) -> list[int]:
    """A row of the table of columns, its offsets, bytes and bits each as short as can be."""
    data = b"".join(cell or b"" for cell in cells)
    ends = [0]
    bits = bytearray((first_bit + len(cells) + 7) // 8)
    for row, cell in enumerate(cells):
        ends.append(ends[-1] + len(cell or b""))
        if cell is not None:
            bits[(first_bit + row) // 8] |= 1 << (first_bit + row) % 8
    packed = b"".join(end.to_bytes(width, sys.byteorder) for end in ends)
    return [memory.add(packed), width, memory.add(data), memory.add(bits), first_bit]


@EXAMPLES
@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=80), st.none() | st.binary(max_size=9)), min_size=1, max_size=6),
    st.sampled_from([4, 8]),
    st.integers(0, 9),
    st.sampled_from([0, 100, 1000]),
    st.booleans(),
)
def test_writing_fills_exactly_what_was_planned(
    memory: Memory,
    cells: list[tuple[bytes | None, bytes | None]],
    width: int,
    first_bit: int,
    limit: int,
    has_sections: bool,
) -> None:
    rows = len(cells)
    table = zeros((kernels.COLUMNS, kernels.COLUMN_FIELDS), np.int64)
    table[kernels.VALUE] = columns_in(memory, [value for value, _ in cells], width, first_bit)
    table[kernels.KEY] = columns_in(memory, [key for _, key in cells], width, first_bit)
    header_ends, stamps = np.arange(rows + 1).view(Checked), np.arange(rows).view(Checked)
    if has_sections:
        sections: list[bytes | None] = [header_section([("h", key)]) for _, key in cells]
        table[kernels.HEADER_SECTION] = columns_in(memory, sections, width, first_bit)
        header_ends = zeros(0, np.int64)
    else:
        table[kernels.HEADER_KEY] = columns_in(memory, [b"h"] * rows, 4, 0)
        table[kernels.HEADER_VALUE] = columns_in(memory, [key for _, key in cells], 8, 0)
    sizes, none = zeros(rows, np.int64), zeros(0, np.int64)
    plan = zeros((rows, kernels.PLAN_FIELDS), np.int64)
    batches = interpreted(kernels.plan_batches)(
        table, header_ends, stamps, kernels.NOT_GIVEN, none, 0, limit, sizes, plan
    )
    plan = plan[:batches]
    target = memory.add(bytes(int(plan[:, kernels.RECORD_BYTES].sum()) + batches * HEADER_SIZE))
    template = memory.add(encode_batch([])[:HEADER_SIZE])
    interpreted(kernels.write_batches)(
        table, header_ends, stamps, none, 0, -1, kernels.NOT_GIVEN, sizes, plan, template, target
    )
    records = [Record(row, row, key, value, (("h", key),)) for row, (value, key) in enumerate(cells)]
    written = memory.bytes_at(target)
    first = position = 0
    for until in plan[:, kernels.UNTIL].tolist():
        expected = encode_batch(records[first:until], BatchOptions(base_offset=first))
        batch = written[position : position + len(expected)]
        assert batch[:CRC_AT] + batch[ATTRIBUTES_AT:] == expected[:CRC_AT] + expected[ATTRIBUTES_AT:]
        first, position = until, position + len(expected)
    assert (first, position) == (rows, len(written))


BESIDE_A_FORBIDDEN_PAGE = """
import ctypes, mmap, random, sys
import numpy as np
from ottla.records import kernels

payload, count = bytes.fromhex(sys.argv[1]), int(sys.argv[2])
memory = mmap.mmap(-1, 2 * mmap.PAGESIZE)
end = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + mmap.PAGESIZE
protect = ctypes.CDLL(None, use_errno=True).mprotect
protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
if protect(end, mmap.PAGESIZE, 0) != 0:
    raise OSError(ctypes.get_errno(), "mprotect")
accepted = 0
chance = random.Random(17)
for _ in range(30_000):
    broken = bytearray(payload)
    for _ in range(chance.randrange(4)):
        broken[chance.randrange(len(broken))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
    del broken[chance.choice([len(broken), chance.randrange(1, len(broken))]):]
    address = end - len(broken)
    ctypes.memmove(address, bytes(broken), len(broken))
    sections = np.zeros((1, kernels.BATCH_FIELDS), np.int64)
    sections[0, [kernels.ADDRESS, kernels.SIZE, kernels.RECORD_COUNT]] = address, len(broken), count
    sections[0, kernels.LAST_OFFSET_DELTA] = count
    ends = [np.zeros(count + 1, np.int32) for _ in range(3)]
    at = [np.zeros(count, np.int64) for _ in range(3)]
    bits = [np.zeros(1, np.uint8) for _ in range(2)]
    stamps, totals = np.zeros(count, np.int64), np.zeros(kernels.TOTALS, np.int64)
    rows = kernels.parse_records(
        sections, 0, 1 << 40, 1, stamps, stamps,
        ends[0], at[0], bits[0], ends[1], at[1], bits[1], ends[2], at[2], totals
    )
    accepted += rows == count
print(accepted)
"""


def test_compiled_parsing_never_touches_the_page_after_its_bytes() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", BESIDE_A_FORBIDDEN_PAGE, PAYLOAD.hex(), str(len(RECORDS))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert 0 < int(finished.stdout) < 30_000
