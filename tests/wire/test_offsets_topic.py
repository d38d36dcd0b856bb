"""Records of __consumer_offsets against bytes which Kafka 4.3's own classes wrote."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidMessageError
from shoal.wire.offsets_topic import (
    RECORD_TYPES,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

TOPIC_ID = bytes.fromhex("0000000000000001 0000000000000002")
OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=1)
OFFSET = OffsetCommitValue(
    offset=5,
    leader_epoch=2,
    metadata="m",
    commit_timestamp=9,
    expire_timestamp=11,
    topic_id=TOPIC_ID,
)
OFFSET_BYTES = {
    0: "0000000000000000000500016d0000000000000009",
    1: "0001000000000000000500016d0000000000000009000000000000000b",
    2: "0002000000000000000500016d0000000000000009",
    3: "000300000000000000050000000200016d0000000000000009",
    4: "0004000000000000000500000002026d000000000000000901001000000000000000010000000000000002",
}
GROUP_KEY = GroupMetadataKey(group="g")
GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader=None,
    current_state_timestamp=77,
    members=[
        GroupMetadataValue.MemberMetadata(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="/h",
            rebalance_timeout=4,
            session_timeout=5,
            subscription=b"\1",
            assignment=b"\2\3",
        )
    ],
)
HEAD = "0008636f6e73756d657200000003000572616e6765ffff"
TAIL = "00016300022f68"
BLOBS = "0000000101000000020203"
GROUP_BYTES = {
    0: f"0000{HEAD}0000000100016d{TAIL}00000005{BLOBS}",
    1: f"0001{HEAD}0000000100016d{TAIL}0000000400000005{BLOBS}",
    2: f"0002{HEAD}000000000000004d0000000100016d{TAIL}0000000400000005{BLOBS}",
    3: f"0003{HEAD}000000000000004d0000000100016d000169{TAIL}0000000400000005{BLOBS}",
    4: "000409636f6e73756d6572000000030672616e676500000000000000004d02026d0269"
    "0263032f68000000040000000502010302030000",
}


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_written_as_kafka_writes_them(version):
    data = bytes.fromhex(OFFSET_BYTES[version])
    assert encode_value(OFFSET, version) == data
    read = decode_value(OFFSET_KEY, data)
    assert isinstance(read, OffsetCommitValue)
    assert encode_value(read, version) == data
    assert (read.offset, read.metadata, read.commit_timestamp) == (5, "m", 9)
    assert read.leader_epoch == (2 if version >= 3 else -1)
    assert read.expire_timestamp == (11 if version == 1 else -1)


@pytest.mark.parametrize("version", range(5))
def test_groups_are_written_as_kafka_writes_them(version):
    data = bytes.fromhex(GROUP_BYTES[version])
    assert encode_value(GROUP, version) == data
    read = decode_value(GROUP_KEY, data)
    assert isinstance(read, GroupMetadataValue)
    assert encode_value(read, version) == data
    assert read.members[0].group_instance_id == ("i" if version >= 3 else None)


def test_values_are_written_in_the_versions_kafka_writes():
    plain = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    assert encode_value(plain)[:2] == b"\0\3"
    known = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, topic_id=b"t" * 16)
    assert encode_value(known)[:2] == b"\0\4"
    assert encode_value(OFFSET)[:2] == b"\0\1", "an explicit time to expire exists only in v1"
    assert encode_value(GROUP)[:2] == b"\0\3"
    assert encode_value(ConsumerGroupMetadataValue(epoch=1))[:2] == b"\0\0"


def test_an_offset_key_is_read_as_type_0_and_1_and_written_as_1():
    data = bytes.fromhex("000100016700017400000001")
    assert encode_key(OFFSET_KEY) == data
    assert decode_key(data) == OFFSET_KEY
    assert decode_key(b"\0\0" + data[2:]) == OFFSET_KEY


def test_records_of_the_new_protocol_are_written_as_kafka_writes_them():
    current = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=1,
        previous_member_epoch=0,
        state=1,
        assigned_partitions=[
            ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions(
                topic_id=TOPIC_ID, partitions=[1, 2], assignment_epochs=[3, 4]
            )
        ],
        partitions_pending_revocation=[],
    )
    assert encode_value(current) == bytes.fromhex(
        "000000000001000000000102000000000000000100000000000000020300000001000000020100090300000003"
        "000000040100"
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    assert decode_value(key, encode_value(current)) == current
    group = ConsumerGroupMetadataValue(epoch=5, metadata_hash=9)
    assert encode_value(group) == bytes.fromhex("0000000000050100080000000000000009")
    target = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=5, assignment_timestamp=9)
    assert encode_value(target) == bytes.fromhex("0000000000050100080000000000000009")


MEMBER_KEY = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")


def member(classic: ConsumerGroupMemberMetadataValue.ClassicMemberMetadata | None):
    return ConsumerGroupMemberMetadataValue(
        instance_id="",
        rack_id="",
        client_id="c",
        client_host="h",
        subscribed_topic_names=[],
        subscribed_topic_regex="",
        server_assignor=None,
        classic_member_metadata=classic,
    )


@pytest.mark.parametrize(
    ("classic", "data"),
    [
        # Kafka's default of this tagged field is a struct of defaults, and null is written out.
        (None, "00000101026302680101ffffffff0001000100"),
        ((0, ()), "00000101026302680101ffffffff0000"),
        ((7, ()), "00000101026302680101ffffffff000100070100000007 0100"),
    ],
)
def test_the_classic_part_of_a_member_may_be_null_default_or_a_value(classic, data):
    if classic is not None:
        classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=classic[0], supported_protocols=classic[1]
        )
    value = member(classic)
    assert encode_value(value) == bytes.fromhex(data)
    assert decode_value(MEMBER_KEY, bytes.fromhex(data)) == value


def test_two_absent_classic_parts_are_not_one_object():
    data = bytes.fromhex("00000101026302680101ffffffff0000")
    one, other = decode_value(MEMBER_KEY, data), decode_value(MEMBER_KEY, data)
    assert isinstance(one, ConsumerGroupMemberMetadataValue)
    assert isinstance(other, ConsumerGroupMemberMetadataValue)
    assert one.classic_member_metadata is not other.classic_member_metadata


def test_no_value_is_a_tombstone():
    assert decode_value(OFFSET_KEY, None) is None


@pytest.mark.parametrize("record_type", [9, 10, 15, 17, 23, 999, -1])
def test_a_key_of_an_unknown_type_is_reported_and_not_an_error(record_type):
    data = record_type.to_bytes(2, "big", signed=True) + b"whatever"
    assert decode_key(data) == UnknownKey(record_type, data)


@pytest.mark.parametrize("data", [b"", b"\0"])
def test_bytes_without_a_version_are_refused(data):
    with pytest.raises(InvalidMessageError, match="key"):
        decode_key(data)
    with pytest.raises(InvalidMessageError, match="value"):
        decode_value(OFFSET_KEY, data)


def test_a_value_of_an_unknown_version_is_refused():
    with pytest.raises(InvalidMessageError, match="versions 0 to 4, not 5"):
        decode_value(OFFSET_KEY, b"\0\5" + bytes(30))


@pytest.mark.parametrize("record_type", sorted(RECORD_TYPES))
def test_a_type_is_the_version_of_its_key(record_type):
    key_type, _ = RECORD_TYPES[record_type]
    assert key_type.has_version(record_type)
    assert not any(key_type.is_flexible(v) for v in range(key_type.MAX_VERSION + 1))


@given(st.binary(max_size=60))
def test_garbage_gives_a_value_or_our_own_error(data):
    with contextlib.suppress(InvalidMessageError):
        decode_key(data)
    for key in (
        OFFSET_KEY,
        GROUP_KEY,
        MEMBER_KEY,
        ConsumerGroupMetadataKey(group_id="g"),
        ConsumerGroupTargetAssignmentMetadataKey(group_id="g"),
    ):
        with contextlib.suppress(InvalidMessageError):
            decode_value(key, data)


@pytest.mark.parametrize("others", [None, {5: b"x"}])
def test_a_struct_whose_tag_is_missing_is_one_of_defaults(others: dict[int, bytes] | None) -> None:
    """Not null, which has to be said; with other tags beside it, too."""
    defaults = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
        session_timeout_ms=0, supported_protocols=()
    )
    value = member(defaults)
    value.unknown_tagged_fields = others
    decoded = ConsumerGroupMemberMetadataValue.decode(value.encode(0), 0)
    assert decoded.classic_member_metadata == defaults
    assert decoded.unknown_tagged_fields == others
