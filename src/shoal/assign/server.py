"""The assignors that run in the coordinator (KIP-848): ``uniform`` and ``range``.

Here topics are ids of 16 bytes, and what members have is the *target* assignment the coordinator
last computed. Racks are not looked at (KAFKA-16694).

``uniform`` keeps as much of the target as balance allows. Where all members subscribe to the same,
everybody gets the minimum or one more, and who has one more may keep it (KAFKA-18688); where they
differ, see ``uniform``. Results equal those of Kafka 4.3, order of members and topics included.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from shoal.assign.hash_order import (
    id_key,
    id_order,
    name_order,
    number_order,
    put_order,
)
from shoal.errors import InvalidAssignmentError

TopicId: TypeAlias = bytes
Target: TypeAlias = dict[TopicId, list[int]]
"""Topic id → partition numbers, ascending."""
_Piece: TypeAlias = tuple[TopicId, list[int], bool]
"""Partitions of a topic in the order in which they go to others, and whether that is ascending."""


@dataclass(frozen=True, slots=True)
class ServerMember:
    """What the coordinator knows of a member."""

    topics: Collection[TopicId]
    assigned: Mapping[TopicId, Collection[int]] = field(default_factory=dict)
    """The member's part of the current target. No partition is in two members' parts, and lists
    are ascending."""
    instance_id: str | None = None
    subscription: Hashable = None
    """What it asked for, of which ``topics`` is what exists; ``None``: just that. Kafka takes
    members for alike only if they *ask* for the same."""


class TargetAssignor(Protocol):
    """What the coordinator needs of an assignor that it runs itself."""

    @property
    def name(self) -> str: ...

    def assign(
        self, members: Mapping[str, ServerMember], counts: Mapping[TopicId, int]
    ) -> dict[str, Target]:
        """The new target of every member; ``counts`` holds every topic subscribed to.

        Who keeps what it has may be given the very object: nobody may change it in place.
        """
        ...


class ServerRangeAssignor:
    """Kafka's server-side ``range``: contiguous pieces per topic, nothing kept on purpose."""

    name = "range"

    def assign(
        self, members: Mapping[str, ServerMember], counts: Mapping[TopicId, int]
    ) -> dict[str, Target]:
        subscribers: dict[TopicId, list[str]] = {}
        for member_id in sorted(members, key=lambda one: _member_key(one, members[one])):
            for topic in members[member_id].topics:
                subscribers.setdefault(topic, []).append(member_id)
        target: dict[str, Target] = {member_id: {} for member_id in members}
        for topic, takers in subscribers.items():
            share, extra = divmod(_count(self.name, topic, counts), len(takers))
            start = 0
            for place, member_id in enumerate(takers):
                end = start + share + (place < extra)
                if start < end:
                    target[member_id][topic] = list(range(start, end))
                start = end
        return target


class UniformAssignor:
    """Kafka's server-side ``uniform``: even, and as sticky as evenness allows."""

    name = "uniform"

    def assign(
        self, members: Mapping[str, ServerMember], counts: Mapping[TopicId, int]
    ) -> dict[str, Target]:
        if not members:
            return {}
        # Thousands of members share a few collections of topics: each is looked at once.
        distinct = {id(member.topics): member.topics for member in members.values()}
        for topics in distinct.values():
            for topic in topics:
                _count(self.name, topic, counts)
        alike = {which: frozenset(topics) for which, topics in distinct.items()}
        asked = {member.subscription or alike[id(member.topics)] for member in members.values()}
        if len(asked) == 1:
            return _alike(members, counts)
        # Used less often than anything else here, and longer than all of it.
        from shoal.assign.uniform import assign_mixed

        return assign_mixed(members, counts)


SERVER_ASSIGNORS: Final[dict[str, type[TargetAssignor]]] = {
    # The first is the default of a group that has no preference.
    "uniform": UniformAssignor,
    "range": ServerRangeAssignor,
}


def _member_key(member_id: str, member: ServerMember) -> tuple[bool, bytes]:
    if member.instance_id is not None:
        return False, name_order(member.instance_id)
    return True, name_order(member_id)


def _count(name: str, topic: TopicId, counts: Mapping[TopicId, int]) -> int:
    if topic not in counts:
        raise InvalidAssignmentError(name, f"topic {topic.hex()} is subscribed to but not known")
    return counts[topic]


