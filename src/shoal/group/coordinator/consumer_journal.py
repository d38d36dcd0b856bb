"""The records of a consumer group (KIP-848) in ``__consumer_offsets``: types 3 to 8 and 16.

    3   ConsumerGroupEpoch       5   ConsumerMemberMetadata   7   TargetAssignment
    4   LegacyPartitionMetadata  6   TargetEpoch              8   CurrentAssignment
    16  ResolvedRegex

Type 4 is read only: Kafka stopped writing it with 4.1, and so its one content here is that it is
there. What a type says no longer is one ``ConsumerGroupTombstone``.

Rule: facts and their bytes, which are Kafka's own; what follows from them is in
``consumer_group.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

from shoal.assign.server import Target, TopicId
from shoal.wire.offsets_topic import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    Key,
    decode_value,
    encode_key,
    encode_value,
)

PartitionEpochs: TypeAlias = Mapping[TopicId, Mapping[int, int]]
"""Topic id → partition → the target epoch at which the member was given it (KIP-1251)."""

NO_PARTITIONS: Final[PartitionEpochs] = {}


class ReconciliationState(IntEnum):
    """How far a member is on its way to its target. The numbers are Kafka's, on disk."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    """It must give something up before it may go on."""
    UNRELEASED_PARTITIONS = 2
    """It is at the target epoch, but something of its target is still somebody else's."""
    UNKNOWN = 127
    """Written by a newer broker."""


class ConsumerRecordType(IntEnum):
    """The first number of a key."""

    EPOCH = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


@dataclass(frozen=True, slots=True)
class ConsumerGroupEpoch:
    group_id: str
    epoch: int
    metadata_hash: int = 0
    """Of the topics subscribed to, when the epoch began. Only compared with our own."""


@dataclass(frozen=True, slots=True)
class LegacyPartitionMetadata:
    group_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member of the classic protocol said in its last JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMemberMetadata(NamedTuple):
    """What a member told about itself.

    A tuple, as all that a restart makes one of for each member: they are made twice as fast as
    frozen dataclasses.
    """

    group_id: str
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicProtocols | None = None
    """It speaks the classic protocol."""


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    group_id: str
    epoch: int
    timestamp_ms: int = 0


class TargetAssignment(NamedTuple):
    group_id: str
    member_id: str
    partitions: Target


class CurrentAssignment(NamedTuple):
    """Where a member is, and what it may hold."""

    group_id: str
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: ReconciliationState = ReconciliationState.STABLE
    assigned: PartitionEpochs = NO_PARTITIONS
    pending_revocation: PartitionEpochs = NO_PARTITIONS


@dataclass(frozen=True, slots=True)
class ResolvedRegex:
    group_id: str
    regex: str
    topics: frozenset[str]
    version: int
    """Of the topics it was compared with."""
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupTombstone:
    """What a record of this type said of this group, and member or expression, is over."""

    type: ConsumerRecordType
    group_id: str
    name: str = ""


ConsumerRecord: TypeAlias = (
    ConsumerGroupEpoch
    | LegacyPartitionMetadata
    | ConsumerMemberMetadata
    | TargetEpoch
    | TargetAssignment
    | CurrentAssignment
    | ResolvedRegex
    | ConsumerGroupTombstone
)


def member_tombstones(group_id: str, member_id: str) -> tuple[ConsumerGroupTombstone, ...]:
    """In the order in which Kafka wants to read them."""
    return (
        ConsumerGroupTombstone(ConsumerRecordType.CURRENT, group_id, member_id),
        ConsumerGroupTombstone(ConsumerRecordType.TARGET, group_id, member_id),
        ConsumerGroupTombstone(ConsumerRecordType.MEMBER, group_id, member_id),
    )


# --- Bytes -------------------------------------------------------------------------------------


