"""``roundrobin``: all partitions dealt out one by one, member after member.

The pointer runs over all members and is not reset between topics; members which do not subscribe
to a topic are passed over.
"""

from __future__ import annotations

from collections.abc import Collection

from shoal.assign.model import (
    Assignment,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.assign.problem import Problem, from_pairs, is_large, state
from shoal.types import ConsumerGroupMetadata


class RoundRobinAssignor:
    """Kafka's ``RoundRobinAssignor``."""

    name = "roundrobin"
    version = 0
    supported_protocols = (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002 - the interface names it
        return None

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> GroupAssignment:
        problem = state(metadata, subscriptions)
        if is_large(problem):
            from shoal.assign.arrays import deal

            return deal(problem)
        return from_pairs(problem, deal_one_by_one(problem))

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        pass


def deal_one_by_one(problem: Problem) -> list[list[tuple[int, int]]]:
    """(topic, partition) per member, by the definition."""
    given: list[list[tuple[int, int]]] = [[] for _ in problem.member_ids]
    ring = problem.in_member_order()
    wanted = [set(listed) for listed in problem.topic_lists]
    turn = 0
    for topic, count in enumerate(problem.layout.counts):
        for partition in range(count):
            while topic not in wanted[problem.classes[ring[turn]]]:
                turn = (turn + 1) % len(ring)
            given[ring[turn]].append((topic, partition))
            turn = (turn + 1) % len(ring)
    return given
