"""The codecs: other people's framings, every kind of bomb, damage."""

from __future__ import annotations

import gzip
import struct
import subprocess
import sys
import time
import zlib
from contextlib import suppress

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError, CorruptDataError
from shoal.records.compression import Codec, compress, decompress

MIB = 1024 * 1024
TEXT = b"".join(b"line %d of some text, some text\n" % i for i in range(20_000))
real_codecs = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
all_codecs = pytest.mark.parametrize("codec", list(Codec))


def inflate(codec: int, data: bytes, limit_bytes: int = 64 * MIB) -> bytes:
    return bytes(decompress(codec, data, limit_bytes=limit_bytes))


@all_codecs
@pytest.mark.parametrize("data", [b"", b"a", TEXT[:1000], TEXT, bytes(3 * MIB)])
def test_what_was_compressed_is_inflated(codec: Codec, data: bytes) -> None:
    packed = compress(codec, data)
    assert inflate(codec, packed) == data
    assert inflate(codec, packed, limit_bytes=max(1, len(data))) == data
    assert bytes(decompress(codec, memoryview(bytearray(packed)), limit_bytes=64 * MIB)) == data


@given(st.sampled_from(Codec), st.binary(max_size=200), st.integers(1, 5))
def test_any_bytes_come_back(codec: Codec, data: bytes, times: int) -> None:
    assert inflate(codec, compress(codec, memoryview(data * times))) == data * times


