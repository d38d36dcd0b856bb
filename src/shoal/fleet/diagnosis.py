"""What is wrong with a group, and what to do: from looks at it, and from its rebalances.

Rule: everything here works on values, so that every finding can be tested without waiting for the
trouble it names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal.errors import counted
from shoal.fleet.snapshots import REBALANCING, Snapshot, owners
from shoal.types import TopicPartition

UNEVEN_FACTOR: Final = 2.0
STUCK_S: Final = 30.0
OFTEN_AN_HOUR: Final = 6
_NO_TROUBLE: Final = (
    "first seen",
    "group started",
    "second round of a cooperative rebalance",
)


@dataclass(frozen=True)
class Finding:
    """Something worth knowing about a group, and what to do. ``level``: ok, note or problem."""

    level: str
    what: str
    advice: str = ""


def diagnose(
    looks: Sequence[Snapshot], held: Collection[TopicPartition] = frozenset()
) -> list[Finding]:
    """What several looks at a group tell; it cannot help standing still where it is ``held``."""
    last = looks[-1]
    if last.state == "Dead":
        return [Finding("problem", "the group does not exist", "check its name: shoal group list")]
    findings = [
        *_state(looks),
        *_load(last),
        *_subscriptions(last),
        *_commits(looks),
        *_lag_trend(looks, held),
    ]
    return findings or [Finding("ok", "no problems visible from outside")]


def worst_first(findings: Sequence[Finding]) -> list[Finding]:
    """Problems, then notes, then what is fine."""
    order = {"problem": 0, "note": 1, "ok": 2}
    return sorted(findings, key=lambda finding: order[finding.level])


def _state(looks: Sequence[Snapshot]) -> list[Finding]:
    last = looks[-1]
    if last.state == "Empty" and not last.is_joined:
        return [
            Finding(
                "ok",
                "the group has no members and never had: its offsets are committed from outside, "
                "as Spark does, and consumers that assign their partitions themselves",
            )
        ]
    if last.state == "Empty":
        advice = "start a consumer, or look at its log if one should be running"
        return [Finding("problem", "the group has no active members", advice)]
    if last.assignor_fault is not None:
        return [
            Finding(
                "problem",
                f"no new target: the broker's assignor fails ({last.assignor_fault}); members "
                "keep what they had",
                "mend the assignor and start the broker again with it, or set another one on the "
                "group: consumer.assignor",
            )
        ]
    rebalancing = [look for look in looks if look.state in REBALANCING]
    changed = len({frozenset(look.members) for look in looks}) > 1
    span_s = looks[-1].at_s - looks[0].at_s
    if len(looks) > 1 and len(rebalancing) == len(looks):
        is_stuck = span_s >= STUCK_S
        advice = (
            "a member does not rejoin: look for one that processes longer than "
            "max.poll.interval.ms between polls, and lower max.poll.records there"
        )
        waits = _waits_for(looks)
        if waits:
            advice = (
                "they give partitions up in a poll: look for members that process longer than "
                "max.poll.interval.ms between polls, and lower max.poll.records there"
            )
        return [
            Finding(
                "problem" if is_stuck else "note",
                f"the group was in {last.state} for all of the {span_s:.0f} s we looked{waits}",
                advice if is_stuck else f"look longer: shoal why --seconds {STUCK_S * 2:.0f}",
            )
        ]
    if rebalancing and changed:
        return [
            Finding(
                "problem",
                "members joined and left while we were watching: the group keeps rebalancing",
                "give members a group.instance.id (static membership) if they restart, and use "
                "cooperative-sticky, so that only what moves stops",
            )
        ]
    if last.state in REBALANCING:
        return [Finding("note", f"the group is rebalancing ({last.state}){_waits_for([last])}")]
    return [
        Finding(
            "ok", f"{last.state}, {counted(len(last.members), 'member')}, assignor {last.assignor}"
        )
    ]


def _waits_for(looks: Sequence[Snapshot]) -> str:
    """Who had partitions to give up in every look, in a group of the new protocol."""
    held: dict[str, tuple[str, frozenset[TopicPartition]]] = {
        id_: (one.name, one.to_give_up) for id_, one in looks[0].members.items() if one.to_give_up
    }
    for look in looks[1:]:
        left = {id_: one.to_give_up for id_, one in look.members.items()}
        held = {
            id_: (name, tps & left.get(id_, frozenset()))
            for id_, (name, tps) in held.items()
            if tps & left.get(id_, frozenset())
        }
    told = [
        f"{name} has not given up {', '.join(map(str, sorted(tps)[:3]))}"
        + (f" and {len(tps) - 3} more" if len(tps) > 3 else "")
        for name, tps in sorted(held.values(), key=lambda one: one[0])
    ]
    return f": {'; '.join(told[:5])}" if told else ""


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
    span = "hour" if hours == 1 else f"{hours:g} h"
    what = f"{counted(len(real), 'rebalance')} in the last {span}, most often: {cause} ({count})"
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
    counts = [len(one.partitions) for one in last.members.values()]
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
    working = [count for count in counts if count]
    if working and max(working) - min(working) > 1 and max(working) >= UNEVEN_FACTOR * min(working):
        most = max(last.members.values(), key=lambda one: len(one.partitions))
        findings.append(
            Finding(
                "note",
                f"the load is uneven: {most.name} reads {counted(max(working), 'partition')}, "
                f"another {min(working)}",
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
                "intentional? If not, a deployment may be half finished",
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
                f"{counted(len(never), 'partition')} read and never committed, such as {never[0]}",
                "a restart begins at auto.offset.reset there; check that the consumer commits",
            )
        ]
    return []


def _lag_trend(looks: Sequence[Snapshot], held: Collection[TopicPartition]) -> list[Finding]:
    first, last = looks[0], looks[-1]
    if len(looks) < 2 or (last.is_joined and not last.members):
        return []
    span = max(last.at_s - first.at_s, 0.001)
    frozen = sorted(
        tp
        for tp, lag in last.lags.items()
        if lag
        and (first.lags.get(tp) or 0)
        and _committed(last, tp) == _committed(first, tp)
        and tp in owners(last)
        and tp not in held
    )
    findings = []
    if not last.is_joined and last.lag and not _progress(first, last):
        findings.append(
            Finding(
                "note",
                f"nothing was committed for the {span:.0f} s we looked; "
                f"records waiting: {last.lag:,}",
                "whoever commits may do so in larger steps: look longer with --seconds, or check "
                "that it is running",
            )
        )
    if frozen:
        findings.append(
            Finding(
                "problem",
                f"{counted(len(frozen), 'partition')} with lag and no progress, such as "
                f"{frozen[0]} (read by {owners(last)[frozen[0]].name})",
                "that consumer is stuck or does not commit: look at its log, or a poison record "
                f"at offset {_committed(last, frozen[0])}",
            )
        )
    growth = (last.lag - first.lag) / span
    if growth > 0 and last.lag > 100:
        pace = f"{growth:,.0f}" if growth >= 10 else f"{growth:.1f}"
        findings.append(
            Finding(
                "note",
                f"lag is {last.lag:,} and grows by {pace} records per second",
                "more members help only up to the number of partitions: shoal plan shows it",
            )
        )
    else:
        trend = " and shrinks" if growth < 0 else ""
        findings.append(Finding("ok", f"lag is {last.lag:,}{trend}"))
    return findings


def _progress(first: Snapshot, last: Snapshot) -> bool:
    return any(_committed(first, tp) != _committed(last, tp) for tp in last.lags)


def _committed(snapshot: Snapshot, tp: TopicPartition) -> int:
    return snapshot.ends.get(tp, 0) - (snapshot.lags.get(tp) or 0)
