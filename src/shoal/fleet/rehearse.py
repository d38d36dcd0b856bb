"""The recorded past of groups under other ways to rebalance: what it would have cost, and advice.

    eager, cooperative    the group's classic protocol, with its own or the usual assignor
    static                as it is, with a ``group.instance.id`` for every member
    consumer              the broker assigns (KIP-848)
    session               as it is, with sessions of at most ten seconds

For each of them one row: what the same changes cost now and then. *Now* is replayed as well, so
that like is compared with like; the evidence says how that fits what was recorded.

Rule: what is not known is ``None`` and the evidence says why; what is assumed is said there, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shoal.assign.plan_broker import broker_assignors
from shoal.errors import counted
from shoal.fleet.analysis import analyse
from shoal.fleet.group_changes import GroupHistory, group_histories
from shoal.fleet.lag import lag_table
from shoal.fleet.migration_rehearsal import (
    CUSTOM_ASSIGNOR,
    INTERVAL,
    NOT_CONSUMERS,
    SESSION,
    migration_blocks,
)
from shoal.fleet.report import gather_history
from shoal.fleet.scheme_replay import (
    CONSUMER,
    COOPERATIVE,
    EAGER,
    Replayed,
    ReplayPace,
    ReplayScheme,
    replay,
)
from shoal.fleet.tables import schema

if TYPE_CHECKING:
    from shoal.assign.loading import AssignorLike
    from shoal.fleet.sources import HistorySource

STATIC, SHORT_SESSION = "static", "session"
SCHEMES: Final = (EAGER, COOPERATIVE, STATIC, CONSUMER, SHORT_SESSION)
BETTER, SAME, WORSE, BLOCKED = "better", "same", "worse", "blocked"
IN_USE, TOO_FEW, UNKNOWN_NOW = "in use", "too few changes", "unknown"
VERDICTS: Final = (BETTER, SAME, WORSE, BLOCKED, TOO_FEW, UNKNOWN_NOW, IN_USE)

CHANGES_MIN: Final = 3
"""No verdict on fewer changes."""
SAME_SHARE, SAME_S = 0.1, 1.0
"""Costs that differ by less than a tenth, or by less than a partition-second, are the same."""
SHORT_SESSION_S: Final = 10.0
GROUPS_AT_ONCE: Final = 250
_DEFAULTS: Final = ReplayPace()
_EAGER_ASSIGNORS: Final = ("range", "roundrobin", "sticky")
_PROTOCOLS: Final = (EAGER, COOPERATIVE, CONSUMER)
_CONFIDENCES: Final = ("none", "low", "medium", "high")
_ADVICE: Final = {
    EAGER: "go back to an eager assignor: partition.assignment.strategy=range",
    COOPERATIVE: "change the assignor: partition.assignment.strategy=cooperative-sticky",
    STATIC: "name the members: a group.instance.id each that survives restarts",
    CONSUMER: "change the protocol: group.protocol=consumer",
    SHORT_SESSION: f"notice the dead sooner: session.timeout.ms={SHORT_SESSION_S * 1000:.0f}",
}


@dataclass(frozen=True, slots=True)
class BrokerOffer:
    """What is known of the brokers; nothing, if only a recording is there."""

    settings: Mapping[str, str] | None = None
    is_offered: bool | None = None
    """Whether they speak the consumer protocol."""


@dataclass(frozen=True, slots=True)
class GroupSpeed:
    """Records per second: what comes in, and what the group reads at most."""

    incoming: float
    capacity: float | None
    """``None``: it was never seen behind, so nobody knows how fast it could be."""


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One group under one scheme; the fields are the columns of ``tables.DDL["rehearsals"]``."""

    group: str
    protocol: str
    assignor: str | None
    scheme: str
    verdict: str
    eligible: bool
    blocked_by: Sequence[str]
    advice: str | None
    saves: float | None
    """Partition-seconds; negative: it costs more."""
    stopped_now: float | None
    stopped_then: float | None
    longest_now: float | None
    longest_then: float | None
    moved_now: int | None
    moved_then: int | None
    rebalances_now: int | None
    rebalances_then: int | None
    catch_up_now: float | None
    catch_up_then: float | None
    changes: int
    members: int
    partitions: int
    observed_s: float
    confidence: str
    evidence: Sequence[str]
    client_ids: Sequence[str]


