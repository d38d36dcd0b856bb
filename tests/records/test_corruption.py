"""Damaged batches: no wrong data where there is a checksum, no surprise where there is none."""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError, CorruptDataError
from shoal.records.batch import decode_batch, encode_batch, read_header
from shoal.records.chunks import Chunk
from shoal.records.columns import decode_columns
from shoal.records.objects import decode_records
from tests.records.generate import Sample, each_kernel, needs_kernel, plain, samples, using
from tests.records.sanitizers import find_compiler

SOURCES = Path(__file__).parents[2] / "src" / "shoal" / "records"


@pytest.mark.slow
@each_kernel
@pytest.mark.parametrize("codec", range(5))
def test_no_flipped_bit_gives_wrong_data(kernel_name: str, codec: int) -> None:
    data = plain(40, base_offset=1000, codec=codec)
    right = [record[1:] for record in decode_batch(data)]
    unnoticed = set()
    with using(kernel_name):
        for position in range(len(data)):
            for bit in range(8):
                flipped = bytearray(data)
                flipped[position] ^= 1 << bit
                try:
                    found = decode_records(("t", 0, flipped, 0, None))
                except CorruptDataError:
                    continue
                if found:
                    assert [fields[1:] for fields in found] == right
                    unnoticed.add(position)
    # Base offset and leader epoch are outside the checksum, as the broker sets them.
    assert unnoticed == {*range(8), *range(12, 16)}


def outcome(name: str, read: Any) -> Any:
    """What comes out, or which of our errors."""
    with using(name):
        try:
            return read()
        except (CorruptDataError, BatchTooLargeError) as error:
            return type(error), str(error)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Batches with a few bytes replaced, moved, removed or put in."""
    found: list[Sample] = draw(st.lists(samples(codecs=[0, 0, 0, 1, 2, 3, 4]), max_size=3))
    data = bytearray(b"".join(sample.data for sample in found))
    for _ in range(draw(st.integers(0, 5))):
        position = draw(st.integers(0, len(data)))
        length = draw(st.integers(0, 4))
        data[position : position + length] = draw(st.binary(max_size=5))
    return bytes(data)


@pytest.mark.slow
@needs_kernel
@given(damaged(), st.integers(0, 2**33))
def test_without_checksums_both_kernels_fail_or_succeed_alike(data: bytes, start: int) -> None:
    def as_tuples() -> Any:
        return decode_records(Chunk("t", 0, data, start), check_crc=False, limit_bytes=100_000)

    def as_columns() -> Any:
        return decode_columns(
            [Chunk("t", 0, data, start)],
            columns=["key", "value", "offset", "headers", "partition"],
            check_crc=False,
            limit_bytes=100_000,
        )

    assert outcome("python", as_tuples) == outcome("c", as_tuples)
    assert outcome("python", as_columns) == outcome("c", as_columns)


@each_kernel
@given(data=st.binary(max_size=300))
def test_bytes_which_were_never_a_batch_are_refused_or_ignored(
    kernel_name: str, data: bytes
) -> None:
    found = outcome(kernel_name, lambda: decode_records(("t", 0, data, 0, None)))
    assert found == [] or issubclass(found[0], CorruptDataError)


# Sanitizers ---------------------------------------------------------------------------------


def mutations(count: int, seed: int) -> Iterator[bytes]:
    """Chunks of one to three batches, most of them damaged somewhere between their headers."""
    chance = random.Random(seed)
    seeds = [plain(n, base_offset=10 * n, size=n % 30) for n in (1, 2, 3, 5, 9, 40)]
    seeds += [encode_batch([], last_offset=5)]
    seeds += [
        encode_batch([(b"k" * 200, b"v" * 9000, ((("h" * 70), b"x" * 130),) * 3, 2**40 * i)])
        for i in (0, 1)
    ]
    interesting = [0, 1, 2, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF]
    for _ in range(count):
        data = bytearray(b"".join(chance.choices(seeds, k=chance.randint(1, 3))))
        for _ in range(chance.choice([0, 1, 1, 1, 2, 3, 8])):
            position = chance.randrange(len(data))
            match chance.randrange(5):
                case 0:
                    data[position] ^= 1 << chance.randrange(8)
                case 1 | 2:
                    data[position] = chance.choice(interesting)
                case 3:
                    del data[position : position + chance.randint(1, 4)]
                case _:
                    data[position:position] = bytes(chance.choices(interesting, k=3))
        yield bytes(data[: chance.choice([len(data)] * 3 + [chance.randint(0, len(data))])])


@pytest.mark.slow
@needs_kernel
def test_mutations_read_alike_with_both_kernels() -> None:
    bad = 0
    for data in mutations(1500, seed=1):
        read = lambda data=data: decode_records(Chunk("t", 0, data), check_crc=False)  # noqa: E731 - bound now, read later
        result = outcome("c", read)
        assert result == outcome("python", read)
        bad += isinstance(result, tuple)
    assert 300 < bad < 1400, "the mutations are neither harmless nor all fatal"


def sanitizing_compiler(directory: Path) -> list[str]:
    """A compiler which has AddressSanitizer and UBSan; without one the test is skipped."""
    return find_compiler(directory) or pytest.skip(
        "no C compiler with AddressSanitizer and UBSan (install gcc or clang)"
    )


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_the_kernel_stays_within_its_bounds_under_sanitizers(tmp_path: Path, seed: int) -> None:
    driver = tmp_path / "driver"
    source = Path(__file__).parent / "kernel_driver.c"
    options = ["-std=c11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    subprocess.run(
        [*sanitizing_compiler(tmp_path), *options, str(source), "-o", str(driver)], check=True
    )
    corpus = tmp_path / "corpus"
    with corpus.open("wb") as file:
        for data in mutations(100_000, seed):
            file.write(struct.pack("<I", len(data)) + data)
    done = subprocess.run([str(driver), str(corpus)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout == "100000 chunks\n"


def test_the_driver_s_inputs_are_batches_to_begin_with() -> None:
    whole = [data for data in mutations(50, seed=3) if len(data) > 61]
    assert any(read_header(data).record_count for data in whole if data[16:17] == b"\2")
