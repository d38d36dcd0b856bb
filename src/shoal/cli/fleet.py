"""``shoal fleet``: all groups of a cluster at once, and what happened to them.

Works without Spark and Java: ``shoal.fleet`` reads the records in this process.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.consume import time_ms
from shoal.cli.group_patterns import wanted_groups
from shoal.cli.output import print_json, print_table, say_more, warn
from shoal.cli.what_if import what_if
from shoal.errors import ConfigError, ShoalError, counted
from shoal.fleet.member_names import short_names
from shoal.records.arrow import need_arrow

if TYPE_CHECKING:
    from shoal.fleet.report import FleetReport, GroupSummary

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Report on all groups of a cluster, and record their history.",
)


@app.command("report")
@for_cluster
def report(
    target: ClusterTarget,
    directory: Annotated[
        Path | None,
        typer.Argument(help="A recording or a broker's log directory, instead of a cluster."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", "-g", help="Only these; * and ? are patterns.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what happened since: a time, or 15m, 2h, 7d ago.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum rows per table.")] = 20,
    draw: Annotated[Path | None, typer.Option(help="Draw into this file: .svg or .png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Lag and rebalances of all groups: how far behind, why they rebalanced, what moved."""
    need_arrow()
    from shoal.fleet.report import make_report
    from shoal.fleet.sources import ClusterSource, directory_source

    _check_picture(draw)
    since_us = time_ms(since) * 1000 if since else 0
    with ExitStack() as stack:
        if directory is not None:
            source = directory_source(directory)
        else:
            source = ClusterSource(stack.enter_context(target.admin()), target.settings)
        found = make_report(source, wanted=wanted_groups(group), since_us=since_us)
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found, limit)
    if draw is not None:
        from shoal.cli.fleet_picture import fleet_picture

        canvas = fleet_picture(found)
        if draw.suffix == ".png":
            draw.write_bytes(canvas.to_png())
        else:
            draw.write_text(canvas.to_svg(), encoding="utf-8")


@app.command("record")
@for_cluster
def record(
    target: ClusterTarget,
    directory: Annotated[Path, typer.Argument(help="Recording directory; resumes if it exists.")],
    every: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between looks.")
    ] = 30.0,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many refreshes.")
    ] = None,
) -> None:
    """Keep the history of all groups, because the cluster forgets it; until Ctrl-C."""
    need_arrow()
    from shoal.fleet.recorder import Recorder

    total = 0

    def seen(count: int) -> None:
        nonlocal total
        total += count
        if count:
            warn(f"{counted(count, 'record')} kept, {total:,} since the start")

    def failed(error: ShoalError) -> None:
        warn(f"nothing kept this time: {error}")

    with target.admin() as admin, Recorder(admin, target.settings, directory) as recorder:
        recorder.run(every, seen=seen, failed=failed, rounds=rounds)


app.command("what-if")(what_if)


def _check_picture(draw: Path | None) -> None:
    if draw is not None and draw.suffix not in (".svg", ".png"):
        raise ConfigError(f"{draw}: pictures are .svg or .png files")


def _as_json(found: FleetReport) -> dict[str, Any]:
    return {
        "groups": [_plain(asdict(one)) for one in found.groups],
        "rebalances": [_plain(row) for row in found.rebalances],
        "lag": [_plain(row) for row in found.lag],
        "records": found.records,
        "unreadable": found.unreadable,
    }


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def _print(found: FleetReport, limit: int) -> None:
    members = sum(one.members for one in found.groups)
    title = (
        f"groups: {len(found.groups):,}, members: {members:,}, "
        f"rebalances: {len(found.rebalances):,}"
    )
    worst = sorted(found.groups, key=lambda one: (-(one.lag or 0), -one.rebalances, one.group))
    columns = (
        "group",
        "protocol",
        "state",
        "members",
        "partitions",
        "lag",
        "behind",
        "uneven",
        "rebalances",
    )
    print_table(
        (*columns, "last"),
        [_group_row(one) for one in worst[:limit]],
        title=title,
        facts={
            "groups": len(found.groups),
            "members": members,
            "rebalances": len(found.rebalances),
        },
    )
    say_more(len(worst), limit, "group")
    if found.rebalances:
        recent = list(reversed(found.rebalances))[:limit]
        names = ("when", "group", "generation", "cause", "sure", "who", "moved", "took", "pause")
        rows = [_rebalance_row(row) for row in recent]
        print_table(names, rows, title="latest rebalances", is_first=False)
        say_more(len(found.rebalances), limit, "rebalance")
    if found.unreadable:
        warn(f"left out because unreadable: {counted(found.unreadable, 'record')}")


def _group_row(one: GroupSummary) -> tuple[object, ...]:
    return (
        one.group,
        one.protocol,
        one.state,
        one.members,
        one.partitions,
        one.lag,
        _behind(one),
        None if one.imbalance is None else f"{one.imbalance:.2f}x",
        one.rebalances,
        one.last_cause,
    )


def _behind(one: GroupSummary) -> str | None:
    if one.seconds is None:
        return None
    return f"{'≥ ' if one.at_least else ''}{_duration(one.seconds)}"


def _duration(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds >= 1 or not seconds else f"{seconds * 1000:.0f} ms"


def _rebalance_row(row: dict[str, Any]) -> tuple[object, ...]:
    who = [*row["joined"], *row["left"], *row["expired"], *row["gone"], *row["restarted"]]
    took, pause = row["duration_ms"], row["pause_ms"]
    return (
        row["at"].astimezone().strftime("%Y-%m-%d %H:%M:%S"),
        row["group"],
        row["generation"],
        row["cause"],
        row["certain"],
        " ".join(short_names(who)),
        row["moved"],
        None if took is None else _duration(took / 1000),
        None if pause is None else _duration(pause / 1000),
    )
