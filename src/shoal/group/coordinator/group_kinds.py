"""Which kind of group a record is about.

Rule: the only place that knows all kinds. A new one is its modules, a line here and its requests
in ``requests.py``.
"""

from __future__ import annotations

from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.consumer_journal import ConsumerGroupTombstone, ConsumerRecordType
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.journal import GroupRecord, GroupTombstone, KindRecord
from shoal.group.coordinator.states import GroupType

_CLASSIC = frozenset({GroupRecord, GroupTombstone})


def kind_of(record: KindRecord) -> GroupType:
    """The kind that writes such records."""
    return GroupType.CLASSIC if type(record) in _CLASSIC else GroupType.CONSUMER


def ends_group(record: KindRecord) -> bool:
    """Whether nothing is left of the group after it."""
    return isinstance(record, GroupTombstone) or (
        isinstance(record, ConsumerGroupTombstone) and record.type is ConsumerRecordType.EPOCH
    )


def says_nothing(record: KindRecord) -> bool:
    """Whether it only takes back what was said: without a group there is nothing to take back."""
    return isinstance(record, GroupTombstone | ConsumerGroupTombstone)


def group_for(record: KindRecord) -> Group:
    """An empty group that understands the record."""
    if kind_of(record) is GroupType.CONSUMER:
        return ConsumerGroup(record.group_id)
    return ClassicGroup(record.group_id)


def simple_group(group_id: str) -> Group:
    """A group that only stores offsets. As in Kafka it is a classic one without members."""
    return ClassicGroup(group_id)
