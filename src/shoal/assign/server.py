"""The assignors that run in the coordinator (KIP-848): ``uniform`` and ``range``.

Here topics are ids of 16 bytes, and what members have is the *target* assignment the coordinator
last computed. Racks are not looked at (KAFKA-16694).

``uniform`` keeps as much of the target as balance allows. Where all members subscribe to the same,
everybody gets the minimum or one more, and who has one more may keep it (KAFKA-18688); where they
differ, see ``uniform``. Results equal those of Kafka 4.3, order of members and topics included.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class ServerMember:
    """What the coordinator knows of a member."""

    topics: Collection[TopicId]
    assigned: Mapping[TopicId, Collection[int]] = field(default_factory=dict)
    """The member's part of the current target assignment."""
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
        """The new target of every member; ``counts`` holds every topic subscribed to."""
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
    owned: dict[TopicId, list[int]] = {}
    for member in members.values():
        for topic, numbers in member.assigned.items():
            owned.setdefault(topic, []).extend(numbers)
    free = [
        (topic, _left(counts[topic], owned.get(topic))) for topic in id_order(wanted, copied=True)
    ]
    still_wanted = set(wanted)
    low, extra = divmod(sum(counts[topic] for topic in wanted), len(members))
    target: dict[str, Target] = {}
    room: dict[str, int] = {}
    for place, member_id in enumerate(order):
        quota = low + (extra > 0)
        kept, given_up = _keep(members[member_id], still_wanted, quota)
        target[member_id] = kept
        free += given_up
        room[member_id] = quota - sum(map(len, kept.values()))
        takes_extra = extra > 0
        # Who lacks something leaves the extra partition to others, as long as there are enough.
        if takes_extra and room[member_id] > 0 and len(order) - place > extra:
            room[member_id] -= 1
            takes_extra = False
        extra -= takes_extra
    _hand_out(free, room, target)
    return target


def _left(count: int, owned: Collection[int] | None) -> Sequence[int]:
    """The partitions of a topic that nobody has, ascending."""
    return range(count) if not owned else sorted(set(range(count)).difference(owned))


def _hand_out(
    free: Sequence[tuple[TopicId, Sequence[int]]],
    room: Mapping[str, int],
    target: Mapping[str, Target],
) -> None:
    """One after the other takes what it has room for, from the front."""
    pieces = iter(free)
    topic, start = b"", 0
    numbers: Sequence[int] = ()
    for member_id, lacking in room.items():
        mine = target[member_id]
        while lacking > 0:
            piece = numbers[start : start + lacking]
            if not piece:
                following = next(pieces, None)
                if following is None:
                    return
                (topic, numbers), start = following, 0
                continue
            lacking -= len(piece)
            start += len(piece)
            mine[topic] = sorted({*mine[topic], *piece}) if topic in mine else list(piece)


def _keep(
    member: ServerMember, wanted: Collection[TopicId], quota: int
) -> tuple[Target, list[tuple[TopicId, Sequence[int]]]]:
    """What a member keeps of its target, and what it gives up of topics it still wants."""
    kept: Target = {}
    given_up: list[tuple[TopicId, Sequence[int]]] = []
    for topic in id_order(sorted(member.assigned, key=id_key)) if member.assigned else ():
        if topic not in wanted:
            continue
        numbers = sorted(member.assigned[topic])
        if len(numbers) > quota:
            # Only now it matters which of them come first.
            numbers = number_order(numbers)
            given_up += [(topic, [number]) for number in numbers[quota:]]
            numbers = sorted(numbers[:quota])
        quota -= len(numbers)
        if numbers:
            kept[topic] = numbers
    return kept, given_up