def encode_consumer_record(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    match record:
        case ConsumerGroupTombstone():
            return encode_key(_key(record.type, record.group_id, record.name)), None
        case ConsumerGroupEpoch():
            value: Any = ConsumerGroupMetadataValue(
                epoch=record.epoch, metadata_hash=record.metadata_hash
            )
            key = _key(ConsumerRecordType.EPOCH, record.group_id)
        case LegacyPartitionMetadata():
            value = ConsumerGroupPartitionMetadataValue(topics=[])
            key = _key(ConsumerRecordType.PARTITION_METADATA, record.group_id)
        case ConsumerMemberMetadata():
            value = _member_value(record)
            key = _key(ConsumerRecordType.MEMBER, record.group_id, record.member_id)
        case TargetEpoch():
            value = ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=record.epoch, assignment_timestamp=record.timestamp_ms
            )
            key = _key(ConsumerRecordType.TARGET_EPOCH, record.group_id)
        case TargetAssignment():
            value = _target_value(record)
            key = _key(ConsumerRecordType.TARGET, record.group_id, record.member_id)
        case CurrentAssignment():
            value = _current_value(record)
            key = _key(ConsumerRecordType.CURRENT, record.group_id, record.member_id)
        case ResolvedRegex():
            value = ConsumerGroupRegularExpressionValue(
                topics=sorted(record.topics), version=record.version, timestamp=record.timestamp_ms
            )
            key = _key(ConsumerRecordType.REGEX, record.group_id, record.regex)
    return encode_key(key), encode_value(value)


def decode_consumer_record(key: Key, data: bytes | memoryview | None) -> ConsumerRecord | None:
    """The record under a key; ``None`` if the key is not one of a consumer group."""
    row = _DECODED_BY.get(type(key))
    if row is None:
        return None
    record_type, name_of, record_of = row
    group_id: str = key.group_id  # type: ignore[union-attr]  # all keys in the table have it
    name = name_of(key)
    value: Any = decode_value(key, data)
    if value is None:
        return ConsumerGroupTombstone(record_type, group_id, name)
    return record_of(group_id, name, value)


def _target_record(
    group_id: str, member_id: str, value: ConsumerGroupTargetAssignmentMemberValue
) -> TargetAssignment:
    partitions = {each.topic_id: sorted(each.partitions) for each in value.topic_partitions}
    return TargetAssignment(group_id, member_id, partitions)


_TYPE_OF: Final[dict[type, ConsumerRecordType]] = {
    ConsumerGroupMetadataKey: ConsumerRecordType.EPOCH,
    ConsumerGroupPartitionMetadataKey: ConsumerRecordType.PARTITION_METADATA,
    ConsumerGroupMemberMetadataKey: ConsumerRecordType.MEMBER,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerRecordType.TARGET_EPOCH,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerRecordType.TARGET,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerRecordType.CURRENT,
    ConsumerGroupRegularExpressionKey: ConsumerRecordType.REGEX,
}
_KEY_OF: Final[dict[ConsumerRecordType, Any]] = {value: key for key, value in _TYPE_OF.items()}
_OF_MEMBERS: Final = frozenset(
    {ConsumerRecordType.MEMBER, ConsumerRecordType.TARGET, ConsumerRecordType.CURRENT}
)


def _key(record_type: ConsumerRecordType, group_id: str, name: str = "") -> Key:
    make = _KEY_OF[record_type]
    key: Key
    if record_type in _OF_MEMBERS:
        key = make(group_id=group_id, member_id=name)
    elif record_type is ConsumerRecordType.REGEX:
        key = make(group_id=group_id, regular_expression=name)
    else:
        key = make(group_id=group_id)
    return key


def _member_value(record: ConsumerMemberMetadata) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if record.classic is not None:
        classic = ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
            session_timeout_ms=record.classic.session_timeout_ms,
            supported_protocols=[
                ConsumerGroupMemberMetadataValue.ClassicProtocol(name=name, metadata=metadata)
                for name, metadata in record.classic.protocols
            ],
        )
    return ConsumerGroupMemberMetadataValue(
        instance_id=record.instance_id,
        rack_id=record.rack_id,
        client_id=record.client_id,
        client_host=record.client_host,
        subscribed_topic_names=sorted(record.topics),
        subscribed_topic_regex=record.regex,
        rebalance_timeout_ms=record.rebalance_timeout_ms,
        server_assignor=record.server_assignor,
        classic_member_metadata=classic,
    )


