"""A run as text: what happened, when, and why.

Rule: every sentence comes from the trace. What a scheme does in general stands in ``HOW``; what it
did in this run, and at what time, is told from marks, spans and gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import Final, NamedTuple

from shoal.errors import counted
from shoal.lab.central_messages import COORDINATOR
from shoal.lab.registry.messages import REGISTRY
from shoal.lab.running import Run
from shoal.lab.scenario import SERVER_ACTS, Act
from shoal.lab.trace import Holding, Mark, Trace

HOW: Final = {
    "watchers": "Every member watches the registry (ZooKeeper). When a member or broker comes or "
    "goes all are told, all stop, and each decides alone and claims its share with owner nodes.",
    "central": "Members register in the registry (ZooKeeper). The broker elected there as "
    "coordinator watches them, tells all to stop, waits for all, assigns, and tells all to start.",
    "eager": "Members tell the coordinator what they want. One of them, the leader, assigns for "
    "all. They learn of a rebalance by a heartbeat and give up everything before they join.",
    "cooperative": "As eager, but members keep what they have. What must move is given up in a "
    "first round and handed out in a second.",
    "incremental": "The coordinator holds a target. Each member moves towards it in its own "
    "heartbeats: it gives up, says so, and is given what others have given up.",
}
_TOGETHER_MS: Final = 1_000
"""What happens to several members within this time is told in one sentence."""
_NAMED_MAX: Final = 6

_PHRASES: Final[dict[str, tuple[str, str]]] = {
    "starts": ("starts", "start"),
    "crash": ("crashes and tells nobody", "crash and tell nobody"),
    "leave": ("leaves cleanly", "leave cleanly"),
    "restart": ("restarts", "restart"),
    "stall": ("hangs in its own code", "hang in their own code"),
    "pause": ("is paused, the whole process", "are paused, the whole processes"),
    "cut": ("is cut off, but not from its partitions", "are cut off, but not from partitions"),
    "subscribe": ("changes its topics", "change their topics"),
    "rebalances": ("stops reading and looks at the registry", "stop and look at the registry"),
    "decides on an old view": ("decides on an old list of members", "decide on an old list"),
    "not registered": ("does not find itself and waits", "do not find themselves and wait"),
    "conflict": (
        "cannot claim its partitions, releases what it has, and waits",
        "cannot claim their partitions, release what they have, and wait",
    ),
    "gives up": ("gives up until something changes", "give up until something changes"),
    "session expired": ("learns that its session is gone", "learn that their sessions are gone"),
    "expired": ("is removed from the group", "are removed from the group"),
    "poll timeout": ("leaves, because its code does not poll", "leave: their code does not poll"),
    "left out": ("is left out", "are left out"),
}


class _Line(NamedTuple):
    at_ms: int
    text: str


def explain(run: Run, *, width: int = 80) -> str:
    """One run, told in order."""
    scheme, trace = run.scheme, run.trace
    lines = [
        *wrap(f"{scheme.name} ({scheme.since}): {scheme.title}", width),
        *_paragraph(f"{HOW[scheme.name]} Offsets: {scheme.offsets}.", width),
        "",
    ]
    told = [*_events(run), *_marks(trace), *_gaps(trace), *_doubles(trace), *_fenced(trace)]
    for at_ms, text in sorted(told, key=lambda line: line.at_ms):
        lines += wrap(f"{at_ms / 1_000:8.2f} s  {text}", width, subsequent_indent=" " * 12)
    lines += ["", *_paragraph(_sum(run), width)]
    return "\n".join(lines)


def _paragraph(text: str, width: int) -> list[str]:
    return wrap(text, width, initial_indent="  ", subsequent_indent="  ")


def _names(names: Iterable[str]) -> str:
    ordered = sorted(set(names), key=lambda name: (len(name), name))
    if len(ordered) > _NAMED_MAX:
        return f"{len(ordered)} members"
    if len(ordered) == 1:
        return ordered[0]
    return f"{', '.join(ordered[:-1])} and {ordered[-1]}"


def _events(run: Run) -> list[_Line]:
    """What the scenario did, and whether that means anything under this scheme."""
    lines = []
    for event in run.scenario.drawn_events():
        note = ""
        if event.act in SERVER_ACTS and REGISTRY not in run.scheme.authorities:
            note = " (there is no registry here)"
        elif event.act is Act.CUT_COORDINATOR and COORDINATOR not in run.scheme.authorities:
            note = " (there is no coordinator here)"
        lines.append(_Line(event.at_ms, f"* {event}{note}"))
    return lines


def _marks(trace: Trace) -> list[_Line]:
    """What members and the group did; the same thing at the same time is told once."""
    scripted = {(at_ms, what) for at_ms, what in trace.events}
    together: dict[tuple[str, str], list[Mark]] = {}
    lines = []
    for mark in trace.marks:
        if mark.at_ms < 0 or (mark.at_ms, mark.what) in scripted or mark.what == "failover":
            continue
        key = (mark.what, mark.why) if mark.member else (f"{mark.at_ms} {mark.what}", mark.why)
        waiting = together.get(key)
        if waiting is not None and mark.at_ms - waiting[0].at_ms > _TOGETHER_MS:
            lines.append(_sentence(together.pop(key)))
        together.setdefault(key, []).append(mark)
    return lines + [_sentence(marks) for marks in together.values()]


def _sentence(marks: Sequence[Mark]) -> _Line:
    first = marks[0]
    why = f": {first.why}" if first.why else ""
    if first.member is None:
        return _Line(first.at_ms, f"{first.what}{why}")
    names = {mark.member or "" for mark in marks}
    one, several = _PHRASES.get(first.what, (first.what, first.what))
    return _Line(first.at_ms, f"{_names(names)} {one if len(names) == 1 else several}{why}")


def _gaps(trace: Trace) -> list[_Line]:
    """Times in which partitions stand still, as long as at least one does."""
    total = len(trace.partitions)
    return [
        _Line(
            begin_ms,
            f"{count} of {total} partitions have no reader "
            + (
                "until the end"
                if end_ms >= trace.end_ms
                else f"for up to {(end_ms - begin_ms) / 1_000:.2f} s"
            ),
        )
        for begin_ms, end_ms, count in _periods(trace)
    ]


def _periods(trace: Trace) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, set[object]]] = []
    for gap in sorted(trace.gaps, key=lambda each: each.begin_ms):
        begin_ms = max(gap.begin_ms, 0)
        if gap.end_ms <= begin_ms:
            continue
        if found and begin_ms <= found[-1][1]:
            last = found[-1]
            last[2].add(gap.tp)
            found[-1] = (last[0], max(last[1], gap.end_ms), last[2])
        else:
            found.append((begin_ms, gap.end_ms, {gap.tp}))
    return [(begin, end, len(partitions)) for begin, end, partitions in found]


def _doubles(trace: Trace) -> list[_Line]:
    lines = []
    expired = {mark.member for mark in trace.marks if mark.what == "session expired"}
    stale = {mark.member for mark in trace.marks if mark.what == "decides on an old view"}
    for double in trace.doubles:
        if double.end_ms <= 0:
            continue
        lost, late = expired & set(double.members), stale & set(double.members)
        if lost:
            why = f"the session of {_names(str(name) for name in lost)} has ended, and it reads on"
        elif late:
            why = f"{_names(str(name) for name in late)} decided on another view, and overlooked"
            why += " that its claim failed"
        else:
            why = "each believes that it is the owner"
        lines.append(
            _Line(
                double.begin_ms,
                f"! {_names(double.members)} both read {double.tp} for"
                f" {(double.end_ms - double.begin_ms) / 1_000:.2f} s: {why}",
            )
        )
    return lines


def _fenced(trace: Trace) -> list[_Line]:
    spans = [s for s in trace.spans if s.holding is Holding.FENCED and s.end_ms > 0]
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for span in spans:
        key = (span.member, span.begin_ms)
        end_ms, count = found.get(key, (0, 0))
        found[key] = (max(end_ms, span.end_ms), count + 1)
    return [
        _Line(
            begin_ms,
            f"{member} keeps reading {counted(count, 'partition')} for"
            f" {(end_ms - begin_ms) / 1_000:.2f} s, fenced: the group has moved on without it,"
            " and its commits are refused",
        )
        for (member, begin_ms), (end_ms, count) in found.items()
    ]


def _sum(run: Run) -> str:
    metrics = run.metrics
    stable_ms = metrics.time_to_stable_ms
    parts = [
        "never stable" if stable_ms is None else f"stable after {stable_ms / 1_000:.2f} s",
        f"{metrics.stopped_partition_s:.2f} partition-seconds without a reader",
        f"partitions moved: {metrics.moved_partitions}",
        f"two owners: {counted(metrics.two_owners, 'time')}",
        f"{counted(metrics.records_twice, 'record')} read twice, {metrics.records_lost} lost",
        f"of {counted(metrics.commits, 'commit')}, {metrics.commits_lost} lost,"
        f" {metrics.commits_repeated} repeated, {metrics.commits_backwards} moved an offset back",
        f"{counted(metrics.requests, 'request')} and"
        f" {counted(metrics.notifications, 'notification')}",
    ]
    if metrics.takeover_ms is not None:
        gone = f"{metrics.takeover_ms / 1_000:.2f} s without a {run.trace.authority}"
        parts.insert(1, gone)
    if metrics.stale_decisions:
        parts.append(f"{counted(metrics.stale_decisions, 'decision')} on an old view")
    if metrics.syncs:
        parts.append(counted(metrics.syncs, "sync"))
    if metrics.leaders_moved:
        parts.append(f"{counted(metrics.leaders_moved, 'partition')} got another leader")
    return f"In total: {'; '.join(parts)}."
