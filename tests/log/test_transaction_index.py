"""The index of aborted transactions: Kafka's bytes, and the answers of a look at each entry."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.log.transaction_index import (
    ENTRY_SIZE,
    AbortedTransaction,
    IndexSize,
    TransactionIndex,
)
from shoal.records.checksum import crc32c


def history(lengths: list[int]) -> list[AbortedTransaction]:
    """Entries as a log makes them: each transaction begins, and is aborted so many steps later."""
    ends: dict[int, list[int]] = {}
    entries, offset, open_at = [], 0, {}
    for producer_id, steps in enumerate(lengths):
        open_at[producer_id] = offset
        ends.setdefault(producer_id + steps, []).append(producer_id)
        offset += 1
        for ending in ends.pop(producer_id, []):
            first = open_at.pop(ending)
            stable = min(open_at.values(), default=offset + 1)
            entries.append(AbortedTransaction(ending, first, offset, stable))
            offset += 1
    return entries


def filled(entries: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex()
    for entry in entries:
        index.append(entry)
    return index


def found(index: TransactionIndex, start: int, end: int) -> list[AbortedTransaction]:
    entries: list[int] = []
    index.collect(start, end, entries)
    return [index[at] for at in entries]


def test_an_entry_has_kafkas_34_bytes() -> None:
    index = filled([AbortedTransaction(1000, 5, 9, 7)])
    assert index.encode().hex() == (
        "000000000000000003e8000000000000000500000000000000090000000000000007"
    )
    assert index.size == IndexSize(ENTRY_SIZE, crc32c(index.encode()))


_HISTORIES = st.lists(st.integers(0, 90), max_size=200).map(history)


@pytest.mark.parametrize("seed", range(8))
def test_a_range_finds_what_looking_at_every_entry_finds(seed: int) -> None:
    chance = random.Random(seed)
    steps = 2 + 20 * seed  # how many transactions are open at once
    entries = history([chance.randrange(steps) for _ in range(400)])
    index = filled(entries)
    again = TransactionIndex.decode(index.encode())
    assert again is not None
    for _ in range(200):
        start, end = sorted(chance.randrange(850) for _ in range(2))
        expected = [
            entry for entry in entries if entry.last_offset >= start and entry.first_offset < end
        ]
        assert found(index, start, end) == expected
        assert found(again, start, end) == expected


@given(_HISTORIES, st.integers(0, 300))
def test_what_is_cut_is_as_if_it_had_never_come(
    entries: list[AbortedTransaction], offset: int
) -> None:
    index, kept = filled(entries), [one for one in entries if one.last_offset < offset]
    index.cut(offset)
    assert index.encode() == filled(kept).encode()
    assert index.size == filled(kept).size
    later = AbortedTransaction(9, 1000, 1001, 1002)
    index.append(later)
    assert index.encode() == filled([*kept, later]).encode()
    assert found(index, 0, 2000) == [*kept, later]


@given(_HISTORIES, st.integers(0, 200))
def test_only_the_new_part_can_be_encoded(entries: list[AbortedTransaction], start: int) -> None:
    index = filled(entries)
    start = min(start, len(entries))
    assert index.encode(start) == index.encode()[start * ENTRY_SIZE :]


def test_later_segments_are_asked_only_if_something_was_open() -> None:
    index = filled([AbortedTransaction(1, 0, 5, 3), AbortedTransaction(2, 4, 6, 7)])
    assert index.collect(0, 3, []), "all that begins before 3 was decided by the first marker"
    assert index.collect(0, 7, [])
    assert not index.collect(0, 8, [])


@pytest.mark.parametrize(
    "entries",
    [
        [(1, 5, 5, 6)],  # it ends where it begins
        [(1, 0, 5, 6), (2, 1, 5, 6)],  # two end at the same marker
        [(1, 0, 5, 6), (2, 1, 7, 5)],  # the last stable offset goes back
    ],
)
def test_what_no_log_could_write_is_no_index(entries: list[tuple[int, int, int, int]]) -> None:
    data = b"".join(
        b"\0\0" + b"".join(field.to_bytes(8, "big") for field in entry) for entry in entries
    )
    assert TransactionIndex.decode(data) is None
    assert TransactionIndex.decode(data[:-1]) is None
    assert TransactionIndex.decode(b"\0\1" + bytes(ENTRY_SIZE - 2)) is None
