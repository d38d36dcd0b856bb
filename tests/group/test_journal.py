"""Records and their bytes in ``__consumer_offsets``."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    MemberRecord,
    OffsetRecord,
    OffsetTombstone,
    TransactionMarker,
    decode,
    encode,
    fits,
    producer_of,
)
from shoal.wire.offsets_topic import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)

texts = st.text(max_size=20)
int32 = st.integers(0, 2**31 - 1)
int64 = st.integers(0, 2**63 - 1)
names = texts.filter(bool)

member_records = st.builds(
    MemberRecord,
    member_id=texts,
    instance_id=st.none() | texts,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=int32,
    session_timeout_ms=int32,
    subscription=st.binary(max_size=50),
    assignment=st.binary(max_size=50),
)
records = st.one_of(
    st.builds(
        GroupRecord,
        group_id=texts,
        protocol_type=st.none() | names,
        generation=int32,
        protocol=st.none() | texts,
        leader=st.none() | texts,
        state_timestamp_ms=st.none() | int64,
        members=st.lists(member_records, max_size=4).map(tuple),
    ),
    st.builds(GroupTombstone, texts),
    st.builds(OffsetTombstone, texts, texts, int32),
    st.builds(
        OffsetRecord,
        group_id=texts,
        topic=texts,
        partition=int32,
        offset=int64,
        leader_epoch=st.none() | int32,
        metadata=texts,
        commit_timestamp_ms=int64,
        expire_timestamp_ms=st.none(),
        producer_id=st.just(5),
        producer_epoch=st.just(2),
        topic_id=st.none() | st.binary(min_size=16, max_size=16).filter(any),
    ),
    st.builds(
        OffsetRecord,
        group_id=texts,
        topic=texts,
        partition=int32,
        offset=int64,
        leader_epoch=st.none(),
        metadata=texts,
        commit_timestamp_ms=int64,
        expire_timestamp_ms=st.none() | int64,
        producer_id=st.none(),
        producer_epoch=st.none(),
        topic_id=st.none(),
    ),
)


@given(records)
def test_what_is_written_is_read_back(record: JournalRecord) -> None:
    assert decode(*encode(record), producer=producer_of([record])) == record


def test_a_group_without_a_leader_has_bytes_that_kafka_can_read() -> None:
    record = GroupRecord("g", "consumer", 4, "range", None, 99)
    key, value = encode(record)
    assert key == b"\x00\x02" + b"\x00\x01g"
    assert value == struct.pack(">hh8sih5shqi", 3, 8, b"consumer", 4, 5, b"range", -1, 99, 0), (
        "v3: type, generation, protocol, no leader, time, no members"
    )


def test_keys_of_a_later_version_are_skipped() -> None:
    """KIP-915: somebody went back from a newer broker."""
    assert decode(struct.pack(">h", 99) + b"whatever", b"whatever") is None


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_an_offset_is_read(version: int) -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=7)
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = decode(encode_key(key), encode_value(value, version))
    assert isinstance(record, OffsetRecord)
    assert (record.offset, record.metadata, record.commit_timestamp_ms) == (5, "m", 7)
    assert record.leader_epoch == (2 if version >= 3 else None)


def test_an_expiry_of_minus_one_is_none() -> None:
    """KAFKA-8069: such offsets were taken for long expired."""
    value = OffsetCommitValue(offset=5, metadata="", commit_timestamp=7, expire_timestamp=-1)
    key = OffsetCommitKey(group="g", topic="t", partition=1)
    record = decode(encode_key(key), encode_value(value, 1))
    assert isinstance(record, OffsetRecord)
    assert record.expire_timestamp_ms is None


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_of_a_group_is_read(version: int) -> None:
    member = GroupMetadataValue.MemberMetadata(
        member_id="m",
        group_instance_id="i",
        client_id="c",
        client_host="/h",
        rebalance_timeout=20,
        session_timeout=10,
        subscription=b"s",
        assignment=b"a",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader="m",
        current_state_timestamp=9,
        members=[member],
    )
    record = decode(encode_key(GroupMetadataKey(group="g")), encode_value(value, version))
    assert isinstance(record, GroupRecord)
    assert record.generation == 3
    assert record.state_timestamp_ms == (9 if version >= 2 else None)
    assert record.members[0].instance_id == ("i" if version >= 3 else None)
    # Before v1 there is none: the session timeout counts.
    assert record.members[0].rebalance_timeout_ms == (20 if version >= 1 else 10)


def test_garbage_is_an_error_and_not_a_record() -> None:
    key, value = encode(GroupRecord("g", "consumer", 4, "range", None, 99))
    assert value is not None
    with pytest.raises(InvalidMessageError):
        decode(key, value[:-1])
    with pytest.raises(InvalidMessageError):
        decode(b"\x00", value)


def test_a_marker_is_no_key_and_value() -> None:
    marker = TransactionMarker(producer_id=3, producer_epoch=1, commit=True)
    assert producer_of([marker]) == (3, 1)
    with pytest.raises(TypeError):
        encode(marker)


def test_plain_records_have_no_producer() -> None:
    assert producer_of([GroupTombstone("g")]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a" * 8_000, True), ("a" * 32_767, True), ("a" * 32_768, False), ("é" * 16_384, False)],
)
def test_a_text_fits_if_its_bytes_do(text: str, expected: bool) -> None:
    assert fits(text) is expected
