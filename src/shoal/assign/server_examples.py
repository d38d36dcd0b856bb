"""Two assignors for the broker that look at more than how many: ``weighted`` and ``drain``.

To use them, and to begin your own with: ``shoal serve --assignor weighted``. Both leave a partition
where it is as long as that costs little evenness, and hand out the rest, the most expensive first,
to whoever has least for its weight. A member of weight 0 gets nothing while others can take it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heapreplace
from typing import Final

from shoal.assign.server_spec import GroupSpec, ServerAssignment, SpecMember, SpecPartition
from shoal.types import TopicPartition

_TOLERANCE: Final = 1.1
"""A member may keep what it has while it has at most so much of its share."""


def weighted(spec: GroupSpec) -> ServerAssignment:
    """By work: bytes per second and lag, each in shares of the group's, beside an even count."""
    count = len(spec.partitions)
    lag = sum(each.lag for each in spec.partitions.values())
    rate = sum(each.bytes_per_second for each in spec.partitions.values())

    def cost(partition: SpecPartition) -> float:
        share = 1.0 / count
        if lag:
            share += partition.lag / lag
        if rate:
            share += partition.bytes_per_second / rate
        return share

    return spread(spec, cost)


def drain(spec: GroupSpec) -> ServerAssignment:
    """By count. Set a member's weight to 0, wait until it has nothing, and stop it."""
    return spread(spec, lambda _: 1.0)


def spread(spec: GroupSpec, cost: Callable[[SpecPartition], float]) -> ServerAssignment:
    """Everything to somebody who subscribes to it, in proportion to weights."""
    costs = {tp: cost(each) for tp, each in spec.partitions.items()}
    dearest_first = sorted(costs, key=lambda tp: (-costs[tp], tp))
    share = sum(costs.values()) / (sum(map(_weight, spec.members.values())) or 1.0)
    target: dict[str, list[TopicPartition]] = {member_id: [] for member_id in spec.members}
    loads = dict.fromkeys(spec.members, 0.0)
    able = {topic: _able(spec, topic) for topic in {tp.topic for tp in costs}}

    def give(tp: TopicPartition, member_id: str) -> None:
        target[member_id].append(tp)
        loads[member_id] += costs[tp]

    owners = {tp: one.member_id for one in spec.members.values() for tp in one.assigned}
    homeless = []
    for tp in dearest_first:
        owner = owners.get(tp)
        room = able[tp.topic].get(owner, 0.0) * share * _TOLERANCE if owner is not None else 0.0
        if owner is not None and loads[owner] + costs[tp] <= room:
            give(tp, owner)
        else:
            homeless.append(tp)
    # Loads only grow: whoever comes first with a load that is still true has least.
    heaps = {
        topic: [(loads[one] / weight, one) for one, weight in takers.items()]
        for topic, takers in able.items()
    }
    for heap in heaps.values():
        heapify(heap)
    for tp in homeless:
        heap, takers = heaps[tp.topic], able[tp.topic]
        while heap[0][0] != (least := loads[heap[0][1]] / takers[heap[0][1]]):
            heapreplace(heap, (least, heap[0][1]))
        give(tp, heap[0][1])
    return target


def _weight(member: SpecMember) -> float:
    return max(member.weight, 0.0)


def _able(spec: GroupSpec, topic: str) -> dict[str, float]:
    """Who may take a topic, with weights: everybody alike if nobody has one."""
    subscribers = spec.subscribers(topic)
    weights = {one.member_id: _weight(one) for one in subscribers if _weight(one)}
    return weights or dict.fromkeys((one.member_id for one in subscribers), 1.0)
