"""A source of records → what there is to say about a fleet of groups, without Spark.

Rule: the same Arrow functions as in Spark, on one machine and in memory. What a report needs grows
with the number of commits, so commits before the time it begins are dropped but for the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from shoal.fleet.analysis import Analysis, analyse, rebalance_table, take
from shoal.fleet.lag import lag_table, last_of_series
from shoal.fleet.sources import HistorySource
from shoal.fleet.tables import schema
from shoal.types import TopicPartition


@dataclass(frozen=True)
class GroupSummary:
    """One group at the end of the time reported on."""

    group: str
    protocol: str | None
    """Classic, or consumer (KIP-848)."""
    state: str
    members: int
    partitions: int
    generation: int | None
    assignor: str | None
    rebalances: int
    moved: int
    last_cause: str | None
    last_rebalance: datetime | None
    imbalance: float | None
    lag: int | None
    seconds: float | None
    at_least: bool
    last_commit: datetime | None


@dataclass(frozen=True)
class FleetReport:
    """Groups, their rebalances in the order of time, and their lag at each sample."""

    groups: Sequence[GroupSummary]
    rebalances: Sequence[dict[str, Any]]
    lag: Sequence[dict[str, Any]]
    records: int
    unreadable: int


def make_report(
    source: HistorySource, *, wanted: Callable[[str], bool] = lambda _: True, since_us: int = 0
) -> FleetReport:
    """Everything about the groups whose names are ``wanted``.

    Args:
        since_us: leave out rebalances and lag before this time.
    """
    gathered = gather_history(source, wanted)
    done = analyse(gathered.events)
    rebalances = rebalance_table([r for r in done.rebalances if r.now.at_us >= since_us])
    recent = last_of_series(gathered.commits, since_us) if since_us else gathered.commits
    lags = _lags(source, recent, gathered.ends)
    lags = lags.filter(_after(lags.column("at"), since_us))
    by_group = _by_group(lags)
    rows = sorted(rebalances.to_pylist(), key=lambda row: (row["at"], row["group"]))
    groups = _summaries(done, gathered.commits, rows, by_group)
    return FleetReport(groups, rows, by_group, gathered.records, gathered.unreadable)


def _lags(source: HistorySource, commits: pa.Table, ends: pa.Table) -> pa.Table:
    """Lag at each sample; where samples do not reach back far enough, records are looked up."""
    lags = lag_table(commits, ends)
    unsure = lags.filter(lags.column("at_least")).sort_by([("lag", "descending")])
    columns = (unsure.column(name).to_pylist() for name in ("topic", "partition", "committed"))
    places = {
        (TopicPartition(topic, number), at) for topic, number, at in zip(*columns, strict=True)
    }
    found = source.written_at(sorted(places))
    if not found.num_rows:
        return lags
    lags = lag_table(commits, pa.concat_tables([ends, found]))
    return lags.filter(pc.is_in(lags.column("at"), pc.unique(ends.column("at"))))


@dataclass
class GatheredHistory:
    """What a source holds of the groups that are wanted."""

    commits: pa.Table
    events: pa.Table
    ends: pa.Table
    records: int
    unreadable: int


def gather_history(source: HistorySource, wanted: Callable[[str], bool]) -> GatheredHistory:
    """Read a source, once."""
    commits: list[pa.RecordBatch] = []
    events: list[pa.Table] = []
    records = unreadable = 0
    for batch in source.records():
        records += batch.num_rows
        taken = take(batch)
        unreadable += taken.unreadable.num_rows
        commits.append(_only(taken.commits, wanted))
        events.append(_only(taken.events, wanted))
    return GatheredHistory(
        pa.Table.from_batches(commits, schema("commits")),
        pa.concat_tables([schema("events").empty_table(), *events]),
        source.ends(),
        records,
        unreadable,
    )


def _only(table: Any, wanted: Callable[[str], bool]) -> Any:
    names = pc.unique(table.column("group")).to_pylist()
    kept = [name for name in names if wanted(name)]
    if len(kept) == len(names):
        return table
    return table.filter(pc.is_in(table.column("group"), pa.array(kept, pa.string())))


def _after(times: Any, since_us: int) -> Any:
    return pc.greater_equal(times.cast(pa.int64()), since_us)


def _by_group(lags: pa.Table) -> list[dict[str, Any]]:
    """Lag of whole groups at each sample, in the order of time."""
    wanted = [("lag", "sum"), ("seconds", "max"), ("at_least", "any")]
    found = lags.group_by(["group", "at"]).aggregate(wanted)
    names = {"lag_sum": "lag", "seconds_max": "seconds", "at_least_any": "at_least"}
    found = found.rename_columns([names.get(name, name) for name in found.column_names])
    rows: list[dict[str, Any]] = found.sort_by(
        [("at", "ascending"), ("group", "ascending")]
    ).to_pylist()
    return rows


def _summaries(
    done: Analysis,
    commits: pa.Table,
    rebalances: Sequence[dict[str, Any]],
    lags: Sequence[dict[str, Any]],
) -> list[GroupSummary]:
    last_commit = _last_commits(commits)
    last_lag = {row["group"]: row for row in lags}
    by_group: dict[str, list[dict[str, Any]]] = {}
    for row in rebalances:
        by_group.setdefault(row["group"], []).append(row)
    every = {one.now.group: one for one in done.rebalances}
    summaries = []
    for group in sorted(done.latest.keys() | last_commit.keys()):
        now = done.latest.get(group)
        happened = by_group.get(group, [])
        last = rebalance_table([every[group]]).to_pylist()[0] if now else {}
        behind = last_lag.get(group, {})
        summaries.append(
            GroupSummary(
                group=group,
                protocol=now.protocol if now else None,
                state="no members" if now is None else "Stable" if now.members else "Empty",
                members=len(now.members) if now else 0,
                partitions=len(now.owners) if now else 0,
                generation=now.generation if now else None,
                assignor=now.assignor if now else None,
                rebalances=len(happened),
                moved=sum(row["moved"] for row in happened),
                last_cause=last.get("cause"),
                last_rebalance=last.get("at"),
                imbalance=last.get("imbalance"),
                lag=behind.get("lag"),
                seconds=behind.get("seconds"),
                at_least=bool(behind.get("at_least")),
                last_commit=last_commit.get(group),
            )
        )
    return summaries


def _last_commits(commits: pa.Table) -> dict[str, datetime]:
    found = commits.group_by("group").aggregate([("log_time", "max")])
    times = zip(
        *(found.column(name).to_pylist() for name in ("group", "log_time_max")), strict=True
    )
    return {group: at.astimezone(UTC) for group, at in times}
