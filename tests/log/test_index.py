"""The two indexes: floors, files, and what cannot be an index."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.log.index import OffsetIndex, TimeIndex

growing = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(1, 100_000)), min_size=0, max_size=60
)


def offset_index(steps: list[tuple[int, int]]) -> tuple[OffsetIndex, list[tuple[int, int]]]:
    index, entries, offset, position = OffsetIndex(), [], 0, 0
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        index.append(offset, position)
        entries.append((offset, position))
    return index, entries


@given(steps=growing, target=st.integers(0, 70_000))
def test_floor_is_the_last_entry_at_or_before(steps: list[tuple[int, int]], target: int) -> None:
    index, entries = offset_index(steps)
    assert index.floor(target) == max((p for o, p in entries if o <= target), default=0)
    assert index.floor_position(target) == max((p for _, p in entries if p <= target), default=0)


@given(steps=growing)
def test_an_offset_index_is_read_back_as_written(steps: list[tuple[int, int]]) -> None:
    index, entries = offset_index(steps)
    data = index.encode()
    assert len(data) == 8 * len(entries)
    assert data[:8] == b"".join(n.to_bytes(4, "big") for one in entries[:1] for n in one)
    again = OffsetIndex.decode(data)
    assert again is not None
    assert (again.offsets, again.positions) == (index.offsets, index.positions)
    allocated = OffsetIndex.decode(data + bytes(800))
    assert allocated is not None, "Kafka sets space aside; zeros at the end are no entries"
    assert allocated.positions == index.positions


@given(steps=growing, cut=st.integers(0, 200_000))
def test_cutting_drops_what_lies_at_or_past_a_position(
    steps: list[tuple[int, int]], cut: int
) -> None:
    index, entries = offset_index(steps)
    index.cut(cut)
    assert list(index.positions) == [position for _, position in entries if position < cut]
    assert len(index) == len(index.offsets)


def test_what_cannot_be_an_offset_index() -> None:
    index, _ = offset_index([(5, 50), (5, 50), (5, 50)])
    data = index.encode()
    assert OffsetIndex.decode(data[:-1]) is None, "half an entry"
    assert OffsetIndex.decode(data[8:16] + data[:8]) is None, "offsets go back"
    assert OffsetIndex.decode(data[:8] + data[:8]) is None, "offsets stand still"


@given(steps=growing, target=st.integers(0, 5_000_000))
def test_time_floor_is_the_last_entry_at_or_before(
    steps: list[tuple[int, int]], target: int
) -> None:
    times, entries, offset, timestamp_ms = TimeIndex(), [], 0, 0
    for offset_step, time_step in steps:
        offset, timestamp_ms = offset + offset_step, timestamp_ms + time_step
        assert times.maybe_append(timestamp_ms, offset)
        entries.append((timestamp_ms, offset))
    assert times.floor(target) == max((o for t, o in entries if t <= target), default=0)
    again = TimeIndex.decode(times.encode() + bytes(120))
    assert again is not None
    assert [again[entry] for entry in range(len(again))] == entries


def test_time_entries_are_added_only_when_time_moved_on() -> None:
    times = TimeIndex()
    assert times.maybe_append(2**40, 10)
    assert not times.maybe_append(2**40, 11)
    assert not times.maybe_append(5, 12)
    assert not times.maybe_append(-1, 13)
    assert not times.maybe_append(2**40 + 1, 9), "offsets never go back"
    assert times.maybe_append(2**40 + 1, 14)
    assert [times[0], times[1]] == [(2**40, 10), (2**40 + 1, 14)]
    times.cut(14)
    assert len(times) == 1


def test_what_cannot_be_a_time_index() -> None:
    times = TimeIndex()
    times.maybe_append(100, 1)
    times.maybe_append(200, 2)
    data = times.encode()
    assert TimeIndex.decode(data[:-2]) is None
    assert TimeIndex.decode(data[12:] + data[:12]) is None
    assert TimeIndex.decode(b"\xff" * 12) is None
