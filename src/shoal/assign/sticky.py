"""``sticky`` and ``cooperative-sticky``: balanced, and as little as possible changes hands.

Both run the same algorithms and differ in two things: where a member's claims stand (user data, or
the subscription itself), and that the cooperative one hands a partition over in two rounds.

Apache Kafka has defects on odd input (a stale member gets a topic it no longer wants, claims to
partitions that do not exist upset the count, a NullPointerException), and on some valid groups it
never returns. By default we give Kafka's result wherever it is sound, and otherwise the result for
the same input with the offending claims left out, or without taking moves back.
``strict_upstream=True`` gives Kafka's result, or failure, whatever it is.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shoal.assign.model import (
    Assignment,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.assign.solving import solve
from shoal.assign.user_data import NO_GENERATION, encode_generation, encode_sticky
from shoal.types import ConsumerGroupMetadata, TopicPartition


class StickyAssignor:
    """Kafka's ``StickyAssignor``: eager; members remember their partitions in user data."""

    name = "sticky"
    version = 0
    supported_protocols = (RebalanceProtocol.EAGER,)

    def __init__(self, *, strict_upstream: bool = False) -> None:
        self._strict_upstream = strict_upstream
        self._partitions: Sequence[TopicPartition] | None = None
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002 - the interface names it
        if self._partitions is None:
            return None
        return encode_sticky(self._partitions, self._generation)

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> GroupAssignment:
        return solve(
            metadata,
            subscriptions,
            claims_in_user_data=True,
            strict_upstream=self._strict_upstream,
            two_rounds=False,
        )

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:
        self._partitions = assignment.partitions
        self._generation = metadata.generation_id


class CooperativeStickyAssignor:
    """Kafka's ``CooperativeStickyAssignor``: members go on reading what they keep.

    A partition that changes owner is left out of the round in which its old owner gives it up, and
    handed out in the next.
    """

    name = "cooperative-sticky"
    version = 0
    supported_protocols = (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER)

    def __init__(self, *, strict_upstream: bool = False) -> None:
        self._strict_upstream = strict_upstream
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002 - the interface names it
        return encode_generation(self._generation)

    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> GroupAssignment:
        return solve(
            metadata,
            subscriptions,
            claims_in_user_data=False,
            strict_upstream=self._strict_upstream,
            two_rounds=True,
        )

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: ARG002 - the interface names it
        self._generation = metadata.generation_id
