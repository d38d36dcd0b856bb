"""Our assignors inside other clients: kafka-python and aiokafka take them as their own.

    KafkaConsumer("orders", group_id="billing",
                  partition_assignment_strategy=[for_kafka_python("sticky")])
    AIOKafkaConsumer("orders", group_id="billing",
                     partition_assignment_strategy=(for_aiokafka("sticky"),))

Rule: an adapter only translates between their nouns and ours; the other library is imported when
an adapter for it is made. One object per consumer: an assignor remembers what its member owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.assign.loading import AssignorLike, load
from shoal.assign.model import (
    Assignment,
    Assignor,
    ClusterMetadata,
    RebalanceProtocol,
    Subscription,
)
from shoal.types import ConsumerGroupMetadata, TopicPartition


def for_kafka_python(assignor: AssignorLike) -> Any:
    """An object for kafka-python's ``partition_assignment_strategy``.

    Raises:
        ValueError, TypeError: as ``shoal.assign.loading.load``.
    """
    from kafka.coordinator.assignors import abstract
    from kafka.protocol.consumer.metadata import (
        ConsumerProtocolAssignment,
        ConsumerProtocolSubscription,
    )

    theirs: Any = abstract
    ours = load([assignor])[0]
    is_cooperative = RebalanceProtocol.COOPERATIVE in ours.supported_protocols

    class Adapted(theirs.AbstractPartitionAssignor):  # type: ignore[misc]  # theirs is not typed
        """One of our assignors in kafka-python's clothes."""

        name = ours.name
        _owned: tuple[TopicPartition, ...] = ()
        _generation = -1

        def supported_protocols(self) -> list[Any]:
            return [theirs.RebalanceProtocol(int(one)) for one in ours.supported_protocols]

        def metadata(self, topics: Iterable[str]) -> Any:
            wanted = sorted(topics)
            owned: list[Any] = []
            if is_cooperative:
                part = ConsumerProtocolSubscription.TopicPartition
                # Of other topics it has let go before it joins again, and nobody would wait for it.
                owned = [
                    part(topic=topic, partitions=numbers)
                    for topic, numbers in _by_topic(self._owned).items()
                    if topic in wanted
                ]
            return ConsumerProtocolSubscription(
                version=2 if is_cooperative else 0,
                topics=wanted,
                user_data=ours.subscription_user_data(wanted) or b"",
                owned_partitions=owned,
                generation_id=self._generation,
            )

        def assign(self, cluster: Any, members: Iterable[Any]) -> dict[str, Any]:
            subscriptions = {
                member.member_id: Subscription(
                    topics=tuple(member.metadata.topics),
                    user_data=bytes(member.metadata.user_data or b"") or None,
                    owned_partitions=tuple(
                        TopicPartition(owned.topic, number)
                        for owned in getattr(member.metadata, "owned_partitions", None) or ()
                        for number in owned.partitions
                    ),
                    group_instance_id=getattr(member, "group_instance_id", None),
                    generation_id=_known(getattr(member.metadata, "generation_id", -1)),
                )
                for member in members
            }
            return {
                member_id: ConsumerProtocolAssignment(0, given, b"")
                for member_id, given in _assigned(ours, cluster, subscriptions).items()
            }

        def on_assignment(self, assignment: Any, generation: Any) -> None:
            self._owned = tuple(sorted(TopicPartition(*tp) for tp in assignment.partitions()))
            self._generation = int(getattr(generation, "generation_id", generation))
            ours.on_assignment(Assignment(self._owned), ConsumerGroupMetadata("", self._generation))

    return Adapted()


def for_aiokafka(assignor: AssignorLike) -> Any:
    """An object for aiokafka's ``partition_assignment_strategy``.

    aiokafka only knows the eager protocol, and does not tell assignors the generation: claims of
    members that were away for a rebalance cannot be told from fresh ones.

    Raises:
        ValueError: an assignor of cooperative groups. As their leader aiokafka would not see what
            members still read, and give it to others at once.
    """
    ours = load([assignor])[0]
    if RebalanceProtocol.EAGER not in ours.supported_protocols:
        raise ValueError(f"{ours.name!r} is cooperative only; aiokafka only knows eager groups")
    if RebalanceProtocol.COOPERATIVE in ours.supported_protocols:
        raise ValueError(
            f"{ours.name!r} is for cooperative groups; aiokafka only knows eager ones: use 'sticky'"
        )
    return _ForAiokafka(ours)


class _ForAiokafka:
    """One of our assignors in aiokafka's clothes."""

    def __init__(self, ours: Assignor) -> None:
        self._ours = ours
        self.name = ours.name

    def metadata(self, topics: Iterable[str]) -> Any:
        from aiokafka.coordinator import protocol

        wanted = sorted(topics)
        return protocol.ConsumerProtocolMemberMetadata(
            0, wanted, self._ours.subscription_user_data(wanted) or b""
        )

    def assign(self, cluster: Any, members: Mapping[str, Any]) -> dict[str, Any]:
        from aiokafka.coordinator import protocol

        subscriptions = {
            member_id: Subscription(tuple(one.subscription), bytes(one.user_data or b"") or None)
            for member_id, one in members.items()
        }
        return {
            member_id: protocol.ConsumerProtocolMemberAssignment(0, given, b"")
            for member_id, given in _assigned(self._ours, cluster, subscriptions).items()
        }

    def on_assignment(self, assignment: Any) -> None:
        owned = tuple(sorted(TopicPartition(*tp) for tp in assignment.partitions()))
        self._ours.on_assignment(Assignment(owned), ConsumerGroupMetadata(""))


def _assigned(
    ours: Assignor, cluster: Any, subscriptions: Mapping[str, Subscription]
) -> dict[str, list[tuple[str, list[int]]]]:
    """Run the assignor on their cluster object; per member topics with partition numbers."""
    topics = sorted({topic for one in subscriptions.values() for topic in one.topics})
    counts = {topic: len(cluster.partitions_for_topic(topic) or ()) for topic in topics}
    known = ClusterMetadata({topic: count for topic, count in counts.items() if count})
    result = ours.assign(known, subscriptions)
    return {
        member_id: sorted(_by_topic(result[member_id].partitions).items())
        for member_id in subscriptions
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    return by_topic


def _known(generation: int) -> int | None:
    return generation if generation >= 0 else None
