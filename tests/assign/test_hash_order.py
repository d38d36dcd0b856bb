"""Java's orders, by values that a JVM gave."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import hash_order
from shoal.assign.arrays import bucket_order
from shoal.assign.hash_order import (
    PartitionSet,
    compute_order,
    id_key,
    id_order,
    name_order,
    number_order,
    partition_hash,
    put_order,
    sorted_names,
    string_hash,
)


def test_put_order_is_javas() -> None:
    ids = [f"consumer-{number}" for number in range(14)]
    order = [int(member_id.removeprefix("consumer-")) for member_id in put_order(ids)]
    assert order == [11, 10, 6, 5, 4, 3, 2, 13, 1, 12, 0, 9, 8, 7]
    topics = put_order([f"t-{number}" for number in range(20)])
    order = [int(topic.removeprefix("t-")) for topic in topics]
    assert order == [9, 15, 14, 17, 16, 11, 10, 13, 12, 19, 18, 0, 2, 1, 4, 3, 6, 5, 8, 7]


def test_a_table_grows_with_its_thirteenth_key() -> None:
    ids = [f"consumer-{number}" for number in range(13)]
    twelve = [int(member_id.removeprefix("consumer-")) for member_id in put_order(ids[:12])]
    assert twelve == [11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    thirteen = [int(member_id.removeprefix("consumer-")) for member_id in put_order(ids)]
    assert thirteen == [11, 10, 6, 5, 4, 3, 2, 1, 12, 0, 9, 8, 7]


def test_equal_hashes_stay_in_insertion_order_or_stand_in_front() -> None:
    same = ["Aa", "BB", "C#"]
    assert len({string_hash(text) for text in same}) == 1
    assert put_order(same) == same
    assert compute_order(same, calls_follow=False) == same[::-1]


def test_string_hash_is_javas() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    # Two units of UTF-16, and a hash that Java shows as a negative number.
    assert string_hash("🐟") == 0xD83D * 31 + 0xDC1F == 1772418
    assert string_hash("consumer-1") - (1 << 32) == -166239206


def test_partition_hash_is_javas() -> None:
    assert partition_hash(string_hash("a"), 0) == 31 * 31 + 97
    assert partition_hash(string_hash("a"), 5) == 31 * 36 + 97


def test_a_computing_table_grows_one_call_late() -> None:
    keys = [f"topic-{number * 7}" for number in range(13)]

    def order(calls_follow: bool) -> list[int]:
        found = compute_order(keys, calls_follow=calls_follow)
        return [int(key.removeprefix("topic-")) for key in found]

    # Thirteen entries are too many for sixteen buckets, but nobody has asked since.
    assert order(calls_follow=False) == [35, 14, 7, 49, 28, 70, 84, 0, 63, 42, 21, 77, 56]
    assert order(calls_follow=True) == [7, 70, 84, 0, 63, 42, 21, 77, 56, 35, 14, 49, 28]
    twelve = keys[:12]
    assert compute_order(twelve, calls_follow=False) == compute_order(twelve, calls_follow=True)


def test_names_sort_by_units_not_by_code_points() -> None:
    above, private = "\U0001f41f", "\uff21"
    assert sorted([above, private]) == [private, above]
    assert sorted_names([private, above]) == [above, private]
    assert sorted_names(["b", "a"]) == ["a", "b"]
    assert name_order("a") == b"\0a"


@given(st.lists(st.text(max_size=8), unique=True, min_size=1))
def test_hashing_all_at_once_gives_the_same_order(keys: list[str]) -> None:
    order = bucket_order(keys, 63)
    if order is None:
        assert any(ord(character) > 0xFFFF for key in keys for character in key) or not any(keys)
    else:
        expected = sorted(keys, key=lambda key: hash_order._spread(string_hash(key)) & 63)
        assert [keys[index] for index in order] == expected


def test_many_keys_are_ordered_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"client-{number}-🐟" if number % 50 == 0 else f"c{number}" for number in range(700)]
    many = put_order(keys)
    plain = put_order(keys[:0] + [key for key in keys if key.isascii()])
    monkeypatch.setattr(hash_order, "_MANY", 1 << 30)
    assert many == put_order(keys)
    assert plain == put_order([key for key in keys if key.isascii()])


def test_very_long_keys_are_hashed_one_by_one() -> None:
    assert bucket_order(["x" * 1000, "y"], 15) is None


def test_a_partition_set_remembers_that_it_grew() -> None:
    moved = PartitionSet()
    for key in range(13):
        moved.add(key, 16 + key if key else 0)
    assert moved.capacity == 32
    for key in range(1, 13):
        moved.remove(key)
    moved.add(99, 1)
    assert (len(moved), list(moved)) == (2, [0, 99])
    assert moved.first() == 0
    moved.remove(0)
    assert moved.first() == 99


def test_numbers_are_walked_by_bucket() -> None:
    assert number_order([0, 1, 16, 17]) == [0, 16, 1, 17]
    assert number_order(range(20)) == list(range(20))
    assert number_order([0, 2, 1]) == [0, 1, 2]
    assert number_order([]) == []


def test_numbers_of_more_than_16_bits_change_buckets() -> None:
    walked = number_order(range(70_000))
    assert walked[:65_536] == list(range(65_536))
    assert walked[65_536:65_540] == [65_537, 65_536, 65_539, 65_538]


def test_topic_ids_sort_by_signed_halves_and_walk_by_hash() -> None:
    negative, positive = b"\xff" * 16, b"\x01" + b"\0" * 15
    assert sorted([positive, negative], key=id_key) == [negative, positive]
    one, two = b"\0" * 15 + b"\x02", b"\0" * 15 + b"\x01"
    assert id_order([one, two]) == [two, one]
    twelve = [bytes(15) + bytes([number]) for number in range(20, 32)]
    # A copied set of twelve has 32 buckets, a grown one has 16.
    assert id_order(twelve, copied=True) == twelve
    assert id_order(twelve) == twelve[12 - 0 :] + sorted(twelve, key=lambda one: one[15] & 15)
