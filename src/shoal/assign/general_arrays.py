"""The general sticky algorithm on arrays, without racks; see ``general``.

What makes it fast is not the arrays alone but three observations:

- Topics in a row with the same subscribers are handed out together: filling the least loaded
  member again and again is filling level by level, members in id order.
- Whether a topic has anything to move is one comparison: the fullest owner of its partitions
  against the least loaded of its subscribers.
- A move takes from the former and gives to the latter, so while a topic is worked through no
  partition of it *becomes* worth moving. Those found at the start are all there are, unless a
  partition goes back to a previous owner or another one moves in its place; then we look again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from shoal.assign.arrays import (
    Flags,
    Ints,
    Longs,
    Rows,
    stable_order,
    subscribers_of_each,
    topic_of_each,
)
from shoal.assign.claim_arrays import OwnedArrays
from shoal.assign.general import balance_score
from shoal.assign.hash_order import partition_hash, string_hash
from shoal.assign.movements import LoopGuard, Movements
from shoal.assign.problem import Problem

# Topics whose moves are looked for in one go.
_BLOCK = 64
# A table of classes by topics up to this size is built to look claims up in.
_TABLE_MAX = 1 << 26


def balance(problem: Problem, owned: OwnedArrays, previous: Ints) -> Rows:
    """The general assignment. ``previous`` must hold no member that does not want the topic.

    Raises:
        UpstreamFailureError: it does not come to an end.
    """
    wanted = _wanted(problem, owned)
    members, numbers = owned.members[wanted], owned.numbers[wanted]
    revoked = not wanted.all()
    balancing = _Balancing(problem, previous)
    balancing.keep(members, numbers)
    placed = balancing.hand_out()
    in_play = balancing.in_play()
    before = balancing.owner.copy(), balancing.counts.copy()
    if not revoked:
        balancing.reassign(balancing.in_topic_order(placed))
    moved = balancing.reassign(balancing.in_topic_order(None))
    if moved and numbers.size:
        scores = [
            balance_score(counts[in_play].tolist()) for counts in (balancing.counts, before[1])
        ]
        if scores[0] >= scores[1]:
            balancing.owner, balancing.counts = before
            balancing.moved.clear()
    return balancing.rows(numbers, placed)


def _wanted(problem: Problem, owned: OwnedArrays) -> Flags:
    """Per claim, whether the member still subscribes to the topic."""
    topics = len(problem.layout.topics)
    classes = np.array(problem.classes, dtype=np.int64)[owned.members]
    keys = classes * topics + topic_of_each(problem)[owned.numbers]
    known = np.concatenate(
        [
            number * topics + np.array(listed, dtype=np.int64)
            for number, listed in enumerate(problem.topic_lists)
        ]
    )
    if len(problem.topic_lists) * topics > _TABLE_MAX:
        return np.isin(keys, known)
    table = np.zeros(len(problem.topic_lists) * topics, dtype=bool)
    table[known] = True
    found: Flags = table[keys]
    return found


class _Balancing:
    """One run. Members are their ranks by id here, so that the lowest of equals is the first."""

    def __init__(self, problem: Problem, previous: Ints) -> None:
        self._problem = problem
        layout = problem.layout
        self._by_rank = np.array(problem.by_id(), dtype=np.int32)
        ranks = np.empty_like(self._by_rank)
        ranks[self._by_rank] = np.arange(len(ranks), dtype=np.int32)
        self._ranks = ranks
        self._subscribers = subscribers_of_each(problem, self._by_rank.tolist())
        self._topic_order = sorted(
            range(len(layout.topics)), key=lambda topic: (len(self._subscribers[topic]), topic)
        )
        self._has_previous = bool((previous >= 0).any())
        self._previous = np.where(previous >= 0, ranks[previous], -1)
        self.owner = np.full(layout.total, -1, dtype=np.int32)
        self.counts = np.zeros(len(ranks), dtype=np.int64)
        self.moved: dict[int, None] = {}
        """Partitions that moved, by their last move."""
        self._movements = Movements(self._java_hash)
        self._loop = LoopGuard(self._movements)

    def _java_hash(self, number: int) -> int:
        layout = self._problem.layout
        topic = bisect_right(layout.starts, number) - 1
        return partition_hash(string_hash(layout.topics[topic]), number - layout.starts[topic])

    def keep(self, members: Ints, numbers: Ints) -> None:
        self.owner[numbers] = self._ranks[members]
        self.counts += np.bincount(self._ranks[members], minlength=len(self.counts))

    def hand_out(self) -> Ints:
        """Every free partition to its least loaded subscriber. Returns them in that order."""
        free = self.owner < 0
        starts = self._problem.layout.starts
        placed: list[Ints] = []
        run: list[Ints] = []
        for index, topic in enumerate(self._topic_order):
            start, end = starts[topic], starts[topic + 1]
            run.append((start + np.flatnonzero(free[start:end])).astype(np.int32))
            rest = self._topic_order[index + 1 :][:1]
            if rest and self._subscribers[rest[0]] is self._subscribers[topic]:
                continue
            numbers = np.concatenate(run)
            run.clear()
            if numbers.size:
                self._fill(numbers, self._subscribers[topic])
                placed.append(numbers)
        return np.concatenate(placed) if placed else np.empty(0, dtype=np.int32)

    def _fill(self, numbers: Ints, members: Ints) -> None:
        chosen = level_by_level(self.counts[members], len(numbers))
        self.owner[numbers] = members[chosen]
        self.counts[members] += np.bincount(chosen, minlength=len(members))

    def in_play(self) -> Flags:
        """Members who may take part in moves; see ``general.rest_members``."""
        layout = self._problem.layout
        shared = np.array([len(members) >= 2 for members in self._subscribers])
        owns_shared = np.zeros(len(self.counts), dtype=bool)
        owns_shared[self.owner[shared[topic_of_each(self._problem)]]] = True
        most = [sum(layout.counts[t] for t in listed) for listed in self._problem.topic_lists]
        possible = np.array(most)[np.array(self._problem.classes)][self._by_rank]
        in_play: Flags = (self.counts < possible) | owns_shared
        return in_play

    def in_topic_order(self, chosen: Ints | None) -> list[_Block]:
        """Partitions of shared topics in the order Kafka goes through them, in blocks of topics."""
        layout = self._problem.layout
        parts: list[tuple[int, Ints]] = []
        if chosen is None:
            for topic in self._topic_order:
                every = np.arange(layout.starts[topic], layout.starts[topic + 1], dtype=np.int32)
                parts.append((topic, every))
        elif chosen.size:
            topics = topic_of_each(self._problem)[chosen]
            cuts = np.flatnonzero(np.diff(topics)) + 1
            parts = [
                (int(topics[start]), chosen[start:end])
                for start, end in zip(
                    [0, *cuts.tolist()], [*cuts.tolist(), len(chosen)], strict=True
                )
            ]
        parts = [part for part in parts if len(self._subscribers[part[0]]) >= 2]
        return [_Block(parts[i : i + _BLOCK]) for i in range(0, len(parts), _BLOCK)]

    def reassign(self, blocks: Sequence[_Block]) -> bool:
        """Pass over the partitions and move what helps, until a pass moves nothing."""
        performed = False
        modified = True
        while modified:
            modified = False
            for block in blocks:
                if self._something_to_do(block):
                    for topic, numbers in block.parts:
                        modified |= self._work_through(topic, numbers)
            performed |= modified
            self._loop.end_of_pass()
        return performed

    def _something_to_do(self, block: _Block) -> bool:
        least: dict[int, int] = {}
        limits = []
        for topic, _ in block.parts:
            members = self._subscribers[topic]
            if id(members) not in least:
                least[id(members)] = int(self.counts[members].min()) + 1
            limits.append(least[id(members)])
        loads = self.counts[self.owner[block.numbers]]
        if (loads > np.repeat(limits, block.lengths)).any():
            return True
        return self._has_previous and bool(self._goes_back(block.numbers, loads).any())

    def _goes_back(self, numbers: Ints, loads: Longs) -> Flags:
        """Whether a previous owner exists who has at least two fewer."""
        previous = self._previous[numbers]
        back: Flags = (previous >= 0) & (loads > self.counts[previous] + 1)
        return back

    def _candidates(self, numbers: Ints, members: Ints) -> list[int]:
        loads = self.counts[self.owner[numbers]]
        worth = loads > self.counts[members].min() + 1
        if self._has_previous:
            worth |= self._goes_back(numbers, loads)
        found: list[int] = np.flatnonzero(worth).tolist()
        return found

    def _work_through(self, topic: int, numbers: Ints) -> bool:
        """One topic's part of a pass."""
        members = self._subscribers[topic]
        candidates = self._candidates(numbers, members)
        modified = False
        index = 0
        while index < len(candidates):
            position = candidates[index]
            index += 1
            number = int(numbers[position])
            holder = int(self.owner[number])
            target = self._better_owner(number, holder, members)
            if target is None:
                continue
            modified = True
            source = self._move(number, topic, holder, target)
            if self._has_previous or source != holder:
                later = self._candidates(numbers[position + 1 :], members)
                candidates = [position + 1 + offset for offset in later]
                index = 0
        return modified

    def _better_owner(self, number: int, holder: int, members: Ints) -> int | None:
        load = self.counts[holder]
        if self._has_previous:
            previous = int(self._previous[number])
            if previous >= 0 and load > self.counts[previous] + 1:
                return previous
        least = int(members[self.counts[members].argmin()])
        return least if load > self.counts[least] + 1 else None

    def _move(self, number: int, topic: int, holder: int, target: int) -> int:
        moving = self._movements.choose(number, topic, holder, target)
        source = int(self.owner[moving])
        if self.counts[source] <= self.counts[target] + 1:
            self._loop.worse()
        self._movements.record(moving, topic, source, target)
        self.owner[moving] = target
        self.counts[source] -= 1
        self.counts[target] += 1
        self.moved.pop(moving, None)
        self.moved[moving] = None
        return source

    def rows(self, kept: Ints, placed: Ints) -> Rows:
        """Each member's partitions as a list would have grown: kept, handed out, moved to it."""
        order = np.concatenate([kept, placed])
        if self.moved:
            stayed = np.ones(self._problem.layout.total, dtype=bool)
            last = np.fromiter(self.moved, dtype=np.int32, count=len(self.moved))
            stayed[last] = False
            order = np.concatenate([order[stayed[order]], last])
        members = self._by_rank[self.owner[order]]
        numbers = order[stable_order(members, len(self.counts))]
        return Rows(numbers, np.bincount(members, minlength=len(self.counts)))


class _Block:
    """Some topics in a row, with the partitions of each that may move."""

    __slots__ = ("lengths", "numbers", "parts")

    def __init__(self, parts: list[tuple[int, Ints]]) -> None:
        self.parts = parts
        self.numbers = np.concatenate([numbers for _, numbers in parts])
        self.lengths = [len(numbers) for _, numbers in parts]


def level_by_level(counts: Longs, need: int) -> Longs:
    """Who gets one more, ``need`` times in a row, if the first of those with least always does."""
    pieces = []
    levels = np.unique(counts)
    for index, level in enumerate(levels):
        active = np.flatnonzero(counts <= level)
        take = need
        if index + 1 < len(levels):
            take = min(need, int(levels[index + 1] - level) * len(active))
        pieces.append(np.resize(active, take))
        need -= take
        if not need:
            break
    return np.concatenate(pieces)
