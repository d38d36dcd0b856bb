"""Members' claims as arrays of partition numbers, and whose claim counts; see ``claims``.

What a member owns comes as a view (free), as objects, or as the bytes of its user data. The bytes
are scanned without building objects: at the size where this matters nearly every topic of every
member is a group of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.assign.arrays import Flags, Ints, Longs
from shoal.assign.claims import stated_generation
from shoal.assign.partitions import Layout, PartitionView
from shoal.assign.problem import Problem
from shoal.assign.user_data import NO_GENERATION, decode_generation
from shoal.types import TopicPartition

_INT32 = struct.Struct(">i")
# Of data of one length; more than a few are not worth comparing with.
_SHAPES_KEPT = 4


@dataclass(slots=True)
class ClaimArrays:
    """All claims of a group: pairs of member and partition number, members ascending."""

    members: Ints
    numbers: Ints
    ages: list[int]
    rival_ages: list[int]
    has_ghosts: bool
    """Whether a member claims a partition that its topic does not have; those are left out."""


def gather(problem: Problem, *, in_user_data: bool) -> ClaimArrays:
    """What the members claim, read from their user data or from their subscriptions."""
    members_of = problem.subscriptions
    if not any(one.user_data if in_user_data else one.owned_partitions for one in members_of):
        # Without claims it does not matter how old they are.
        nobody = np.empty(0, dtype=np.int32)
        none = [NO_GENERATION] * len(members_of)
        return ClaimArrays(nobody, nobody, none, none, has_ghosts=False)
    reader = _Reader(problem.layout)
    pieces = []
    ages = []
    rival_ages = []
    for subscription in members_of:
        stated = stated_generation(subscription)
        rival_ages.append(NO_GENERATION if stated is None else stated)
        if in_user_data:
            numbers, generation = reader.user_data(subscription.user_data or b"")
        else:
            numbers = reader.partitions(subscription.owned_partitions)
            generation = stated
            if generation is None:
                generation = decode_generation(subscription.user_data)
        ages.append(NO_GENERATION if generation is None else generation)
        pieces.append(numbers)
    lengths = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
    members = np.repeat(np.arange(len(pieces), dtype=np.int32), lengths)
    return ClaimArrays(members, np.concatenate(pieces), ages, rival_ages, reader.has_ghosts)


class _Reader:
    """Turns one member's claim after another into partition numbers of one layout."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._starts = np.array(layout.starts, dtype=np.int64)
        self._counts = np.array([*layout.counts, 0], dtype=np.int64)
        self._by_head = {
            struct.pack(">h", len(name)) + name: index
            for index, name in enumerate(topic.encode() for topic in layout.topics)
        }
        self._nothing = np.empty(0, dtype=np.int32)
        # Views of one earlier assignment share a layout, so it is compared once.
        self._translations: dict[int, tuple[Layout, Longs | None]] = {}
        self._shapes: dict[int, list[_Shape]] = {}
        # Comparing pays while it finds something often enough.
        self._shape_luck = 16
        self.has_ghosts = False

    def partitions(self, owned: Sequence[TopicPartition]) -> Ints:
        if not owned:
            return self._nothing
        if isinstance(owned, PartitionView):
            return self._view(owned)
        names, partitions = zip(*owned, strict=True)
        unknown = -1
        index = self._layout.index
        topics = np.array([index.get(name, unknown) for name in names], dtype=np.int64)
        return self._numbers(topics, np.array(partitions, dtype=np.int64))

    def _view(self, view: PartitionView) -> Ints:
        known = self._translations.get(id(view.layout))
        if known is None:
            translation = None
            if not view.layout.same_as(self._layout):
                index = self._layout.index
                translation = np.array([index.get(name, -1) for name in view.layout.topics])
            known = self._translations[id(view.layout)] = view.layout, translation
        translation = known[1]
        if translation is None:
            return view.numbers
        topics, partitions = view.layout.split(view.numbers)
        return self._numbers(translation[topics], partitions)

    def _numbers(self, topics: Longs, partitions: Longs) -> Ints:
        """Of what exists; topics may be -1 for unknown."""
        real: Flags = (partitions >= 0) & (partitions < self._counts[topics])
        if not real.all():
            self.has_ghosts = self.has_ghosts or bool((~real & (topics >= 0)).any())
            topics, partitions = topics[real], partitions[real]
        return (self._starts[topics] + partitions).astype(np.int32)

    def user_data(self, data: bytes) -> tuple[Ints, int | None]:
        """The same as ``user_data.decode_sticky``."""
        if not data:
            return self._nothing, None
        shape = self._shape(data)
        if shape is None:
            return self._nothing, NO_GENERATION
        generation = None
        if len(data) - shape.end >= _INT32.size:
            generation = _INT32.unpack_from(data, shape.end)[0]
        if not shape.topics.size:
            return self._nothing, generation
        # An int32 at every byte: the ones we want stand at any alignment.
        every = np.ndarray((len(data) - 3,), dtype=">i4", buffer=data, strides=(1,))
        return self._numbers(shape.topics, every[shape.positions].astype(np.int64)), generation

    def _shape(self, data: bytes) -> _Shape | None:
        """Where the partitions stand. Members of one group tend to have data of one shape."""
        known = self._shapes.setdefault(len(data), [])
        for shape in known:
            if self._shape_luck < 0:
                break
            if shape.fits(data):
                self._shape_luck += len(known)
                return shape
            self._shape_luck -= 1
        try:
            shape = _scan(data, self._by_head)
        except (struct.error, ValueError, IndexError):
            return None
        known.insert(0, shape)
        del known[_SHAPES_KEPT:]
        return shape


