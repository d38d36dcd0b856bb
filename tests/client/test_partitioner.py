"""Partitioning: equal to Java for keys, sticky without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.client.partitioner import RoundRobin, Sticky, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_javas_numbers(key, signed):
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=64), st.integers(1, 5000))
def test_a_key_lands_where_kafka_python_puts_it(key, count):
    from kafka.partitioner.default import murmur2 as theirs

    assert partition_for_key(key, count) == (theirs(key) & 0x7FFFFFFF) % count


def test_without_a_key_one_partition_until_its_batch_is_full():
    picks = iter([2, 0])
    sticky = Sticky(chance=lambda n: next(picks))
    assert [sticky("t", None, 4) for _ in range(3)] == [2, 2, 2]
    sticky.batch_done("t", 1, 4)  # another partition's batch changes nothing
    assert sticky("t", None, 4) == 2
    sticky.batch_done("t", 2, 4)
    assert sticky("t", None, 4) == 3


def test_a_shrunken_topic_does_not_keep_a_partition_that_is_gone():
    sticky = Sticky(chance=lambda n: n - 1)
    assert sticky("t", None, 4) == 3
    assert sticky("t", None, 3) == 2
    assert sticky("t", None, 1) == 0


def test_round_robin_ignores_keys():
    partitioner = RoundRobin()
    assert [partitioner("t", b"k", 3) for _ in range(4)] == [0, 1, 2, 0]


def test_a_partition_without_a_leader_is_left_until_it_has_one_again():
    sticky = Sticky()
    sticky.leaders_known({"t": [1, 3]})
    for _ in range(50):
        taken = sticky("t", None, 4)
        assert taken in (1, 3)
        sticky.batch_done("t", taken, 4)
    sticky.leaders_known({"t": [2]})
    assert sticky("t", None, 4) == 2
    sticky.batch_done("t", 2, 4)
    assert sticky("t", None, 4) == 2
    sticky.leaders_known({"t": []})
    assert sticky("t", None, 4) in range(4)
    sticky.leaders_known({})
    seen = set()
    for _ in range(200):
        seen.add(taken := sticky("t", None, 4))
        sticky.batch_done("t", taken, 4)
    assert seen == {0, 1, 2, 3}
