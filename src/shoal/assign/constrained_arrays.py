"""The constrained sticky algorithm on arrays, without racks; see ``constrained``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoal.assign.arrays import Ints, Longs, Rows, stable_order, topic_of_each
from shoal.assign.claim_arrays import OwnedArrays
from shoal.assign.problem import Problem


def keep_and_deal(problem: Problem, owned: OwnedArrays) -> Rows:
    """Keep what quotas allow, deal out the rest."""
    members = len(problem.member_ids)
    total = problem.layout.total
    low, over_expected = divmod(total, members)
    kept = _sorted_claims(problem, owned)
    sizes = np.bincount(owned.members if kept is None else kept.members, minlength=members)
    # The first members found with more than the minimum keep one more, as many as there are.
    over = np.flatnonzero(sizes > low)[:over_expected]
    quotas = np.minimum(sizes, low)
    quotas[over] = low + 1
    is_left = np.ones(total, dtype=bool)
    withheld = None
    if kept is not None:
        within = kept.places < quotas[kept.members]
        is_left[kept.numbers[within]] = False
        withheld = np.zeros(total, dtype=bool)
        withheld[kept.numbers[~within]] = True
        withheld[owned.contested] = True
    left = np.flatnonzero(is_left).astype(np.int32)

    by_rank = np.array(problem.by_id())
    lacking = low - quotas[by_rank]
    under = by_rank[lacking > 0]
    deficits = lacking[lacking > 0]
    dealt = int(deficits.sum())
    lucky = _one_more(sizes, over, over_expected, low, by_rank, under, deficits)[
        : len(left) - dealt
    ]
    counts = np.maximum(quotas, low)
    counts[lucky] += 1
    ends = np.cumsum(counts)
    numbers = np.empty(total, dtype=np.int32)
    if kept is not None:
        starts = ends - counts
        numbers[(starts[kept.members] + kept.places)[within]] = kept.numbers[within]
    _deal(numbers, left[:dealt], (ends - counts + quotas)[under], deficits)
    numbers[ends[lucky] - 1] = left[dealt:]
    return Rows(numbers, counts, withheld)


@dataclass(slots=True)
class _Kept:
    members: Ints
    numbers: Ints
    places: Longs
    """Of each partition among those of its member, by partition number and then topic."""


def _sorted_claims(problem: Problem, owned: OwnedArrays) -> _Kept | None:
    if not owned.numbers.size and not owned.contested.size:
        return None
    total = problem.layout.total
    owner = np.full(total, -1, dtype=np.int32)
    owner[owned.numbers] = owned.members
    owner[owned.contested] = -1
    # Two stable sorts by small keys: partition number, then member.
    starts = np.array(problem.layout.starts, dtype=np.int32)
    partitions = np.arange(total, dtype=np.int32) - starts[topic_of_each(problem)]
    by_partition = stable_order(partitions, max(problem.layout.counts))
    by_partition = by_partition[owner[by_partition] >= 0]
    members = owner[by_partition]
    order = stable_order(members, len(problem.member_ids))
    members = members[order]
    first = np.searchsorted(members, np.arange(len(problem.member_ids)))
    places = np.arange(len(members)) - first[members]
    return _Kept(members, by_partition[order].astype(np.int32), places)


def _one_more(
    sizes: Longs,
    over: Longs,
    over_expected: int,
    low: int,
    by_rank: Longs,
    under: Longs,
    deficits: Longs,
) -> Longs:
    """Who gets one partition above the minimum, first to last.

    Members that kept exactly the minimum, by id; then the others in the order they were filled.
    """
    exact = by_rank[:0]
    if len(over) < over_expected:
        exact = by_rank[sizes[by_rank] == low]
    return np.concatenate([exact, under[np.argsort(deficits, kind="stable")]])


def _deal(numbers: Ints, left: Ints, starts: Longs, deficits: Longs) -> None:
    """Round and round over the members, each leaving when it has enough.

    Rounds in which the same members take part are dealt at once.
    """
    done = 0
    position = 0
    for deficit in np.unique(deficits).tolist():
        active = starts[deficits >= deficit]
        rounds = deficit - done
        block = left[position : position + rounds * len(active)].reshape(rounds, len(active))
        if block.size == len(numbers):
            # Everybody gets the same number from the start: whole rows, five times as fast.
            numbers.reshape(len(active), rounds)[active // rounds] = block.T
        else:
            numbers[active[:, None] + np.arange(done, deficit)] = block.T
        position += block.size
        done = deficit
