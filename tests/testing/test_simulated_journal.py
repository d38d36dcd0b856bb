"""The disk of simulations: what survives a crash, and what compaction may do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
    TransactionMarker,
)
from shoal.testing.simulation.simulated_journal import SimulatedJournal, key_of


def commit(partition: int, offset: int) -> OffsetRecord:
    return OffsetRecord("g", "t", partition, offset, None, "", 1)


def offsets(journal: SimulatedJournal) -> dict[int, int]:
    found: dict[int, int] = {}
    for _, record in journal.read():
        if isinstance(record, OffsetRecord):
            found[record.partition] = record.offset
        elif isinstance(record, OffsetTombstone):
            found.pop(record.partition, None)
    return found


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 12))
def test_a_crash_keeps_what_was_synced_and_a_prefix_of_the_rest(
    appended: int, synced: int, kept: int
) -> None:
    journal = SimulatedJournal()
    for number in range(appended):
        assert journal.append([commit(0, number), commit(1, number)]) == 2 * number
    journal.synced = min(synced, appended)
    journal.crash(kept)
    survivors = min(min(synced, appended) + kept, appended)
    assert [offset for offset, _ in journal.read()] == list(range(2 * survivors))
    assert journal.synced == journal.appended == survivors
    assert journal.append([commit(0, 99)]) == 2 * survivors


steps = st.lists(
    st.one_of(
        st.builds(commit, st.integers(0, 3), st.integers(0, 100)),
        st.builds(OffsetTombstone, st.just("g"), st.just("t"), st.integers(0, 3)),
        st.sampled_from(["sync", "compact", "compact hard", "crash"]),
    ),
    max_size=40,
)


@given(steps)
def test_compaction_changes_nothing_that_can_be_read(history: list[JournalRecord | str]) -> None:
    journal, plain = SimulatedJournal(), SimulatedJournal()
    for step in history:
        if step == "sync":
            journal.synced = plain.synced = journal.appended
        elif step == "crash":
            journal.crash(1)
            plain.crash(1)
        elif isinstance(step, str):
            journal.compact(drop_tombstones=step == "compact hard")
        else:
            assert journal.append([step]) == plain.append([step])
        assert offsets(journal) == offsets(plain)
        assert len(list(journal.read())) <= len(list(plain.read()))


def test_groups_have_one_key_and_markers_have_none() -> None:
    record = GroupRecord("g", "consumer", 1, "range", "m", 1)
    assert key_of(record) == key_of(GroupTombstone("g"))
    assert key_of(commit(1, 5)) == key_of(OffsetTombstone("g", "t", 1))
    with pytest.raises(TypeError, match="no key"):
        key_of(TransactionMarker(1, 0, commit=True))
