"""A group as its journal tells it: what the watcher of a simulation compares everything with.

Rule: much simpler than the coordinator, and none of its code.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.group.coordinator.journal import GroupRecord, MemberRecord
from shoal.types import TopicPartition
from shoal.wire import consumer_protocol


class GroupModel:
    """A group as its journal tells it."""

    __slots__ = ("generation", "has_leader", "members", "owners", "subscriptions")

    def __init__(self) -> None:
        self.generation = -1
        self.has_leader = False
        self.members: dict[str, str | None] = {}
        """Member id → instance id."""
        self.subscriptions: dict[str, frozenset[str]] = {}
        self.owners: dict[TopicPartition, str] = {}
        """Of this generation, once its leader has spoken."""

    def adopt(self, record: GroupRecord) -> None:
        if record.generation != self.generation:
            self.owners = {}
        self.generation = record.generation
        self.has_leader = record.leader is not None
        self.members = {each.member_id: each.instance_id for each in record.members}
        self.subscriptions = {
            each.member_id: frozenset(consumer_protocol.subscribed_topics(each.subscription))
            for each in record.members
        }
        if self.has_leader:
            self.owners = {
                tp: member.member_id for member in record.members for tp in assigned(member)
            }


def assigned(member: MemberRecord) -> Sequence[TopicPartition]:
    if not member.assignment:
        return ()
    return consumer_protocol.ConsumerProtocolAssignment.decode(member.assignment).partitions
