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
from dataclasses import dataclass, replace

from shoal.assign.claims import (
    Claim,
    claim_in_subscription,
    claim_in_user_data,
    packed_claim,
    previous_owners,
    settle,
)
from shoal.assign.constrained import assign_constrained
from shoal.assign.general import assign_general
from shoal.assign.model import (
    Assignment,
    ClusterMetadata,
    GroupAssignment,
    GroupSubscription,
    RebalanceProtocol,
)
from shoal.assign.partitions import unpack
from shoal.assign.problem import Problem, from_arrays, from_packed, is_large, rack_table, state
from shoal.assign.user_data import NO_GENERATION, encode_generation, encode_sticky
from shoal.errors import UpstreamFailureError
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


Packed = list[list[int]]


def solve(
    metadata: ClusterMetadata,
    subscriptions: GroupSubscription,
    *,
    claims_in_user_data: bool,
    strict_upstream: bool,
    two_rounds: bool,
) -> GroupAssignment:
    """The sticky assignment of a group.

    Raises:
        UpstreamFailureError: with ``strict_upstream``, where Apache Kafka throws.
    """
    problem = state(metadata, subscriptions)
    if not problem.member_ids:
        return GroupAssignment({})
    if is_large(problem):
        from shoal.assign.sticky_arrays import solve_on_arrays

        rows = solve_on_arrays(
            problem, claims_in_user_data=claims_in_user_data, two_rounds=two_rounds
        )
        if rows is not None:
            return from_arrays(problem, rows.counts.cumsum(), rows.numbers)
    claim_of = claim_in_user_data if claims_in_user_data else claim_in_subscription
    claims = [claim_of(subscription) for subscription in problem.subscriptions]
    claimed = [packed_claim(problem, claim) for claim in claims]
    case = _Case(problem, claims, claimed, two_rounds)
    result = _by_lists(case) if strict_upstream else _soundly(case)
    return from_packed(problem, result.given)


@dataclass(frozen=True, slots=True)
class _Case:
    problem: Problem
    claims: Sequence[Claim]
    claimed: Packed
    two_rounds: bool


@dataclass(frozen=True, slots=True)
class _Result:
    given: Packed
    withheld: Collection[int]
    """Partitions which nobody has until their owner has given them up."""


def _by_lists(case: _Case, *, guarded: bool = False, undo: bool = True) -> _Result:
    problem, claims, claimed = case.problem, case.claims, case.claimed
    ownership = settle(claims, claimed)
    racks = rack_table(problem)
    if problem.equal_as_sets() if guarded else problem.equal_as_kafka_tests():
        given, transferring = assign_constrained(problem, ownership, racks)
    else:
        previous = previous_owners(problem, claims, claimed, guarded=guarded)
        given = assign_general(problem, ownership, previous, racks, undo=undo)
        transferring = _changing_hands(given, claimed)
    if not case.two_rounds:
        return _Result(given, ())
    for partition, member in transferring.items():
        given[member].remove(partition)
    return _Result(given, transferring)


def _changing_hands(given: Packed, claimed: Packed) -> dict[int, int]:
    """Partition → new member, for partitions that somebody claimed and does not keep."""
    added: dict[int, int] = {}
    revoked: set[int] = set()
    for member, packed in enumerate(given):
        owned = set(claimed[member])
        added.update({partition: member for partition in packed if partition not in owned})
        revoked |= owned.difference(packed)
    return {partition: member for partition, member in added.items() if partition in revoked}


def _is_odd(case: _Case) -> bool:
    """Whether the input is of a kind on which Kafka's result may be unsound."""
    problem, claims, claimed = case.problem, case.claims, case.claimed
    if problem.has_odd_lists() or _ghosts(problem, claimed):
        return True
    if problem.equal_as_kafka_tests():
        return False
    every = previous_owners(problem, claims, claimed, guarded=False)
    return every != previous_owners(problem, claims, claimed, guarded=True)


def _ghosts(problem: Problem, claimed: Packed) -> set[int]:
    """Claimed partitions of topics that exist, which do not exist themselves."""
    counts = problem.layout.counts
    every = {partition for packed in claimed for partition in packed}
    return {p for p in every if not 0 <= unpack(p)[1] < counts[unpack(p)[0]]}


def _soundly(case: _Case) -> _Result:
    """Kafka's result where it is sound, else the one without the offending parts of the input."""
    try:
        result = _by_lists(case)
    except UpstreamFailureError:
        pass
    else:
        if not _is_odd(case) or _is_sound(case.problem, result):
            return result
    ghosts = _ghosts(case.problem, case.claimed)
    lists = tuple(tuple(dict.fromkeys(listed)) for listed in case.problem.topic_lists)
    cleaned = replace(
        case,
        problem=replace(case.problem, topic_lists=lists),
        claimed=[[p for p in packed if p not in ghosts] for packed in case.claimed],
    )
    try:
        result = _by_lists(cleaned, guarded=True)
    except UpstreamFailureError:
        result = _by_lists(cleaned, guarded=True, undo=False)
    assert _is_sound(cleaned.problem, result), "the guarded result is always sound"
    return result


def _is_sound(problem: Problem, result: _Result) -> bool:
    """Every partition with one member that subscribes to it, or withheld from all."""
    counts = problem.layout.counts
    seen = set(result.withheld)
    for member, packed in enumerate(result.given):
        wanted = set(problem.topics_of(member))
        for topic, number in map(unpack, packed):
            if topic not in wanted or not 0 <= number < counts[topic]:
                return False
        seen.update(packed)
    placed = len(result.withheld) + sum(map(len, result.given))
    return len(seen) == problem.layout.total == placed
