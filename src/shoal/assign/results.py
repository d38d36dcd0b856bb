"""From an algorithm's integers to the assignment the caller sees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from shoal.assign.model import GroupAssignment
from shoal.assign.partitions import PartitionView, unpack
from shoal.assign.problem import Problem
from shoal.types import TopicPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# From so many partitions on, arrays beat lists even if NumPy must be loaded first.
LARGE = 4096


def is_large(problem: Problem) -> bool:
    """Whether to work on arrays."""
    return problem.layout.total >= LARGE


def from_pairs(problem: Problem, given: Sequence[Iterable[tuple[int, int]]]) -> GroupAssignment:
    """(topic index, partition) per member."""
    names = problem.layout.topics
    return GroupAssignment(
        {
            member_id: [TopicPartition(names[topic], partition) for topic, partition in pairs]
            for member_id, pairs in zip(problem.member_ids, given, strict=True)
        }
    )


def from_packed(problem: Problem, given: Sequence[Iterable[int]]) -> GroupAssignment:
    """Packed partitions per member."""
    return from_pairs(problem, [map(unpack, packed) for packed in given])


def from_arrays(
    problem: Problem, ends: NDArray[np.int64], numbers: NDArray[np.int32]
) -> GroupAssignment:
    """Running numbers of all members in a row; member ``m``'s part ends at ``ends[m]``."""
    start = 0
    views = {}
    for member_id, end in zip(problem.member_ids, ends.tolist(), strict=True):
        views[member_id] = PartitionView(problem.layout, numbers[start:end])
        start = end
    return GroupAssignment(views)
