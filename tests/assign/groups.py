"""Short words for groups in tests: partitions as text, clusters with racks, whole rebalances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from shoal.assign import Assignment, Assignor, ClusterMetadata, Subscription
from shoal.types import ConsumerGroupMetadata, TopicPartition

Owned = dict[str, list[TopicPartition]]

RACKS = ("a", "b", "c", "d", "e", "f")


def tps(text: str) -> list[TopicPartition]:
    """``"t1-0 t1-3,4 t2-7"`` → five partitions."""
    found = []
    for word in text.split():
        topic, _, numbers = word.rpartition("-")
        found += [TopicPartition(topic, int(number)) for number in numbers.split(",")]
    return found


def member(
    topics: str | Iterable[str],
    owned: str = "",
    *,
    generation: int | None = None,
    instance: str | None = None,
    rack: str | None = None,
    user_data: bytes | None = None,
) -> Subscription:
    """A member by its topics, space separated."""
    listed = tuple(topics.split() if isinstance(topics, str) else topics)
    return Subscription(listed, user_data, tuple(tps(owned)), instance, generation, rack)


def assigned(
    assignor: Assignor, topics: Mapping[str, int], group: Mapping[str, Subscription]
) -> Owned:
    """One assignment, without racks of brokers."""
    return lists(assignor.assign(ClusterMetadata(topics), group))


def lists(result: Mapping[str, Assignment]) -> Owned:
    return {member_id: list(one.partitions) for member_id, one in result.items()}


def expected(**members: str) -> Owned:
    """Member → partitions, as ``assigned`` gives them."""
    return {name: tps(text) for name, text in members.items()}


def cluster(
    topics: Mapping[str, int], replication: int, racks: Sequence[str | None]
) -> ClusterMetadata:
    """A cluster as Kafka's own tests build it: replicas of each partition on the next brokers.

    The count goes on from topic to topic, brokers stand in the racks in turn.
    """
    brokers = max(replication, len(racks))
    placed: dict[str, list[list[str | None]]] = {}
    first = 0
    for topic, count in topics.items():
        placed[topic] = [
            [racks[((first + number + step) % brokers) % len(racks)] for step in range(replication)]
            for number in range(count)
        ]
        first += count
    return ClusterMetadata(topics, placed)


def far_reads(
    metadata: ClusterMetadata, group: Mapping[str, Subscription], owned: Mapping[str, Owned] | Owned
) -> int:
    """How many partitions are read across racks."""
    return sum(
        group[member_id].rack_id not in metadata.racks[tp.topic][tp.partition]
        for member_id, held in owned.items()
        for tp in held
        if isinstance(tp, TopicPartition)
    )


class RackUse(Enum):
    """Kafka's tests run with racks known on one side, on the other, and on both."""

    NO_BROKER_RACK = "no broker racks"
    NO_CONSUMER_RACK = "no consumer racks"
    BOTH = "both"

    def metadata(self, topics: Mapping[str, int]) -> ClusterMetadata:
        if self is RackUse.NO_BROKER_RACK:
            return ClusterMetadata(topics)
        return cluster(topics, 3, RACKS[:3])

    def rack(self, index: int) -> str | None:
        return None if self is RackUse.NO_CONSUMER_RACK else RACKS[index % 3]

    def group(self, **members: Subscription) -> dict[str, Subscription]:
        return {
            name: Subscription(
                one.topics,
                one.user_data,
                one.owned_partitions,
                one.group_instance_id,
                one.generation_id,
                self.rack(index),
            )
            for index, (name, one) in enumerate(members.items())
        }


class Rounds:
    """A group that lives through rebalances: every member has an assignor of its own."""

    def __init__(self, make: type[Assignor], metadata: ClusterMetadata) -> None:
        self._make = make
        self.metadata = metadata
        self.members: dict[str, tuple[Assignor, Sequence[str]]] = {}
        self.racks: dict[str, str | None] = {}
        self.owned: Owned = {}
        self.generation = 0
        self.rounds = 0

    @property
    def cooperative(self) -> bool:
        return len(self._make.supported_protocols) > 1  # type: ignore[arg-type]  # on the class it is a tuple, to mypy a property

    def join(self, member_id: str, topics: str | Sequence[str], rack: str | None = None) -> None:
        listed = topics.split() if isinstance(topics, str) else topics
        old = self.members.get(member_id)
        self.members[member_id] = (old[0] if old else self._make(), listed)
        self.racks[member_id] = rack

    def leave(self, member_id: str) -> None:
        del self.members[member_id]
        self.owned.pop(member_id, None)

    def subscriptions(self) -> dict[str, Subscription]:
        return {
            member_id: Subscription(
                tuple(topics),
                assignor.subscription_user_data(topics),
                tuple(self.owned.get(member_id, ())) if self.cooperative else (),
                None,
                self.generation if member_id in self.owned else None,
                self.racks[member_id],
            )
            for member_id, (assignor, topics) in self.members.items()
        }

    def one_round(self) -> Owned:
        """Assign once; returns what members had and did not get again."""
        leader = next(iter(self.members.values()))[0]
        result = lists(leader.assign(self.metadata, self.subscriptions()))
        lost = {
            member_id: sorted(set(self.owned.get(member_id, ())) - set(held))
            for member_id, held in result.items()
        }
        self.generation += 1
        self.rounds += 1
        for member_id, (assignor, _) in self.members.items():
            metadata = ConsumerGroupMetadata("g", self.generation, member_id)
            assignor.on_assignment(Assignment(result[member_id]), metadata)
        self.owned = result
        return lost

    def rebalance(self) -> Owned:
        """Rounds until nothing is given up, as a real group would; at most four."""
        for _ in range(4):
            before = {tp: m for m, held in self.owned.items() for tp in held}
            lost = {tp for held in self.one_round().values() for tp in held}
            added = {tp for m, held in self.owned.items() for tp in held if before.get(tp, m) != m}
            if not self.cooperative:
                return dict(self.owned)
            assert not added & lost, "given up and handed out in one round"
            if not lost:
                return dict(self.owned)
        raise AssertionError("four rounds and still something to give up")


def assert_valid(
    metadata: ClusterMetadata,
    group: Mapping[str, Sequence[str]],
    owned: Mapping[str, list[TopicPartition]],
) -> None:
    """Every partition that somebody wants has one owner, who wants it."""
    wanted = {topic for topics in group.values() for topic in topics}
    every = {
        TopicPartition(topic, number)
        for topic, count in metadata.partition_counts.items()
        if topic in wanted
        for number in range(count)
    }
    held = [tp for partitions in owned.values() for tp in partitions]
    assert set(held) == every
    assert len(held) == len(every)
    for member_id, partitions in owned.items():
        assert {tp.topic for tp in partitions} <= set(group[member_id])


def assert_balanced(
    group: Mapping[str, Sequence[str]], owned: Mapping[str, list[TopicPartition]]
) -> None:
    """No partition could go to a member with two or more fewer."""
    for holder, partitions in owned.items():
        topics = {tp.topic for tp in partitions}
        for other, wanted in group.items():
            if topics & set(wanted):
                assert len(owned[other]) + 1 >= len(partitions), f"{holder} could give to {other}"
