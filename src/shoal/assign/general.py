"""The sticky algorithm for a group whose members subscribe to different topics.

Members keep what they own; what is free goes, partition by partition, to the least loaded member
that subscribes; then partitions move from members to others with at least two fewer, until a whole
pass over them moves nothing. A result that is not better balanced than before is taken back.

Kafka asks before every step whether the group is balanced, which costs a look at all partitions.
The answer cannot change what happens, because in a balanced group no step finds anything to do;
except when a partition is to go back to a member that does not subscribe to it. We ask only then.

This is the clear version, for small groups and for racks. ``general_arrays`` does the same on
arrays; a property test holds them together.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

from shoal.assign.claims import Ownership
from shoal.assign.hash_order import partition_hash, string_hash
from shoal.assign.movements import LoopGuard, Movements
from shoal.assign.partitions import pack, unpack
from shoal.assign.problem import Problem, RackTable
from shoal.errors import UpstreamFailureError

_NULL_POINTER = (
    'java.lang.NullPointerException: Cannot invoke "java.util.List.size()" because the return '
    'value of "java.util.Map.get(Object)" is null'
)


def assign_general(
    problem: Problem,
    ownership: Ownership,
    previous: Mapping[int, int],
    racks: RackTable | None,
    *,
    undo: bool = True,
) -> list[list[int]]:
    """Packed partitions per member.

    Raises:
        UpstreamFailureError: Kafka throws here or does not come to an end. Without ``undo``, that
            is without taking earlier moves back, it always ends.
    """
    balancing = _Balancing(problem, ownership, previous, undo=undo)
    kept, revoked = balancing.keep_owned(racks)
    free = balancing.unassigned(kept)
    was_empty = balancing.loads.most == 0
    balancing.hand_out(free, racks)
    resting = balancing.rest_members()
    in_play = [p for p in balancing.all_partitions() if balancing.is_shared(p)]
    before = {member: list(owned) for member, owned in balancing.given.items()}
    try:
        if not revoked:
            balancing.reassign([p for p in free if balancing.is_shared(p)])
        moved = balancing.reassign(in_play)
    except KeyError as missing:
        # Kafka looks up a member it has taken out of play.
        raise UpstreamFailureError(_NULL_POINTER) from missing
    after = balancing.given
    if moved and not was_empty and _score(after) >= _score(before):
        after = before
    after |= resting
    return [after[member] for member in range(len(problem.member_ids))]


def _score(given: Mapping[int, Sequence[int]]) -> int:
    return balance_score([len(owned) for owned in given.values()])


def balance_score(loads: Sequence[int]) -> int:
    """Sum of the differences between all pairs of members; 0 is even. Wraps as Java's int does."""
    score = below = 0
    for index, load in enumerate(sorted(loads)):
        score += load * index - below
        below += load
    return (score + (1 << 31)) % (1 << 32) - (1 << 31)


class _Loads:
    """Members by how much they have and then by id, the least loaded first."""

    def __init__(self, given: Mapping[int, Sequence[int]], ranks: Sequence[int]) -> None:
        self._ranks = ranks
        self._member_at = {rank: member for member, rank in enumerate(ranks)}
        self._order = sorted((len(owned), ranks[member]) for member, owned in given.items())

    def __iter__(self) -> Iterator[int]:
        return (self._member_at[rank] for _, rank in self._order)

    def changed(self, member: int, before: int, after: int) -> None:
        self.drop(member, before)
        insort(self._order, (after, self._ranks[member]))

    def drop(self, member: int, count: int) -> None:
        del self._order[bisect_left(self._order, (count, self._ranks[member]))]

    @property
    def least(self) -> int:
        return self._order[0][0]

    @property
    def most(self) -> int:
        return self._order[-1][0]