_COLUMNS: Final = tuple(one.name for one in fields(Rehearsal))


def rehearse(
    history: GroupHistory, *, offer: BrokerOffer | None = None, speed: GroupSpeed | None = None
) -> list[Rehearsal]:
    """One row for each scheme."""
    return _Group(history, offer or BrokerOffer(), speed).rows()


def rehearse_events(
    events: pa.Table, lags: pa.Table | None = None, *, offer: BrokerOffer | None = None
) -> Iterator[list[Rehearsal]]:
    """The rows of every group in ``events`` (``analysis.take``), some hundred groups at a time.

    Args:
        lags: as ``lag.lag_table`` gives them; without, nobody knows how fast groups catch up.
    """
    speeds = group_speeds(lags) if lags is not None else {}
    for part in _by_groups(events):
        done = analyse(part)
        found = []
        for history in group_histories(done.rebalances, done.commit_gaps_us):
            found += rehearse(history, offer=offer, speed=speeds.get(history.group))
        yield found


def rehearse_source(
    source: HistorySource,
    *,
    wanted: Callable[[str], bool] = lambda _: True,
    offer: BrokerOffer | None = None,
) -> Iterator[list[Rehearsal]]:
    """The rows of every group of a source whose name is ``wanted``."""
    gathered = gather_history(source, wanted)
    lags = lag_table(gathered.commits, gathered.ends)
    yield from rehearse_events(gathered.events, lags, offer=offer)


def _by_groups(events: pa.Table) -> Iterator[pa.Table]:
    """Whole groups, so many at a time that their generations fit into memory."""
    is_record = events.column("key").is_valid()
    groups = pc.unique(events.column("group").filter(is_record)).to_pylist()
    groups.sort()
    for begin in range(0, len(groups), GROUPS_AT_ONCE):
        part = pa.array(groups[begin : begin + GROUPS_AT_ONCE], pa.string())
        yield events.filter(pc.is_in(events.column("group"), part))


def group_speeds(lags: pa.Table) -> dict[str, GroupSpeed]:
    """How many records came in, and how many were read while a group was behind."""
    found: dict[str, GroupSpeed] = {}
    if not lags.num_rows:
        return found
    order = [("group", "ascending"), ("at", "ascending")]
    sums = (
        lags.group_by(["group", "at"])
        .aggregate([("committed", "sum"), ("end_offset", "sum"), ("lag", "sum"), ("lag", "count")])
        .sort_by(order)
    )
    names = sums.column("group").to_pylist()
    at_s = np.asarray(sums.column("at").cast(pa.int64()), np.float64) / 1e6
    columns = ("committed_sum", "end_offset_sum", "lag_sum", "lag_count")
    done, ends, lag, count = (np.asarray(sums.column(name), np.float64) for name in columns)
    edges = [index for index, name in enumerate(names) if not index or names[index - 1] != name]
    for begin, end in zip(edges, [*edges[1:], len(names)], strict=True):
        part = slice(begin, end)
        passed = np.diff(at_s[part])
        # Samples with other partitions than before say nothing about speed.
        usable = (passed > 0) & (np.diff(count[part]) == 0) & (np.diff(ends[part]) >= 0)
        if not usable.any():
            continue
        incoming = float(np.diff(ends[part])[usable].sum() / passed[usable].sum())
        # Who was never behind for a while read what there was, and nobody knows what it could.
        behind = usable & (lag[part][:-1] > 0) & (lag[part][1:] > 0)
        fastest = float((np.diff(done[part])[usable] / passed[usable]).max())
        capacity = fastest if behind.any() and fastest > 0 else None
        found[names[begin]] = GroupSpeed(incoming, capacity)
    return found