def _alike(members: Mapping[str, ServerMember], counts: Mapping[TopicId, int]) -> dict[str, Target]:
    """All members subscribe to the same topics."""
    order = put_order(list(members))
    # Entered by id: a caller's set has no order that would be the same in the next process.
    wanted = id_order(sorted(members[order[0]].topics, key=id_key))
    still_wanted = frozenset(wanted)
    total = sum(counts[topic] for topic in wanted)
    low, extra = divmod(total, len(order))
    quota = low + (extra > 0)
    target: dict[str, Target] = {}
    given_up: list[_Piece] = []
    rooms: dict[str, int] = {}
    held = 0  # by anybody, of what is wanted: all of it, if nothing is free
    # For each of thousands of members, most of which keep what they have: the same object.
    for place, member_id in enumerate(order):
        assigned = members[member_id].assigned
        size = 0
        for topic, numbers in assigned.items():
            size += len(numbers)
            if not numbers or topic not in still_wanted or type(numbers) is not list:
                size = total + 1  # it cannot stay as it is
                break
        if size <= quota and type(assigned) is dict:
            target[member_id] = assigned
        else:
            target[member_id], too_much = _keep(assigned, still_wanted, quota)
            size = sum(map(len, target[member_id].values()))
            held += sum(len(numbers) for _, numbers, _ in too_much)
            given_up += too_much
        held += size
        lacking = quota - size
        if extra:
            # Who lacks something leaves the extra partition to others, as long as there are enough.
            if lacking and len(order) - place > extra:
                lacking -= 1
            else:
                extra -= 1
                quota = low + (extra > 0)
        if lacking:
            rooms[member_id] = lacking
    if rooms:
        free = _nobodys(members, counts, id_order(wanted, copied=True)) if held < total else []
        _hand_out(free + given_up, rooms, target)
    return target


def _nobodys(
    members: Mapping[str, ServerMember], counts: Mapping[TopicId, int], topics: Sequence[TopicId]
) -> list[_Piece]:
    """The partitions of each topic that nobody has."""
    owned: dict[TopicId, list[Collection[int]]] = {}
    for assigned in filter(None, [member.assigned for member in members.values()]):
        for topic, numbers in assigned.items():
            owned.setdefault(topic, []).append(numbers)
    # A number is one object, however many topics have it.
    longest = list(range(max(counts[topic] for topic in topics)))
    free = []
    for topic in topics:
        count, pieces = counts[topic], owned.get(topic, ())
        every = longest if count == len(longest) else longest[:count]
        if sum(map(len, pieces)) < count:
            left = sorted(set(every).difference(*pieces)) if pieces else every
            free.append((topic, left, True))
    return free


def _hand_out(free: Iterable[_Piece], rooms: Mapping[str, int], target: dict[str, Target]) -> None:
    """One after the other takes what it has room for, from the front."""
    pieces = iter(free)
    topic, start, size, is_ascending = b"", 0, 0, True
    numbers: list[int] = []
    for member_id, lacking in rooms.items():
        kept = target[member_id]
        end = start + lacking
        if end <= size and is_ascending and not kept:
            # As nearly everybody does in a new group.
            target[member_id] = {topic: numbers[start:end]}
            start = end
            continue
        taken: Target = {}
        while lacking:
            if start == size:
                following = next(pieces, None)
                if following is None:
                    break
                (topic, numbers, is_ascending), start = following, 0
                size = len(numbers)
            piece = numbers[start : start + lacking]
            start += len(piece)
            lacking -= len(piece)
            taken.setdefault(topic, []).extend(piece)
        # Sorted only now: a member may take thousands of pieces.
        for each, more in taken.items():
            taken[each] = sorted({*kept.get(each, ()), *more})
        target[member_id] = kept | taken


def _keep(
    assigned: Mapping[TopicId, Collection[int]], wanted: Collection[TopicId], quota: int
) -> tuple[Target, list[_Piece]]:
    """What a member keeps of its target, and what it gives up of topics it still wants."""
    kept: Target = {}
    given_up: list[_Piece] = []
    for topic in id_order(sorted(assigned, key=id_key)):
        if topic not in wanted:
            continue
        numbers = sorted(assigned[topic])
        if len(numbers) > quota:
            # Only now it matters which of them come first.
            numbers = number_order(numbers)
            given_up.append((topic, numbers[quota:], False))
            numbers = sorted(numbers[:quota])
        quota -= len(numbers)
        if numbers:
            kept[topic] = numbers
    return kept, given_up
