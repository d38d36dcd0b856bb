"""One cluster, watched in the background: what the Fleet page shows, and what changed.

Rule: one sweep at a time, however many browsers look; pages are answered from what the last sweep
left. What is known is published as a whole, a new ``FleetState`` each time, so whoever reads it
sees one moment. What could not be looked at says so; it never looks like zero.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import ConfigError, ShoalError
from shoal.fleet.collector import ClusterCollector, ClusterFacts, GroupFacts
from shoal.fleet.diagnosis import Finding, diagnose, diagnose_history, worst_first
from shoal.fleet.open_transactions import diagnose_transactions, look_for_transactions
from shoal.fleet.snapshots import Snapshot, surveyed
from shoal.records.arrow import need_arrow
from shoal.types import TopicPartition
from shoal.web.group_history import RebalanceHistory, is_real, shown
from shoal.web.lag_history import GroupLags

if TYPE_CHECKING:
    from shoal.client.admin import Admin
    from shoal.client.survey import SurveyedGroup
    from shoal.fleet.causes import Rebalance
    from shoal.fleet.rebalance_watch import RebalanceWatch

LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 5.0
LOOKS_MAX: Final = 7
LOOK_S: Final = 10.0
"""Looks that a diagnosis compares are so far apart, at least."""
HISTORY_S: Final = 3600.0
GONE_MAX: Final = 2_000
FEED_MAX: Final = 500
ASKED_A_SWEEP: Final = 3
"""Groups that are asked about open transactions in one sweep."""
ASKED_AGAIN_S: Final = 30.0
EXACT_MAX: Final = 2**53 - 1
"""What JavaScript's numbers hold exactly."""


@dataclass(frozen=True)
class FleetState:
    """What is known at one moment. ``changed`` has the version in which a row last changed."""

    version: int = 0
    rows: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    changed: Mapping[str, int] = field(default_factory=dict)
    gone: Sequence[tuple[int, str]] = ()
    status: Mapping[str, Any] = field(default_factory=dict)
    facts: ClusterFacts | None = None
    swept_at_s: float = 0.0

    def since(self, version: int) -> dict[str, Any]:
        """What whoever knows ``version`` does not know: everything, or the difference."""
        is_whole = version <= 0 or version > self.version
        if self.gone and self.gone[0][0] > version + 1 and len(self.gone) >= GONE_MAX:
            is_whole = True  # what went in between is forgotten
        rows = [row for name, row in self.rows.items() if is_whole or self.changed[name] > version]
        gone = [] if is_whole else [name for at, name in self.gone if at > version]
        return {
            "version": self.version,
            "whole": is_whole,
            "rows": rows,
            "gone": [name for name in gone if name not in self.rows],
            "status": dict(self.status),
        }


def exact(number: int) -> int | str:
    """A number for JSON: as text where a browser would round it."""
    return number if abs(number) <= EXACT_MAX else str(number)


