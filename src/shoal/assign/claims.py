"""Who claims to own what at the start of a rebalance, and whose claim counts.

Members report what they own. Reports can be old (a member fell out of the group and came back) or
contradict each other, so every claim carries the generation it stems from.

Rule: a newer claim beats an older one; a partition claimed twice in one generation belongs to
nobody (KAFKA-12984) and is *contested*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shoal.assign.model import Subscription
from shoal.assign.partitions import pack, unpack
from shoal.assign.problem import Problem
from shoal.assign.user_data import (
    NO_GENERATION,
    TopicGroups,
    decode_generation,
    decode_sticky,
)
from shoal.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """What one member says it owns."""

    generation: int | None
    """Of this claim; None when the member could not say."""
    rival_generation: int
    """What a later claimant of the same partition compares itself with.

    Kafka takes it from the subscription's own field and not from the user data; for ``sticky``
    among old clients that makes the claimant visited last win.
    """
    partitions: Sequence[TopicPartition] = ()
    groups: TopicGroups | None = None
    """The partitions by topic, instead of ``partitions``, when they were read from user data."""

    @property
    def age(self) -> int:
        return NO_GENERATION if self.generation is None else self.generation


def stated_generation(subscription: Subscription) -> int | None:
    """The generation in the subscription's own field; none is below zero."""
    generation = subscription.generation_id
    return generation if generation is not None and generation >= 0 else None


def claim_in_user_data(subscription: Subscription) -> Claim:
    """What ``sticky`` goes by; the owned partitions of the subscription itself it ignores."""
    stated = stated_generation(subscription)
    rival = NO_GENERATION if stated is None else stated
    if not subscription.user_data:
        return Claim(None, rival)
    groups, generation = decode_sticky(subscription.user_data)
    return Claim(generation, rival, groups=groups)


def claim_in_subscription(subscription: Subscription) -> Claim:
    """What ``cooperative-sticky`` goes by."""
    stated = stated_generation(subscription)
    rival = NO_GENERATION if stated is None else stated
    generation = stated
    if generation is None:
        # Kafka before 3.4 had no generation in the subscription.
        generation = decode_generation(subscription.user_data)
    return Claim(generation, rival, subscription.owned_partitions)


def packed_claim(problem: Problem, claim: Claim) -> list[int]:
    """A claim's partitions of topics that exist, in the order claimed."""
    index = problem.layout.index
    if claim.groups is None:
        return [pack(index[topic], number) for topic, number in claim.partitions if topic in index]
    return [
        pack(index[topic], number)
        for topic, numbers in claim.groups
        if topic in index
        for number in numbers
    ]


@dataclass(slots=True)
class Ownership:
    """The claims that count."""

    owned: list[list[int]]
    """Per member, packed partitions in the order claimed."""
    contested: set[int]


def settle(claims: Sequence[Claim], packed: Sequence[Sequence[int]]) -> Ownership:
    """Go through all claims in member order and let the newest win."""
    owner: dict[int, int] = {}
    owned: list[list[int]] = [[] for _ in packed]
    contested: set[int] = set()
    for member, partitions in enumerate(packed):
        age = claims[member].age
        for partition in partitions:
            rival = owner.get(partition)
            if rival is None:
                owned[member].append(partition)
                owner[partition] = member
                continue
            rival_age = claims[rival].rival_generation
            if age < rival_age:
                continue
            if age == rival_age:
                contested.add(partition)
            else:
                owned[member].append(partition)
            if partition in owned[rival]:
                owned[rival].remove(partition)
            owner[partition] = member
    return Ownership(owned, contested)


def previous_owners(
    problem: Problem, claims: Sequence[Claim], packed: Sequence[Sequence[int]], *, guarded: bool
) -> dict[int, int]:
    """Partition → the member whose old claim is the newest of the old ones.

    The general algorithm likes to give a partition back to such a member. Kafka does so even if the
    member no longer subscribes to the topic; ``guarded`` leaves those claims out.
    """
    newest = max((claim.age for claim in claims), default=NO_GENERATION)
    newest = max(newest, NO_GENERATION)
    found: dict[int, tuple[int, int]] = {}
    for member, claim in enumerate(claims):
        if claim.age >= newest:
            continue
        wanted = set(problem.topics_of(member))
        for partition in packed[member]:
            if guarded and unpack(partition)[0] not in wanted:
                continue
            if partition not in found or claim.age > found[partition][0]:
                found[partition] = (claim.age, member)
    return {partition: member for partition, (_, member) in found.items()}
