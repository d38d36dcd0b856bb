"""Keys and values of ``__consumer_offsets``: what a coordinator stores, in Kafka's bytes.

A key is an int16, which is the *type* of the record, and its fields; a value is an int16 version
and its fields; no value is a tombstone. Keys are never flexible: compaction compares their bytes.

    0, 1  offset commit (0 is read, 1 is written)     2  classic group
    3 - 8, 16  groups of the new protocol (KIP-848)   9 - 15, 17 on  share and streams groups

Rule: a type we do not know is an ``UnknownKey``, never an error (KIP-915): a newer broker may have
written it before somebody went back to us.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct as Layout
from typing import Final, TypeAlias

from shoal.errors import InvalidMessageError
from shoal.wire.schema import (
    ZERO_UUID,
    Array,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    Uuid,
    since,
    tagged,
)

_VERSION: Final = Layout(">h")


class OffsetCommitKey(Message, versions=(0, 1), flexible=None):
    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: Int64
    leader_epoch: Int32 = since(3, default=-1, ignorable=True)  # KIP-320
    metadata: String
    commit_timestamp: Int64
    # -1: the broker's retention counts (KIP-211, KAFKA-8069)
    expire_timestamp: Int64 = since(1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = tagged(0, since=4, default=ZERO_UUID, ignorable=True)


class GroupMetadataKey(Message, versions=(2, 2), flexible=None):
    group: String


class GroupMetadataValue(Message, versions=(0, 4), flexible=4):
    class MemberMetadata(Struct):
        member_id: String
        group_instance_id: String | None = since(3, default=None, ignorable=True)  # KIP-345
        client_id: String
        client_host: String
        rebalance_timeout: Int32 = since(1, default=-1, ignorable=True)  # -1: the session timeout
        session_timeout: Int32
        subscription: Bytes
        assignment: Bytes

    protocol_type: String  # empty: none
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = since(2, default=-1, ignorable=True)
    members: Array[MemberMetadata]


class ConsumerGroupMetadataKey(Message, versions=(3, 3), flexible=None):
    group_id: String


class ConsumerGroupMetadataValue(Message, versions=(0, 0), flexible=0):
    epoch: Int32
    metadata_hash: Int64 = tagged(0, since=0, default=0)


class ConsumerGroupPartitionMetadataKey(Message, versions=(4, 4), flexible=None):
    group_id: String


class ConsumerGroupPartitionMetadataValue(Message, versions=(0, 0), flexible=0):
    """Kafka 4.1 stopped writing it: the hash in ConsumerGroupMetadataValue does the same."""

    class PartitionMetadata(Struct):
        partition: Int32
        racks: Array[String]

    class TopicMetadata(Struct):
        topic_id: Uuid
        topic_name: String
        num_partitions: Int32
        partition_metadata: Array[ConsumerGroupPartitionMetadataValue.PartitionMetadata]

    topics: Array[TopicMetadata]


class ConsumerGroupMemberMetadataKey(Message, versions=(5, 5), flexible=None):
    group_id: String
    member_id: String


class ConsumerGroupMemberMetadataValue(Message, versions=(0, 0), flexible=0):
    class ClassicProtocol(Struct):
        name: String
        metadata: Bytes

    class ClassicMemberMetadata(Struct):
        """What a member of the classic protocol brought into a group of the new one."""

        session_timeout_ms: Int32
        supported_protocols: Array[ConsumerGroupMemberMetadataValue.ClassicProtocol]

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: Array[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = tagged(
        0, since=0, default=None, nullable_struct=True
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=(6, 6), flexible=None):
    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=(0, 0), flexible=0):
    assignment_epoch: Int32
    assignment_timestamp: Int64 = tagged(0, since=0, default=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=(7, 7), flexible=None):
    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=(0, 0), flexible=0):
    class TopicPartition(Struct):
        topic_id: Uuid
        partitions: Array[Int32]

    topic_partitions: Array[TopicPartition]


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=(8, 8), flexible=None):
    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=(0, 0), flexible=0):
    class TopicPartitions(Struct):
        topic_id: Uuid
        partitions: Array[Int32]
        # One for each partition; since 4.3.
        assignment_epochs: Array[Int32] | None = tagged(0, since=0, default=())

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: Array[TopicPartitions]
    partitions_pending_revocation: Array[TopicPartitions]


class ConsumerGroupRegularExpressionKey(Message, versions=(16, 16), flexible=None):
    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(Message, versions=(0, 0), flexible=0):
    topics: Array[String]
    version: Int64  # of the cluster metadata it was resolved with
    timestamp: Int64


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A record of a type we do not know; ``data`` is the whole key."""

    record_type: int
    data: bytes


Key: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
Value: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

# Type of a record → the classes of its key and its value.
RECORD_TYPES: Final[dict[int, tuple[type[Key], type[Value]]]] = {
    0: (OffsetCommitKey, OffsetCommitValue),
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    4: (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
_VALUE_OF: Final = dict(RECORD_TYPES.values())
_NEVER: Final = -1
_unpack_version: Final = _VERSION.unpack_from


def encode_key(key: Key) -> bytes:
    """The bytes of a key; an offset's is written as type 1."""
    return _VERSION.pack(key.MAX_VERSION) + key.encode(key.MAX_VERSION)


def decode_key(data: bytes | memoryview) -> Key | UnknownKey:
    """The key in ``data``; one of a type that we do not know is not an error."""
    if len(data) < _VERSION.size:
        raise _too_short(data, "a key")
    (record_type,) = _unpack_version(data)
    types = RECORD_TYPES.get(record_type)
    if types is None:
        return UnknownKey(record_type, bytes(data))
    return types[0].decode(data, record_type, start=_VERSION.size)


def encode_value(value: Value, version: int | None = None) -> bytes:
    """The bytes of a value, in the version that Kafka writes unless one is asked for.

    These are versions which every broker since 2.3 can read, but for an offset whose topic's id is
    known: that is version 4, which 4.2 and later write. One with a time of its own to expire needs
    version 1, the only one which has the field.
    """
    if version is None:
        version = _written_version(value)
    return _VERSION.pack(version) + value.encode(version)


def decode_value(key: Key, data: bytes | memoryview | None) -> Value | None:
    """The value that belongs to ``key``; ``None`` is a tombstone."""
    if data is None:
        return None
    if len(data) < _VERSION.size:
        raise _too_short(data, "a value")
    (version,) = _unpack_version(data)
    return _VALUE_OF[type(key)].decode(data, version, start=_VERSION.size)


def _written_version(value: Value) -> int:
    if isinstance(value, OffsetCommitValue):
        if value.expire_timestamp != _NEVER:
            return 1
        return 3 if value.topic_id == ZERO_UUID else 4
    if isinstance(value, GroupMetadataValue):
        return 3
    return value.MAX_VERSION


def _too_short(data: bytes | memoryview, what: str) -> InvalidMessageError:
    return InvalidMessageError(f"{what} of __consumer_offsets has {len(data)} bytes")
