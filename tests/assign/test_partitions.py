"""Views over numbers behave like lists of partitions; bytes come out without the objects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import Assignment, GroupAssignment
from shoal.assign.encoding import encode_assignment, encode_group
from shoal.assign.partitions import Layout, PartitionView, by_topic, pack, unpack
from shoal.types import TopicPartition
from tests.assign.groups import tps

LAYOUT = Layout(["a", "b", "ccc"], [3, 2, 4])


def view(*numbers: int) -> PartitionView:
    return PartitionView(LAYOUT, np.array(numbers, dtype=np.int32))


@given(st.integers(0, 1 << 20), st.integers(-(1 << 31), (1 << 31) - 1))
def test_packing_keeps_both_numbers(topic: int, partition: int) -> None:
    assert unpack(pack(topic, partition)) == (topic, partition)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(1 << 31), (1 << 31) - 1))))
def test_packed_partitions_sort_as_pairs_do(pairs: list[tuple[int, int]]) -> None:
    assert [unpack(one) for one in sorted(pack(*pair) for pair in pairs)] == sorted(pairs)


def test_a_layout_numbers_topic_by_topic() -> None:
    assert LAYOUT.total == 9
    assert [LAYOUT.at(number) for number in (0, 2, 3, 8)] == tps("a-0 a-2 b-0 ccc-3")
    assert LAYOUT.same_as(Layout(["a", "b", "ccc"], [3, 2, 4]))
    assert not LAYOUT.same_as(Layout(["a", "b", "ccc"], [3, 2, 5]))


def test_a_view_is_a_sequence_of_partitions() -> None:
    held = view(8, 0, 3)
    assert list(held) == tps("ccc-3 a-0 b-0")
    assert held == tps("ccc-3 a-0 b-0")
    assert held == tuple(tps("ccc-3 a-0 b-0"))
    assert held == view(8, 0, 3)
    assert held != view(8, 0, 4)
    assert held != "text"
    assert held != tps("ccc-3")
    assert (len(held), held[1], held[-1]) == (3, TopicPartition("a", 0), TopicPartition("b", 0))
    assert held[1:] == tps("a-0 b-0")
    assert TopicPartition("b", 0) in held
    assert TopicPartition("b", 1) not in held
    assert hash(held) == hash(tuple(held))
    assert isinstance(held[0], TopicPartition)
    with pytest.raises(IndexError):
        held[3]


def test_equality_does_not_depend_on_the_layout() -> None:
    other = Layout(["a", "b"], [1, 9])
    assert view(0, 3) == PartitionView(other, np.array([0, 1], dtype=np.int32))


def test_a_long_view_is_shown_short() -> None:
    assert repr(view(0, 1)) == "[a-0, a-1]"
    assert repr(view(*range(9))) == "[a-0, a-1, a-2, b-0, b-1, ccc-0, … 9 in all]"


def test_grouping_keeps_first_appearance() -> None:
    expected = {"ccc": [3, 0], "a": [0]}
    assert by_topic(view(8, 0, 5)) == expected
    assert by_topic(tps("ccc-3 a-0 ccc-0")) == expected
    assert list(by_topic(view(8, 0, 5))) == ["ccc", "a"]


def test_an_assignment_is_encoded_as_kafka_does() -> None:
    written = bytes.fromhex(
        "0003 00000002 000162 00000001 00000001 000161 00000002 00000002 00000000 ffffffff"
    )
    assert encode_assignment(Assignment(tps("b-1 a-2,0"))) == written
    assert encode_group({"m": Assignment(view(4, 2, 0))}) == {"m": written}
    assert encode_assignment(Assignment((), b"xy"), 0) == bytes.fromhex(
        "0000 00000000 00000002 7879"
    )


numbers = st.lists(st.integers(0, 8), unique=True)


@given(st.lists(numbers, min_size=1, max_size=6), st.integers(0, 3))
def test_arrays_and_objects_give_the_same_bytes(held: list[list[int]], version: int) -> None:
    group = GroupAssignment({f"m{index}": view(*one) for index, one in enumerate(held)})
    assert group.encode(version) == {
        member_id: encode_assignment(assignment, version) for member_id, assignment in group.items()
    }


def test_groups_are_encoded_in_parts_when_there_are_many_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.assign.encoding._CELLS_MAX", 6)
    group = GroupAssignment({f"m{n}": view(n, 8 - n) for n in range(4)})
    assert group.encode() == {name: encode_assignment(one) for name, one in group.items()}


def test_a_group_with_user_data_or_plain_lists_is_encoded_too() -> None:
    group = GroupAssignment({"a": tps("t-0"), "b": view(1)}, {"a": b"note"})
    assert group["a"] == Assignment(tps("t-0"), b"note")
    assert group.encode() == {name: encode_assignment(one) for name, one in group.items()}
    assert repr(group) == "GroupAssignment(partitions per member: {'a': 1, 'b': 1})"
    assert (len(group), list(group)) == (2, ["a", "b"])


def test_views_of_different_layouts_are_encoded_one_by_one() -> None:
    other = PartitionView(Layout(["x"], [2]), np.array([0, 1], dtype=np.int32))
    group = {"m1": Assignment(view(0, 1)), "m2": Assignment(other)}
    assert encode_group(group) == {
        "m1": encode_assignment(Assignment(tps("a-0,1"))),
        "m2": encode_assignment(Assignment(tps("x-0,1"))),
    }


def test_views_of_nothing_are_encoded_as_empty_assignments() -> None:
    group = {"m1": Assignment(view()), "m2": Assignment(view())}
    assert set(encode_group(group).values()) == {encode_assignment(Assignment(()))}