class _Shape:
    """The topics of some user data, and the byte position of every partition number in it."""

    __slots__ = ("_data", "_every", "_rest", "end", "positions", "topics")

    def __init__(
        self, data: bytes, topics: Longs, positions: Longs, counts: Longs, end: int
    ) -> None:
        before = np.cumsum(counts) - counts
        every = np.repeat(positions - 4 * before, counts)
        every += 4 * np.arange(len(every))
        of_known = np.repeat(topics, counts)
        known = of_known >= 0
        self.positions = every[known]
        self.topics = of_known[known]
        self.end = end
        self._data = data
        self._every = every
        self._rest: bytes | None = None

    def fits(self, data: bytes) -> bool:
        """Whether data of the same length differs from ours in numbers only."""
        if self._rest is None:
            if len(data) - self.end >= _INT32.size:
                self._every = np.append(self._every, self.end)  # the generation
            self._every = (self._every[:, None] + np.arange(4)).ravel()
            self._rest = self._without_numbers(self._data)
        return self._without_numbers(data) == self._rest

    def _without_numbers(self, data: bytes) -> bytes:
        blanked = np.frombuffer(data, dtype=np.uint8).copy()
        blanked[self._every] = 0
        return blanked.tobytes()


def _scan(
    data: bytes,
    by_head: dict[bytes, int],
    read_int32: Callable[[bytes, int], tuple[int]] = _INT32.unpack_from,
) -> _Shape:
    """The shape of user data.

    Raises:
        struct.error, ValueError, IndexError: the data is not user data of ``sticky``.
    """
    (left,) = read_int32(data, 0)
    size = len(data)
    if not 0 <= left <= size - 4:
        raise ValueError
    found: list[int] = []
    position = 4
    width = 0
    for _ in range(left):
        # Names in a row are often of one length; a length and name that are known need no check.
        topic = by_head.get(data[position : position + width])
        if topic is None:
            high = data[position]
            if high >= 0x80:
                raise ValueError  # a negative length
            width = 2 + (high << 8 | data[position + 1])
            topic = by_head.get(data[position : position + width], -1)
        position += width
        (count,) = read_int32(data, position)
        position += 4
        end = position + (count << 2)
        if not position <= end <= size:
            raise ValueError
        found += topic, position, count
        position = end
    topics, positions, counts = np.array(found, dtype=np.int64).reshape(-1, 3).T
    return _Shape(data, topics, positions, counts, position)


@dataclass(slots=True)
class OwnedArrays:
    """The claims that count, in the order made; at most one per partition."""

    members: Ints
    numbers: Ints
    contested: Longs
    """Partition numbers claimed twice in one generation."""


def settle_arrays(claims: ClaimArrays, total: int) -> OwnedArrays:
    """See ``claims.settle``. Only partitions claimed more than once are looked at one by one."""
    claimants = np.bincount(claims.numbers, minlength=total)
    rivalry = claimants[claims.numbers] > 1
    if not rivalry.any():
        return OwnedArrays(claims.members, claims.numbers, np.empty(0, dtype=np.int64))
    holds = np.ones(len(claims.numbers), dtype=bool)
    owner: dict[int, int] = {}
    held: dict[tuple[int, int], list[int]] = {}
    contested = set()
    for index in np.flatnonzero(rivalry).tolist():
        member, number = int(claims.members[index]), int(claims.numbers[index])
        rival = owner.get(number)
        if rival is not None:
            age, rival_age = claims.ages[member], claims.rival_ages[rival]
            if age <= rival_age:
                holds[index] = False
            if age < rival_age:
                continue
            if age == rival_age:
                contested.add(number)
            else:
                held.setdefault((number, member), []).append(index)
            if held.get((number, rival)):
                holds[held[number, rival].pop(0)] = False
        else:
            held[number, member] = [index]
        owner[number] = member
    return OwnedArrays(
        claims.members[holds], claims.numbers[holds], np.array(sorted(contested), dtype=np.int64)
    )


def previous_arrays(problem: Problem, claims: ClaimArrays, total: int) -> tuple[Ints, bool]:
    """Per partition the member with the newest old claim, or -1; and whether any is foreign.

    See ``claims.previous_owners``; a foreign claim is one to a topic the member does not want.
    """
    previous = np.full(total, -1, dtype=np.int32)
    newest = max(max(claims.ages), NO_GENERATION)
    stale = [m for m, age in enumerate(claims.ages) if age < newest]
    foreign = False
    # The oldest are written first and overwritten; among equals the first member is written last.
    for member in sorted(stale, key=lambda m: (claims.ages[m], -m)):
        start, end = np.searchsorted(claims.members, [member, member + 1])
        numbers = claims.numbers[start:end]
        previous[numbers] = member
        topics, _ = problem.layout.split(numbers)
        foreign = foreign or not set(topics.tolist()) <= set(problem.topics_of(member))
    return previous, foreign