@real_codecs
def test_one_byte_above_the_limit_is_too_large(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert inflate(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(BatchTooLargeError, match=f"more than {len(TEXT) - 1} bytes"):
        inflate(codec, packed, len(TEXT) - 1)


def test_not_compressed_has_the_limit_too() -> None:
    assert inflate(Codec.NONE, b"abc", 3) == b"abc"
    with pytest.raises(BatchTooLargeError):
        inflate(Codec.NONE, b"abcd", 3)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_other_codecs_do_not_exist(codec: int) -> None:
    with pytest.raises(CorruptDataError, match=f"codec {codec} does not exist"):
        decompress(codec, b"", limit_bytes=1)
    with pytest.raises(ValueError, match=f"codec {codec} does not exist"):
        compress(codec, b"")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_levels_trade_time_for_size(codec: Codec) -> None:
    assert len(compress(codec, TEXT, 9)) < len(compress(codec, TEXT, 1))


# What Java accepts --------------------------------------------------------------------------


def test_lz4_frames_have_independent_blocks_and_nothing_java_has_to_skip() -> None:
    frame = compress(Codec.LZ4, TEXT)
    magic, flags, block = struct.unpack_from("<IBB", frame)
    assert magic == 0x184D2204
    assert flags == 0b01_1_0_0_0_0_0  # version 1, independent; no checksums, size, dictionary
    assert block == 0x40  # blocks of 64 KiB
    assert frame.endswith(bytes(4))


def test_snappy_is_written_in_blocks_behind_xerial_s_header() -> None:
    packed = compress(Codec.SNAPPY, TEXT)
    assert packed[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    position, out = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        out.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert b"".join(out) == TEXT
    assert {len(block) for block in out[:-1]} == {32 * 1024}


# What others write --------------------------------------------------------------------------


def test_gzip_may_have_several_members() -> None:
    assert inflate(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    with pytest.raises(BatchTooLargeError):
        inflate(Codec.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"), 6)


@pytest.mark.parametrize(
    "options",
    [
        {"block_linked": True},
        {"block_linked": False, "content_checksum": True},
        {"block_checksum": True},
        {"store_size": False, "block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ],
)
def test_lz4_frames_of_any_kind_are_read(options: dict[str, object]) -> None:
    assert inflate(Codec.LZ4, lz4.frame.compress(TEXT, **options)) == TEXT


def test_lz4_may_have_several_frames() -> None:
    frames = lz4.frame.compress(TEXT) + lz4.frame.compress(b"") + compress(Codec.LZ4, b"more")
    assert inflate(Codec.LZ4, frames) == TEXT + b"more"
    with pytest.raises(BatchTooLargeError):
        inflate(Codec.LZ4, frames, len(TEXT) + 3)


def test_raw_snappy_is_read_as_librdkafka_writes_it() -> None:
    assert inflate(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_empty_snappy_blocks_are_read() -> None:
    empty = bytes(cramjam.snappy.compress_raw(b""))
    assert inflate(Codec.SNAPPY, empty) == b""
    block = struct.pack(">i", len(empty)) + empty
    assert inflate(Codec.SNAPPY, compress(Codec.SNAPPY, b"") + block * 2) == b""


def zstd_without_size(data: bytes) -> bytes:
    compressor = cramjam.zstd.Compressor(3)
    compressor.compress(data)
    return bytes(compressor.finish())


def test_zstd_without_a_content_size_is_read_as_java_writes_it() -> None:
    packed = zstd_without_size(TEXT)
    assert packed[4] & 0b1110_0000 == 0  # neither single segment nor a size
    assert inflate(Codec.ZSTD, packed) == TEXT
    large = bytes(40 * MIB)
    assert inflate(Codec.ZSTD, zstd_without_size(large)) == large


@pytest.mark.parametrize("size", [10, 255, 256, 1000, 65_791, 65_792, 70_000, 5 * MIB])
def test_a_zstd_frame_of_any_size_is_read_with_its_size_as_limit(size: int) -> None:
    packed = bytes(cramjam.zstd.compress(bytes(size)))
    assert inflate(Codec.ZSTD, packed, size) == bytes(size)
    with pytest.raises(BatchTooLargeError):
        inflate(Codec.ZSTD, packed, size - 1)


def test_zstd_may_have_several_frames() -> None:
    frames = bytes(cramjam.zstd.compress(b"one ")) + bytes(cramjam.zstd.compress(b"two"))
    assert inflate(Codec.ZSTD, frames) == b"one two"
    with pytest.raises(BatchTooLargeError):
        inflate(Codec.ZSTD, frames, 6)


# Damage -------------------------------------------------------------------------------------


@real_codecs
def test_cut_data_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, TEXT[:5000])
    for cut in [*range(1, 40), len(packed) // 2, len(packed) - 5, len(packed) - 1]:
        if codec is Codec.SNAPPY and cut == 16:
            continue  # a header without blocks is nothing at all
        with pytest.raises(CorruptDataError):
            inflate(codec, packed[:cut])


@real_codecs
def test_bytes_of_something_else_are_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptDataError):
        inflate(codec, b"\xf0" * 100)


@real_codecs
def test_nothing_at_all_is_corrupt(codec: Codec) -> None:
    with pytest.raises(CorruptDataError):
        inflate(codec, b"")


def test_an_lz4_frame_is_not_followed_by_garbage() -> None:
    with pytest.raises(CorruptDataError, match="lz4"):
        inflate(Codec.LZ4, compress(Codec.LZ4, b"x") + b"garbage")


@pytest.mark.slow
@given(st.sampled_from([Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]), st.data())
def test_damage_gives_our_errors_or_other_bytes_but_nothing_else(
    codec: Codec, data: st.DataObject
) -> None:
    packed = bytearray(compress(codec, TEXT[:300]))
    for position in data.draw(st.lists(st.integers(0, len(packed) - 1), max_size=4)):
        packed[position] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    with suppress(CorruptDataError, BatchTooLargeError):
        assert len(inflate(codec, bytes(packed), 100_000)) <= 100_000


@pytest.mark.parametrize(
    "packed",
    [
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 2**31 - 1),
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, -5) + bytes(10),
        b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"\0\0",
        b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, 5) + b"\xff" * 5,
        b"\xff" * 5,
    ],
    ids=["2^31", "negative", "cut", "endless", "raw endless"],
)
def test_snappy_lengths_which_cannot_be_are_corrupt(packed: bytes) -> None:
    with pytest.raises(CorruptDataError, match="snappy"):
        inflate(Codec.SNAPPY, packed)


def test_a_snappy_block_which_claims_gigabytes_is_refused_unread() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + bytes(10)  # 4 GiB
    framed = b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(claim)) + claim
    for packed in (claim, framed):
        with pytest.raises(BatchTooLargeError):
            inflate(Codec.SNAPPY, packed)


def test_a_zstd_frame_which_claims_petabytes_is_refused_unread() -> None:
    frame = b"\x28\xb5\x2f\xfd" + bytes([0b1100_0000, 0x88]) + struct.pack("<Q", 2**50) + b"\1\0\0"
    with pytest.raises(BatchTooLargeError):
        inflate(Codec.ZSTD, frame)


# Bombs --------------------------------------------------------------------------------------

BOMB = """
import resource, sys
from shoal.errors import BatchTooLargeError
from shoal.records.compression import decompress
import cramjam, lz4.frame, zlib  # not part of what is measured
packed = sys.stdin.buffer.read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decompress(int(sys.argv[1]), packed, limit_bytes=8 << 20)
except BatchTooLargeError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def bomb(codec: Codec) -> bytes:
    """Sixty-four mebibytes of zeros, which not one of the codecs says beforehand."""
    if codec is Codec.GZIP:
        compressor = zlib.compressobj(9, wbits=31)
        packed = b"".join(compressor.compress(bytes(MIB)) for _ in range(64))
        return packed + compressor.flush()
    if codec is Codec.LZ4:
        return lz4.frame.compress(bytes(MIB), block_linked=True, store_size=False) * 64
    if codec is Codec.SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
        return (
            b"\x82SNAPPY\0"
            + struct.pack(">ii", 1, 1)
            + (struct.pack(">i", len(block)) + block) * 64
        )
    return zstd_without_size(bytes(MIB)) * 64


@pytest.mark.slow
@real_codecs
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    packed = bomb(codec)
    done = subprocess.run(
        [sys.executable, "-c", BOMB, str(int(codec))], input=packed, capture_output=True, check=True
    )
    grown = int(done.stdout) * (1 if sys.platform == "darwin" else 1024)
    assert grown < 3 * (8 * MIB) + MIB, "the limit was 8 MiB, held twice at most while joining"


EMPTY_MEMBERS = {
    Codec.GZIP: gzip.compress(b""),
    Codec.LZ4: lz4.frame.compress(b"", store_size=False),
}


@pytest.mark.parametrize("codec", list(EMPTY_MEMBERS))
def test_many_empty_members_take_time_for_each_and_not_for_each_pair(codec: Codec) -> None:
    """Each once had a copy of everything behind it: 1 MB took half a minute."""
    empty = EMPTY_MEMBERS[codec]

    def seconds(count: int) -> float:
        packed = empty * count + compress(codec, b"end")
        began = time.process_time()
        assert inflate(codec, packed) == b"end"
        return time.process_time() - began

    few, many = seconds(2_000), seconds(40_000)
    assert many < 20 * few * 4, "twenty times as many, with room for a busy machine"


@pytest.mark.parametrize("codec", list(EMPTY_MEMBERS))
@given(data=st.lists(st.binary(max_size=3000), min_size=1, max_size=30))
def test_members_of_any_size_are_joined(codec: Codec, data: list[bytes]) -> None:
    packed = b"".join(compress(codec, each) for each in data)
    whole = b"".join(data)
    assert inflate(codec, packed) == whole
    with suppress(CorruptDataError):
        assert whole.startswith(inflate(codec, packed[:-1]))
    if whole:
        with pytest.raises(BatchTooLargeError):
            inflate(codec, packed, limit_bytes=len(whole) - 1)
