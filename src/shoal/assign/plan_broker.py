"""The broker's assignors (KIP-848) as a plan runs them: like cooperative ones, without a leader.

Rule: they decide what they decide in a coordinator, from the partitions each member has. Only the
ids of topics are not those of a cluster: where several topics leave an assignor a choice, another
partition may move there, and as many.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shoal.assign.model import (
    Assignment,
    Assignor,
    ClusterMetadata,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.assign.server import SERVER_ASSIGNORS, ServerMember, TargetAssignor
from shoal.types import TopicPartition


class BrokerAssignor(Assignor):
    """One of them in the shape a plan knows."""

    def __init__(self, server: TargetAssignor) -> None:
        self._server = server

    @property
    def name(self) -> str:
        return f"{self._server.name} (broker)"

    @property
    def supported_protocols(self) -> Collection[RebalanceProtocol]:
        return (RebalanceProtocol.COOPERATIVE,)

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> Mapping[str, Assignment]:
        counts = {name: count for name, count in metadata.partition_counts.items() if count}
        ids = {name: number.to_bytes(16, "big") for number, name in enumerate(sorted(counts), 1)}
        names = {topic_id: name for name, topic_id in ids.items()}
        members = {}
        for member_id, wish in subscriptions.items():
            owned: dict[bytes, list[int]] = {}
            for tp in wish.owned_partitions:
                if tp.topic in ids and tp.topic in wish.topics:
                    owned.setdefault(ids[tp.topic], []).append(tp.partition)
            topics = [ids[topic] for topic in wish.topics if topic in ids]
            members[member_id] = ServerMember(topics, owned, wish.group_instance_id)
        found = self._server.assign(members, {ids[name]: count for name, count in counts.items()})
        return {
            member_id: Assignment(
                sorted(
                    TopicPartition(names[topic_id], number)
                    for topic_id, numbers in target.items()
                    for number in numbers
                )
            )
            for member_id, target in found.items()
        }


def broker_assignors() -> list[BrokerAssignor]:
    """All there are, the default first."""
    return [BrokerAssignor(kind()) for kind in SERVER_ASSIGNORS.values()]
