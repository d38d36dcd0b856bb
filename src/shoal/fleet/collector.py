"""Facts about every group of a cluster, collected again and again: state, members, lag in records
and in seconds.

Rule: one sweep at a time, and no more than a few requests to each broker for it. Lag follows the
rules that other tools learnt the hard way:

- what was deleted before it was read is nobody's lag: a commit below the start of the log counts
  from there;
- a commit beyond the end, seen a moment later, is a lag of 0, never negative;
- where nothing was committed there is no lag at all, and neither is there for a deleted topic.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from shoal.client.admin import Admin
from shoal.client.config import one_of
from shoal.client.offsets import ISOLATION_LEVELS
from shoal.client.survey import ClusterSurvey, SurveyedGroup
from shoal.metrics.cluster import GroupFacts as GroupFacts
from shoal.metrics.cluster import PartitionPosition as PartitionPosition
from shoal.metrics.end_samples import EndSamples


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster at the time of a sweep, which took ``took_s``."""

    at_s: float
    took_s: float
    survey: ClusterSurvey
    groups: Sequence[GroupFacts]
    problems: Mapping[str, int] = field(default_factory=dict)
    """How many groups had no answer, by the reason."""


class ClusterCollector:
    """Sweeps over one cluster. Not for several threads at once."""

    def __init__(
        self,
        admin: Admin,
        *,
        groups: Collection[str] = ("*",),
        isolation_level: str = "read_uncommitted",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        one_of("isolation_level", isolation_level, ISOLATION_LEVELS)
        self._admin = admin
        self._patterns = groups
        self._isolation_level = isolation_level
        self._clock = clock
        self._ends = EndSamples()

    def sweep(self, *, timeout: float | None = None) -> ClusterFacts:
        """Look at everything once."""
        began_s = self._clock()
        found = self._admin.survey(
            groups=self._patterns, isolation_level=self._isolation_level, timeout=timeout
        )
        now_s = self._clock()
        read = {tp for group in found.groups for tp in group.committed}
        self._ends.add({tp: end for tp, end in found.ends.items() if tp in read}, now_s)
        groups = [self._facts(one, found, now_s) for one in found.groups]
        problems = Counter(map(attrgetter("problem"), groups))
        del problems[""]
        return ClusterFacts(now_s, self._clock() - began_s, found, groups, problems)

    def _facts(self, group: SurveyedGroup, found: ClusterSurvey, now_s: float) -> GroupFacts:
        positions = {}
        for tp, committed in group.committed.items():
            end = found.ends.get(tp)
            if end is None:
                continue
            reached = max(committed, found.starts.get(tp, 0))
            behind_s = self._ends.behind_s(tp, reached, now_s) or 0.0
            unsure = reached < end and not self._ends.knows(tp, reached)
            positions[tp] = PartitionPosition(committed, max(0, end - reached), behind_s, unsure)
        described = group.description
        return GroupFacts(
            group.group_id,
            group.state,
            group.protocol,
            0 if described is None else len(described.members),
            group.coordinator_id,
            positions,
            group.problem,
        )
