"""Partitions as integers: a running number for each, and lists of four bytes per partition.

A million ``TopicPartition`` objects take a second to build and 100 MB to hold; the assignors work
on numbers instead and hand out views. A view becomes objects only where somebody looks at it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, overload

from shoal.types import TopicPartition

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# A partition as one integer when its number need not exist: topic index above, partition below.
# Numbers of any sign sort as (topic, partition) does.
_HALF = 1 << 31


def pack(topic: int, partition: int) -> int:
    """Topic index and partition number as one integer which sorts like the pair."""
    return (topic << 32) + partition


def unpack(packed: int) -> tuple[int, int]:
    """The pair that ``pack`` was given."""
    topic = (packed + _HALF) >> 32
    return topic, packed - (topic << 32)


class Layout:
    """Numbers all partitions of some topics: topic by topic, each from its own start.

    Topics stand in Java's string order, so that numbers sort as Kafka sorts partitions.
    """

    __slots__ = ("counts", "index", "starts", "topics")

    def __init__(self, topics: Sequence[str], counts: Sequence[int]) -> None:
        self.topics = tuple(topics)
        self.counts = tuple(counts)
        self.starts = tuple(accumulate(counts, initial=0))
        self.index = {topic: index for index, topic in enumerate(topics)}

    @property
    def total(self) -> int:
        return self.starts[-1]

    def same_as(self, other: Layout) -> bool:
        """Whether both number the same partitions in the same way."""
        return self is other or (self.topics == other.topics and self.counts == other.counts)

    def at(self, number: int) -> TopicPartition:
        topic = bisect_right(self.starts, number) - 1
        return TopicPartition(self.topics[topic], number - self.starts[topic])

    def split(self, numbers: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Topic indexes and partition numbers of many."""
        import numpy as np

        starts = np.asarray(self.starts, dtype=np.int64)
        topics = np.searchsorted(starts, numbers, side="right") - 1
        return topics, numbers - starts[topics]


class PartitionView(Sequence[TopicPartition]):
    """A list of partitions which holds numbers and shows ``TopicPartition`` objects."""

    __slots__ = ("layout", "numbers")

    def __init__(self, layout: Layout, numbers: NDArray[np.int32]) -> None:
        self.layout = layout
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> TopicPartition: ...

    @overload
    def __getitem__(self, index: slice) -> PartitionView: ...

    def __getitem__(self, index: int | slice) -> TopicPartition | PartitionView:
        if isinstance(index, slice):
            return PartitionView(self.layout, self.numbers[index])
        return self.layout.at(int(self.numbers[index]))

    def __iter__(self) -> Iterator[TopicPartition]:
        topics, partitions = self.layout.split(self.numbers)
        names = map(self.layout.topics.__getitem__, topics.tolist())
        return map(TopicPartition, names, partitions.tolist())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PartitionView) and self.layout.same_as(other.layout):
            return bool((self.numbers.tolist()) == other.numbers.tolist())
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(str(tp) for tp in self[:6])
        more = f", … {len(self)} in all" if len(self) > 6 else ""
        return f"[{shown}{more}]"


def by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    """Partition numbers per topic, topics by first appearance, numbers in list order."""
    grouped: dict[str, list[int]] = {}
    if isinstance(partitions, PartitionView):
        layout = partitions.layout
        topics, numbers = layout.split(partitions.numbers)
        by_index: dict[int, list[int]] = {}
        for index, number in zip(topics.tolist(), numbers.tolist(), strict=True):
            by_index.setdefault(index, []).append(number)
        return {layout.topics[index]: found for index, found in by_index.items()}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return grouped
