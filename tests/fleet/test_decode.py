"""The fast decoder gives the codec's rows, record for record, and refuses what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.fleet import decode
from shoal.fleet.decode import decode_commits
from shoal.fleet.group_records import assignment_table, read_groups
from shoal.fleet.tables import DDL, names, schema
from shoal.wire.offsets_topic import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from tests.fleet.consumer_offsets import SCHEMA, Journal, tps

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.integers(0, 2**50)
numbers = st.integers(-(2**31), 2**31 - 1)

keys = st.builds(OffsetCommitKey, group=texts, topic=texts, partition=numbers)
values = st.builds(
    OffsetCommitValue,
    offset=st.integers(-(2**63), 2**63 - 1),
    leader_epoch=numbers,
    metadata=texts | st.text("x", min_size=120, max_size=140),
    commit_timestamp=times,
    expire_timestamp=st.just(-1) | times,
    topic_id=st.just(bytes(16)) | st.binary(min_size=16, max_size=16),
)


@st.composite
def cells(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    """A key and a value: mostly whole ones, some that somebody has bitten into."""
    key = encode_key(draw(keys))
    if draw(st.booleans()):
        key = b"\x00\x00" + key[2:]
    value: bytes | None = encode_value(draw(values), draw(st.integers(0, 4)))
    match draw(st.integers(0, 9)):
        case 0:
            value = None
        case 1:
            assert value is not None
            value = draw(bitten(value))
        case 2:
            key = draw(bitten(key))
        case 3:
            value = draw(st.binary(max_size=40))
        case 4:
            key = draw(
                st.binary(max_size=20) | st.just(b"\x00\x01\x00\x01\xff\x00\x00\x00\x00\x00\x00")
            )
    return key, value


def bitten(data: bytes) -> st.SearchStrategy[bytes]:
    def at(place: int, byte: int, cut: int) -> bytes:
        changed = bytearray(data)
        if changed:
            changed[place % len(changed)] = byte
        return bytes(changed[: len(changed) - cut])

    return st.builds(at, st.integers(0, 200), st.integers(0, 255), st.integers(0, 3))


def by_codec(key: bytes, value: bytes | None) -> dict[str, Any] | None:
    """The row the codec gives; ``None`` for what is no commit; raises for what is no record."""
    name = decode_key(key)
    if not isinstance(name, OffsetCommitKey):
        return None
    found = decode_value(name, value)
    row: dict[str, Any] = dict.fromkeys(names("commits")) | {
        "group": name.group,
        "topic": name.topic,
        "partition": name.partition,
    }
    if found is not None:
        assert isinstance(found, OffsetCommitValue)
        row |= {
            "offset": found.offset,
            "leader_epoch": found.leader_epoch if found.leader_epoch >= 0 else None,
            "metadata": found.metadata,
            "commit_time": found.commit_timestamp * 1000,
            "expire_time": found.expire_timestamp * 1000 if found.expire_timestamp >= 0 else None,
            "topic_id": bytes(found.topic_id) if any(found.topic_id) else None,
        }
    return row


def shown(table: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows with times as numbers, whatever year they are in."""
    plain = [
        table.column(f.name).cast(pa.int64()) if pa.types.is_timestamp(f.type) else table[f.name]
        for f in table.schema
    ]
    rows: list[dict[str, Any]] = pa.table(plain, names=table.schema.names).to_pylist()
    return rows


def batch_of(pairs: Sequence[tuple[bytes | None, bytes | None]]) -> pa.RecordBatch:
    journal = Journal()
    for key, value in pairs:
        journal.raw(key, value)
    return journal.records()


@pytest.mark.slow
@given(st.lists(cells(), max_size=30), st.integers(0, 3))
def test_the_fast_path_and_the_codec_agree(
    pairs: list[tuple[bytes | None, bytes | None]], cut: int
) -> None:
    agree(batch_of(pairs).slice(cut))


@pytest.mark.slow
@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("topic_id", [bytes(16), bytes(range(16))])
def test_they_agree_on_every_byte_that_is_wrong(version: int, topic_id: bytes) -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="orders", partition=3))
    plain = OffsetCommitValue(
        offset=7, leader_epoch=1, metadata="me", commit_timestamp=5, topic_id=topic_id
    )
    value = encode_value(plain, version)
    # Batch by batch: one byte that is no text sends all commits of its batch to the codec.
    longer = [(key, value + bytes(size)) for size in (1, 8, 18)]
    agree(batch_of([(key, value[:end]) for end in range(len(value))] + longer))
    for byte in (0, 1, 2, 0x7F, 0x80, 0xFF):
        pairs = [(key, changed(value, place, byte)) for place in range(len(value))]
        pairs += [(changed(key, place, byte), value) for place in range(2, len(key))]
        agree(batch_of(pairs))
        if byte > 0x7F:
            for pair in pairs:
                agree(batch_of([pair]))


