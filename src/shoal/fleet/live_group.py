"""A group of a live cluster as the planner wants it: members, what they read, how far behind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shoal.assign.plan import PlannedGroup, PlannedMember, PlannedTopic
from shoal.errors import ConfigError
from shoal.fleet.member_names import MemberIdentity, member_names
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin


def live_group(admin: Admin, group_id: str, watch_s: float = 0.0) -> PlannedGroup:
    """A group as it is now: members, what they read, how far they are behind, and how fast what
    they read grows, measured for ``watch_s`` seconds."""
    found = admin.describe_group(group_id)
    if found.state == "Dead":
        raise ConfigError(f"there is no group {group_id!r}; `shoal group list` shows them")
    if not found.members:
        raise ConfigError(f"group {group_id!r} has no members now; describe it in a file instead")
    names = member_names(
        MemberIdentity(one.member_id, one.client_id, one.group_instance_id) for one in found.members
    )
    wanted = sorted({topic for one in found.members for topic in one.topics})
    lags = {tp: one.lag or 0 for tp, one in admin.group_lag(group_id).items()}
    speeds = _bytes_per_s(admin, wanted, watch_s) if watch_s > 0 else {}
    topics = {}
    for name, topic in admin.describe_topics(*wanted).items():
        partitions = [TopicPartition(name, number) for number in range(len(topic.partitions))]
        topics[name] = PlannedTopic(
            len(partitions),
            lag=[lags.get(tp, 0) for tp in partitions],
            bytes_per_s=[speeds.get(tp, 0.0) for tp in partitions] if speeds else (),
        )
    return PlannedGroup(
        topics,
        {
            names[one.member_id]: PlannedMember(tuple(sorted(one.topics)), one.group_instance_id)
            for one in found.members
        },
        None if found.protocol == "consumer" else found.assignor or None,
        {names[one.member_id]: sorted(one.assignment) for one in found.members},
        found.protocol,
    )


def _bytes_per_s(admin: Admin, topics: list[str], seconds: float) -> dict[TopicPartition, float]:
    """How fast partitions grow on disk; one that retention made smaller counts as idle."""
    before, began = admin.partition_sizes(*topics), time.monotonic()
    time.sleep(seconds)
    after, taken = admin.partition_sizes(*topics), time.monotonic() - began
    return {tp: max(0, size - before.get(tp, 0)) / taken for tp, size in after.items()}
