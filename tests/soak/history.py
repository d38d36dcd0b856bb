"""What clients saw, and whether it can be true: the judge of the soak runs. Pure.

Named after what would be wrong (Jepsen's words for Kafka):

* lost: an acknowledged record is not in the log at its offset
* duplicated: a value stands twice in the log of idempotent producers
* reordered: one producer's records in a partition are not in the order it sent them
* inconsistent: somebody read another value at an offset than the log holds in the end
* skipped: a consumer went on behind a record it never got
* forgotten: a commit that was acknowledged is gone, or points past the end of the log
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

Value = bytes
Place = tuple[int, int]  # partition, offset


@dataclass
class History:
    """Everything observed. Lists are appended to by the threads of the clients."""

    acknowledged: list[tuple[Place, Value]] = field(default_factory=list)
    # Per consumer and assignment (a run): what it got, in order.
    read: dict[tuple[str, int], list[tuple[Place, Value]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    committed: list[Place] = field(default_factory=list)

    def anomalies(
        self, log: dict[int, dict[int, Value]], committed_at_end: dict[int, int]
    ) -> list[str]:
        """Every contradiction between the history and the log as it is in the end."""
        return [
            *self._lost(log),
            *_duplicated(log),
            *_reordered(log),
            *self._inconsistent(log),
            *self._skipped(log),
            *self._forgotten(log, committed_at_end),
        ]

    def _lost(self, log: dict[int, dict[int, Value]]) -> list[str]:
        return [
            f"lost: {value!r} was acknowledged at {partition}/{offset}, there is {found!r}"
            for (partition, offset), value in self.acknowledged
            if (found := log.get(partition, {}).get(offset)) != value
        ]

    def _inconsistent(self, log: dict[int, dict[int, Value]]) -> list[str]:
        return [
            f"inconsistent: {who} read {value!r} at {partition}/{offset}, there is {found!r}"
            for who, seen in self.read.items()
            for (partition, offset), value in seen
            if (found := log.get(partition, {}).get(offset)) != value
        ]

    def _skipped(self, log: dict[int, dict[int, Value]]) -> list[str]:
        found = []
        for who, seen in self.read.items():
            last: dict[int, int] = {}
            for (partition, offset), _ in seen:
                before = last.get(partition)
                if before is not None and offset > before + 1:
                    missed = [o for o in range(before + 1, offset) if o in log.get(partition, {})]
                    if missed:
                        found.append(f"skipped: {who} did not get {partition}/{missed[0]}")
                last[partition] = offset
        return found

    def _forgotten(self, log: dict[int, dict[int, Value]], at_end: dict[int, int]) -> list[str]:
        highest: dict[int, int] = {}
        for partition, offset in self.committed:
            highest[partition] = max(highest.get(partition, 0), offset)
        found = []
        for partition, offset in highest.items():
            kept = at_end.get(partition, -1)
            if kept < offset:
                found.append(f"forgotten: {partition} was committed at {offset}, now {kept}")
        for partition, kept in at_end.items():
            end = max(log.get(partition, {0: b""})) + 1
            if kept > end:
                found.append(
                    f"forgotten: {partition} is committed at {kept}, the log ends at {end}"
                )
        return found


def _duplicated(log: dict[int, dict[int, Value]]) -> list[str]:
    seen: dict[Value, Place] = {}
    found = []
    for partition, records in log.items():
        for offset, value in records.items():
            if value in seen:
                found.append(f"duplicated: {value!r} at {seen[value]} and {(partition, offset)}")
            seen[value] = (partition, offset)
    return found


def _reordered(log: dict[int, dict[int, Value]]) -> list[str]:
    found = []
    for partition, records in log.items():
        last: dict[bytes, int] = {}
        for offset in sorted(records):
            producer, _, number = records[offset].partition(b"-")
            if int(number) <= last.get(producer, -1):
                found.append(f"reordered: {records[offset]!r} at {partition}/{offset}")
            last[producer] = int(number)
    return found