class _Group:
    """The rows of one group."""

    def __init__(self, history: GroupHistory, offer: BrokerOffer, speed: GroupSpeed | None) -> None:
        self._history, self._offer, self._speed = history, offer, speed
        self._evidence: list[str] = []
        self._pace = self._paced()
        self._own = self._own_scheme()
        self._confidence = self._confident()
        self._memo: dict[str, Replayed] = {}

    def rows(self) -> list[Rehearsal]:
        return [self._row(scheme) for scheme in SCHEMES]

    def _own_scheme(self) -> str | None:
        """Which of the schemes the group uses; ``None``: an assignor that is not known here."""
        history = self._history
        if history.protocol == "consumer":
            return CONSUMER
        if history.assignor == "cooperative-sticky":
            return COOPERATIVE
        return EAGER if history.assignor in _EAGER_ASSIGNORS else None

    def _paced(self) -> ReplayPace:
        history, settings = self._history, self._offer.settings or {}
        assigning_s = history.assigning_s if history.protocol == "classic" else None
        joining_s = _DEFAULTS.joining_s
        if history.standing_s is not None:
            joining_s = max(0.0, history.standing_s - (assigning_s or 0.0))
            self._evidence.append(
                f"measured: a rebalance stops partitions for {history.standing_s:.1f} s"
            )
        else:
            self._evidence.append(
                f"assumed: members hear of a rebalance within {joining_s:g} s of each other, the"
                " usual heartbeat.interval.ms"
            )
        heartbeat_s = _seconds(settings.get(INTERVAL)) or _DEFAULTS.heartbeat_s
        session_s = _seconds(settings.get(SESSION)) or _DEFAULTS.session_s
        return ReplayPace(
            joining_s, assigning_s or 0.0, heartbeat_s=heartbeat_s, session_s=session_s
        )

    def _confident(self) -> str:
        history = self._history
        changes = len(history.changes)
        level = 0 if changes < CHANGES_MIN else 1 + (changes >= 10) + (changes >= 30)
        whole = history.rebalances + history.missed
        self._evidence.insert(
            0,
            f"{counted(changes, 'change')} and {counted(history.rebalances, 'rebalance')} recorded "
            f"in {_span(history.observed_s)}, {counted(history.moved, 'partition')} moved",
        )
        if history.missed:
            self._evidence.append(f"{history.missed} of {whole} rebalances are lost to compaction")
            # More than a tenth of the past is missing.
            level -= level > 0 and history.missed * 10 > whole
        if history.unsure:
            self._evidence.append(
                f"nothing tells how {counted(history.unsure, 'member')} went: taken as having left"
            )
        if history.topics_by_id:
            self._evidence.append("some topics are known by their ids only")
        return _CONFIDENCES[level]

    def _row(self, scheme: str) -> Rehearsal:
        history = self._history
        now, then = self._replayed(self._own), self._replayed(scheme)
        blocked = self._blocked(scheme)
        is_own = scheme == self._own or (scheme == STATIC and self._is_all_static())
        costs = {**self._costs(now, "now"), **self._costs(then, "then")}
        return Rehearsal(
            group=history.group,
            protocol=history.protocol,
            assignor=history.assignor,
            scheme=scheme,
            verdict=self._verdict(now, then, is_blocked=bool(blocked), is_own=is_own),
            eligible=not blocked and not is_own,
            blocked_by=list(blocked),
            advice=None if is_own else _ADVICE[scheme],
            saves=now.stopped_s - then.stopped_s if now and then else None,
            changes=len(history.changes),
            members=history.members,
            partitions=history.partitions,
            observed_s=history.observed_s,
            confidence=self._confidence,
            evidence=[*self._evidence, *self._particulars(scheme, then), *blocked.values()],
            client_ids=history.client_ids,
            **costs,
        )

    def _costs(self, one: Replayed | None, when: str) -> dict[str, Any]:
        found: dict[str, Any] = dict.fromkeys(
            ("stopped", "longest", "moved", "rebalances", "catch_up")
        )
        if one is not None:
            found = {
                "stopped": one.stopped_s,
                "longest": one.longest_s,
                "moved": one.moved,
                "rebalances": one.rebalances,
                "catch_up": self._catch_up(one),
            }
        return {f"{name}_{when}": value for name, value in found.items()}

    def _catch_up(self, one: Replayed) -> float | None:
        """How long the partition that stood still for longest takes to be up to date again."""
        speed = self._speed
        if speed is None or speed.capacity is None or speed.capacity <= speed.incoming:
            return None
        return one.longest_s * speed.incoming / (speed.capacity - speed.incoming)

    def _replayed(self, scheme: str | None) -> Replayed | None:
        if scheme is None:
            return None
        if scheme not in self._memo:
            made = self._made(scheme)
            if made is None:
                return None
            self._memo[scheme] = replay(self._history, made, self._pace)
        return self._memo[scheme]

    def _made(self, scheme: str) -> ReplayScheme | None:
        if scheme in _PROTOCOLS:
            return ReplayScheme(scheme, self._assignor(scheme))
        if self._own is None:
            return None
        assignor = self._assignor(self._own)
        if scheme == STATIC:
            return ReplayScheme(self._own, assignor, is_static=True)
        return ReplayScheme(self._own, assignor, session_max_s=SHORT_SESSION_S)

    def _assignor(self, protocol: str) -> AssignorLike:
        if protocol == CONSUMER:
            return broker_assignors()[0]
        if protocol == COOPERATIVE:
            return "cooperative-sticky"
        own = self._history.assignor
        return own if own in _EAGER_ASSIGNORS else "range"

    def _is_all_static(self) -> bool:
        return bool(self._history.static) and all(
            one.instance_id for one in self._history.start.members.values()
        )

    def _blocked(self, scheme: str) -> dict[str, str]:
        """Why the group cannot have it: in a few words, and in full."""
        history, offer = self._history, self._offer
        found = {}
        if scheme == CONSUMER and history.protocol == "classic":
            blocks = migration_blocks(
                protocol_type=history.protocol_type,
                assignor=history.assignor or "",
                members=history.members,
                attached=0,
                settings=offer.settings or {},
                is_offered=offer.is_offered is not False,
            )
            found = {one.reason: one.finding.what for one in blocks}
        elif history.protocol_type != "consumer":
            what = f"its members speak {history.protocol_type!r}: Kafka's assignors mean nothing"
            found[NOT_CONSUMERS] = what
        if self._own is None and scheme in _PROTOCOLS and NOT_CONSUMERS not in found:
            what = f"its members may need what their assignor {history.assignor!r} does"
            found[CUSTOM_ASSIGNOR] = what
        return found

    def _particulars(self, scheme: str, then: Replayed | None) -> list[str]:
        """What was assumed for this scheme, and what it changes beside the numbers."""
        found = []
        if then is None:
            found.append(f"what the assignor {self._history.assignor!r} does is not known here")
        elif scheme == STATIC:
            found.append(f"{then.returned} restarts were over within the session")
        if scheme == CONSUMER:
            if self._offer.settings is None:
                found.append(
                    f"assumed: heartbeats every {self._pace.heartbeat_s:g} s and a session of "
                    f"{self._pace.session_s:g} s, the broker's defaults"
                )
            if self._history.protocol == "classic":
                found.append("no record tells whether its clients are new enough")
        if self._speed is None or self._speed.capacity is None:
            found.append("catching up: the group was never seen behind")
        elif self._speed.capacity <= self._speed.incoming:
            found.append("catching up: the group read no faster than records came")
        return found

    def _verdict(
        self, now: Replayed | None, then: Replayed | None, *, is_blocked: bool, is_own: bool
    ) -> str:
        if is_own:
            return IN_USE
        if is_blocked:
            return BLOCKED
        if now is None or then is None:
            return UNKNOWN_NOW
        if len(self._history.changes) < CHANGES_MIN:
            return TOO_FEW
        difference = then.stopped_s - now.stopped_s
        margin = max(SAME_S, SAME_SHARE * max(now.stopped_s, then.stopped_s))
        if abs(difference) < margin:
            return SAME
        return BETTER if difference < 0 else WORSE


