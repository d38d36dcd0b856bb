"""Group records of ``__consumer_offsets``: one row per generation, member and assigned partition.

A classic group writes everything about a generation into one record. A group of the new protocol
(KIP-848) writes a record for each thing that changes, so its member and assignment rows have no
generation of their own; ``fold.py`` puts them together.

Rule: rare records, so the codec reads them one by one; bytes that members exchange among themselves
and that are not the consumer protocol (Connect has its own) leave topics and partitions empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoal.errors import InvalidMessageError
from shoal.fleet.decode import COMMIT_TYPES, Cells, micros, record_types
from shoal.fleet.tables import schema
from shoal.types import TopicPartition
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment, subscribed_topics
from shoal.wire.offsets_topic import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    UnknownKey,
    Value,
    decode_key,
    decode_value,
)

if TYPE_CHECKING:
    import pyarrow as pa

CONSUMER_PROTOCOL = "consumer"


class Place(NamedTuple):
    """Where and when a record was written."""

    partition: int
    offset: int
    time_us: int


@dataclass(frozen=True, slots=True)
class GroupRecordRow:
    """One group record; ``value`` is ``None`` for a tombstone."""

    key: Key
    value: Value | None
    place: Place

    @property
    def group(self) -> str:
        key = self.key
        return key.group if isinstance(key, OffsetCommitKey | GroupMetadataKey) else key.group_id


class Refused(NamedTuple):
    """A record that cannot be read."""

    reason: str
    key: bytes | None
    value: bytes | None
    place: Place


def group_rows(records: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of ``records`` which are not offset commits."""
    import pyarrow as pa

    types = record_types(Cells(_flat(records.column("key"))))
    return records.take(pa.array(np.flatnonzero(~np.isin(types, COMMIT_TYPES))))


def _flat(column: Any) -> pa.Array:
    return column.combine_chunks() if hasattr(column, "chunks") else column


def read_groups(records: pa.RecordBatch) -> tuple[list[GroupRecordRow], list[Refused]]:
    """The group records among ``records``; types that nobody knows are left out (KIP-915)."""
    found: list[GroupRecordRow] = []
    refused: list[Refused] = []
    for key, value, place in _cells(group_rows(records)):
        try:
            if key is None:
                raise InvalidMessageError("a record of __consumer_offsets without a key")
            name = decode_key(key)
            if not isinstance(name, UnknownKey):
                found.append(GroupRecordRow(name, decode_value(name, value), place))
        except InvalidMessageError as error:
            refused.append(Refused(str(error), key, value, place))
    return found, refused


def _cells(records: pa.RecordBatch) -> Iterator[tuple[bytes | None, bytes | None, Place]]:
    import pyarrow as pa

    times = records.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns = (records.column(name).to_pylist() for name in ("key", "value", "partition", "offset"))
    for key, value, partition, offset, time_us in zip(*columns, times.to_pylist(), strict=True):
        yield key, value, Place(partition, offset, time_us)


def topics_of(value: GroupMetadataValue, subscription: bytes) -> tuple[str, ...]:
    """The topics of a classic member; none if it does not speak the consumer protocol."""
    if value.protocol_type != CONSUMER_PROTOCOL or not subscription:
        return ()
    try:
        return subscribed_topics(subscription)
    except InvalidMessageError:
        return ()


def partitions_of(value: GroupMetadataValue, assignment: bytes) -> Sequence[TopicPartition]:
    """The partitions of a classic member; none if it does not speak the consumer protocol."""
    if value.protocol_type != CONSUMER_PROTOCOL or not assignment:
        return ()
    try:
        return ConsumerProtocolAssignment.decode(assignment).partitions
    except InvalidMessageError:
        return ()


def generation_table(events: Iterable[GroupRecordRow]) -> pa.RecordBatch:
    """One row for each generation a record tells of, and for each group that was deleted."""
    return _batch("generations", (row for event in events for row in _generation(event)))


def member_table(events: Iterable[GroupRecordRow]) -> pa.RecordBatch:
    """One row for each member a record tells of."""
    return _batch("members", (row for event in events for row in _members(event)))


def assignment_table(events: Iterable[GroupRecordRow]) -> pa.RecordBatch:
    """One row for each partition a record gives to a member."""
    return _batch("assignments", (row for event in events for row in _assignments(event)))


