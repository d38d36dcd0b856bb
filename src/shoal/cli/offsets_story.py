"""Records of ``__consumer_offsets`` as sentences: which group, and what happened to it.

Rule: for people who look for what a group did. Programs take ``--json``, which has every field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from shoal.cli.output import text_of
from shoal.errors import ShoalError, counted
from shoal.fleet.member_names import MemberIdentity, member_names
from shoal.types import TopicPartition
from shoal.wire import offsets_topic as stored
from shoal.wire.consumer_protocol import ConsumerProtocolAssignment

_STATES: Final = {0: "stable", 1: "has to give partitions up", 2: "waits for partitions"}


def tell_record(key: bytes | None, value: bytes | None) -> tuple[str | None, str]:
    """The group a record is about, and what it says."""
    if key is None:
        return None, f"a record without a key: {text_of(value)}"
    try:
        decoded = stored.decode_key(key)
        if isinstance(decoded, stored.UnknownKey):
            return None, f"a record of an unknown kind ({decoded.record_type})"
        group = getattr(decoded, "group", None) or getattr(decoded, "group_id", None)
        return group, _SENTENCES[type(decoded)](decoded, stored.decode_value(decoded, value))
    except ShoalError as error:
        return None, f"cannot be decoded: {error}"


def in_ranges(tps: Iterable[TopicPartition]) -> str:
    """Partitions as people write them: ``orders 0-3,7  payments 1``."""
    parts = []
    for topic, group in groupby(sorted(tps), key=lambda tp: tp.topic):
        parts.append(f"{topic} {runs(tp.partition for tp in group)}")
    return "  ".join(parts)


def runs(numbers: Iterable[int]) -> str:
    """Numbers as people write them: ``0-3,7``."""
    ordered = dict.fromkeys(sorted(numbers))  # a set that keeps its order
    starts = [n for n in ordered if n - 1 not in ordered]
    ends = [n for n in ordered if n + 1 not in ordered]
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def _commit(key: Any, value: Any) -> str:
    where = f"{key.topic}-{key.partition}"
    if value is None:
        return f"offset of {where} removed"
    note = f" (metadata {value.metadata!r})" if value.metadata else ""
    return f"committed {where} at {value.offset}{note}"


def _classic_group(_key: Any, value: Any) -> str:
    if value is None:
        return "group removed"
    if not value.members:
        return f"generation {value.generation}: no members"
    names = member_names(
        MemberIdentity(one.member_id, one.client_id, one.group_instance_id) for one in value.members
    )
    shares = [f"{names[one.member_id]} has {_share(one.assignment)}" for one in value.members]
    return (
        f"generation {value.generation}, {value.protocol}, "
        f"{counted(len(value.members), 'member')}: {'; '.join(shares)}"
    )


def _share(assignment: Any) -> str:
    if not assignment:
        return "nothing yet"
    try:
        return (
            in_ranges(ConsumerProtocolAssignment.decode(bytes(assignment)).partitions) or "nothing"
        )
    except ShoalError:
        return f"{len(assignment)} bytes of its own kind"


def _group_epoch(_key: Any, value: Any) -> str:
    return "group removed" if value is None else f"group epoch {value.epoch}"


def _partition_counts(_key: Any, value: Any) -> str:
    if value is None:
        return "list of topics removed"
    return "topics: " + ", ".join(
        f"{one.topic_name} ({one.num_partitions})" for one in value.topics
    )


def _member(key: Any, value: Any) -> str:
    if value is None:
        return f"member {key.member_id} gone"
    reads = [*value.subscribed_topic_names]
    if value.subscribed_topic_regex:
        reads.append(f"what matches {value.subscribed_topic_regex}")
    return (
        f"member {key.member_id} of {value.client_id} at {value.client_host} reads "
        f"{', '.join(reads) or 'nothing'}"
    )


def _target_epoch(_key: Any, value: Any) -> str:
    if value is None:
        return "target removed"
    return f"target of epoch {value.assignment_epoch}"


def _target(key: Any, value: Any) -> str:
    if value is None:
        return f"target of member {key.member_id} removed"
    return f"target of member {key.member_id}: {_by_id(value.topic_partitions)}"


def _current(key: Any, value: Any) -> str:
    if value is None:
        return f"assignment of member {key.member_id} removed"
    parts = [
        f"member {key.member_id} at epoch {value.member_epoch}",
        _STATES.get(value.state, f"state {value.state}"),
        f"has {_by_id(value.assigned_partitions)}",
    ]
    if value.partitions_pending_revocation:
        parts.append(f"gives up {_by_id(value.partitions_pending_revocation)}")
    return ", ".join(parts)


def _by_id(topics: Sequence[Any]) -> str:
    """The record has no names of topics, only their ids."""
    return "  ".join(f"{one.topic_id} {runs(one.partitions)}" for one in topics) or "nothing"


def _pattern(key: Any, value: Any) -> str:
    if value is None:
        return f"pattern {key.regular_expression} removed"
    return f"pattern {key.regular_expression} matches {', '.join(value.topics) or 'nothing'}"


_SENTENCES: Final[dict[type, Callable[[Any, Any], str]]] = {
    stored.OffsetCommitKey: _commit,
    stored.GroupMetadataKey: _classic_group,
    stored.ConsumerGroupMetadataKey: _group_epoch,
    stored.ConsumerGroupPartitionMetadataKey: _partition_counts,
    stored.ConsumerGroupMemberMetadataKey: _member,
    stored.ConsumerGroupTargetAssignmentMetadataKey: _target_epoch,
    stored.ConsumerGroupTargetAssignmentMemberKey: _target,
    stored.ConsumerGroupCurrentMemberAssignmentKey: _current,
    stored.ConsumerGroupRegularExpressionKey: _pattern,
}
