"""A group's subscriptions in integers: what every assignor starts from.

Members and topics become indexes. Members stand in the order in which Java walks the leader's
``HashMap`` of subscriptions, because Kafka's sticky assignors visit them so; ``ranks`` gives their
order by id. Topics stand in Java's string order, so that partition numbers sort as Kafka sorts.

Rule: this file reads the caller's objects; the algorithms see integers only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.assign.hash_order import name_order, put_order, sorted_names
from shoal.assign.model import ClusterMetadata, GroupAssignment, GroupSubscription, Subscription
from shoal.assign.partitions import Layout, PartitionView, unpack
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Problem:
    """One group and the partitions it may read."""

    layout: Layout
    walk: tuple[int, ...]
    """Topic indexes in the order Java walks its map of topics."""
    member_ids: tuple[str, ...]
    subscriptions: tuple[Subscription, ...]
    classes: tuple[int, ...]
    """Per member, which of ``topic_lists`` it subscribes to."""
    topic_lists: tuple[tuple[int, ...], ...]
    """Distinct subscriptions: indexes of the topics that exist, as listed, repeats included."""
    raw_lists: tuple[tuple[str, ...], ...]
    """The same as the members sent them, topics without metadata included."""
    racks: Mapping[str, Sequence[Sequence[str | None]]]

    def by_id(self) -> list[int]:
        """Members sorted by id."""
        ids = self.member_ids
        plain = all(map(str.isascii, ids))
        keys: Sequence[str | bytes] = ids if plain else [name_order(one) for one in ids]
        return sorted(range(len(ids)), key=keys.__getitem__)

    def ranks(self) -> list[int]:
        """Per member, its place among all members sorted by id."""
        ranks = [0] * len(self.member_ids)
        for rank, member in enumerate(self.by_id()):
            ranks[member] = rank
        return ranks

    def topics_of(self, member: int) -> tuple[int, ...]:
        return self.topic_lists[self.classes[member]]

    def equal_as_kafka_tests(self) -> bool:
        """Whether all subscribe to the same, by Kafka's test.

        The first list with topics is the measure; empty lists before it are passed over.
        """
        measure: frozenset[str] = frozenset()
        for number in dict.fromkeys(self.classes):
            listed = self.raw_lists[number]
            if not measure:
                measure = frozenset(listed)
            elif len(listed) != len(measure) or not measure.issuperset(listed):
                return False
        return not measure or self._no_empty_list_follows()

    def _no_empty_list_follows(self) -> bool:
        if all(self.raw_lists):
            return True
        topics = False
        for number in self.classes:
            if topics and not self.raw_lists[number]:
                return False
            topics = topics or bool(self.raw_lists[number])
        return True

    def equal_as_sets(self) -> bool:
        """Whether all subscribe to the same."""
        return len({frozenset(listed) for listed in self.raw_lists}) == 1

    def has_odd_lists(self) -> bool:
        """Whether lists repeat topics, or are empty where Kafka's test passes over it."""
        repeats = any(len(set(listed)) != len(listed) for listed in self.raw_lists)
        return repeats or self.equal_as_kafka_tests() != self.equal_as_sets()

    def in_member_order(self) -> list[int]:
        """Static members by instance id, then the others by member id (KAFKA-8355)."""

        def key(member: int) -> tuple[bool, bytes]:
            instance = self.subscriptions[member].group_instance_id
            if instance is not None:
                return False, name_order(instance)
            return True, name_order(self.member_ids[member])

        return sorted(range(len(self.member_ids)), key=key)


def state(metadata: ClusterMetadata, subscriptions: GroupSubscription) -> Problem:
    """The problem that the caller's objects describe."""
    member_ids = put_order(list(subscriptions))
    members = [subscriptions[member_id] for member_id in member_ids]
    classes, raw_lists = _classes(members)
    wanted = put_order(list(dict.fromkeys(topic for listed in raw_lists for topic in listed)))
    counts = metadata.partition_counts
    walked = [topic for topic in wanted if counts.get(topic, 0) > 0]
    if len(walked) < len(wanted):
        # Java enters them into a second map, which may be smaller.
        walked = put_order(walked)
    topics = sorted_names(walked)
    layout = Layout(topics, [counts[topic] for topic in topics])
    index = layout.index
    return Problem(
        layout=layout,
        walk=tuple(index[topic] for topic in walked),
        member_ids=tuple(member_ids),
        subscriptions=tuple(members),
        classes=tuple(classes),
        topic_lists=tuple(
            tuple(index[topic] for topic in listed if topic in index) for listed in raw_lists
        ),
        raw_lists=tuple(raw_lists),
        racks=metadata.racks,
    )


