"""Rebalances of this broker's groups, by cause, and how long they took: counted from what the
coordinators tell.

A classic group rebalances when a generation begins or the last member is gone, a group of the
consumer protocol when its epoch rises. The cause is the worst of what happened to its members since
the rebalance before: one that expired before one that left, that before one that came back, that
before one that joined.

Rule: bounded. Of ``GROUPS_MAX`` groups each is counted by itself; the others together, under the
empty name. A group that is removed is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from shoal.group.coordinator.decision import EventKind, GroupEvent
from shoal.metrics.exposition import Buckets
from shoal.metrics.histogram import Histogram

GROUPS_MAX: Final = 10_000
SECONDS: Final = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 300.0)
OTHERS: Final = ""
# The worst first.
_CAUSES: Final = {
    EventKind.MEMBER_EXPIRED: "expired",
    EventKind.MEMBER_LEFT: "left",
    EventKind.MEMBER_REPLACED: "restarted",
    EventKind.MEMBER_JOINED: "joined",
    EventKind.PROTOCOL_CHANGED: "protocol_changed",
}
_OTHERWISE: Final = "subscription_changed"
_REBALANCES: Final = frozenset(
    {EventKind.GENERATION_STARTED, EventKind.EMPTY, EventKind.EPOCH_BUMPED}
)


class RebalanceCounts:
    """By group and cause."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._by_group: dict[str, dict[str, int]] = {}
        self._durations: dict[str, Histogram] = {}
        # What happened to members since the last rebalance, and what caused that one.
        self._happened: dict[str, set[EventKind]] = {}
        self._last_cause: dict[str, str] = {}
        self.unsettled: dict[str, int] = {}
        """Groups of the consumer protocol on their way to a new target → since when."""

    def told(self, events: Iterable[GroupEvent]) -> None:
        """What one decision says; in it, a cause may stand behind its effect."""
        rebalanced = []
        for event in events:
            if event.kind in _CAUSES:
                self._note(event)
            elif event.kind in _REBALANCES:
                rebalanced.append(event)
            elif event.kind is EventKind.STABLE and event.duration_ms is not None:
                self._took(event.group_id, event.duration_ms)
            elif event.kind is EventKind.GROUP_REMOVED:
                self._forget(event.group_id)
        for event in rebalanced:
            self._count(event)

    def settled(self, group_id: str) -> None:
        """A group of the consumer protocol has reached its target."""
        began_ms = self.unsettled.pop(group_id, None)
        if began_ms is not None:
            self._took(group_id, self._now_ms() - began_ms)

    def _note(self, event: GroupEvent) -> None:
        known = self._happened.get(event.group_id)
        if known is not None:
            known.add(event.kind)
        elif len(self._happened) < GROUPS_MAX:
            self._happened[event.group_id] = {event.kind}

    def _count(self, event: GroupEvent) -> None:
        group_id = event.group_id
        happened = self._happened.pop(group_id, ())
        cause = next((name for kind, name in _CAUSES.items() if kind in happened), _OTHERWISE)
        if group_id not in self._by_group and len(self._by_group) >= GROUPS_MAX:
            counts = self._by_group.setdefault(OTHERS, {})
        else:
            counts = self._by_group.setdefault(group_id, {})
            self._last_cause[group_id] = cause
        counts[cause] = counts.get(cause, 0) + 1
        if event.kind is EventKind.EPOCH_BUMPED and group_id in self._last_cause:
            self.unsettled.setdefault(group_id, self._now_ms())

    def _took(self, group_id: str, duration_ms: int) -> None:
        cause = self._last_cause.get(group_id, _OTHERWISE)
        known = self._durations.get(cause)
        if known is None:
            known = self._durations[cause] = Histogram(SECONDS)
        known.add(duration_ms / 1_000)

    def _forget(self, group_id: str) -> None:
        for known in (self._by_group, self._happened, self._last_cause, self.unsettled):
            known.pop(group_id, None)

    def by_group(self) -> dict[tuple[str, str], int]:
        """How often, by group and cause."""
        return {
            (group_id, cause): count
            for group_id, counts in self._by_group.items()
            for cause, count in counts.items()
        }

    def durations(self) -> dict[str, Buckets]:
        """How long, by cause: from the first who was asked to join, or from the new epoch, to the
        assignment that everybody has."""
        return {cause: known.buckets() for cause, known in self._durations.items()}
