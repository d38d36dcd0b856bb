"""Which topics the expressions of a group match, found out a little at a time.

All expressions of a group are compared with all topics together, so that a new topic costs one
rebalance. A group with many expressions, or a cluster with many topics, is served in slices: the
coordinator does other things between them.

Where rights are in force, a topic is found only if whoever's heartbeat asked for it may see it, as
in Kafka: the other members are told of it all the same, and cannot read what they may not.

Rule: the topics are those of one moment, whose version stands in the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.consumer_journal import ResolvedRegex
from shoal.group.coordinator.topic_pattern import TopicPattern

SLICE_WORK: Final = 20_000
"""States looked at in one go: a few milliseconds."""

MIN_INTERVAL_MS: Final = 10_000
"""Between two resolutions of a group. A constant in Kafka."""


class Resolution:
    """One comparison, from its start to its result: one expression after the other."""

    __slots__ = (
        "_found",
        "_left",
        "_names",
        "_pattern",
        "_place",
        "_sees",
        "started_ms",
        "version",
    )

    def __init__(
        self,
        regexes: Iterable[str],
        image: ClusterImage,
        started_ms: int,
        sees: Callable[[str], bool] | None = None,
    ) -> None:
        """``sees`` says which topics may be found; ``None``: all."""
        self._sees = sees
        self.version = image.version
        self.started_ms = started_ms
        self._names = list(image.names())
        self._left = list(regexes)
        self._found: dict[str, set[str]] = {}
        self._pattern: TopicPattern | None = None
        self._place = 0

    @property
    def is_done(self) -> bool:
        return self._pattern is None and not self._left

    def advance(self, work: int = SLICE_WORK) -> None:
        """Go on until so much was done."""
        while work > 0 and not self.is_done:
            pattern = self._pattern
            if pattern is None:
                # Making one is work, too: a group may have thousands.
                pattern = self._pattern = TopicPattern(self._left.pop())
                self._found[pattern.text] = set()
                self._place = 0
                work -= pattern.size
            before = pattern.work
            while self._place < len(self._names) and pattern.work - before < work:
                name = self._names[self._place]
                if pattern.matches(name) and (self._sees is None or self._sees(name)):
                    self._found[pattern.text].add(name)
                self._place += 1
            work -= pattern.work - before
            if self._place == len(self._names):
                self._pattern = None

    def results(self, group_id: str) -> list[ResolvedRegex]:
        assert self.is_done
        return [
            ResolvedRegex(group_id, regex, frozenset(topics), self.version, self.started_ms)
            for regex, topics in self._found.items()
        ]
