"""The nouns of assignment: what members ask for, what they get, and what an assignor is.

An assignor decides once per rebalance which member of a group reads which partition. It is pure:
the subscriptions of all members and the cluster's partition counts go in, one assignment per
member comes out. What an assignor remembers between rebalances (``sticky`` does) travels inside
the subscription as user data, so that any member can be the leader who runs it.

``None`` means absent; Kafka's ``-1`` generation and ``""`` rack are translated at the wire.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeAlias

from shoal.types import ConsumerGroupMetadata, TopicPartition


class RebalanceProtocol(IntEnum):
    """How members give partitions up. A group uses the highest that all its assignors support."""

    EAGER = 0
    """Every member stops everything before each rebalance."""
    COOPERATIVE = 1
    """Members keep reading; only what changes owner stops, and changes in a second round."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What one member asks for when it joins."""

    topics: Sequence[str]
    user_data: bytes | None = None
    owned_partitions: Sequence[TopicPartition] = ()
    group_instance_id: str | None = None
    generation_id: int | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one member gets."""

    partitions: Sequence[TopicPartition] = ()
    user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class ClusterMetadata:
    """The topics the leader knows: their partition counts and, where known, their replicas' racks.

    Partitions are numbered from 0 without gaps. ``racks[topic][partition]`` lists the racks of the
    replicas, ``None`` for a replica without one. Topics that are absent, or have no partition, are
    left out of every assignment, as Kafka does.
    """

    partition_counts: Mapping[str, int]
    racks: Mapping[str, Sequence[Sequence[str | None]]] = field(default_factory=dict)


class GroupAssignment(Mapping[str, Assignment]):
    """Member id → Assignment for the whole group, in the order the assignor gave.

    It holds one sequence of partitions per member. The built-in assignors put views over shared
    integer arrays here, which become ``TopicPartition`` objects only when they are looked at.
    """

    __slots__ = ("_partitions", "_user_data")

    def __init__(
        self,
        partitions: Mapping[str, Sequence[TopicPartition]],
        user_data: Mapping[str, bytes | None] | None = None,
    ) -> None:
        self._partitions = partitions
        self._user_data = user_data or {}

    def __getitem__(self, member_id: str) -> Assignment:
        return Assignment(self._partitions[member_id], self._user_data.get(member_id))

    def __iter__(self) -> Iterator[str]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def encode(self, version: int = 3) -> dict[str, bytes]:
        """Member id → the bytes of its assignment as SyncGroup carries them."""
        # The bytes know the nouns, not the other way round.
        from shoal.assign.encoding import encode_group

        return encode_group(self, version)

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{member_id!r}: {len(owned)}" for member_id, owned in self._partitions.items()
        )
        return f"GroupAssignment(partitions per member: {{{inside}}})"


GroupSubscription: TypeAlias = Mapping[str, Subscription]
"""Member id → Subscription, in the order of the JoinGroup response."""


class Assignor(Protocol):
    """What a consumer needs of an assignor; one of the three seams users may fill.

    Inherit from it and write ``name`` and ``assign``: the rest is what Kafka's
    ConsumerPartitionAssignor does by default. Or give any object that has all of it.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Stands on the wire and must be the same on all members of a group."""

    @property
    def version(self) -> int:
        """Of the user data, for an assignor that changes it."""
        return 0

    @property
    def supported_protocols(self) -> Collection[RebalanceProtocol]:
        """Eager unless said otherwise: a cooperative assignor takes two rounds to move a partition,
        see ``RebalanceProtocol``."""
        return (RebalanceProtocol.EAGER,)

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002 - the interface names it
        """What this member tells the next leader beside its topics."""
        return None

    @abstractmethod
    def assign(
        self, metadata: ClusterMetadata, subscriptions: GroupSubscription
    ) -> Mapping[str, Assignment]:
        """Decide for the whole group; only the leader calls this."""

    def on_assignment(self, assignment: Assignment, metadata: ConsumerGroupMetadata) -> None:  # noqa: ARG002 - the interface names them
        """Hear what this member got, in every rebalance, leader or not."""
        return


AssignFunction: TypeAlias = Callable[
    [ClusterMetadata, GroupSubscription], Mapping[str, Iterable[TopicPartition]]
]
"""The shortest way to write an assignor: a plain function without state."""
