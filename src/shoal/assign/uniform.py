"""``uniform`` for a group whose members subscribe to different topics (KAFKA-17710).

Topics with many partitions per subscriber come first, since they have the least choice. Free
partitions go to the least loaded subscriber, level by level. Then topic by topic partitions move
from the most to the least loaded subscribers until they differ by no more than one; rounds over the
topics end when one whole round has moved nothing, and after sixteen in any case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from shoal.assign.hash_order import id_key, put_order
from shoal.assign.server import ServerMember, Target, TopicId

ROUNDS_MAX: Final = 16


def assign_mixed(
    members: Mapping[str, ServerMember], counts: Mapping[TopicId, int]
) -> dict[str, Target]:
    """The new target of every member."""
    order = put_order(list(members))
    subscribers: dict[TopicId, list[int]] = {}
    for place, member_id in enumerate(order):
        for topic in members[member_id].topics:
            subscribers.setdefault(topic, []).append(place)
    owners: dict[TopicId, list[int | None]] = {
        topic: [None] * counts[topic] for topic in subscribers
    }
    loads = [0] * len(order)
    for place, member_id in enumerate(order):
        member = members[member_id]
        for topic, numbers in member.assigned.items():
            if topic in member.topics:
                loads[place] += len(numbers)
                for number in numbers:
                    owners[topic][number] = place

    def key(topic: TopicId) -> tuple[float, int, tuple[int, int]]:
        takers = len(subscribers[topic])
        return -(counts[topic] / takers), takers, id_key(topic)

    topics = sorted(subscribers, key=key)
    for topic in topics:
        _fill(owners[topic], subscribers[topic], loads)
    _balance([topic for topic in topics if len(subscribers[topic]) > 1], owners, subscribers, loads)
    target: dict[str, Target] = {member_id: {} for member_id in order}
    for topic, placed in owners.items():
        for number, owner in enumerate(placed):
            assert owner is not None, "every partition has a subscriber"
            target[order[owner]].setdefault(topic, []).append(number)
    return target


def _fill(owners: list[int | None], members: Sequence[int], loads: list[int]) -> None:
    free = [number for number, owner in enumerate(owners) if owner is None]
    levels = _Levels(members, loads)
    for number in free:
        taker = levels.lowest()
        owners[number] = taker
        loads[taker] += 1


def _balance(
    topics: Sequence[TopicId],
    owners: Mapping[TopicId, list[int | None]],
    subscribers: Mapping[TopicId, Sequence[int]],
    loads: list[int],
) -> None:
    last_moved: int | None = None
    for _ in range(ROUNDS_MAX):
        for index, topic in enumerate(topics):
            if index == last_moved:
                return  # a whole round without a move
            moved = _balance_topic(owners[topic], subscribers[topic], loads)
            if moved or last_moved is None:
                last_moved = index


def _balance_topic(owners: list[int | None], members: Sequence[int], loads: list[int]) -> bool:
    """Move partitions from the most to the least loaded; whether any moved."""
    levels = _Levels(members, loads)
    if levels.spread <= 1:
        return False
    # What each member had at the start, to be given up from the end.
    had: dict[int, list[int]] = {}
    for number, owner in enumerate(owners):
        assert owner is not None
        had.setdefault(owner, []).append(number)
    moved = False
    while True:
        giver = levels.highest()
        while giver is not None and not had.get(giver):
            levels.pass_over()
            giver = levels.highest()
        if giver is None:
            break
        number = had[giver].pop()
        taker = levels.lowest()
        if levels.even:
            break
        owners[number] = taker
        loads[giver] -= 1
        loads[taker] += 1
        moved = True
    return moved


class _Levels:
    """Members by load, walked from both ends.

    From below: everybody at the lowest level gets one, then the level rises and those who are at
    the new one join in. From above the same with giving up, except that members with nothing to
    give are passed over. The two levels, not the members, tell when the topic is even.
    """

    def __init__(self, members: Sequence[int], loads: list[int]) -> None:
        self._loads = loads
        self._members = sorted(members, key=lambda member: (loads[member], member))
        self._low_level = loads[self._members[0]] - 1
        self._low_end = 0
        self._low_next = 0
        self._high_level = loads[self._members[-1]] + 1
        self._high_start = len(members)
        self._high_end = len(members)
        self._high_next = len(members) - 1

    @property
    def spread(self) -> int:
        return self._high_level - self._low_level - 2

    @property
    def even(self) -> bool:
        return self._high_level - self._low_level <= 1

    def _load(self, place: int) -> int:
        return self._loads[self._members[place]]

    def lowest(self) -> int:
        """Who gets the next one."""
        if self._low_next >= self._low_end:
            self._low_level += 1
            while (
                self._low_end < len(self._members) and self._load(self._low_end) == self._low_level
            ):
                self._low_end += 1
            self._low_next = 0
        self._low_next += 1
        return self._members[self._low_next - 1]

    def highest(self) -> int | None:
        """Who gives the next one up; None when nobody is left."""
        if self._high_next < self._high_start:
            if self._high_end <= self._high_start and self._high_start > 0:
                # Everybody at this level was passed over; go on at the next that exists.
                self._high_level = self._load(self._high_start - 1)
            else:
                self._high_level -= 1
            while self._high_start > 0 and self._load(self._high_start - 1) == self._high_level:
                self._high_start -= 1
            self._high_next = self._high_end - 1
        if self._high_next < 0:
            return None
        self._high_next -= 1
        return self._members[self._high_next + 1]

    def pass_over(self) -> None:
        """Leave out the member that ``highest`` named last."""
        place, last = self._high_next + 1, self._high_end - 1
        members = self._members
        members[place], members[last] = members[last], members[place]
        self._high_end -= 1
