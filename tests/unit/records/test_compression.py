from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records import (
    Compression,
    DecompressionError,
    DecompressionLimitError,
    UnknownCompressionError,
    compress,
    decompress,
    expanded_bytes,
)
from support.examples import examples

CODECS = [codec for codec in Compression if codec]
XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LZ4_HEADER = bytes.fromhex("04224d18604082")

NOISE = random.Random(7).randbytes(200_000)
TEXT = b"".join(b'{"id":%d,"name":"user-%d"}' % (index, index * 7919 % 1000) for index in range(10_000))
SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "short": b"hello hello hello",
    "text": TEXT,
    "noise": NOISE,
    "zeros": bytes(1_000_000),
    "one block of snappy": (TEXT * 3)[:524288],
    "one byte over a block of snappy": (TEXT * 3)[:524289],
    "one block of lz4": TEXT[:65536],
    "one byte over a block of lz4": TEXT[:65537],
    "mixed": NOISE[:100_000] + TEXT[:100_000] + bytes(100_000),
}


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("level", [None, 1, 3, 9])
@pytest.mark.parametrize("name", SAMPLES)
def test_round_trip_within_the_limit(codec: Compression, level: int | None, name: str) -> None:
    data = SAMPLES[name]
    packed = compress(codec, data, level)
    for buffer in (packed, bytearray(packed), memoryview(packed)):
        assert bytes(decompress(codec, buffer, max_bytes=len(data))) == data
    if data:
        with pytest.raises(DecompressionLimitError, match=str(len(data) - 1)):
            decompress(codec, packed, max_bytes=len(data) - 1)


@settings(deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=1000), st.integers(1, 200))
def test_any_bytes(codec: Compression, data: bytes, repeat: int) -> None:
    data *= repeat
    assert bytes(decompress(codec, compress(codec, data), max_bytes=len(data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_a_higher_level_does_not_lose(codec: Compression) -> None:
    sizes = [len(compress(codec, TEXT, level)) for level in (None, 9)]
    assert sizes[1] <= sizes[0]
    assert sizes[0] < len(TEXT) / 2


def test_unknown_codecs() -> None:
    for codec in (5, 7, -1):
        with pytest.raises(UnknownCompressionError, match=str(codec)):
            decompress(codec, b"", max_bytes=10)  # type: ignore[arg-type]  # what attribute bits may say
        with pytest.raises(UnknownCompressionError, match=str(codec)):
            compress(codec, b"")  # type: ignore[arg-type]  # the same


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_is_not_for_old_messages(magic: int) -> None:
    with pytest.raises(UnknownCompressionError, match=f"magic {magic}"):
        decompress(Compression.ZSTD, compress(Compression.ZSTD, b"data"), max_bytes=10, magic=magic)


# gzip


def test_gzip_is_what_others_read_and_write() -> None:
    assert gzip.decompress(compress(Compression.GZIP, TEXT)) == TEXT
    assert decompress(Compression.GZIP, gzip.compress(TEXT, 9)) == TEXT


def test_gzip_members_follow_each_other() -> None:
    packed = gzip.compress(b"one") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed, max_bytes=6) == b"onetwo"
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.GZIP, packed, max_bytes=5)


@pytest.mark.parametrize("first", [1, 100, 200_000])
def test_gzip_whose_trailer_tells_of_a_shorter_member(first: int) -> None:
    packed = gzip.compress(TEXT[:first]) + gzip.compress(b"two")
    assert decompress(Compression.GZIP, packed, max_bytes=first + 3) == TEXT[:first] + b"two"
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.GZIP, packed, max_bytes=first + 2)


def test_every_prefix_of_gzip_is_cut_off() -> None:
    packed = gzip.compress(TEXT[:500])
    for size in range(len(packed)):
        with pytest.raises(DecompressionError, match="gzip: "):
            decompress(Compression.GZIP, packed[:size])


