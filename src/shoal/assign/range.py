"""``range``: each topic is cut into one contiguous piece per subscribed member.

Members take their pieces in member order, the first ones one partition more when the cut is not
even. Topics with the same members and partition counts are therefore cut alike, which is what
joins need (co-partitioning). With racks known (KIP-881) members first take partitions with a
replica in their rack, and co-partitioned topics are kept aligned while doing so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from shoal.assign.model import (
    Assignment,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.assign.problem import (
    Problem,
    from_pairs,
    is_large,
    partition_racks,
    rack_of,
    racks_matter,
    state,
)
from shoal.types import ConsumerGroupMetadata


class RangeAssignor:
    """Kafka's ``RangeAssignor``."""

    name = "range"
    version = 0
    supported_protocols = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002 - the interface names it
        return None

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> GroupAssignment:
        problem = state(metadata, subscriptions)
        no_racks = not any(rack_of(subscription) for subscription in problem.subscriptions)
        if no_racks and is_large(problem):
            from shoal.assign.arrays import cut

            return cut(problem)
        return from_pairs(problem, cut_by_racks(problem))

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        pass


class _Topic:
    """What is left of one topic, and how much each of its members may still take."""

    __slots__ = ("_taken", "by_rack", "extra", "index", "left", "members", "racks", "share")

    def __init__(self, index: int, count: int, members: list[int]) -> None:
        self.index = index
        self.members = members
        self.left = dict.fromkeys(range(count))
        self.share, self.extra = divmod(count, len(members))
        self._taken = dict.fromkeys(members, 0)
        self.racks: Sequence[frozenset[str]] = ()
        self.by_rack = False

    def room(self, member: int) -> int:
        return max(0, self.share + (1 if self.extra > 0 else 0) - self._taken[member])

    def take(self, member: int, partitions: Sequence[int]) -> None:
        self._taken[member] += len(partitions)
        if self._taken[member] > self.share:
            self.extra -= 1
        for partition in partitions:
            del self.left[partition]


def cut_by_racks(problem: Problem) -> list[list[tuple[int, int]]]:
    """(topic, partition) per member, racks honoured where they matter."""
    racks = [rack_of(subscription) for subscription in problem.subscriptions]
    topics = list(_topics(problem, racks))
    given: list[list[tuple[int, int]]] = [[] for _ in problem.member_ids]
    by_rack = any(topic.by_rack for topic in topics)
    if by_rack:
        for alike in _co_partitioned(topics, racks):
            if len(alike) > 1:
                _take_aligned(alike, racks, given)
            elif alike[0].by_rack:
                _take_pieces(alike[0], racks, given, match=True)
    for topic in topics:
        _take_pieces(topic, racks, given, match=False)
    if by_rack:
        for pairs in given:
            pairs.sort()
    return given


def _topics(problem: Problem, racks: Sequence[str | None]) -> Iterable[_Topic]:
    members_of: dict[int, list[int]] = {}
    for member in problem.in_member_order():
        for index in dict.fromkeys(problem.topics_of(member)):
            members_of.setdefault(index, []).append(member)
    for index in problem.walk:
        members = members_of[index]
        topic = _Topic(index, problem.layout.counts[index], members)
        near = {rack for member in members if (rack := racks[member]) is not None}
        if near:
            topic.racks = partition_racks(problem, index)
            topic.by_rack = racks_matter(near, topic.racks)
        yield topic


def _co_partitioned(topics: list[_Topic], racks: Sequence[str | None]) -> list[list[_Topic]]:
    """Topics with the same members, racks included, and the same number of partitions.

    Topics none of whose members has a rack count as having no partitions, and so go together.
    """
    groups: dict[tuple[frozenset[tuple[int, str | None]], int], list[_Topic]] = {}
    for topic in topics:
        members = frozenset((member, racks[member]) for member in topic.members)
        groups.setdefault((members, len(topic.racks)), []).append(topic)
    return list(groups.values())


def _near(topic: _Topic, rack: str | None, partition: int) -> bool:
    return rack is None or (bool(topic.racks) and rack in topic.racks[partition])


def _take_aligned(
    alike: list[_Topic], racks: Sequence[str | None], given: list[list[tuple[int, int]]]
) -> None:
    """Give partition p of all these topics to one member, the first with room and replicas near."""
    open_members = dict.fromkeys(alike[0].members)
    for partition in range(len(alike[0].racks)):
        for member in open_members:
            rack = racks[member]
            if all(_near(topic, rack, partition) and topic.room(member) > 0 for topic in alike):
                break
        else:
            continue
        for topic in alike:
            topic.take(member, (partition,))
            given[member].append((topic.index, partition))
        if not any(topic.room(member) for topic in alike):
            del open_members[member]
            if not open_members:
                return


def _take_pieces(
    topic: _Topic,
    racks: Sequence[str | None],
    given: list[list[tuple[int, int]]],
    *,
    match: bool,
) -> None:
    """Let members in order take what they may of what is left; with ``match`` only what is near."""
    for member in topic.members:
        if not topic.left:
            return
        room = topic.room(member)
        rack = racks[member]
        taken: list[int] = []
        for partition in topic.left:
            if len(taken) >= room:
                break
            if not match or _near(topic, rack, partition):
                taken.append(partition)
        if taken:
            topic.take(member, taken)
            given[member].extend((topic.index, partition) for partition in taken)
