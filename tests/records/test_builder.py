"""A producer's open batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.records.batch import decode_batch, encode_batch, read_header
from shoal.records.builder import BatchBuilder
from tests.records.generate import record_lists


@pytest.mark.slow
@given(record_lists, st.integers(61, 30_000))
def test_the_size_is_exact_and_the_limit_holds(records, limit_bytes: int) -> None:
    builder = BatchBuilder(limit_bytes=limit_bytes)
    taken = [record for record in records if builder.append(*record)]
    assert len(builder) == len(taken) >= 1
    batch = builder.build()
    assert len(batch) == builder.size_bytes
    assert len(batch) <= limit_bytes or len(taken) == 1
    assert batch == encode_batch(taken)


def test_a_full_builder_takes_no_more() -> None:
    builder = BatchBuilder(limit_bytes=100)
    assert builder.append(b"k", b"x" * 500)  # the first one always
    assert not builder.append(b"k", b"")
    assert len(builder) == 1


def test_building_again_gives_the_same_records() -> None:
    builder = BatchBuilder()
    builder.append(b"k", b"v", (("h", None),), 5)
    first = builder.build(codec=3, producer_id=4, producer_epoch=1, base_sequence=9)
    again = builder.build(is_transactional=True)
    assert decode_batch(first) == decode_batch(again)
    assert read_header(first).base_sequence == 9
    assert read_header(again).is_transactional
