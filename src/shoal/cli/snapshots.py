"""A group at one moment, the difference of two moments, and what is wrong with it.

Rule: everything here works on values; ``take`` is the only function that asks a cluster. So what
``group watch`` and ``why`` say can be tested without waiting for a rebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin

REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
UNEVEN_FACTOR: Final = 2.0
STUCK_S: Final = 30.0
OFTEN_AN_HOUR: Final = 6
_NO_TROUBLE: Final = (
    "first seen",
    "group started",
    "second round of a cooperative rebalance",
)


@dataclass(frozen=True)
class MemberView:
    """One member as seen from outside."""

    member_id: str
    name: str
    host: str
    is_static: bool
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True)
class Snapshot:
    """A group at one moment. ``lags`` holds ``None`` where nothing is committed."""

    at_s: float
    state: str
    assignor: str
    members: Mapping[str, MemberView]
    lags: Mapping[TopicPartition, int | None]
    ends: Mapping[TopicPartition, int]

    @property
    def lag(self) -> int:
        return sum(lag or 0 for lag in self.lags.values())

    def lag_of(self, member: MemberView) -> int:
        """How far behind the member's partitions are."""
        return sum(self.lags.get(tp) or 0 for tp in member.partitions)


@dataclass(frozen=True)
class Event:
    """Something that happened between two looks."""

    at_s: float
    kind: str
    text: str


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about a group, and what to do. ``level``: ok, note or problem."""

    level: str
    what: str
    advice: str = ""


def take(admin: Admin, group_id: str, at_s: float) -> Snapshot:
    """Look at a group."""
    found = admin.describe_group(group_id)
    lags = admin.group_lag(group_id)
    members = {
        one.member_id: MemberView(
            one.member_id,
            one.group_instance_id or one.client_id,
            one.host.lstrip("/"),
            one.group_instance_id is not None,
            frozenset(one.topics),
            frozenset(one.assignment),
        )
        for one in found.members
    }
    return Snapshot(
        at_s,
        found.state,
        found.assignor,
        members,
        {tp: one.lag for tp, one in lags.items()},
        {tp: one.end for tp, one in lags.items()},
    )


class Observer:
    """Turns looks at a group into events; remembers when a rebalance began."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._stable: Snapshot | None = None
        self._began_s: float | None = None

    def look(self, now: Snapshot) -> list[Event]:
        """What happened since the last look."""
        events: list[Event] = []
        before = self._last
        if before is not None:
            events += _membership(before, now)
            if now.state != before.state:
                events.append(Event(now.at_s, "state", f"{before.state} → {now.state}"))
        if now.state in REBALANCING and self._began_s is None:
            self._began_s = now.at_s
        if now.state not in REBALANCING:
            events += self._settled(now)
        self._last = now
        return events

    def _settled(self, now: Snapshot) -> list[Event]:
        events: list[Event] = []
        moved = moves(self._stable, now) if self._stable is not None else []
        if self._began_s is not None:
            took = now.at_s - self._began_s
            text = f"rebalanced in about {took:.1f} s, {len(moved)} partitions moved"
            events.append(Event(now.at_s, "rebalanced", text))
            self._began_s = None
        for tp, old, new in moved[:20]:
            events.append(Event(now.at_s, "moved", f"{tp}: {old or 'nobody'} → {new or 'nobody'}"))
        self._stable = now
        return events


def _membership(before: Snapshot, now: Snapshot) -> list[Event]:
    joined = [now.members[one] for one in now.members.keys() - before.members.keys()]
    left = [before.members[one] for one in before.members.keys() - now.members.keys()]
    return [
        *(Event(now.at_s, "joined", f"{one.name} ({one.host})") for one in joined),
        *(Event(now.at_s, "left", f"{one.name} ({one.host})") for one in left),
    ]


def owners(snapshot: Snapshot) -> dict[TopicPartition, str]:
    """Who reads what."""
    return {tp: member.name for member in snapshot.members.values() for tp in member.partitions}


def moves(before: Snapshot, now: Snapshot) -> list[tuple[TopicPartition, str, str]]:
    """Partitions with another owner than before: partition, old owner, new owner."""
    old, new = owners(before), owners(now)
    return [
        (tp, old.get(tp, ""), new.get(tp, ""))
        for tp in sorted(old.keys() | new.keys())
        if old.get(tp) != new.get(tp)
    ]


