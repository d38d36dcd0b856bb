"""What ``__consumer_offsets`` holds: typed records, and their keys and values as bytes.

A record is a fact: applying the facts of a partition in order, from the start, gives the state of
its coordinator. The bytes are Kafka's own, so its tools read our journal and we read theirs.

One thing is ours. Kafka writes a group only when the leader's assignment arrives, so a
coordinator that dies before forgets the generation it gave out and gives it out again. We write
the group at the *start* of each generation too, without a leader and without assignments: no
leader has spoken for that generation yet. Kafka never writes members without a leader, so such a
record can only mean this.

Rule: unknown keys are skipped (KIP-915), a value of ``None`` is a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from shoal.group.coordinator.consumer_journal import (
    ConsumerRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from shoal.wire.offsets_topic import (
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
from shoal.wire.schema import ZERO_UUID

_PARTITION: Final = Struct(">i")
TEXT_BYTES_MAX: Final = 32_767
"""No text of a record is longer. Requests may carry longer ones; they must be refused before a
record is made of them."""

NEVER: Final = -1


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One member of a generation."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    """The member's metadata for the protocol of the generation."""
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A classic group at the start of a generation, or when its assignment is known."""

    group_id: str
    protocol_type: str | None
    generation: int
    protocol: str | None
    leader: str | None
    """``None`` with members: the leader's assignment has not been stored."""
    state_timestamp_ms: int | None
    members: tuple[MemberRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupTombstone:
    group_id: str


class OffsetRecord(NamedTuple):
    """A committed position. With a producer id it counts only after that producer's marker.

    A tuple: a restart makes a million of them, and a frozen dataclass costs twice as much.
    """

    group_id: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    topic_id: bytes | None = None
    """Of the topic that had the name; ``None`` if nobody knew."""


class OffsetTombstone(NamedTuple):
    """The end of a position. A tuple as well: a group that is deleted has one for each."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The end of a producer's transaction: a control batch in the log, not a key and a value."""

    producer_id: int
    producer_epoch: int
    commit: bool


KindRecord: TypeAlias = GroupRecord | GroupTombstone | ConsumerRecord
"""What only one kind of group writes about itself and understands."""

JournalRecord: TypeAlias = KindRecord | OffsetRecord | OffsetTombstone | TransactionMarker


def fits(text: str) -> bool:
    """May this become part of a record?"""
    # A character has up to four bytes; most texts need no closer look.
    return len(text) * 4 <= TEXT_BYTES_MAX or len(text.encode()) <= TEXT_BYTES_MAX


# --- Bytes -------------------------------------------------------------------------------------


def producer_of(records: Sequence[JournalRecord]) -> tuple[int, int] | None:
    """Id and epoch for the batch that holds these records; ``None`` for a plain one.

    A ``TransactionMarker`` stands alone and is written as a control batch.
    """
    first = records[0]
    if isinstance(first, TransactionMarker):
        return (first.producer_id, first.producer_epoch)
    if isinstance(first, OffsetRecord) and first.producer_id is not None:
        assert first.producer_epoch is not None
        return (first.producer_id, first.producer_epoch)
    return None


def encode(record: JournalRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    match record:
        case GroupRecord():
            return encode_key(GroupMetadataKey(group=record.group_id)), _group_value(record)
        case GroupTombstone():
            return encode_key(GroupMetadataKey(group=record.group_id)), None
        case OffsetRecord():
            return _offset_key(record), _offset_value(record)
        case OffsetTombstone():
            return _offset_key(record), None
        case TransactionMarker():
            raise TypeError("a transaction marker is a control batch, not a key and a value")
        case _:
            return encode_consumer_record(record)


def decode(
    key: bytes | memoryview,
    value: bytes | memoryview | None,
    *,
    producer: tuple[int, int] | None = None,
) -> JournalRecord | None:
    """The record in a key and a value; ``None`` if it is of a type we do not use.

    ``producer`` is the id and epoch of the batch if it is transactional.

    Raises:
        InvalidMessageError: The bytes are not what their type says.
    """
    name = decode_key(key)
    if isinstance(name, OffsetCommitKey):
        if value is None:
            return OffsetTombstone(name.group, name.topic, name.partition)
        position = decode_value(name, value)
        assert isinstance(position, OffsetCommitValue)
        return _offset_record(name, position, producer)
    if isinstance(name, GroupMetadataKey):
        if value is None:
            return GroupTombstone(name.group)
        group = decode_value(name, value)
        assert isinstance(group, GroupMetadataValue)
        return _group_record(name.group, group)
    return None if isinstance(name, UnknownKey) else decode_consumer_record(name, value)


def _group_value(record: GroupRecord) -> bytes:
    since = record.state_timestamp_ms
    return encode_value(
        GroupMetadataValue(
            protocol_type=record.protocol_type or "",
            generation=record.generation,
            protocol=record.protocol,
            leader=record.leader,
            current_state_timestamp=-1 if since is None else since,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=each.member_id,
                    group_instance_id=each.instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    rebalance_timeout=each.rebalance_timeout_ms,
                    session_timeout=each.session_timeout_ms,
                    subscription=each.subscription,
                    assignment=each.assignment,
                )
                for each in record.members
            ],
        )
    )