def test_gzip_of_nothing_but_members_is_not_read_to_its_end() -> None:
    with pytest.raises(DecompressionError, match="members"):
        decompress(Compression.GZIP, gzip.compress(b"") * 10_000)


def test_gzip_checksum() -> None:
    packed = bytearray(gzip.compress(TEXT))
    packed[-5] ^= 1
    with pytest.raises(DecompressionError, match="checksum"):
        decompress(Compression.GZIP, packed)


# snappy


def test_snappy_is_framed_as_snappy_java_does() -> None:
    data = (TEXT * (1_200_000 // len(TEXT) + 1))[:1_200_000]
    packed = compress(Compression.SNAPPY, data)
    assert packed[:16] == XERIAL_HEADER
    position, blocks = 16, []
    while position < len(packed):
        (size,) = struct.unpack_from(">i", packed, position)
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert [len(block) for block in blocks] == [524288, 524288, 1_200_000 - 1048576]
    assert b"".join(blocks) == data


def test_raw_snappy_is_read() -> None:
    packed = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, packed, max_bytes=len(TEXT)) == TEXT
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.SNAPPY, packed, max_bytes=len(TEXT) - 1)


def test_snappy_streams_follow_each_other() -> None:
    packed = compress(Compression.SNAPPY, b"one") + compress(Compression.SNAPPY, b"two")
    assert decompress(Compression.SNAPPY, packed, max_bytes=6) == b"onetwo"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        XERIAL_HEADER[:12],
        XERIAL_HEADER[:12] + bytes(4),
        XERIAL_HEADER + b"\x00\x00",
        XERIAL_HEADER + b"\xff\xff\xff\xff",
        XERIAL_HEADER + struct.pack(">i", 2**31 - 1),
        XERIAL_HEADER + struct.pack(">i", 5) + b"\x7f\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\x0f" + b"claims four gigabytes",
    ],
)
def test_broken_snappy(data: bytes) -> None:
    with pytest.raises(DecompressionError, match="snappy"):
        decompress(Compression.SNAPPY, data)


def test_snappy_that_lies_about_its_length_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecompressionError, match="claims to hold 100000000"):
            decompress(Compression.SNAPPY, b"\x80\xc2\xd7\x2f" + b"\x00x" * 10)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


# lz4


def test_lz4_is_framed_as_the_java_client_does() -> None:
    packed = compress(Compression.LZ4, TEXT[:65536] + NOISE[:65536] + b"end")
    assert packed[:7] == LZ4_HEADER
    (first,) = struct.unpack_from("<I", packed, 7)
    assert first < 65536
    (second,) = struct.unpack_from("<I", packed, 11 + first)
    assert second == 65536 | 0x8000_0000, "what does not shrink is stored"
    start = 15 + first
    assert packed[start : start + 65536] == NOISE[:65536]
    assert packed[start + 65536 :] == struct.pack("<I", 3 | 0x8000_0000) + b"end" + bytes(4)
    assert bytes(cramjam.lz4.decompress(packed)) == TEXT[:65536] + NOISE[:65536] + b"end"


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "nothing"])
@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("checksum", [False, True])
def test_lz4_frames_of_others(name: str, linked: bool, checksum: bool) -> None:
    data = SAMPLES[name]
    compressor = cramjam.lz4.Compressor(level=3, content_checksum=checksum, block_linked=linked)
    compressor.compress(data)
    packed = bytes(compressor.finish())
    assert decompress(Compression.LZ4, packed, max_bytes=len(data)) == data
    assert decompress(Compression.LZ4, packed + packed, max_bytes=2 * len(data)) == data * 2
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.LZ4, packed, max_bytes=len(data) - 1)


def with_content_size(size: int) -> bytes:
    """A frame that tells its content size. The checksum of the header is left out for the reader to ignore."""
    return b"\x04\x22\x4d\x18\x68\x40" + struct.pack("<Q", size) + b"\x00" + compress(Compression.LZ4, b"data")[7:]