def _classes(members: Sequence[Subscription]) -> tuple[list[int], list[tuple[str, ...]]]:
    """Members by equal topic lists: thousands of members seldom have more than a few."""
    by_list: dict[tuple[str, ...], int] = {}
    topics = [subscription.topics for subscription in members]
    identities = list(map(id, topics))
    by_identity = {
        identity: by_list.setdefault(tuple(listed), len(by_list))
        for identity, listed in dict(zip(identities, topics, strict=True)).items()
    }
    return list(map(by_identity.__getitem__, identities)), list(by_list)


@dataclass(frozen=True, slots=True)
class RackTable:
    """Where members and replicas stand, when that matters for the group (KIP-881)."""

    of_member: tuple[str | None, ...]
    of_partition: tuple[tuple[frozenset[str], ...], ...]
    """Per topic and partition, the racks that hold a replica."""

    def mismatch(self, member: int, topic: int, partition: int) -> bool:
        """Whether the member has a rack and no replica stands in it."""
        rack = self.of_member[member]
        return rack is not None and rack not in self.at(topic, partition)

    def at(self, topic: int, partition: int) -> frozenset[str]:
        listed = self.of_partition[topic]
        # A claim may name a partition that does not exist (strict_upstream); it has no racks.
        return listed[partition] if 0 <= partition < len(listed) else frozenset()


def partition_racks(problem: Problem, topic: int) -> tuple[frozenset[str], ...]:
    """Per partition of a topic, the racks of its replicas."""
    listed = problem.racks.get(problem.layout.topics[topic])
    count = problem.layout.counts[topic]
    if listed is None:
        return (frozenset(),) * count
    known: dict[tuple[str | None, ...], frozenset[str]] = {}
    sets = []
    for racks in listed[:count]:
        key = tuple(racks)
        if key not in known:
            known[key] = frozenset(rack for rack in key if rack is not None)
        sets.append(known[key])
    sets += [frozenset()] * (count - len(sets))
    return tuple(sets)


def rack_of(subscription: Subscription) -> str | None:
    """A member's rack; the empty string is none."""
    return subscription.rack_id or None


def racks_matter(members: set[str], partitions: Sequence[frozenset[str]]) -> bool:
    """Whether choosing by rack could bring reads nearer than not choosing.

    Not when members and replicas share no rack, and not when every partition stands in every rack.
    """
    distinct = set(partitions)
    everywhere = frozenset().union(*distinct)
    if not members & everywhere:
        return False
    return any(racks != everywhere for racks in distinct)


def rack_table(problem: Problem) -> RackTable | None:
    """The racks of the whole group, or None when they do not matter."""
    if not any(subscription.rack_id for subscription in problem.subscriptions):
        return None
    of_member = tuple(rack_of(subscription) for subscription in problem.subscriptions)
    racks = {rack for rack in of_member if rack is not None}
    of_partition = tuple(partition_racks(problem, t) for t in range(len(problem.layout.topics)))
    if not racks_matter(racks, [one for listed in of_partition for one in listed]):
        return None
    return RackTable(of_member, of_partition)


# From so many partitions on, arrays beat lists even if NumPy must be loaded first.
LARGE = 4096


def is_large(problem: Problem) -> bool:
    """Whether to work on arrays."""
    return problem.layout.total >= LARGE


def from_pairs(problem: Problem, given: Sequence[Iterable[tuple[int, int]]]) -> GroupAssignment:
    """(topic index, partition) per member."""
    names = problem.layout.topics
    return GroupAssignment(
        {
            member_id: [TopicPartition(names[topic], partition) for topic, partition in pairs]
            for member_id, pairs in zip(problem.member_ids, given, strict=True)
        }
    )


def from_packed(problem: Problem, given: Sequence[Iterable[int]]) -> GroupAssignment:
    """Packed partitions per member."""
    return from_pairs(problem, [map(unpack, packed) for packed in given])


def from_arrays(
    problem: Problem, ends: NDArray[np.int64], numbers: NDArray[np.int32]
) -> GroupAssignment:
    """Running numbers of all members in a row; member ``m``'s part ends at ``ends[m]``."""
    start = 0
    views = {}
    for member_id, end in zip(problem.member_ids, ends.tolist(), strict=True):
        views[member_id] = PartitionView(problem.layout, numbers[start:end])
        start = end
    return GroupAssignment(views)
