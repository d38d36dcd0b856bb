"""Which partitions moved between which members during one balancing, to undo moves where possible.

When a partition of a topic is about to move from A to B while another of the same topic has moved
from B to A, moving that other one back has the same effect on the load and one move less. Which
one Kafka picks among several depends on the order of a ``HashSet``; see ``hash_order``.

The one that moves in place of another need not come from the same member. Then the load gets worse
instead of better, and there are groups, few but valid, for which Kafka makes the same moves
forever (tests/golden/assignors-endless.json). ``LoopGuard`` notices.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.assign.hash_order import PartitionSet
from shoal.errors import UpstreamFailureError

Pair = tuple[int, int]
"""(member it came from at first, member it is with now)."""


class Movements:
    """Moves of one balancing. Partitions are the caller's integers, members are indexes."""

    __slots__ = ("_by_topic", "_java_hash", "_pair_of", "_undo")

    def __init__(self, java_hash: Callable[[int], int], *, undo: bool = True) -> None:
        self._java_hash = java_hash
        self._undo = undo
        self._pair_of: dict[int, Pair] = {}
        self._by_topic: dict[int, dict[Pair, PartitionSet]] = {}

    def choose(self, partition: int, topic: int, source: int, target: int) -> int:
        """The partition to move instead of ``partition``, often itself."""
        moved = self._by_topic.get(topic)
        if moved is None or not self._undo:
            return partition
        first_source = self._pair_of[partition][0] if partition in self._pair_of else source
        back = moved.get((target, first_source))
        return partition if back is None else back.first()

    def record(self, partition: int, topic: int, source: int, target: int) -> None:
        """Remember that ``partition`` goes from ``source`` to ``target`` now."""
        pair = (source, target)
        known = self._pair_of.pop(partition, None)
        if known is not None:
            self._forget(partition, topic, known)
            if known[0] == target:
                return
            pair = (known[0], target)
        self._pair_of[partition] = pair
        moved = self._by_topic.setdefault(topic, {})
        moved.setdefault(pair, PartitionSet()).add(partition, self._java_hash(partition))

    def _forget(self, partition: int, topic: int, pair: Pair) -> None:
        moved = self._by_topic[topic]
        moved[pair].remove(partition)
        # An emptied set is dropped, so the next one starts small again; its order depends on that.
        if not moved[pair]:
            del moved[pair]
        if not moved:
            del self._by_topic[topic]

    def state(self) -> frozenset[tuple[Pair, int, tuple[int, ...]]]:
        """All that decides how the balancing goes on, loads and owners included."""
        return frozenset(
            (pair, moved.capacity, tuple(moved))
            for by_pair in self._by_topic.values()
            for pair, moved in by_pair.items()
        )


class LoopGuard:
    """Notices when passes over the partitions come back to where they have been."""

    __slots__ = ("_movements", "_seen", "_suspicious")

    def __init__(self, movements: Movements) -> None:
        self._movements = movements
        self._seen: set[frozenset[tuple[Pair, int, tuple[int, ...]]]] = set()
        self._suspicious = False

    def worse(self) -> None:
        """A move was made that did not improve the balance; without any there can be no loop."""
        self._suspicious = True

    def end_of_pass(self) -> None:
        """Raises: UpstreamFailureError: this very state was there before."""
        if not self._suspicious:
            return
        self._suspicious = False
        state = self._movements.state()
        if state in self._seen:
            raise UpstreamFailureError("no end: the same partitions move again and again")
        self._seen.add(state)