def test_a_commit_that_expires_at_a_time_of_its_own_keeps_it() -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="orders", partition=3))
    commit = OffsetCommitValue(offset=7, metadata="", commit_timestamp=5, expire_timestamp=9)
    (row,) = shown(decode_commits(batch_of([(key, encode_value(commit))])).commits)
    assert (row["commit_time"], row["expire_time"]) == (5_000, 9_000)


def changed(data: bytes, place: int, byte: int) -> bytes:
    return data[:place] + bytes([byte]) + data[place + 1 :]


def agree(batch: pa.RecordBatch) -> None:
    """The fast path and the codec give the same rows, and refuse the same."""
    decoded = decode_commits(batch)
    expected, refused = [], []
    for key, value, partition, offset, _ in zip(*(c.to_pylist() for c in batch), strict=True):
        try:
            row = by_codec(key, value)
        except InvalidMessageError:
            # A key of less than two bytes has no type: it is reported with the groups' records.
            if key[:2] in (b"\x00\x00", b"\x00\x01"):
                refused.append(offset)
            continue
        if row is not None and row["commit_time"] is not None:
            row["commit_time"] = wrapped(row["commit_time"])
        if row is not None and row["expire_time"] is not None:
            row["expire_time"] = wrapped(row["expire_time"])
        if row is not None:
            expected.append({**row, "log_partition": partition, "log_offset": offset})
    found = [{k: v for k, v in row.items() if k != "log_time"} for row in shown(decoded.commits)]
    assert found == [{k: v for k, v in row.items() if k != "log_time"} for row in expected]
    assert decoded.unreadable.column("log_offset").to_pylist() == refused


@pytest.mark.slow
@pytest.mark.parametrize("version", range(5))
@given(st.lists(st.tuples(keys, values), min_size=1, max_size=20))
def test_whole_commits_never_need_the_codec(
    version: int, pairs: list[tuple[OffsetCommitKey, OffsetCommitValue]]
) -> None:
    cells = [(encode_key(key), encode_value(value, version)) for key, value in pairs]
    # A text of more than 126 bytes has a longer length in version 4: rare enough for the codec.
    cells = [cell for cell in cells if version < 4 or len(cell[1]) < 128]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "_by_codec", lambda _: pytest.fail("the codec was asked"))
        assert decode_commits(batch_of(cells)).commits.num_rows == len(cells)


def wrapped(time_us: int) -> int:
    return (time_us + 2**63) % 2**64 - 2**63


@pytest.mark.parametrize("kind", ["binary", "large_binary"])
def test_other_records_are_left_out_and_the_sources_types_do_not_matter(kind: str) -> None:
    journal = Journal()
    journal.write(ConsumerGroupMetadataKey(group_id="g"), ConsumerGroupMetadataValue(epoch=1))
    journal.commit("g", tps("orders", 3)[0], 7, 2.5)
    journal.raw(b"\x00\x63future", b"?")
    journal.raw(None, b"no key")
    records = journal.records()
    wider = pa.schema(
        [("key", getattr(pa, kind)()), ("value", getattr(pa, kind)()), *list(SCHEMA)[2:]]
    )
    decoded = decode_commits(records.cast(wider))
    (row,) = decoded.commits.to_pylist()
    assert (row["group"], row["topic"], row["partition"], row["offset"]) == ("g", "orders", 3, 7)
    assert (row["log_partition"], row["log_offset"]) == (0, 1)
    events, refused = read_groups(records)
    assert [one.group for one in events] == ["g"]
    assert [(one.place.offset, "without a key" in one.reason) for one in refused] == [(3, True)]


def test_no_records_are_no_rows() -> None:
    assert decode_commits(Journal().records()).commits.num_rows == 0


def test_what_members_had_before_is_no_assignment_of_a_generation_that_begins() -> None:
    journal = Journal()
    journal.generation("g", 1, {"a": tps("orders", 0, 1)}, 1)
    journal.generation("g", 2, {"a": tps("orders", 0, 1), "b": []}, 2, is_start=True)
    journal.generation("g", 2, {"a": tps("orders", 0), "b": tps("orders", 1)}, 3)
    events, _ = read_groups(journal.records())
    rows = assignment_table(events).to_pylist()
    assert [(row["generation"], row["member_id"], row["partition"]) for row in rows] == [
        (1, "a", 0),
        (1, "a", 1),
        (2, "a", 0),
        (2, "b", 1),
    ]


@pytest.mark.parametrize("table", sorted(DDL))
def test_every_table_has_an_arrow_schema(table: str) -> None:
    assert schema(table).names == names(table)
