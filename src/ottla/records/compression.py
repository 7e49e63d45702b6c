"""The four codecs of record batches, with the framing of Kafka's own clients. No length in a payload is trusted.

`compress` writes what the Java client can read; `decompress` reads what any client writes. `max_bytes` limits the size
of decompressed data: the framing of each codec is inspected first for the most it can become, and output is only
allocated up to that or the limit. Stateless and thread-safe; the libraries release the GIL.
docs/decisions/0003-compression.md has the choice of libraries and its measurements.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

import cramjam
from isal import isal_zlib
from isal.igzip_lib import IsalError

from ottla.records.errors import DecompressionError, DecompressionLimitError, UnknownCompressionError
from ottla.records.layout import MAGIC_V0, MAGIC_V2, ByteBuffer, Compression

DEFAULT_MAX_DECOMPRESSED_BYTES: Final = 128 * 1024 * 1024

_BIG_ENDIAN_INT32 = struct.Struct(">i")
_LITTLE_ENDIAN_UINT32 = struct.Struct("<I")
_TOO_LONG = "failed to write whole buffer"
"""cramjam's message if the output did not fit."""


def compress(codec: Compression, data: ByteBuffer, level: int | None = None) -> bytes:
    """`data` in the framing of that codec, by default with the level of docs/decisions/0003-compression.md."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _compress_gzip(data, level)
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, 3 if level is None else level))
    raise UnknownCompressionError(f"compression {codec} is none that can be written")


def decompress(
    codec: Compression,
    data: ByteBuffer,
    *,
    max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    magic: int = MAGIC_V2,
) -> ByteBuffer:
    """The decompressed data. `magic` is the batch's: 0 and 1 have no zstd, 0 has wrong lz4 headers (KAFKA-3160)."""
    match codec:
        case Compression.NONE:
            if len(data) > max_bytes:
                raise _too_long(max_bytes)
            return data
        case Compression.GZIP:
            return _decompress_gzip(data, max_bytes)
        case Compression.SNAPPY:
            return _decompress_snappy(data, max_bytes)
        case Compression.LZ4:
            return _decompress_lz4(data, max_bytes, repair=magic == MAGIC_V0)
        case Compression.ZSTD if magic >= MAGIC_V2:
            return _decompress_zstd(data, max_bytes)
        case Compression.ZSTD:
            raise UnknownCompressionError(f"zstd in a message of magic {magic}: it is allowed from magic 2 on")
    raise UnknownCompressionError(f"compression {codec} is none that can be read")