def _member_record(
    group_id: str, member_id: str, value: ConsumerGroupMemberMetadataValue
) -> ConsumerMemberMetadata:
    classic = value.classic_member_metadata
    return ConsumerMemberMetadata(
        group_id=group_id,
        member_id=member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=_shared(tuple(value.subscribed_topic_names)),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicProtocols(
            classic.session_timeout_ms,
            tuple((each.name, bytes(each.metadata)) for each in classic.supported_protocols),
        ),
    )


def _target_value(record: TargetAssignment) -> ConsumerGroupTargetAssignmentMemberValue:
    return ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            ConsumerGroupTargetAssignmentMemberValue.TopicPartition(
                topic_id=topic_id, partitions=partitions
            )
            for topic_id, partitions in sorted(record.partitions.items())
        ]
    )


_Rows: TypeAlias = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions


def _current_value(record: CurrentAssignment) -> ConsumerGroupCurrentMemberAssignmentValue:
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=record.member_epoch,
        previous_member_epoch=record.previous_member_epoch,
        state=record.state,
        assigned_partitions=_rows(record.assigned),
        partitions_pending_revocation=_rows(record.pending_revocation),
    )


def _rows(partitions: PartitionEpochs) -> list[_Rows]:
    return [
        _Rows(
            topic_id=topic_id,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[each] for each in sorted(epochs)],
        )
        for topic_id, epochs in sorted(partitions.items())
    ]


def _current_record(
    group_id: str, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue
) -> CurrentAssignment:
    return CurrentAssignment(
        group_id=group_id,
        member_id=member_id,
        member_epoch=value.member_epoch,
        previous_member_epoch=value.previous_member_epoch,
        state=_STATES.get(value.state, ReconciliationState.UNKNOWN),
        assigned=_partitions(value.assigned_partitions, value.member_epoch),
        pending_revocation=_partitions(value.partitions_pending_revocation, value.member_epoch),
    )


@lru_cache(maxsize=1_024)
def _shared(topics: tuple[str, ...]) -> frozenset[str]:
    """The members of a group want the same, and need not have it in memory once for each."""
    return frozenset(topics)


_STATES: Final = {int(each): each for each in ReconciliationState}


def _partitions(rows: Iterable[_Rows], member_epoch: int) -> PartitionEpochs:
    """Before 4.3 nobody wrote epochs; the member's own stands for them."""
    found: dict[TopicId, dict[int, int]] = {}
    for row in rows:
        numbers, epochs = row.partitions, row.assignment_epochs or ()
        if len(epochs) != len(numbers):
            epochs = [max(member_epoch, 0)] * len(numbers)
        found[row.topic_id] = dict(zip(numbers, epochs, strict=True))
    return found


# What makes a record of the group, the name in the key, and the value.
_RECORD_OF: Final[dict[ConsumerRecordType, Callable[[str, str, Any], ConsumerRecord]]] = {
    ConsumerRecordType.EPOCH: lambda group, _, value: ConsumerGroupEpoch(
        group, value.epoch, value.metadata_hash
    ),
    ConsumerRecordType.PARTITION_METADATA: lambda group, _, __: LegacyPartitionMetadata(group),
    ConsumerRecordType.MEMBER: _member_record,
    ConsumerRecordType.TARGET_EPOCH: lambda group, _, value: TargetEpoch(
        group, value.assignment_epoch, value.assignment_timestamp
    ),
    ConsumerRecordType.TARGET: _target_record,
    ConsumerRecordType.CURRENT: _current_record,
    ConsumerRecordType.REGEX: lambda group, name, value: ResolvedRegex(
        group, name, frozenset(value.topics), value.version, value.timestamp
    ),
}


def _name_of(record_type: ConsumerRecordType) -> Callable[[Any], str]:
    if record_type in _OF_MEMBERS:
        return attrgetter("member_id")
    if record_type is ConsumerRecordType.REGEX:
        return attrgetter("regular_expression")
    return lambda _: ""


# All that decoding needs to know of a type of key, in one look.
_DECODED_BY: Final = {
    key_type: (record_type, _name_of(record_type), _RECORD_OF[record_type])
    for key_type, record_type in _TYPE_OF.items()
}