class ClusterWatch:
    """Sweeps one cluster until ``stop``. One thread sweeps; others read ``state``."""

    def __init__(
        self,
        name: str,
        admin: Admin,
        settings: Mapping[str, Any],
        *,
        every_s: float = EVERY_S,
        groups: Collection[str] = ("*",),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.admin = admin
        self.settings = settings
        self.state = FleetState(status={"problem": "the first look is under way"})
        self.every_s = every_s
        self._clock = clock
        self._collector = ClusterCollector(admin, groups=groups)
        self._watch, self._blind = _rebalance_watch(admin, settings)
        self._stop = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._groups: dict[str, _WatchedGroup] = {}
        self._feed: deque[dict[str, Any]] = deque(maxlen=FEED_MAX)

    def run(self) -> None:
        """Sweep until ``stop``."""
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                self.sweep()
            except Exception as error:
                LOG.exception("%s: this look went wrong", self.name)
                self._say(f"the last look went wrong: {error!r}")
            took_s = time.monotonic() - began_s
            # As long as it took, at least: a busy cluster is not looked at all the time.
            self._stop.wait(max(self.every_s - took_s, took_s))

    def stop(self) -> None:
        self._stop.set()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call this whenever there is a new state; it is called from the sweeping thread."""
        self._listeners.append(listener)

    def sweep(self) -> None:
        """Look once. What goes wrong is told by the status, and what was known stays, with its
        age."""
        try:
            facts = self._collector.sweep()
        except ShoalError as error:
            LOG.warning("%s: this look failed, the next follows: %s", self.name, error)
            self._say(f"the last look failed: {error}")
            return
        now_s = self._clock()
        with self._lock:
            self._look_for_rebalances(facts)
            rows = self._rows(facts, now_s)
        self._publish(self._next_state(facts, rows, now_s))

    def _say(self, problem: str) -> None:
        """What is known stays; why it is not newer is told with it."""
        status = {**self.state.status, "problem": problem}
        self._publish(replace(self.state, version=self.state.version + 1, status=status))

    def remember(self, rebalances: Iterable[Rebalance]) -> None:
        """What happened before this process looked: from a recording."""
        with self._lock:
            for one in sorted(rebalances, key=lambda one: one.now.at_us):
                self._note(one)

    def remember_lag(self, group_id: str, at_s: float, rows: list[tuple[str, int, float]]) -> None:
        """How far behind a group was before this process looked."""
        with self._lock:
            self._group(group_id).lags.add(at_s, rows)

    def history(self, group_id: str) -> RebalanceHistory | None:
        found = self._groups.get(group_id)
        return None if found is None else found.history

    def lags(self, group_id: str) -> GroupLags | None:
        found = self._groups.get(group_id)
        return None if found is None else found.lags

    def looks(self, group_id: str) -> list[Snapshot]:
        """The last looks at a group, a minute's worth."""
        found = self._groups.get(group_id)
        return [] if found is None else list(found.looks)

    def feed(self) -> list[dict[str, Any]]:
        """Rebalances of all groups, the newest first."""
        with self._lock:
            return sorted(self._feed, key=lambda one: -one["at_ms"])

    @property
    def blind(self) -> str:
        """Why rebalances cannot be known; nothing if they can."""
        return self._blind

    def _look_for_rebalances(self, facts: ClusterFacts) -> None:
        watch = self._watch
        if watch is None:
            return
        try:
            topics = facts.survey.metadata.topics
            names = {one.topic_id: one.name for one in topics.values() if one.topic_id is not None}
            happened = watch.look(facts.survey.ends, names)
        except ShoalError as error:
            self._blind = f"__consumer_offsets cannot be read: {error}"
            LOG.warning("%s: rebalances are not known: %s", self.name, error)
            return
        self._blind = ""
        earlier, watch.earlier = watch.earlier, []
        for one in sorted((*earlier, *happened), key=lambda one: one.now.at_us):
            self._note(one)
        for one in watch.revised:
            self._revise(one)

    def _revise(self, one: Rebalance) -> None:
        history = self._group(one.now.group).history
        changed = history.revise(one)
        if changed is None or not is_real(changed):
            return
        told = shown(changed, history.names())
        for index in range(len(self._feed) - 1, -1, -1):
            if all(
                self._feed[index][name] == told[name] for name in ("group", "at_ms", "generation")
            ):
                self._feed[index] = told
                return

    def _note(self, one: Rebalance) -> None:
        history = self._group(one.now.group).history
        if history.add(one) and is_real(one):
            self._feed.append(shown(one, history.names()))

    def _group(self, group_id: str) -> _WatchedGroup:
        found = self._groups.get(group_id)
        if found is None:
            found = self._groups[group_id] = _WatchedGroup()
        return found

    def _rows(self, facts: ClusterFacts, now_s: float) -> dict[str, dict[str, Any]]:
        there = {one.group_id for one in facts.groups}
        for group_id in [one for one in self._groups if one not in there]:
            del self._groups[group_id]
        asked = 0
        rows = {}
        for group, one in zip(facts.survey.groups, facts.groups, strict=True):
            watched = self._group(one.group_id)
            watched.look(group, facts, now_s)
            watched.lags.add(now_s, _by_topic(one))
            if asked < ASKED_A_SWEEP and watched.is_suspect(now_s):
                asked += 1
                watched.ask(self.admin, now_s)
            rows[one.group_id] = _row(one, watched, now_s, self._blind)
        return rows

    def _next_state(
        self, facts: ClusterFacts, rows: dict[str, dict[str, Any]], now_s: float
    ) -> FleetState:
        last = self.state
        version = last.version + 1
        changed = {
            name: last.changed[name] if last.rows.get(name) == row else version
            for name, row in rows.items()
        }
        gone = [*last.gone, *((version, name) for name in last.rows if name not in rows)]
        status = {
            "problem": "",
            "blind": self._blind,
            "swept_ms": int(now_s * 1000),
            "took_ms": int(facts.took_s * 1000),
            "every_s": self.every_s,
            "groups": len(rows),
            "brokers": len(facts.survey.metadata.nodes),
            "topics": sum(not one.is_internal for one in facts.survey.metadata.topics.values()),
            "without_answer": sum(facts.problems.values()),
            "rebalances": len(self._feed),
        }
        return FleetState(version, rows, changed, gone[-GONE_MAX:], status, facts, now_s)

    def _publish(self, state: FleetState) -> None:
        self.state = state
        for listener in list(self._listeners):
            listener()


class _WatchedGroup:
    """What is remembered of one group from sweep to sweep."""

    __slots__ = ("_asked_s", "findings", "held", "history", "lags", "looks")

    def __init__(self) -> None:
        self.history = RebalanceHistory()
        self.lags = GroupLags()
        self.looks: deque[Snapshot] = deque(maxlen=LOOKS_MAX)
        self.held: frozenset[TopicPartition] = frozenset()
        self.findings: Sequence[Finding] = ()
        self._asked_s = 0.0

    def look(self, group: SurveyedGroup, facts: ClusterFacts, now_s: float) -> None:
        """Keep this look; the newest is always there, older ones are some seconds apart."""
        last = self.looks[-1] if self.looks else None
        now = surveyed(group, facts.survey, now_s, last)
        if now is None:
            self.looks.clear()
            return
        self.history.look(group.state, int(now_s * 1000))
        if len(self.looks) > 1 and self.looks[-1].at_s - self.looks[-2].at_s < LOOK_S:
            self.looks.pop()
        self.looks.append(now)

    def is_suspect(self, now_s: float) -> bool:
        """Whether it stands still, so that an open transaction may be the reason."""
        if len(self.looks) < 2 or now_s - self._asked_s < ASKED_AGAIN_S:
            return False
        return any(one.level == "problem" for one in diagnose(self.looks)) or bool(self.held)

    def ask(self, admin: Admin, now_s: float) -> None:
        """Whether transactions hold it up."""
        self._asked_s = now_s
        try:
            found = look_for_transactions(admin, self.looks[-1], int(now_s * 1000))
        except ShoalError:
            return  # the next sweep tells what is wrong with the cluster
        self.held = frozenset(one.topic_partition for one in found if one.holds)
        self.findings = diagnose_transactions(found)

    def diagnosis(self, now_s: float) -> list[Finding]:
        """What ``shoal why`` would say, by what is known without asking."""
        if not self.looks:
            return []
        rows = self.history.rows(int((now_s - HISTORY_S) * 1e6))
        return worst_first(
            [
                *diagnose(self.looks, self.held),
                *self.findings,
                *diagnose_history(rows, HISTORY_S / 3600),
            ]
        )


def _by_topic(one: GroupFacts) -> list[tuple[str, int, float]]:
    return [
        (topic, sum(each.lag for each in parts), max(each.behind_s for each in parts))
        for topic, parts in one.by_topic().items()
    ]


def _row(one: GroupFacts, watched: _WatchedGroup, now_s: float, blind: str) -> dict[str, Any]:
    """A group as the Fleet page shows it; ``None`` is not known."""
    is_known = not one.problem
    has_lag = is_known and bool(one.positions)
    findings = watched.diagnosis(now_s)
    last = None if blind else watched.history.last
    series = watched.lags.whole
    return {
        "group": one.group_id,
        "state": one.state if is_known else "unknown",
        "problem": one.problem,
        "protocol": one.protocol,
        "members": one.members if is_known else None,
        "lag": exact(one.lag) if has_lag else None,
        "behind_s": round(one.behind_s, 1) if has_lag else None,
        "at_least": has_lag and one.at_least,
        "spark": series.spark(now_s) if has_lag else "",
        "trend": series.trend(now_s) if has_lag else "",
        "cause": None if last is None else last.cause,
        "rebalanced_ms": None if last is None else last.now.at_us // 1000,
        "level": findings[0].level if findings else "unknown",
        "verdict": findings[0].what if findings else f"no answer: {one.problem}",
    }


def _rebalance_watch(
    admin: Admin, settings: Mapping[str, Any]
) -> tuple[RebalanceWatch | None, str]:
    """What watches for rebalances, or why nothing does."""
    try:
        need_arrow()
    except ConfigError as error:
        return None, f"rebalances are not known: {error}"
    from shoal.fleet.rebalance_watch import RebalanceWatch

    return RebalanceWatch(admin, settings), ""