def expanded_bytes(codec: Compression, data: ByteBuffer) -> int:
    """The approximate size of the result of `decompress`, from the framing alone. Corrupt or forged data may give any
    number: do not allocate memory by it."""
    try:
        match codec:
            case Compression.GZIP:
                return _LITTLE_ENDIAN_UINT32.unpack_from(data, len(data) - 4)[0]  # type: ignore[no-any-return]
            case Compression.SNAPPY:
                source = memoryview(data)
                is_framed = source[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
                blocks = _xerial_blocks(source) if is_framed else [source]
                return sum(cramjam.snappy.decompress_raw_len(block) for block in blocks)
            case Compression.LZ4:
                frame = _Lz4Frame(memoryview(data), 0, check_header=False)
                return sum(size if stored else min(frame.block_size, 255 * size) for _, size, stored in frame.blocks)
            case Compression.ZSTD:
                return _zstd_bound(memoryview(data))
    except (DecompressionError, cramjam.DecompressionError, struct.error, IndexError):
        pass
    return len(data)


def _too_long(max_bytes: int) -> DecompressionLimitError:
    return DecompressionLimitError(f"it would grow beyond the limit of {max_bytes} bytes")


# gzip

_GZIP_WINDOW_BITS = zlib.MAX_WBITS | 16
_GZIP_DEFAULT_LEVEL = 1
"""On isal's scale, which ends at 3."""
_MAX_GZIP_MEMBERS = 64
"""Reading each member copies what follows it: a payload of only empty members would take quadratic time."""


def _compress_gzip(data: ByteBuffer, level: int | None) -> bytes:
    if level is None:
        fast = isal_zlib.compressobj(_GZIP_DEFAULT_LEVEL, isal_zlib.DEFLATED, _GZIP_WINDOW_BITS)
        return fast.compress(data) + fast.flush()
    leveled = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    return leveled.compress(data) + leveled.flush()


def _decompress_gzip(data: ByteBuffer, max_bytes: int) -> bytes:
    # The last four bytes give the length of the last member. It may be wrong, and there may be earlier members; but an
    # output buffer that need neither grow nor shrink makes reading more than twice as fast.
    claimed = _LITTLE_ENDIAN_UINT32.unpack_from(data, len(data) - 4)[0] if len(data) >= 4 else 0
    room = min(claimed, max_bytes) + 1
    left = max_bytes
    parts: list[bytes] = []
    for _ in range(_MAX_GZIP_MEMBERS):
        member = isal_zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            try:
                output = member.decompress(data, room)
            except IsalError as error:  # type: ignore[misc]  # isal's stub declares the class as an instance
                raise DecompressionError(f"gzip: {error}") from error
            left -= len(output)
            if left < 0:
                raise _too_long(max_bytes)
            if not output and not member.eof:
                raise DecompressionError("gzip: the data is cut off")
            parts.append(output)
            data = member.unconsumed_tail
            room = left + 1
        data = member.unused_data
        if not data:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise DecompressionError(f"gzip: more than {_MAX_GZIP_MEMBERS} members")


# snappy, framed like snappy-java: a header of sixteen bytes, then blocks preceded by their lengths

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_VERSION = 1
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", _XERIAL_VERSION, _XERIAL_VERSION)
_XERIAL_BLOCK_SIZE = 512 * 1024
"""snappy-java writes blocks of 32 KiB, but readers take any size. A thread needs the GIL after each block, for which it
may have to wait: most batches are one block."""
_SNAPPY_MAX_RATIO = 22
"""The densest element makes 64 bytes of 3: a block that claims more growth than this is invalid."""


def _compress_snappy(data: ByteBuffer) -> bytes:
    source = memoryview(data)
    parts: list[bytes | memoryview] = [_XERIAL_HEADER]
    for start in range(0, len(source), _XERIAL_BLOCK_SIZE):
        block = memoryview(cramjam.snappy.compress_raw(source[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_BIG_ENDIAN_INT32.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: ByteBuffer, max_bytes: int) -> ByteBuffer:
    source = memoryview(data)
    blocks = [source] if source[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC else list(_xerial_blocks(source))
    try:
        sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
        for block, size in zip(blocks, sizes, strict=True):
            if size > _SNAPPY_MAX_RATIO * len(block):
                raise DecompressionError(f"snappy: a block of {len(block)} bytes claims to hold {size}")
        total = sum(sizes)
        if total > max_bytes:
            raise _too_long(max_bytes)
        output = memoryview(bytearray(total))
        position = 0
        for block, size in zip(blocks, sizes, strict=True):
            cramjam.snappy.decompress_raw_into(block, output[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise DecompressionError(f"snappy: {error}") from error
    return output


def _xerial_blocks(source: memoryview) -> Iterator[memoryview]:
    position = 0
    while position < len(source):
        if source[position : position + len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
            # Another stream may follow the first directly.
            position += len(_XERIAL_HEADER)
            if position > len(source):
                raise DecompressionError("snappy: the stream's header is cut off")
            compatible_version = _BIG_ENDIAN_INT32.unpack_from(source, position - 4)[0]
            if compatible_version < _XERIAL_VERSION:
                raise DecompressionError(f"snappy: framing of version {compatible_version}")
            continue
        if position + 4 > len(source):
            raise DecompressionError("snappy: a block's length is cut off")
        size = _BIG_ENDIAN_INT32.unpack_from(source, position)[0]
        position += 4
        if not 0 <= size <= len(source) - position:
            raise DecompressionError(f"snappy: a block of {size} bytes where {len(source) - position} are left")
        yield source[position : position + size]
        position += size


# lz4, in frames of independent blocks as the Java client writes and reads them

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_SIZE = 64 * 1024
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
"""Version 1, independent blocks of at most 64 KiB, no checksums; the last byte is the checksum of the two before it."""
_LZ4_END = bytes(4)
_LZ4_STORED_BIT = 0x8000_0000
_LZ4_MAX_RATIO = 255
_LZ4_HIGHEST_LEVEL = 12

_LZ4_VERSION_MASK = 0xC0
_LZ4_VERSION = 0x40
_LZ4_INDEPENDENT_BIT = 0x20
_LZ4_BLOCK_CHECKSUM_BIT = 0x10
_LZ4_CONTENT_SIZE_BIT = 0x08
_LZ4_CONTENT_CHECKSUM_BIT = 0x04
_LZ4_DICTIONARY_BIT = 0x01


def _compress_lz4(data: ByteBuffer, level: int | None) -> bytes:
    if level is not None:
        leveled = cramjam.lz4.Compressor(
            level=min(level, _LZ4_HIGHEST_LEVEL), content_checksum=False, block_linked=False
        )
        leveled.compress(data)
        return bytes(leveled.finish())
    source = memoryview(data)
    parts: list[bytes | memoryview] = [_LZ4_HEADER]
    for start in range(0, len(source), _LZ4_BLOCK_SIZE):
        block = source[start : start + _LZ4_BLOCK_SIZE]
        packed = memoryview(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            parts += (_LITTLE_ENDIAN_UINT32.pack(len(packed)), packed)
        else:
            parts += (_LITTLE_ENDIAN_UINT32.pack(len(block) | _LZ4_STORED_BIT), block)
    parts.append(_LZ4_END)
    return b"".join(parts)


def _decompress_lz4(data: ByteBuffer, max_bytes: int, *, repair: bool) -> ByteBuffer:
    source = memoryview(data)
    frames: list[ByteBuffer] = []
    position = 0
    left = max_bytes
    while position < len(source) or not frames:
        frame = _Lz4Frame(source, position, check_header=not repair)
        output = frame.decompress(left)
        left -= len(output)
        if left < 0:
            raise _too_long(max_bytes)
        frames.append(output)
        position = frame.end
    return frames[0] if len(frames) == 1 else b"".join(frames)


class _Lz4Frame:
    """One parsed frame: its blocks, the most that they can become, and where it ends."""

    __slots__ = ("_flags", "_source", "block_size", "blocks", "end", "start")

    def __init__(self, source: memoryview, start: int, *, check_header: bool) -> None:
        self._source = source
        self.start = start
        position = self._read_header(check_header)
        checksum_size = 4 if self._flags & _LZ4_BLOCK_CHECKSUM_BIT else 0
        self.blocks: list[tuple[int, int, bool]] = []
        """Where each block begins, its size, and whether it is stored uncompressed."""
        while True:
            if position + 4 > len(source):
                raise DecompressionError("lz4: a frame is cut off")
            word = _LITTLE_ENDIAN_UINT32.unpack_from(source, position)[0]
            position += 4
            if word == 0:
                break
            size = word & ~_LZ4_STORED_BIT
            if size > self.block_size:
                raise DecompressionError(f"lz4: a block of {size} bytes in a frame of at most {self.block_size} each")
            self.blocks.append((position, size, word != size))
            position += size + checksum_size
        self.end = position + (4 if self._flags & _LZ4_CONTENT_CHECKSUM_BIT else 0)
        if self.end > len(source):
            raise DecompressionError("lz4: a frame is cut off")

    def _read_header(self, check_header: bool) -> int:
        header = bytes(self._source[self.start : self.start + 19])
        if header[:4] != _LZ4_MAGIC or len(header) < 7:
            raise DecompressionError(f"lz4: {header[:7].hex()} is not the start of a frame")
        flags, block_descriptor = header[4], header[5]
        size_code = block_descriptor >> 4
        if flags & _LZ4_VERSION_MASK != _LZ4_VERSION or flags & _LZ4_DICTIONARY_BIT or not 4 <= size_code <= 7:
            raise DecompressionError(f"lz4: unknown frame of flags {flags:#04x} and {block_descriptor:#04x}")
        end = 6 + (8 if flags & _LZ4_CONTENT_SIZE_BIT else 0)
        if end >= len(header):
            raise DecompressionError("lz4: a frame is cut off")
        usual = header.startswith(_LZ4_HEADER)
        if check_header and not usual and header[end] != _header_checksum(header[4:end]):
            raise DecompressionError("lz4: the frame's header does not match its checksum")
        self._flags = flags
        self.block_size = 1 << (8 + 2 * size_code)
        return self.start + end + 1

    def decompress(self, max_bytes: int) -> ByteBuffer:
        """The content of the frame, or one block more than `max_bytes` of it: the caller compares."""
        most = sum(size if stored else min(self.block_size, _LZ4_MAX_RATIO * size) for _, size, stored in self.blocks)
        most = min(most, max_bytes + self.block_size)
        if self._flags & ~_LZ4_CONTENT_SIZE_BIT == _LZ4_VERSION | _LZ4_INDEPENDENT_BIT:
            return self._decompress_blocks(max_bytes, most)
        return self._decompress_whole(max_bytes, most)

    def _decompress_blocks(self, max_bytes: int, most: int) -> memoryview:
        output = memoryview(bytearray(most))
        position = 0
        for start, size, stored in self.blocks:
            block = self._source[start : start + size]
            if stored:
                output[position : position + size] = block
                position += size
            else:
                room = output[position : position + self.block_size]
                try:
                    position += cramjam.lz4.decompress_block_into(block, room, output_len=len(room))
                except cramjam.DecompressionError as error:
                    raise DecompressionError(f"lz4: {error}") from error
            if position > max_bytes:
                break
        return output[:position]

    def _decompress_whole(self, max_bytes: int, most: int) -> memoryview:
        """Linked blocks and checksums are left to the library, which requires a right header checksum."""
        frame = bytearray(self._source[self.start : self.end])
        header_end = 6 + (8 if self._flags & _LZ4_CONTENT_SIZE_BIT else 0)
        frame[header_end] = _header_checksum(bytes(frame[4:header_end]))
        output = bytearray(most)
        try:
            size = cramjam.lz4.decompress_into(frame, output)
        except cramjam.DecompressionError as error:
            if _TOO_LONG in str(error):
                raise _too_long(max_bytes) from error
            raise DecompressionError(f"lz4: {error}") from error
        return memoryview(output)[:size]


_XXH_PRIMES = (2654435761, 2246822519, 3266489917, 668265263, 374761393)


def _header_checksum(descriptor: bytes) -> int:
    """The second byte of XXH32 over a frame's descriptor, which is always shorter than the 16 bytes that need all of
    XXH32."""
    p1, p2, p3, p4, p5 = _XXH_PRIMES
    mask = 0xFFFF_FFFF
    value = p5 + len(descriptor)
    whole = len(descriptor) & ~3
    for (word,) in _LITTLE_ENDIAN_UINT32.iter_unpack(descriptor[:whole]):
        value = (value + word * p3) & mask
        value = ((value << 17 | value >> 15) * p4) & mask
    for byte in descriptor[whole:]:
        value = (value + byte * p5) & mask
        value = ((value << 11 | value >> 21) * p1) & mask
    value = ((value ^ value >> 15) * p2) & mask
    value = ((value ^ value >> 13) * p3) & mask
    return (value ^ value >> 16) >> 8 & 0xFF


# zstd

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE_MAGIC = 0x184D2A50
_ZSTD_BLOCK_SIZE = 128 * 1024
_ZSTD_RUN = 1
_ZSTD_COMPRESSED = 2


def _decompress_zstd(data: ByteBuffer, max_bytes: int) -> ByteBuffer:
    most = _zstd_bound(memoryview(data))
    try:
        if most <= max_bytes:
            return memoryview(cramjam.zstd.decompress(data))
        output = bytearray(max_bytes)
        size = cramjam.zstd.decompress_into(data, output)
    except (cramjam.DecompressionError, OSError) as error:
        if _TOO_LONG in str(error):
            raise _too_long(max_bytes) from error
        raise DecompressionError(f"zstd: {error}") from error
    return memoryview(output)[:size]


def _zstd_bound(source: memoryview) -> int:
    """The most that the frames can contain, by their block headers. A content size in the frame is only a claim."""
    position = most = 0
    while position < len(source):
        if position + 5 > len(source):
            raise DecompressionError("zstd: a frame is cut off")
        magic = _LITTLE_ENDIAN_UINT32.unpack_from(source, position)[0]
        position += 4
        if magic & ~0x0F == _ZSTD_SKIPPABLE_MAGIC:
            if position + 4 > len(source):
                raise DecompressionError("zstd: a skippable frame is cut off")
            position += 4 + _LITTLE_ENDIAN_UINT32.unpack_from(source, position)[0]
            continue
        if magic != _ZSTD_MAGIC:
            raise DecompressionError(f"zstd: {magic:#010x} is not the start of a frame")
        descriptor = source[position]
        single_segment = descriptor >> 5 & 1
        content_size_code = descriptor >> 6
        position += 1 + (not single_segment) + (0, 1, 2, 4)[descriptor & 3]
        position += 1 << content_size_code if content_size_code else single_segment
        last = False
        while not last:
            if position + 3 > len(source):
                raise DecompressionError("zstd: a frame is cut off")
            block = source[position] | source[position + 1] << 8 | source[position + 2] << 16
            last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            most += _ZSTD_BLOCK_SIZE if kind == _ZSTD_COMPRESSED else size
            position += 3 + (1 if kind == _ZSTD_RUN else size)
        position += 4 if descriptor & 4 else 0
    return most
