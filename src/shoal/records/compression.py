"""The four codecs of record batches behind two functions.

Rule: ``decompress`` never holds more output than ``limit_bytes`` (it may hold it twice while
joining parts). A legal produce request of one mebibyte can inflate to thirty gibibytes, so the
size is checked before memory is taken, never after.

What we write is what Apache Kafka's Java readers accept: snappy in xerial's framing, lz4 frames
with independent blocks (the Java reader refuses linked ones) and without content checksum.
Codec libraries are imported when first needed: most brokers never inflate anything.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final

from shoal.errors import BatchTooLargeError, CorruptDataError

Buffer = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The values stand in bits 0-2 of the batch attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """One compressed block. ``level`` is the codec's own scale; snappy has none."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            import zlib

            return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WINDOW)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            import lz4.frame

            packed: bytes = lz4.frame.compress(
                data,
                compression_level=level or 0,
                block_size=lz4.frame.BLOCKSIZE_MAX64KB,
                block_linked=False,
                content_checksum=False,
                store_size=False,
            )
            return packed
        case Codec.ZSTD:
            import cramjam

            return bytes(cramjam.zstd.compress(data, 3 if level is None else level))
        case _:
            raise ValueError(f"codec {codec} does not exist; 0 to 4 do")


def decompress(codec: int, data: Buffer, *, limit_bytes: int) -> Buffer:
    """Inflate one block.

    Raises:
        BatchTooLargeError: the output would be larger than ``limit_bytes``.
        CorruptDataError: these are not bytes of this codec.
    """
    match codec:
        case Codec.NONE:
            if len(data) > limit_bytes:
                raise BatchTooLargeError(limit_bytes)
            return data
        case Codec.GZIP:
            return _decompress_gzip(data, limit_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
        case Codec.LZ4:
            return _decompress_lz4(data, limit_bytes)
        case Codec.ZSTD:
            return _decompress_zstd(data, limit_bytes)
        case _:
            raise CorruptDataError(f"codec {codec} does not exist")


# Data of several members ----------------------------------------------------------------------

_PIECE_SIZE_MIN: Final = 512


class _Feed:
    """Hands out data for one member (a gzip stream, an lz4 frame) after the other.

    The libraries copy whatever they were given beyond a member's end. There is one member as a
    rule, so it gets everything; of a million empty ones each gets little more than the last took.
    """

    def __init__(self, data: Buffer) -> None:
        self._data = memoryview(data)
        self._position = self._began = 0
        self._piece = len(self._data)
        self.is_first = True
        self.has_more = True  # no data at all is a member that is cut off

    def take(self) -> memoryview:
        piece = self._data[self._position : self._position + self._piece]
        self._position += len(piece)
        self._piece *= 2
        return piece

    def give_back(self, unused: int) -> None:
        """A member has ended, so many bytes before what was taken."""
        self._position -= unused
        self._piece = max(_PIECE_SIZE_MIN, 2 * (self._position - self._began))
        self._began = self._position
        self.is_first = False
        self.has_more = self._position < len(self._data)


# gzip ---------------------------------------------------------------------------------------

_GZIP_WINDOW: Final = 31  # 32 KiB window, gzip wrapper


def _decompress_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    import zlib

    parts: list[bytes] = []
    room = limit_bytes
    feed = _Feed(data)
    while feed.has_more:  # once per member
        member = zlib.decompressobj(_GZIP_WINDOW)
        while not member.eof:
            piece = feed.take()
            if not piece:
                raise CorruptDataError("gzip data is cut off")
            try:
                part = member.decompress(piece, room + 1)
            except zlib.error as error:
                raise CorruptDataError(f"not gzip: {error}") from None
            if len(part) > room:
                raise BatchTooLargeError(limit_bytes)
            parts.append(part)
            room -= len(part)
        feed.give_back(len(member.unused_data))
    return parts[0] if len(parts) == 1 else b"".join(parts)


# lz4 ----------------------------------------------------------------------------------------

_PART_SIZE_MIN: Final = 256 * 1024


def _decompress_lz4(data: Buffer, limit_bytes: int) -> Buffer:
    import lz4.frame

    parts: list[bytes] = []
    room = limit_bytes
    feed = _Feed(data)
    while feed.has_more:  # once per frame
        frame = lz4.frame.LZ4FrameDecompressor()
        while not frame.eof:
            piece = feed.take() if frame.needs_input else b""
            if frame.needs_input and not piece:
                raise CorruptDataError("lz4 data is cut off")
            # The library takes all of max_length at once: ask for what is likely, not the limit.
            part_size = max(_PART_SIZE_MIN if feed.is_first else _PIECE_SIZE_MIN, 4 * len(piece))
            try:
                part = frame.decompress(piece, max_length=min(part_size, room + 1))
            except RuntimeError as error:
                raise CorruptDataError(f"not an lz4 frame: {error}") from None
            if len(part) > room:
                raise BatchTooLargeError(limit_bytes)
            if not (part or piece or frame.eof):
                raise CorruptDataError("lz4 data is cut off")
            parts.append(part)
            room -= len(part)
        feed.give_back(len(frame.unused_data or b""))
    return parts[0] if len(parts) == 1 else b"".join(parts)


# snappy -------------------------------------------------------------------------------------
# The Java client wraps snappy in the framing of the xerial library: a magic, two version
# numbers, then blocks of a 4-byte length and raw snappy. librdkafka writes one raw block.

_XERIAL_MAGIC: Final = b"\x82SNAPPY\0"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK: Final = 32 * 1024  # what Java writes


def _compress_snappy(data: Buffer) -> bytes:
    import cramjam

    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    blocks = _snappy_blocks(memoryview(data))
    sizes = [_snappy_size(block) for block in blocks]
    if sum(sizes) > limit_bytes:
        raise BatchTooLargeError(limit_bytes)
    out = bytearray(sum(sizes))
    start = 0
    for block, size in zip(blocks, sizes, strict=True):
        if size:  # cramjam refuses an empty output
            _inflate_snappy(block, memoryview(out)[start : start + size])
        start += size
    return out


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    if bytes(data[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return [data]
    if len(data) < len(_XERIAL_HEADER):
        raise CorruptDataError("snappy data is cut off in its header")
    blocks = []
    position = len(_XERIAL_HEADER)
    while position < len(data):
        start = position + 4
        position = start + int.from_bytes(data[position:start], "big")
        if position > len(data) or start > len(data):
            raise CorruptDataError("a snappy block is longer than the data")
        blocks.append(data[start:position])
    return blocks


def _snappy_size(block: memoryview) -> int:
    """The length a raw block claims to inflate to: its first varint, 32 bits at most."""
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
        shift += 7
    raise CorruptDataError("a snappy block has no length")


def _inflate_snappy(block: memoryview, out: memoryview) -> None:
    import cramjam

    try:
        written = cramjam.snappy.decompress_raw_into(block, out)
    except cramjam.DecompressionError as error:
        raise CorruptDataError(f"not snappy: {error}") from None
    assert written == len(out)


# zstd ---------------------------------------------------------------------------------------

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


def _decompress_zstd(data: Buffer, limit_bytes: int) -> Buffer:
    """Into a buffer of the size the frame declares, or, as Java writes none, a growing one."""
    import cramjam

    size = _zstd_content_size(data)
    if size is None:
        size = min(limit_bytes, max(_PART_SIZE_MIN, 4 * len(data)))
    while size <= limit_bytes:
        out = bytearray(max(size, 1))  # cramjam refuses an empty output
        try:
            written: int = cramjam.zstd.decompress_into(data, out)
        except cramjam.DecompressionError as error:
            if not _lacks_room(error):
                raise CorruptDataError(f"not zstd: {error}") from None
        else:
            return memoryview(out)[:written]
        if size == limit_bytes:
            break
        size = min(limit_bytes, 4 * size + 1)
    raise BatchTooLargeError(limit_bytes)


def _lacks_room(error: Any) -> bool:
    return "whole buffer" in str(error)


def _zstd_content_size(data: Buffer) -> int | None:
    """What the frame header says (RFC 8878, 3.1.1.1), None if it does not."""
    if bytes(data[:4]) != _ZSTD_MAGIC or len(data) < 5:
        return None
    descriptor = data[4]
    width = (0, 2, 4, 8)[descriptor >> 6]
    single_segment = descriptor & 0x20
    if single_segment and not width:
        width = 1
    if not width:
        return None
    start = 5 + (0 if single_segment else 1) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(data[start : start + width], "little")
    return size + 256 if width == 2 else size