class _Balancing:
    """One run of the algorithm. Partitions are packed integers, members and topics indexes."""

    def __init__(
        self,
        problem: Problem,
        ownership: Ownership,
        previous: Mapping[int, int],
        *,
        undo: bool,
    ) -> None:
        self._counts = problem.layout.counts
        self._listed = [problem.topics_of(m) for m in range(len(problem.member_ids))]
        wanted = [frozenset(listed) for listed in problem.topic_lists]
        self._wanted = [wanted[c] for c in problem.classes]
        # A topic listed twice counts twice, as in Kafka.
        self._subscribers: list[list[int]] = [[] for _ in self._counts]
        for member, listed in enumerate(self._listed):
            for topic in listed:
                self._subscribers[topic].append(member)
        self.given = dict(enumerate(ownership.owned))
        self._ranks = problem.ranks()
        self._owner: dict[int, int] = {}
        self._previous = previous
        hashes = [string_hash(topic) for topic in problem.layout.topics]

        def java_hash(partition: int) -> int:
            topic, number = unpack(partition)
            return partition_hash(hashes[topic], number)

        self._movements = Movements(java_hash, undo=undo)
        self._loop = LoopGuard(self._movements)
        ghosts = any(
            not 0 <= number < self._counts[topic]
            for owned in ownership.owned
            for topic, number in map(unpack, owned)
        )
        foreign = any(unpack(p)[0] not in self._wanted[m] for p, m in previous.items())
        self._ask_always = ghosts or foreign
        self._balanced: bool | None = None

    def all_partitions(self) -> list[int]:
        """Topics with few subscribers first, because they have the least choice."""
        topics = sorted(range(len(self._counts)), key=lambda t: (len(self._subscribers[t]), t))
        return [p for t in topics for p in range(pack(t, 0), pack(t, self._counts[t]))]

    def is_shared(self, partition: int) -> bool:
        return len(self._subscribers[unpack(partition)[0]]) >= 2

    def keep_owned(self, racks: RackTable | None) -> tuple[list[int], bool]:
        """Drop what a member must not keep. Returns what is kept, and whether any was dropped."""
        kept = []
        revoked = False
        for member, owned in self.given.items():
            keep = []
            for partition in owned:
                topic, number = unpack(partition)
                far = racks is not None and racks.mismatch(member, topic, number)
                if far or topic not in self._wanted[member]:
                    revoked = True
                else:
                    keep.append(partition)
            owned[:] = keep
            kept += keep
            self._owner.update(dict.fromkeys(keep, member))
        self.loads = _Loads(self.given, self._ranks)
        return kept, revoked

    def unassigned(self, kept: list[int]) -> list[int]:
        """What nobody kept, by the same side-by-side walk as in the constrained algorithm."""

        def place(partition: int) -> tuple[int, int]:
            return len(self._subscribers[unpack(partition)[0]]), partition

        kept = sorted(kept, key=place)
        left = []
        position = 0
        for partition in self.all_partitions():
            if position < len(kept) and kept[position] == partition:
                position += 1
            else:
                left.append(partition)
        return left

    def hand_out(self, free: Sequence[int], racks: RackTable | None) -> None:
        """Every free partition to the least loaded subscriber; near ones first if racks count."""
        far = []
        for partition in free:
            topic, number = unpack(partition)
            for member in self.loads:
                if topic in self._wanted[member] and not (
                    racks is not None and racks.mismatch(member, topic, number)
                ):
                    self._give(partition, member)
                    break
            else:
                far.append(partition)
        if racks is not None:
            self.hand_out(far, None)

    def _give(self, partition: int, member: int) -> None:
        owned = self.given[member]
        owned.append(partition)
        self._owner[partition] = member
        self.loads.changed(member, len(owned) - 1, len(owned))

    def rest_members(self) -> dict[int, list[int]]:
        """Take members out of play who have all they may have and nothing that others want."""
        resting = {}
        for member, owned in list(self.given.items()):
            if len(owned) < self._most_possible(member) or any(map(self.is_shared, owned)):
                continue
            self.loads.drop(member, len(owned))
            resting[member] = self.given.pop(member)
        return resting

    def _most_possible(self, member: int) -> int:
        listed = self._listed[member]
        if len(listed) == len(self._counts):
            return sum(self._counts)
        return sum(self._counts[topic] for topic in listed)

    def reassign(self, partitions: Sequence[int]) -> bool:
        """Pass over the partitions and move what helps, until a pass moves nothing."""
        performed = False
        modified = True
        while modified:
            modified = False
            for partition in partitions:
                if self._ask_always and self._is_balanced():
                    break
                target = self._better_owner(partition)
                if target is not None:
                    self._move(partition, target)
                    performed = modified = True
            self._loop.end_of_pass()
        return performed

    def _better_owner(self, partition: int) -> int | None:
        load = len(self.given[self._owner[partition]])
        topic = unpack(partition)[0]
        previous = self._previous.get(partition)
        if previous is not None and load > len(self.given[previous]) + 1:
            return previous
        if load <= self.loads.least + 1:
            return None
        if self._ask_always and not any(
            load > len(self.given[member]) + 1 for member in self._subscribers[topic]
        ):
            # Walked one by one only to fail where Kafka fails, on a member out of play.
            return None
        least = next(member for member in self.loads if topic in self._wanted[member])
        return least if load > len(self.given[least]) + 1 else None

    def _move(self, partition: int, target: int) -> None:
        topic = unpack(partition)[0]
        moving = self._movements.choose(partition, topic, self._owner[partition], target)
        source = self._owner[moving]
        if len(self.given[source]) <= len(self.given[target]) + 1:
            self._loop.worse()
        self._movements.record(moving, topic, source, target)
        losing, gaining = self.given[source], self.given[target]
        before = len(losing), len(gaining)
        if moving in losing:
            losing.remove(moving)
        gaining.append(moving)
        self._owner[moving] = target
        self.loads.changed(source, before[0], len(losing))
        self.loads.changed(target, before[1], len(gaining))
        self._balanced = None

    def _is_balanced(self) -> bool:
        """Kafka's own question, remembered until the next move."""
        if self._balanced is None:
            self._balanced = self._no_move_would_help()
        return self._balanced

    def _no_move_would_help(self) -> bool:
        if self.loads.least >= self.loads.most - 1:
            return True
        owner = {p: member for member, owned in self.given.items() for p in owned}
        for member in self.loads:
            owned = set(self.given[member])
            count = len(self.given[member])
            if count == self._most_possible(member):
                continue
            for topic in self._listed[member]:
                for partition in range(pack(topic, 0), pack(topic, self._counts[topic])):
                    if partition not in owned and count + 1 < len(self.given[owner[partition]]):
                        return False
        return True
