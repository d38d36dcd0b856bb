"""``poll_arrow`` where offsets are many and rows few: compacted topics and transaction markers.

What is buffered is returned at once, however many offsets without a row lie before it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import Consumer, TopicPartition
from shoal.client.config import ConsumerConfig
from shoal.client.fetch_buffer import Buffer, FetchedChunk, RecordReader, extent
from shoal.client.positions import Positions
from shoal.records.batch import encode_batch
from shoal.records.markers import encode_marker
from tests.client.scripted import ScriptedBroker
from tests.patience import is_quick

T0 = TopicPartition("t", 0)


def batch(base, offsets, last=None):
    """What compaction leaves of a batch from ``base`` to ``last``."""
    records = [(None, str(n).encode(), (), n) for n in offsets]
    last = max(offsets, default=base) if last is None else last
    return encode_batch(records, base_offset=base, offsets=offsets, last_offset=last)


def marker(offset):
    return encode_marker(
        commit=True, producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=offset
    )


SPARSE = {
    "rows far apart": [batch(n * 1000, [n * 1000]) for n in range(12)],
    "rows at the end of large batches": [batch(n * 1000, [n * 1000 + 999]) for n in range(12)],
    "batches without a row": [
        part
        for n in range(12)
        for part in (batch(n * 1000, [], n * 1000 + 500), batch(n * 1000 + 501, [n * 1000 + 501]))
    ],
    "markers": [
        part
        for n in range(12)
        for part in (
            *(marker(n * 100 + m) for m in range(99)),
            batch(n * 100 + 99, [n * 100 + 99]),
        )
    ],
}


@pytest.mark.parametrize("max_records", [1, 2, 12, None])
@pytest.mark.parametrize("log", SPARSE.values(), ids=SPARSE.keys())
def test_buffered_rows_come_at_once_however_far_apart_their_offsets_are(log, max_records):
    with ScriptedBroker() as broker:
        broker._batch = b"".join(log)
        with Consumer(bootstrap_servers=broker.servers, auto_offset_reset="earliest") as one:
            one.assign([T0])

            def read() -> None:
                one.seek(T0, 0)
                found = one.poll_arrow(10, max_records=1).num_rows
                assert found == 1
                while found < 12:
                    rows = one.poll_arrow(10, max_records=max_records).num_rows
                    assert 1 <= rows <= (max_records or 12)
                    found += rows

            # Nothing has to be waited for: each wait would be a second or more.
            assert is_quick(1, read)
            assert one.poll_arrow(0).num_rows == 0
            assert one.position(T0) == extent(broker._batch, 0)[0]


GAPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3), st.integers(0, 40)), max_size=6)


@settings(max_examples=60)
@given(GAPS, GAPS, st.integers(1, 5))
def test_columns_equal_records_in_whatever_steps_they_are_taken(one, other, limit):
    def reader_of(*logs):
        positions = Positions()
        positions.own([TopicPartition("t", n) for n in range(len(logs))])
        buffer = Buffer(positions, lambda: None)
        for state, log in zip(positions, logs, strict=True):
            state.seek(0)
            base = 0
            for before, rows, after in log:
                offsets = [base + before + n for n in range(rows)]
                last = base + before + rows + after
                data = batch(base, offsets, last)
                buffer.add(FetchedChunk(state, memoryview(data), last + 1, extent(data, 0)[1]))
                base = last + 1
        config = ConsumerConfig.from_settings({"bootstrap_servers": "nowhere:1"})
        return RecordReader(buffer, config), positions

    objects, places = reader_of(one, other)
    expected = [(r.partition, r.offset) for r in objects.take(10_000)]
    columns, positions = reader_of(one, other)
    found: list[Any] = []
    while (part := columns.take_arrow(limit)) is not None:
        assert 1 <= part.num_rows <= limit
        found += zip(part["partition"].to_pylist(), part["offset"].to_pylist(), strict=True)
    assert found == expected
    assert [s.position for s in positions] == [s.position for s in places]
