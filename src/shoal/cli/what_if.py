"""``shoal fleet what-if``: what the recorded past of every group would cost under other schemes.

What is decided is in ``shoal.fleet.rehearse``; this module reads, asks, prints and writes files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import print_json, print_table, say_more, tell, warn
from shoal.errors import counted
from shoal.records.arrow import need_arrow

if TYPE_CHECKING:
    import pyarrow as pa

    from shoal.client.admin import Admin
    from shoal.drawing import Canvas
    from shoal.fleet.rehearse import BrokerOffer, FleetOutlook, Rehearsal
    from shoal.fleet.sources import HistorySource

TABLE = "what-if"


@for_cluster
def what_if(
    target: ClusterTarget,
    source: Annotated[
        list[Path] | None,
        typer.Argument(help="Recordings or brokers' log directories, instead of a cluster."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only these; * and ? are patterns.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum rows per table.")] = 20,
    out: Annotated[
        Path | None, typer.Option(help="Write Parquet, CSV and pictures into this directory.")
    ] = None,
    spark: Annotated[
        bool, typer.Option("--spark", help="As a Spark job on this machine (needs shoal[spark]).")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """What every group's past would have cost under other protocols, and what to change first."""
    need_arrow()
    from shoal.cli.group_patterns import wanted_groups
    from shoal.fleet.rehearse import outlook

    rows: list[Rehearsal] = []
    wanted = wanted_groups(group)
    # One source after another: what is called the same in two clusters is not the same group.
    places: list[Path | None] = list(dict.fromkeys(source or [])) or [None]
    for one in places:
        found = _by_spark(target, one, wanted) if spark else _in_here(target, one, wanted)
        prefix = f"{one}:" if len(places) > 1 else ""
        rows += [_named(row, prefix) for row in found]
    rows.sort(key=lambda row: row.group)
    summary = outlook(rows)
    if out is not None:
        _write(out, rows, summary)
    if as_json:
        print_json(_as_json(summary, rows))
    else:
        _print(summary, rows, limit)


def _named(row: Rehearsal, prefix: str) -> Rehearsal:
    return replace(row, group=prefix + row.group) if prefix else row


def _in_here(
    target: ClusterTarget, directory: Path | None, wanted: Callable[[str], bool]
) -> list[Rehearsal]:
    from shoal.fleet.rehearse import rehearse_source
    from shoal.fleet.sources import ClusterSource, directory_source

    with ExitStack() as stack:
        offer = None
        if directory is not None:
            source: HistorySource = directory_source(directory)
        else:
            admin = stack.enter_context(target.admin())
            source, offer = ClusterSource(admin, target.settings), broker_offer(admin)
        return [row for part in rehearse_source(source, wanted=wanted, offer=offer) for row in part]


def broker_offer(admin: Admin) -> BrokerOffer:
    """What the brokers of a live cluster allow; they are taken to be set alike."""
    from shoal.fleet.rehearse import BrokerOffer

    groups = admin.list_groups()
    if not groups:
        return BrokerOffer()
    name = next(iter(groups)).group_id
    configs = admin.describe_configs(broker=admin.describe_group(name).coordinator_id)
    settings = {key: one.value for key, one in configs.items() if one.value is not None}
    return BrokerOffer(settings, admin.offers_new_protocol(name))


def _by_spark(
    target: ClusterTarget, directory: Path | None, wanted: Callable[[str], bool]
) -> list[Rehearsal]:
    """By Spark. What is not a recording is read in this process and handed over as files."""
    from shoal.fleet.rehearse import read_rehearsals
    from shoal.fleet.sources import ClusterSource, RecordedSource, directory_source
    from shoal.spark import history, session

    offer = None
    with ExitStack() as stack:
        if directory is not None:
            source = directory_source(directory)
        else:
            admin = stack.enter_context(target.admin())
            source, offer = ClusterSource(admin, target.settings), broker_offer(admin)
        running = session("fleet-what-if", quiet=True)
        stack.callback(running.stop)
        if isinstance(source, RecordedSource):
            records, ends = history.recorded(running, str(directory))
        else:
            spool = Path(stack.enter_context(TemporaryDirectory(prefix="shoal-what-if-")))
            _spool(source, spool)
            records, ends = history.recorded(running, str(spool))
        table = history.rehearsals(records, history.lag(records, ends), offer=offer).toArrow()
    return [row for row in read_rehearsals(table) if wanted(row.group)]


def _spool(source: HistorySource, directory: Path) -> None:
    import pyarrow.parquet as pq

    from shoal.fleet.tables import schema

    for name, batches in (
        ("records", source.records()),
        # Where partitions end is asked after the records were read, as a log directory needs it.
        ("ends", (batch for _ in (0,) for batch in source.ends().to_batches())),
    ):
        place = directory / name / "day=all"
        place /= "batch=0" if name == "records" else ""
        place.mkdir(parents=True)
        with pq.ParquetWriter(place / "part.parquet", schema(name)) as writer:
            for batch in batches:
                writer.write_batch(batch.cast(schema(name)))


