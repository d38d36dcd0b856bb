"""What an assignor of your own is given in the broker (KIP-848), and what it may answer.

    def mine(spec: GroupSpec) -> Mapping[str, Iterable[TopicPartition]]:
        \"\"\"Member id → the partitions it is to have.\"\"\"

A ``ServerAssignor`` is the same as an object with a name. Unlike assignors of the classic protocol
it runs in the broker, so it knows what no member knows: how far behind the group is in every
partition, and how much arrives there.

Rule: what is answered is checked whole before a group adopts anything of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from shoal.errors import InvalidAssignmentError, counted
from shoal.types import TopicPartition


@dataclass(frozen=True, slots=True)
class SpecMember:
    """One member as the broker knows it."""

    member_id: str
    topics: frozenset[str]
    """What it subscribes to, of what exists."""
    assigned: tuple[TopicPartition, ...] = ()
    """Its part of the current target."""
    instance_id: str | None = None
    client_id: str = ""
    rack: str | None = None
    weight: float = 1.0
    """What the group's setting ``consumer.member.weights`` says; 0: it is to be emptied."""


@dataclass(frozen=True, slots=True)
class SpecPartition:
    """One partition of a topic that somebody subscribes to."""

    lag: int = 0
    """Records between what the group has committed, or else the start of the log, and its end."""
    bytes_per_second: float = 0.0
    """What arrived in about the last minute."""
    racks: tuple[str, ...] = ()
    """Of its replicas."""


@dataclass(frozen=True, slots=True)
class GroupSpec:
    """A group that needs a new target."""

    group_id: str
    epoch: int
    members: Mapping[str, SpecMember]
    partitions: Mapping[TopicPartition, SpecPartition]
    """Every partition of every topic subscribed to. Each needs an owner."""

    def subscribers(self, topic: str) -> list[SpecMember]:
        """Who may have partitions of a topic, by member id."""
        found = (one for one in self.members.values() if topic in one.topics)
        return sorted(found, key=lambda one: one.member_id)


ServerAssignment: TypeAlias = Mapping[str, Iterable[TopicPartition]]
ServerAssignFunction: TypeAlias = Callable[[GroupSpec], ServerAssignment]


class ServerAssignor(Protocol):
    """An assignor of your own for the broker."""

    @property
    def name(self) -> str:
        """What members say in ``group.remote.assignor``."""
        ...

    def assign(self, spec: GroupSpec) -> ServerAssignment:
        """Member id → its partitions; who is left out gets none."""
        ...


def answered(name: str, result: object) -> dict[str, list[TopicPartition]]:
    """What an assignor returned, if it has the right shape.

    Raises:
        InvalidAssignmentError: it has not; names the assignor.
    """
    if not isinstance(result, Mapping):
        raise InvalidAssignmentError(
            name, f"a mapping of member ids was expected, not {type(result).__name__}"
        )
    shaped: dict[str, list[TopicPartition]] = {}
    for member_id, given in result.items():
        try:
            rows = [(topic, partition) for topic, partition in given]
        except (TypeError, ValueError):
            raise InvalidAssignmentError(
                name, f"{member_id!r} got {given!r:.80}; give it a list of TopicPartition"
            ) from None
        for topic, partition in rows:
            if not isinstance(topic, str) or type(partition) is not int:
                raise InvalidAssignmentError(
                    name, f"{member_id!r} got {(topic, partition)!r:.80}, which is not a partition"
                )
        shaped[str(member_id)] = [TopicPartition(topic, partition) for topic, partition in rows]
    return shaped


def check(name: str, spec: GroupSpec, target: Mapping[str, Iterable[TopicPartition]]) -> None:
    """Whether a group may adopt a target.

    Raises:
        InvalidAssignmentError: an unknown member, a partition that does not exist, that goes to
            somebody who does not subscribe to it, to two members, or to nobody.
    """
    owners: dict[TopicPartition, str] = {}
    for member_id, given in target.items():
        member = spec.members.get(member_id)
        if member is None:
            raise InvalidAssignmentError(name, f"no member {member_id!r} in the group")
        for tp in given:
            if tp not in spec.partitions:
                raise InvalidAssignmentError(name, f"{member_id!r} got {tp}, which does not exist")
            if tp.topic not in member.topics:
                raise InvalidAssignmentError(
                    name, f"{member_id!r} got {tp} but does not subscribe to {tp.topic!r}"
                )
            if tp in owners:
                raise InvalidAssignmentError(
                    name, f"{tp} went to both {owners[tp]!r} and {member_id!r}"
                )
            owners[tp] = member_id
    missing = len(spec.partitions) - len(owners)
    if missing:
        first = min(tp for tp in spec.partitions if tp not in owners)
        raise InvalidAssignmentError(
            name, f"{counted(missing, 'partition')} went to nobody, among them {first}"
        )