def _seconds(milliseconds: str | None) -> float | None:
    return int(milliseconds) / 1000 if milliseconds and milliseconds.isdecimal() else None


def _span(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


@dataclass(frozen=True, slots=True)
class SchemeTotals:
    """One scheme over all groups. Sums are over the groups that have a verdict on it."""

    scheme: str
    verdicts: Mapping[str, int]
    stopped_now: float
    stopped_then: float
    moved_now: int
    moved_then: int
    rebalances_now: int
    rebalances_then: int


@dataclass(frozen=True, slots=True)
class FleetOutlook:
    """What there is to say about all groups together."""

    groups: int
    changes: int
    totals: Sequence[SchemeTotals]
    blocked_by: Mapping[str, int]
    """How many groups could not have one of the schemes, by reason, the most frequent first."""
    advice: Sequence[Rehearsal]
    """The best change for each group that gains by one, the one that saves most first."""

    @property
    def saves(self) -> float:
        return sum(one.saves or 0.0 for one in self.advice)


def outlook(rehearsals: Iterable[Rehearsal]) -> FleetOutlook:
    """Sums, reasons and advice."""
    rows = list(rehearsals)
    best: dict[str, Rehearsal] = {}
    for one in rows:
        if one.verdict == BETTER and one.eligible:
            rival = best.get(one.group)
            if rival is None or (one.saves or 0) > (rival.saves or 0):
                best[one.group] = one
    pairs = {(one.group, reason) for one in rows for reason in one.blocked_by}
    reasons = Counter(reason for _, reason in pairs)
    changes = {one.group: one.changes for one in rows}
    return FleetOutlook(
        groups=len(changes),
        changes=sum(changes.values()),
        totals=[_totals(scheme, rows) for scheme in SCHEMES],
        blocked_by=dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        advice=sorted(best.values(), key=lambda one: (-(one.saves or 0.0), one.group)),
    )


def _totals(scheme: str, rows: Sequence[Rehearsal]) -> SchemeTotals:
    ours = [one for one in rows if one.scheme == scheme]
    counts = Counter(one.verdict for one in ours)
    judged = [one for one in ours if one.verdict in (BETTER, SAME, WORSE)]

    def total(column: str) -> Any:
        return sum(getattr(one, column) for one in judged)

    return SchemeTotals(
        scheme,
        {verdict: counts[verdict] for verdict in VERDICTS},
        float(total("stopped_now")),
        float(total("stopped_then")),
        total("moved_now"),
        total("moved_then"),
        total("rebalances_now"),
        total("rebalances_then"),
    )


def rehearsal_table(rehearsals: Iterable[Rehearsal]) -> pa.Table:
    """One row for each group and scheme."""
    rows = [{name: getattr(one, name) for name in _COLUMNS} for one in rehearsals]
    return pa.Table.from_pylist(rows, schema("rehearsals"))


def read_rehearsals(table: pa.Table) -> list[Rehearsal]:
    """The rows of a table that ``rehearsal_table`` made, here or in a Spark job."""
    return [Rehearsal(**row) for row in table.select(_COLUMNS).to_pylist()]


def worst_groups(rehearsals: Iterable[Rehearsal], count: int) -> list[tuple[Rehearsal, ...]]:
    """The groups that stand still for longest now, each with its rows, the best of them first."""
    by_group: dict[str, list[Rehearsal]] = {}
    for one in rehearsals:
        by_group.setdefault(one.group, []).append(one)

    def cost(one: Rehearsal) -> tuple[bool, float]:
        return not one.eligible, one.stopped_then if one.stopped_then is not None else inf

    known = [rows for rows in by_group.values() if rows[0].stopped_now is not None]
    known.sort(key=lambda rows: (-(rows[0].stopped_now or 0.0), rows[0].group))
    return [tuple(sorted(rows, key=cost)) for rows in known[:count]]