def test_lz4_content_size_is_no_promise() -> None:
    assert decompress(Compression.LZ4, with_content_size(2**60), magic=0) == b"data"


@pytest.mark.parametrize("linked", [False, True])
def test_lz4_with_the_broken_header_checksum_of_magic_0(linked: bool) -> None:
    packed = compress(Compression.LZ4, TEXT)
    if linked:
        packed = bytes(cramjam.lz4.compress(TEXT))
    broken = packed[:6] + bytes([packed[6] ^ 0xFF]) + packed[7:]
    assert decompress(Compression.LZ4, broken, magic=0) == TEXT
    for magic in (1, 2):
        with pytest.raises(DecompressionError, match="checksum"):
            decompress(Compression.LZ4, broken, magic=magic)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a frame",
        LZ4_HEADER,
        LZ4_HEADER + b"\x00",
        LZ4_HEADER + struct.pack("<I", 65537) + bytes(70_000),
        LZ4_HEADER + struct.pack("<I", 65537 | 0x8000_0000) + bytes(65537) + bytes(4),
        LZ4_HEADER + struct.pack("<I", 10) + b"short",
        LZ4_HEADER + struct.pack("<I", 5) + b"\xff" * 5 + bytes(4),
        compress(Compression.LZ4, TEXT) + b"x",
        b"\x04\x22\x4d\x18\xa0\x40\x82" + bytes(4),
        b"\x04\x22\x4d\x18\x60\x30\x82" + bytes(4),
        b"\x04\x22\x4d\x18\x68\x40" + bytes(3),
    ],
)
def test_broken_lz4(data: bytes) -> None:
    with pytest.raises(DecompressionError, match="lz4"):
        decompress(Compression.LZ4, data)


def test_small_lz4_blocks_take_no_memory_of_large_ones() -> None:
    block = bytes(cramjam.lz4.compress_block(b"z" * 50, store_size=False))
    packed = b"\x04\x22\x4d\x18\x60\x70\x00" + (struct.pack("<I", len(block)) + block) * 50 + bytes(4)
    tracemalloc.start()
    try:
        assert decompress(Compression.LZ4, packed, magic=0) == b"z" * 2500
        assert tracemalloc.get_traced_memory()[1] < 1_000_000, "blocks of 4 MiB each would be 200 MiB"
    finally:
        tracemalloc.stop()


# zstd


def zstd_frame(*blocks: tuple[int, int, bytes], content_size: int | None = None) -> bytes:
    """A frame of hand-made blocks: their type, their size field, and what follows it."""
    header = b"\x00\x58" if content_size is None else b"\xe0" + struct.pack("<Q", content_size)
    body = b""
    for index, (kind, size, data) in enumerate(blocks):
        last = index == len(blocks) - 1
        body += (last | kind << 1 | size << 3).to_bytes(3, "little") + data
    return b"\x28\xb5\x2f\xfd" + header + body


def test_zstd_frames_without_their_content_size() -> None:
    packed = zstd_frame((0, 5, b"hello"), (1, 1000, b"z"))
    assert decompress(Compression.ZSTD, packed, max_bytes=1005) == b"hello" + b"z" * 1000
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.ZSTD, packed, max_bytes=1004)


def test_zstd_frames_follow_each_other() -> None:
    skipped = struct.pack("<II", 0x184D2A53, 6) + b"ignore"
    packed = compress(Compression.ZSTD, TEXT) + skipped + compress(Compression.ZSTD, b"two")
    assert decompress(Compression.ZSTD, packed, max_bytes=len(TEXT) + 3) == TEXT + b"two"
    with pytest.raises(DecompressionLimitError):
        decompress(Compression.ZSTD, packed, max_bytes=len(TEXT) + 2)


