"""What sticky members tell the next leader; other people's bytes are never trusted."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import ClusterMetadata, Subscription
from shoal.assign.claim_arrays import gather
from shoal.assign.claims import claim_in_user_data, packed_claim
from shoal.assign.partitions import unpack
from shoal.assign.problem import state
from shoal.assign.user_data import (
    decode_generation,
    decode_sticky,
    encode_generation,
    encode_sticky,
)
from shoal.types import TopicPartition
from tests.assign.groups import tps

partitions = st.lists(
    st.builds(
        TopicPartition,
        st.sampled_from(["a", "bb", "c", "topic-with-a-long-name"]),
        st.integers(0, 9),
    ),
    unique=True,
)


def test_the_bytes_are_kafkas() -> None:
    written = "00000002 000161 00000002 00000002 00000000 000162 00000001 00000001 00000007"
    assert encode_sticky(tps("b-1 a-2,0"), 7) == bytes.fromhex(written)
    assert encode_sticky([], 3) == bytes.fromhex("00000000 00000003")
    assert encode_generation(7) == b"\0\0\0\7"
    assert encode_generation(None) == encode_generation(-1) == b"\xff\xff\xff\xff"


@given(partitions, st.integers(-1, 1 << 30))
def test_what_was_written_is_read(held: list[TopicPartition], generation: int) -> None:
    groups, read = decode_sticky(encode_sticky(held, generation))
    assert read == generation
    assert sorted((topic, n) for topic, numbers in groups for n in numbers) == sorted(held)


@given(partitions)
def test_version_zero_has_no_generation(held: list[TopicPartition]) -> None:
    groups, generation = decode_sticky(encode_sticky(held, 7)[:-4])
    assert generation is None
    assert sum(len(numbers) for _, numbers in groups) == len(held)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_harm(data: bytes) -> None:
    groups, generation = decode_sticky(data)
    assert generation is None or isinstance(generation, int)
    assert all(isinstance(topic, str) for topic, _ in groups)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\1",
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff\0\0\0\0",
        bytes.fromhex("00000001 000161 7fffffff"),
        bytes.fromhex("00000001 000161 ffffffff 00000001"),
        bytes.fromhex("00000001 ffff 00000001 00000001 00000001"),
        bytes.fromhex("00000001 7fff 61"),
        bytes.fromhex("00000002 000161 00000001 00000000"),
    ],
    ids=lambda data: data.hex(),
)
def test_bad_user_data_counts_as_none(data: bytes) -> None:
    groups, generation = decode_sticky(data)
    assert groups == []
    assert generation == -1
    assert_scanned_alike([data])


def test_trailing_bytes_are_ignored() -> None:
    data = encode_sticky(tps("a-1"), 4) + b"more"
    assert decode_sticky(data) == ([("a", (1,))], 4)


def test_generations_are_read_or_unknown() -> None:
    assert decode_generation(None) is None
    assert decode_generation(b"\0\0") == -1
    assert decode_generation(b"\0\0\0\7 and more") == 7


def assert_scanned_alike(datas: list[bytes]) -> None:
    """The arrays read user data as the clear version does."""
    group = {f"m{n}": Subscription(("a", "bb", "c"), data) for n, data in enumerate(datas)}
    problem = state(ClusterMetadata({"a": 5, "bb": 10, "c": 2}), group)
    arrays = gather(problem, in_user_data=True)
    claims = [claim_in_user_data(one) for one in problem.subscriptions]
    assert arrays.ages == [claim.age for claim in claims]
    counts = problem.layout.counts
    starts = problem.layout.starts
    expected: list[tuple[int, int]] = []
    ghosts = False
    for index, claim in enumerate(claims):
        for topic, number in map(unpack, packed_claim(problem, claim)):
            if 0 <= number < counts[topic]:
                expected.append((index, starts[topic] + number))
            else:
                ghosts = True
    assert list(zip(arrays.members.tolist(), arrays.numbers.tolist(), strict=True)) == expected
    assert arrays.has_ghosts == ghosts


claims_bytes = st.one_of(
    st.builds(encode_sticky, partitions, st.integers(-2, 5)),
    st.builds(lambda held: encode_sticky(held, 1)[:-4], partitions),
    st.builds(lambda held, cut: encode_sticky(held, 1)[:cut], partitions, st.integers(0, 40)),
    st.binary(max_size=40),
)


@pytest.mark.slow
@given(st.lists(claims_bytes, min_size=1, max_size=12))
def test_scanning_gives_what_reading_gives(datas: list[bytes]) -> None:
    assert_scanned_alike(datas)


def test_data_of_one_shape_is_compared_instead_of_scanned() -> None:
    same = [encode_sticky(tps(f"a-{n} bb-{n} c-0"), n) for n in range(5)]
    other = [encode_sticky(tps(f"bb-{n},9 a-{n}"), n) for n in range(5)]
    assert_scanned_alike([one for pair in zip(same, other, strict=True) for one in pair])
    assert_scanned_alike([*same, *(encode_sticky(tps(f"a-0,{n}"), 1) for n in range(1, 5)), *other])


def test_a_name_that_looks_like_another_shape_is_not_taken_for_it() -> None:
    data = encode_sticky(tps("a-1 c-1"), 3)
    changed = data.replace(b"\0\1c", b"\0\1x")
    assert_scanned_alike([data, changed, data])


def test_numbers_fill_four_bytes() -> None:
    data = struct.pack(">ih1sii", 1, 1, b"a", 1, -5)
    assert decode_sticky(data) == ([("a", (-5,))], None)
    assert_scanned_alike([data, np.int32(0).tobytes()])
