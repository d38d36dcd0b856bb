"""Which topics a member wants, and what the cluster says about them.

Rule: this knows topics and nothing of generations, requests or time. ``classic_member.py`` asks it
three questions: what do I join with, does this assignment fit what I want, and has anything changed
for the group I assigned for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from shoal.assign.model import ClusterMetadata
from shoal.group.member.member_interface import ClusterTopics
from shoal.types import TopicPartition

Snapshot: TypeAlias = Mapping[str, tuple[int, tuple[frozenset[str | None], ...]]]
"""Per topic what a leader must assign again for when it changes: partition count and racks."""


class TopicInterest:
    """A list or a pattern of topics, and the last known metadata of them."""

    def __init__(self, *, watches_racks: bool, excludes_internal: bool) -> None:
        self._watches_racks = watches_racks
        self._excludes_internal = excludes_internal
        self._pattern: re.Pattern[str] | None = None
        self._subscribed = False
        self.topics: frozenset[str] = frozenset()
        """What to join with: the listed topics, or those that match the pattern now."""
        self.joined: frozenset[str] | None = None
        """What the last JoinGroup said."""
        self._group: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        self._racks: dict[str, Sequence[Sequence[str | None]]] = {}
        self._internal: frozenset[str] = frozenset()
        self._covered: set[str] = set()
        self._knows_all = False
        self._assigned_for: Snapshot | None = None
        self.cluster_changed = False
        """Whether the partitions this member assigned as leader are not those of today."""

    # --- the user's wish -------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return self._subscribed

    @property
    def has_pattern(self) -> bool:
        return self._pattern is not None

    @property
    def has_changed_since_join(self) -> bool:
        return self.joined is not None and self.joined != self.topics

    @property
    def what_changed(self) -> str:
        """For the coordinator's log."""
        return "cached metadata has changed" if self.cluster_changed else "subscription has changed"

    def subscribe(self, topics: Iterable[str]) -> None:
        self._subscribed = True
        self._pattern = None
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        self._subscribed = True
        self._pattern = pattern
        self.topics = self._matching()

    def clear(self) -> None:
        self._subscribed = False
        self._pattern = None
        self.topics = self._group = frozenset()
        self.joined = None
        self.forget_leadership()

    def fits(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether an assignment made for the last JoinGroup is still wanted."""
        if self._pattern is None:
            return all(tp.topic in self.topics for tp in partitions)
        return all(self._pattern.fullmatch(tp.topic) for tp in partitions)

    def adopt(self, partitions: Iterable[TopicPartition]) -> None:
        """Topics the leader knew before we did, and which match our pattern, are ours as well."""
        if self._pattern is None or self.joined is None:
            return
        added = {tp.topic for tp in partitions} - self.joined
        if added:
            self.topics |= added
            self.joined |= added

    # --- metadata --------------------------------------------------------------------------------

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """What metadata is needed of: own topics, the group's if leader; ``None``: everything."""
        return None if self._pattern is not None else self.topics | self._group

    def covers(self, topics: Iterable[str]) -> bool:
        return self._knows_all or self._covered.issuperset(topics)

    def update(self, answer: ClusterTopics) -> None:
        if answer.asked is None:
            self._counts = dict(answer.partition_counts)
            self._racks = dict(answer.racks)
            self._internal = answer.internal
            self._knows_all = True
            self._covered = set(self._counts)
            if self._pattern is not None:
                self.topics = self._matching()
        else:
            self._merge(answer, answer.asked)
        self._compare()

    def _merge(self, answer: ClusterTopics, asked: frozenset[str]) -> None:
        self._knows_all = False
        self._covered |= asked
        for topic in asked:
            self._counts.pop(topic, None)
            self._racks.pop(topic, None)
        self._counts.update(answer.partition_counts)
        self._racks.update(answer.racks)
        self._internal |= answer.internal

    def _matching(self) -> frozenset[str]:
        assert self._pattern is not None
        return frozenset(
            topic
            for topic in self._counts
            if self._pattern.fullmatch(topic)
            and not (self._excludes_internal and topic in self._internal)
        )

    # --- the leader's duty to watch --------------------------------------------------------------

    def lead(self, topics: Iterable[str]) -> None:
        """Watch these topics too: those of the whole group."""
        self._group = frozenset(topics)

    def cluster(self) -> ClusterMetadata:
        return ClusterMetadata(self._counts, self._racks)

    def remember_assigned(self) -> None:
        """The assignment just made is for the partitions known now."""
        self._assigned_for = self._snapshot()
        self.cluster_changed = False

    def forget_leadership(self) -> None:
        self._group = frozenset()
        self._assigned_for = None
        self.cluster_changed = False

    def _compare(self) -> None:
        if self._assigned_for is not None:
            self.cluster_changed = self._assigned_for != self._snapshot()

    def _snapshot(self) -> Snapshot:
        return {
            topic: (self._counts[topic], self._rack_sets(topic))
            for topic in self.topics | self._group
            if topic in self._counts
        }

    def _rack_sets(self, topic: str) -> tuple[frozenset[str | None], ...]:
        # Without client.rack nobody assigns by rack, and a moved replica is no reason to rejoin.
        if not self._watches_racks:
            return ()
        return tuple(frozenset(racks) for racks in self._racks.get(topic, ()))