def diagnose(looks: Sequence[Snapshot]) -> list[Finding]:
    """What several looks at a group tell."""
    last = looks[-1]
    if last.state == "Dead":
        return [Finding("problem", "the group does not exist", "check its name: shoal group list")]
    findings = [
        *_state(looks),
        *_load(last),
        *_subscriptions(last),
        *_commits(looks),
        *_lag_trend(looks),
    ]
    return findings or [Finding("ok", "nothing is wrong that can be seen from outside")]


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Problems, then notes, then what is well."""
    order = {"problem": 0, "note": 1, "ok": 2}
    return sorted(findings, key=lambda finding: order[finding.level])


def _state(looks: Sequence[Snapshot]) -> list[Finding]:
    last = looks[-1]
    if last.state == "Empty":
        advice = "start a consumer, or look at its log if one should be running"
        return [Finding("problem", "nobody is in the group", advice)]
    rebalancing = [look for look in looks if look.state in REBALANCING]
    changed = len({frozenset(look.members) for look in looks}) > 1
    span_s = looks[-1].at_s - looks[0].at_s
    if len(looks) > 1 and len(rebalancing) == len(looks):
        is_stuck = span_s >= STUCK_S
        advice = (
            "a member does not rejoin: look for one that processes longer than "
            "max.poll.interval.ms between polls, and lower max.poll.records there"
        )
        return [
            Finding(
                "problem" if is_stuck else "note",
                f"the group was in {last.state} for all of the {span_s:.0f} s we looked",
                advice if is_stuck else f"look longer: shoal why --seconds {STUCK_S * 2:.0f}",
            )
        ]
    if rebalancing and changed:
        return [
            Finding(
                "problem",
                "members come and go while we look: the group keeps rebalancing",
                "give members a group.instance.id (static membership) if they restart, and use "
                "cooperative-sticky, so that only what moves stops",
            )
        ]
    if rebalancing:
        return [Finding("note", f"the group is rebalancing ({last.state})")]
    return [Finding("ok", f"{last.state}, {len(last.members)} members, assignor {last.assignor}")]


def diagnose_history(rebalances: Sequence[Mapping[str, Any]], hours: float) -> list[Finding]:
    """What the rebalances of the last hours tell; rows as of ``shoal.spark.history``."""
    # The second round belongs to the rebalance before it, and the first starts a group.
    real = [row for row in rebalances if row["cause"] not in _NO_TROUBLE]
    if not real:
        return []
    causes = Counter(str(row["cause"]) for row in real)
    cause, count = causes.most_common(1)[0]
    often = len(real) / max(hours, 0.01) >= OFTEN_AN_HOUR and len(real) >= OFTEN_AN_HOUR
    expired = sum(bool(row["expired"]) for row in real)
    what = f"{len(real)} rebalances in the last {hours:g} h, most often: {cause} ({count})"
    if expired:
        advice = (
            f"in {expired} of them a member's session ran out: look for pauses, kills and networks "
            "there; a larger session.timeout.ms forgives more"
        )
    elif often:
        advice = (
            "members come and go: give them a group.instance.id if they restart, and use "
            "cooperative-sticky, so that only what moves stops"
        )
    else:
        advice = ""
    return [Finding("problem" if often else "note" if expired else "ok", what, advice)]


def _load(last: Snapshot) -> list[Finding]:
    if last.state != "Stable" or not last.members:
        return []
    counts = {one.name: len(one.partitions) for one in last.members.values()}
    findings = []
    idle = sorted(one.name for one in last.members.values() if not one.partitions)
    if idle:
        findings.append(
            Finding(
                "note",
                f"{len(idle)} of {len(counts)} members read nothing: {', '.join(idle[:5])}",
                "there are more members than partitions; add partitions or stop members",
            )
        )
    working = [count for count in counts.values() if count]
    if working and max(working) - min(working) > 1 and max(working) >= UNEVEN_FACTOR * min(working):
        most = max(counts, key=lambda name: counts[name])
        findings.append(
            Finding(
                "note",
                f"the load is uneven: {most} reads {max(working)} partitions, another "
                f"{min(working)}",
                "compare assignors with: shoal plan; range is uneven over many topics",
            )
        )
    return findings


def _subscriptions(last: Snapshot) -> list[Finding]:
    kinds = {one.topics for one in last.members.values()}
    if len(kinds) > 1:
        return [
            Finding(
                "note",
                f"members subscribe to {len(kinds)} different sets of topics",
                "meant so? otherwise a deployment is half done",
            )
        ]
    return []


def _commits(looks: Sequence[Snapshot]) -> list[Finding]:
    last = looks[-1]
    read = {tp for member in last.members.values() for tp in member.partitions}
    never = sorted(tp for tp in read if last.lags.get(tp) is None)
    if never:
        return [
            Finding(
                "note",
                f"{len(never)} partitions are read and never committed, such as {never[0]}",
                "a restart begins at auto.offset.reset there; check that the consumer commits",
            )
        ]
    return []


def _lag_trend(looks: Sequence[Snapshot]) -> list[Finding]:
    first, last = looks[0], looks[-1]
    if len(looks) < 2 or not last.members:
        return []
    span = max(last.at_s - first.at_s, 0.001)
    frozen = sorted(
        tp
        for tp, lag in last.lags.items()
        if lag
        and (first.lags.get(tp) or 0)
        and _committed(last, tp) == _committed(first, tp)
        and tp in owners(last)
    )
    findings = []
    if frozen:
        findings.append(
            Finding(
                "problem",
                f"{len(frozen)} partitions have lag and no progress, such as {frozen[0]} "
                f"(read by {owners(last)[frozen[0]]})",
                "that consumer is stuck or does not commit: look at its log, or a poison record "
                f"at offset {_committed(last, frozen[0])}",
            )
        )
    growth = (last.lag - first.lag) / span
    if growth > 0 and last.lag > 100:
        findings.append(
            Finding(
                "note",
                f"lag is {last.lag:,} and grows by {growth:,.0f} records a second",
                "more members help only up to the number of partitions: shoal plan shows it",
            )
        )
    else:
        trend = "shrinks" if growth < 0 else "does not grow"
        findings.append(Finding("ok", f"lag is {last.lag:,} and {trend}"))
    return findings


def _committed(snapshot: Snapshot, tp: TopicPartition) -> int:
    return snapshot.ends.get(tp, 0) - (snapshot.lags.get(tp) or 0)
