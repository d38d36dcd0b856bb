"""Assignment on integer arrays: the parts that all assignors share, and the two that need no more.

A group of thousands of members and a million partitions is a few arrays here: per partition its
owner, or per member its partitions in a row. The functions are the fast twins of the clear ones in
``range``, ``roundrobin`` and ``hash_order``; property tests hold them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shoal.assign.model import GroupAssignment
from shoal.assign.partitions import PartitionView
from shoal.assign.problem import Problem, from_arrays

Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]


@dataclass(slots=True)
class Rows:
    """Each member's partitions in a row, the members one after another."""

    numbers: Ints
    counts: Longs
    withheld: Flags | None = None
    """Per partition, whether it changes owner; None when none does or when nobody knows yet."""


# Ids longer than this are hashed one by one; a table of them would be mostly padding.
_HASHED_TOGETHER_LENGTH_MAX = 256


def bucket_order(keys: Sequence[str], mask: int) -> list[int] | None:
    """Indexes of the keys by Java hash bucket, or None when they do not fit a table."""
    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    longest = int(lengths.max())
    if not 0 < longest <= _HASHED_TOGETHER_LENGTH_MAX:
        return None
    units = np.array(keys, dtype=f"U{longest}").view(np.uint32).reshape(len(keys), longest)
    if units.max() > 0xFFFF:
        return None  # pairs of surrogates in Java
    hashes = np.zeros(len(keys), dtype=np.uint32)
    for column in range(longest):
        longer = np.uint32(31) * hashes + units[:, column]
        hashes = np.where(lengths > column, longer, hashes)
    buckets = (hashes ^ (hashes >> np.uint32(16))) & np.uint32(mask)
    order: list[int] = np.argsort(buckets, kind="stable").tolist()
    return order


def stable_order(keys: Ints, limit: int) -> Longs:
    """Stable order of keys from 0 to ``limit``.

    NumPy sorts 16 bits by radix, ten times as fast as 32, so wide keys are sorted by halves.
    """
    order = np.argsort(keys.astype(np.uint16), kind="stable")
    if limit > 1 << 16:
        high = (keys >> 16).astype(np.uint16)[order]
        order = order[np.argsort(high, kind="stable")]
    return order


def topic_of_each(problem: Problem) -> Ints:
    """Per partition number, the index of its topic."""
    return np.repeat(
        np.arange(len(problem.layout.topics), dtype=np.int32), np.array(problem.layout.counts)
    )


def subscribers_of_each(problem: Problem, order: Sequence[int]) -> list[Ints]:
    """Per topic, its subscribers as positions in ``order``, ascending.

    Topics with the same subscribers share one array, so that ``is`` tells.
    """
    position = np.empty(len(order), dtype=np.int32)
    position[np.array(order)] = np.arange(len(order), dtype=np.int32)
    classes = np.array(problem.classes)
    wanting: list[list[int]] = [[] for _ in problem.layout.topics]
    for number, listed in enumerate(problem.topic_lists):
        for topic in dict.fromkeys(listed):
            wanting[topic].append(number)
    known: dict[tuple[int, ...], Ints] = {}
    found = []
    for numbers in wanting:
        key = tuple(numbers)
        if key not in known:
            chosen = np.zeros(len(problem.topic_lists), dtype=bool)
            chosen[numbers] = True
            known[key] = np.sort(position[chosen[classes]])
        found.append(known[key])
    return found


def in_rows(problem: Problem, owners: Ints) -> GroupAssignment:
    """From the owner of each partition to each member's partitions, ascending."""
    members = len(problem.member_ids)
    numbers = stable_order(owners, members).astype(np.int32)
    return from_arrays(problem, np.cumsum(np.bincount(owners, minlength=members)), numbers)


def deal(problem: Problem) -> GroupAssignment:
    """``roundrobin``; see ``roundrobin.deal_one_by_one``."""
    ring = problem.in_member_order()
    subscribers = subscribers_of_each(problem, ring)
    if all(len(members) == len(ring) for members in subscribers):
        every = np.arange(problem.layout.total, dtype=np.int32)
        turn_of = {member: turn for turn, member in enumerate(ring)}
        return GroupAssignment(
            {
                member_id: PartitionView(problem.layout, every[turn_of[member] :: len(ring)])
                for member, member_id in enumerate(problem.member_ids)
            }
        )
    turns = np.empty(problem.layout.total, dtype=np.int32)
    turn = 0
    for topic, members in enumerate(subscribers):
        start, end = problem.layout.starts[topic : topic + 2]
        first = int(np.searchsorted(members, turn))
        turns[start:end] = np.resize(np.roll(members, -first), end - start)
        turn = (int(turns[end - 1]) + 1) % len(ring)
    return in_rows(problem, np.array(ring, dtype=np.int32)[turns])


def cut(problem: Problem) -> GroupAssignment:
    """``range`` without racks; see ``range.cut_by_racks``."""
    order = problem.in_member_order()
    subscribers = subscribers_of_each(problem, order)
    everybody = all(len(members) == len(order) for members in subscribers)
    if everybody and len(set(problem.layout.counts)) == 1:
        return _cut_alike(problem, order)
    pieces: list[tuple[Ints, Ints, Ints]] = []
    for topic in problem.walk:
        count = problem.layout.counts[topic]
        members = subscribers[topic]
        share, extra = divmod(count, len(members))
        # With fewer partitions than members the last ones get nothing.
        place = np.arange(min(len(members), count), dtype=np.int32)
        lengths = share + (place < extra).astype(np.int32)
        starts = problem.layout.starts[topic] + place * share + np.minimum(place, extra)
        pieces.append((members[: len(place)], starts.astype(np.int32), lengths))
    takers, starts, lengths = (np.concatenate(part) for part in zip(*pieces, strict=True))
    takers = np.array(order, dtype=np.int32)[takers]
    by_member = stable_order(takers, len(order))
    sizes = np.bincount(takers, weights=lengths, minlength=len(order)).astype(np.int64)
    numbers = starts[by_member]
    if lengths.max() > 1:
        lengths = lengths[by_member]
        before = np.cumsum(lengths, dtype=np.int32) - lengths
        numbers = np.repeat(numbers - before, lengths)
        numbers += np.arange(len(numbers), dtype=np.int32)
    return from_arrays(problem, np.cumsum(sizes), numbers)


def _cut_alike(problem: Problem, order: Sequence[int]) -> GroupAssignment:
    """The same pieces of all topics: everybody wants everything and all are of one size."""
    layout = problem.layout
    share, extra = divmod(layout.counts[0], len(order))
    topics = np.array(layout.starts, dtype=np.int32)[np.array(problem.walk)]
    given: list[PartitionView] = []
    for length, first, end in ((share + 1, 0, extra), (share, extra, len(order))):
        places = np.arange(first, end, dtype=np.int32)
        starts = places * share + np.minimum(places, extra)
        pieces = starts[:, None, None] + topics[:, None] + np.arange(length, dtype=np.int32)
        given += [PartitionView(layout, piece.ravel()) for piece in pieces]
    at = {member: place for place, member in enumerate(order)}
    return GroupAssignment(
        {member_id: given[at[member]] for member, member_id in enumerate(problem.member_ids)}
    )
