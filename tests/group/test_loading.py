"""A journal replayed fast gives what replaying every record gives."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.group.coordinator import journal_loading
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
    TransactionMarker,
    encode,
)
from shoal.group.coordinator.journal_loading import Loader, RawFields, decode_commits
from shoal.wire.offsets_topic import OffsetCommitKey, OffsetCommitValue, encode_key, encode_value

groups = st.sampled_from(["a", "b"])
topics = st.sampled_from(["t", "é"])
partitions = st.integers(0, 2)
commits = st.builds(
    lambda *given: OffsetRecord(*given),
    groups,
    topics,
    partitions,
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 5),
    st.sampled_from(["", "note", "ü"]),
    st.integers(0, 2**40),
)
staged = st.builds(
    lambda record, producer_id: record._replace(producer_id=producer_id, producer_epoch=0),
    commits,
    st.integers(1, 2),
)
others = st.one_of(
    st.builds(OffsetTombstone, groups, topics, partitions),
    st.builds(GroupTombstone, groups),
    st.builds(lambda group, n: GroupRecord(group, "c", n, None, None, None), groups, partitions),
    st.builds(TransactionMarker, st.integers(1, 2), st.just(0), st.booleans()),
    staged,
)
journals = st.lists(st.lists(commits, max_size=4) | st.lists(others, max_size=1))


def coordinator() -> Coordinator:
    return Coordinator(new_id=lambda: "id")


def fields(offset: int, record: JournalRecord) -> RawFields:
    return (offset, 0, *encode(record), ())


def plainly(batches: list[list[JournalRecord]]) -> object:
    made = coordinator()
    for offset, record in enumerate(each for batch in batches for each in batch):
        made.replay(record, offset)
    return made.durable()


def quickly(batches: list[list[JournalRecord]]) -> object:
    made = coordinator()
    loader = Loader(made.replay)
    offset = 0
    for batch in batches:
        first = batch[0] if batch else None
        if isinstance(first, TransactionMarker):
            loader.end_transaction(first, offset)
        else:
            producer = None
            if isinstance(first, OffsetRecord) and first.producer_id is not None:
                producer = (first.producer_id, 0)
            raw = [fields(offset + number, record) for number, record in enumerate(batch)]
            loader.feed(raw, producer=producer)
        offset += len(batch)
    loader.flush()
    return made.durable()


@given(journals)
def test_the_state_is_that_of_replaying_every_record(batches: list[list[JournalRecord]]) -> None:
    assert quickly(batches) == plainly(batches)


def test_of_the_commits_of_a_position_only_the_last_is_decoded() -> None:
    replayed: list[tuple[JournalRecord, int]] = []
    loader = Loader(lambda record, offset: replayed.append((record, offset)))
    records = [OffsetRecord("a", "t", 0, position, None, "", 5) for position in range(100)]
    loader.feed([fields(number, record) for number, record in enumerate(records)])
    assert not replayed
    loader.flush()
    assert replayed == [(records[-1], 99)]


def test_a_journal_of_different_keys_is_not_kept_undecoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_loading, "_KEPT_MAX", 3)
    replayed: list[int] = []
    loader = Loader(lambda _, offset: replayed.append(offset))
    loader.feed([fields(n, OffsetRecord("a", "t", n, 1, None, "", 5)) for n in range(3)])
    assert replayed == [0, 1, 2]


def test_records_without_a_key_and_of_unknown_types_are_skipped() -> None:
    loader = Loader(lambda record, offset: pytest.fail(f"{record} at {offset}"))
    loader.feed([(0, 0, None, b"value", ()), (1, 0, struct.pack(">h", 99), b"value", ())])
    loader.flush()


@pytest.mark.parametrize("metadata", ["", "m", "ä" * 63, "x" * 126, "x" * 127, "x" * 4_000])
def test_a_commit_with_the_id_of_its_topic_is_read_fast_and_the_same(metadata: str) -> None:
    record = OffsetRecord("a", "t", 3, 7, 2, metadata, 5, topic_id=bytes(range(16)))
    key, value = encode(record)
    assert value is not None
    found = [record for _, record in decode_commits([(key, (0, value)), (key, (1, value))])]
    assert found == [record, record]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_a_value_is_read_behind_a_key_that_is_known(version: int) -> None:
    key = encode_key(OffsetCommitKey(group="a", topic="t", partition=-1))
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=5)
    data = encode_value(value, version)
    found = [record for _, record in decode_commits([(key, (0, data)), (key, (1, data))])]
    assert found[0] == found[1]
    assert found[0].offset == 7
    assert found[0].partition == -1


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: b"",
        lambda value: value[:10],
        lambda value: value[:-1],
        lambda value: value + b"\0",
        lambda value: value[:14] + b"\xff\xff" + value[16:],
    ],
)
def test_garbage_behind_a_key_that_is_known_is_an_error(damage) -> None:
    key, value = encode(OffsetRecord("a", "t", 0, 7, None, "note", 5))
    assert value is not None
    with pytest.raises(InvalidMessageError):
        list(decode_commits([(key, (0, value)), (key, (1, damage(value)))]))


def test_a_note_that_is_not_utf_8_is_read_as_kafka_reads_it() -> None:
    key, value = encode(OffsetRecord("a", "t", 0, 7, None, "note", 5))
    assert value is not None
    damaged = value.replace(b"note", b"\xff\xff\xff\xff")
    found = [record for _, record in decode_commits([(key, (0, value)), (key, (1, damaged))])]
    assert [record.metadata for record in found] == ["note", "\ufffd" * 4]