def _group_record(group_id: str, value: GroupMetadataValue) -> GroupRecord:
    since = value.current_state_timestamp
    return GroupRecord(
        group_id=group_id,
        protocol_type=value.protocol_type or None,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_timestamp_ms=None if since < 0 else since,
        members=tuple(_member_record(each) for each in value.members),
    )


def _member_record(each: GroupMetadataValue.MemberMetadata) -> MemberRecord:
    rebalance_timeout_ms = each.rebalance_timeout
    if rebalance_timeout_ms < 0:
        rebalance_timeout_ms = each.session_timeout  # Version 0 does not know it.
    return MemberRecord(
        member_id=each.member_id,
        instance_id=each.group_instance_id,
        client_id=each.client_id,
        client_host=each.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        session_timeout_ms=each.session_timeout,
        subscription=bytes(each.subscription),
        assignment=bytes(each.assignment),
    )


def _offset_key(record: OffsetRecord | OffsetTombstone) -> bytes:
    return _before_partition(record.group_id, record.topic) + _PARTITION.pack(record.partition)


@lru_cache(maxsize=256)
def _before_partition(group_id: str, topic: str) -> bytes:
    """The keys of a group's thousands of partitions differ in their last bytes alone."""
    return encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=0))[: -_PARTITION.size]


def _offset_value(record: OffsetRecord) -> bytes:
    expire_ms = record.expire_timestamp_ms
    # The one version with an expiry has no leader epoch; nor have the requests that ask for one.
    assert expire_ms is None or record.leader_epoch is None
    return encode_value(
        OffsetCommitValue(
            offset=record.offset,
            leader_epoch=-1 if record.leader_epoch is None else record.leader_epoch,
            metadata=record.metadata,
            commit_timestamp=record.commit_timestamp_ms,
            expire_timestamp=NEVER if expire_ms is None else expire_ms,
            topic_id=record.topic_id or ZERO_UUID,
        )
    )


def _offset_record(
    key: OffsetCommitKey, value: OffsetCommitValue, producer: tuple[int, int] | None
) -> OffsetRecord:
    expire_ms = value.expire_timestamp
    producer_id, producer_epoch = producer or (None, None)
    return OffsetRecord(
        group_id=key.group,
        topic=key.topic,
        partition=key.partition,
        offset=value.offset,
        leader_epoch=None if value.leader_epoch < 0 else value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        # KAFKA-8069: -1 is no expiry, not one long past.
        expire_timestamp_ms=None if expire_ms == NEVER else expire_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        topic_id=None if value.topic_id == ZERO_UUID else bytes(value.topic_id),
    )
