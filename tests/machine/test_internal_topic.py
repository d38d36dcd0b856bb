"""Where an internal topic holds an id: vectors of a real JVM."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.assign import hash_order
from shoal.machine.internal_topic import partition_for, string_hash


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("g1", 42),
        ("my-group", 12),
        ("console-consumer-12345", 6),
        ("测试组", 28),
        ("polygenelubricants", 0),  # its hash is Integer.MIN_VALUE
        ("spark-kafka-source-0", 23),
    ],
)
def test_a_group_is_where_kafka_looks_for_it(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


@given(st.text())
def test_the_hash_is_the_one_the_assignors_use(text: str) -> None:
    assert string_hash(text) == hash_order.string_hash(text)


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, count: int) -> None:
    assert 0 <= partition_for(group_id, count) < count