def refused_table(refused: Iterable[Refused]) -> pa.RecordBatch:
    """The records that cannot be read."""
    rows = (
        {"reason": one.reason, "key": one.key, "value": one.value, **_place(one.place)}
        for one in refused
    )
    return _batch("unreadable", rows)


def _batch(table: str, rows: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pylist(list(rows), schema(table))


def _place(place: Place) -> dict[str, int]:
    return {
        "log_partition": place.partition,
        "log_offset": place.offset,
        "log_time": place.time_us,
    }


def _row(event: GroupRecordRow, **columns: Any) -> dict[str, Any]:
    return {"group": event.group, **columns, **_place(event.place)}


def _generation(event: GroupRecordRow) -> Iterator[dict[str, Any]]:
    value = event.value
    if isinstance(event.key, GroupMetadataKey | ConsumerGroupMetadataKey) and value is None:
        kind = "classic" if isinstance(event.key, GroupMetadataKey) else "consumer"
        yield _row(event, protocol=kind, deleted=True)
    elif isinstance(value, GroupMetadataValue):
        since = value.current_state_timestamp
        yield _row(
            event,
            generation=value.generation,
            protocol="classic",
            protocol_type=value.protocol_type or None,
            assignor=value.protocol,
            leader=value.leader,
            members=len(value.members),
            assigned=is_assigned(value),
            state_time=None if since < 0 else micros(since),
            deleted=False,
        )
    elif isinstance(value, ConsumerGroupMetadataValue):
        yield _row(
            event, generation=value.epoch, protocol="consumer", assigned=False, deleted=False
        )
    elif isinstance(value, ConsumerGroupTargetAssignmentMetadataValue):
        since = value.assignment_timestamp
        yield _row(
            event,
            generation=value.assignment_epoch,
            protocol="consumer",
            assigned=True,
            state_time=micros(since) if since > 0 else None,
            deleted=False,
        )


def is_assigned(value: GroupMetadataValue) -> bool:
    """Whether the generation is whole: Shoal's broker also journals its start, without a leader."""
    return value.leader is not None or not value.members


def _members(event: GroupRecordRow) -> Iterator[dict[str, Any]]:
    value = event.value
    if isinstance(value, GroupMetadataValue):
        for one in value.members:
            yield _row(
                event,
                generation=value.generation,
                member_id=one.member_id,
                instance_id=one.group_instance_id,
                client_id=one.client_id,
                client_host=one.client_host,
                session_timeout_ms=one.session_timeout,
                rebalance_timeout_ms=rebalance_timeout_ms(one),
                topics=list(topics_of(value, one.subscription)),
                deleted=False,
            )
    elif isinstance(event.key, ConsumerGroupMemberMetadataKey):
        if value is None:
            yield _row(event, member_id=event.key.member_id, deleted=True)
        else:
            assert isinstance(value, ConsumerGroupMemberMetadataValue)
            yield _row(
                event,
                member_id=event.key.member_id,
                instance_id=value.instance_id,
                client_id=value.client_id,
                client_host=value.client_host,
                rebalance_timeout_ms=value.rebalance_timeout_ms,
                topics=list(value.subscribed_topic_names),
                deleted=False,
            )


def rebalance_timeout_ms(member: GroupMetadataValue.MemberMetadata) -> int:
    """Version 0 does not know it: then the session's counts."""
    own = member.rebalance_timeout
    return member.session_timeout if own < 0 else own


def _assignments(event: GroupRecordRow) -> Iterator[dict[str, Any]]:
    value = event.value
    if isinstance(value, GroupMetadataValue):
        # Until it is whole it repeats what its members had in the one before.
        for one in value.members if is_assigned(value) else ():
            for tp in partitions_of(value, one.assignment):
                yield _row(
                    event,
                    generation=value.generation,
                    member_id=one.member_id,
                    topic=tp.topic,
                    partition=tp.partition,
                )
    elif isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
        assert isinstance(event.key, ConsumerGroupTargetAssignmentMemberKey)
        for topic in value.topic_partitions:
            for number in topic.partitions:
                yield _row(
                    event,
                    member_id=event.key.member_id,
                    topic_id=bytes(topic.topic_id),
                    partition=number,
                )