def test_zstd_frames_with_a_checksum() -> None:
    nothing = b"\x28\xb5\x2f\xfd\x04\x58\x01\x00\x00\x99\xe9\xd8\x51"
    assert decompress(Compression.ZSTD, nothing + zstd_frame((0, 5, b"hello"))) == b"hello"
    with pytest.raises(DecompressionError, match="zstd"):
        decompress(Compression.ZSTD, nothing[:-1] + b"\x52")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a frame",
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfd\x00\x58",
        zstd_frame((0, 5, b"four")),
        zstd_frame((3, 5, b"hello")),
        zstd_frame((0, 5, b"hello"), content_size=2**50),
        compress(Compression.ZSTD, TEXT) + b"x",
        struct.pack("<I", 0x184D2A50) + b"\xff",
        struct.pack("<II", 0x184D2A50, 2**32 - 1),
    ],
)
def test_broken_zstd(data: bytes) -> None:
    with pytest.raises(DecompressionError, match="zstd"):
        decompress(Compression.ZSTD, data)


# Bombs and noise.


def bombs() -> dict[Compression, bytes]:
    """A few kilobytes each that would become a hundred megabytes or more."""
    size = 100_000_000
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(cramjam.lz4.compress_block(bytes(65536), store_size=False))
    return {
        Compression.GZIP: deflate.compress(bytes(size)) + deflate.flush(),
        Compression.LZ4: LZ4_HEADER + (struct.pack("<I", len(block)) + block) * (size // 65536) + bytes(4),
        Compression.ZSTD: zstd_frame(*[(1, 128 * 1024, b"z")] * 100_000),
        Compression.SNAPPY: bytes(cramjam.snappy.compress_raw(bytes(size))),
    }


def test_bombs_are_refused_before_they_take_the_memory() -> None:
    packed = bombs()
    limit = 1_000_000
    for codec, bomb in packed.items():
        tracemalloc.start()
        try:
            with pytest.raises(DecompressionLimitError, match=str(limit)):
                decompress(codec, bomb, max_bytes=limit)
            # Twice over for what the lists of blocks take, and the doubling of a growing buffer.
            assert tracemalloc.get_traced_memory()[1] < 2 * limit + 1_000_000, codec
        finally:
            tracemalloc.stop()


@settings(deadline=None, max_examples=examples(160))
@given(
    st.sampled_from(CODECS),
    st.sampled_from([b"", b"short", TEXT[:3000], TEXT[:140_000], NOISE[:1000]]),
    st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), min_size=1, max_size=5),
    st.integers(0, 20),
    st.sampled_from([0, 1, 2]),
    st.booleans(),
)
def test_mutated_bytes_raise_nothing_else(
    codec: Compression, data: bytes, edits: list[tuple[int, int]], cut: int, magic: int, leveled: bool
) -> None:
    packed = bytearray(compress(codec, data, 3 if leveled else None))
    for at, value in edits:
        # Half of the edits hit the first bytes, where the framing is.
        packed[at % min(len(packed), 40 if at & 1 else len(packed))] = value
    del packed[len(packed) - cut :]
    with suppress(DecompressionError, UnknownCompressionError):
        assert len(decompress(codec, packed, max_bytes=200_000, magic=magic)) <= 200_000


@settings(deadline=None)
@given(st.sampled_from(CODECS), st.binary(max_size=200), st.booleans())
def test_noise_raises_nothing_else(codec: Compression, noise: bytes, framed: bool) -> None:
    magics = {
        Compression.GZIP: b"\x1f\x8b\x08\x00",
        Compression.SNAPPY: XERIAL_HEADER,
        Compression.LZ4: LZ4_HEADER,
        Compression.ZSTD: b"\x28\xb5\x2f\xfd",
    }
    with suppress(DecompressionError):
        decompress(codec, (magics[codec] if framed else b"") + noise, max_bytes=100_000)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_framing_tells_about_how_much_comes_out(codec: Compression, name: str) -> None:
    data = SAMPLES[name]
    packed = compress(codec, data)
    assert len(data) <= expanded_bytes(codec, packed) <= len(data) + 128 * 1024
    for size in range(min(len(packed), 64)):
        expanded_bytes(codec, packed[:size])  # whatever it says, it says something