def _write(directory: Path, rows: Sequence[Rehearsal], found: FleetOutlook) -> None:
    import pyarrow.parquet as pq
    from pyarrow import csv

    from shoal.fleet import what_if_picture
    from shoal.fleet.rehearse import rehearsal_table

    directory.mkdir(parents=True, exist_ok=True)
    table = rehearsal_table(rows)
    pq.write_table(table, directory / f"{TABLE}.parquet", compression="zstd")
    csv.write_csv(_flat(table), directory / f"{TABLE}.csv")
    pictures: dict[str, Canvas] = {
        "headline": what_if_picture.headline(found),
        "scatter": what_if_picture.scatter(rows),
        "worst": what_if_picture.worst(rows),
    }
    for name, canvas in pictures.items():
        (directory / f"{name}.svg").write_text(canvas.to_svg(), encoding="utf-8")
    warn(f"written to {directory}: {TABLE}.parquet, {TABLE}.csv, {', '.join(pictures)} (.svg)")


def _flat(table: pa.Table) -> pa.Table:
    """CSV has no lists: what stands in one is divided by semicolons."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, kind in enumerate(table.schema):
        if pa.types.is_list(kind.type):
            joined = pc.binary_join(table.column(index), "; ")
            table = table.set_column(index, kind.name, joined)
    return table


def _as_json(found: FleetOutlook, rows: Sequence[Rehearsal]) -> dict[str, Any]:
    return {
        "groups": found.groups,
        "changes": found.changes,
        "saves": found.saves,
        "schemes": [asdict(one) for one in found.totals],
        "blocked_by": found.blocked_by,
        "advice": [asdict(one) for one in found.advice],
        "rehearsals": [asdict(one) for one in rows],
    }


def _print(found: FleetOutlook, rows: Sequence[Rehearsal], limit: int) -> None:
    from shoal.fleet.rehearse import (
        BETTER,
        BLOCKED,
        IN_USE,
        SAME,
        TOO_FEW,
        UNKNOWN_NOW,
        WORSE,
        worst_groups,
    )
    from shoal.fleet.what_if_picture import headline_text

    # In a pipe the first line is the header of a table.
    (tell if sys.stdout.isatty() else warn)(headline_text(found))
    verdicts = (BETTER, SAME, WORSE, BLOCKED)
    print_table(
        (
            "scheme",
            *verdicts,
            "no verdict",
            "in use",
            "stopped",
            "then",
            "moved",
            "then",
            "rebalances",
            "then",
        ),
        [
            (
                one.scheme,
                *(one.verdicts[verdict] for verdict in verdicts),
                one.verdicts[TOO_FEW] + one.verdicts[UNKNOWN_NOW],
                one.verdicts[IN_USE],
                f"{one.stopped_now:,.0f} s",
                f"{one.stopped_then:,.0f} s",
                one.moved_now,
                one.moved_then,
                one.rebalances_now,
                one.rebalances_then,
            )
            for one in found.totals
        ],
        title=f"{counted(found.changes, 'change')} of {counted(found.groups, 'group')}, replayed",
        facts={"changes": found.changes, "groups": found.groups},
    )
    if found.advice:
        print_table(
            ("group", "saves", "now", "then", "sure", "what to do"),
            [
                (
                    one.group,
                    f"{one.saves:,.0f} s",
                    f"{one.stopped_now:,.0f} s",
                    f"{one.stopped_then:,.0f} s",
                    one.confidence,
                    one.advice,
                )
                for one in found.advice[:limit]
            ],
            title="what saves most",
            is_first=False,
        )
        say_more(len(found.advice), limit, "group")
    if found.blocked_by:
        print_table(("blocked by", "groups"), list(found.blocked_by.items()), is_first=False)
    if rows and len({row.group for row in rows}) == 1:
        _print_one(worst_groups(rows, 1) or [tuple(rows)])


def _print_one(found: Sequence[Sequence[Rehearsal]]) -> None:
    """A group by itself: every scheme, and what is known."""
    (rows,) = found
    print_table(
        ("scheme", "verdict", "stopped", "longest", "moved", "rebalances", "catch-up"),
        [
            (
                one.scheme,
                one.verdict,
                _seconds(one.stopped_then),
                _seconds(one.longest_then),
                one.moved_then,
                one.rebalances_then,
                _seconds(one.catch_up_then),
            )
            for one in rows
        ],
        title=rows[0].group,
        is_first=False,
    )
    for line in dict.fromkeys(line for one in rows for line in one.evidence):
        tell(f"- {line}")


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:,.1f} s"
