"""``shoal fleet``: all groups of a cluster at once, and what happened to them.

Works without Spark and Java: the tables are those of ``shoal.spark.history``, made in this process.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from shoal.cli.connecting import Target, for_cluster
from shoal.cli.consume import time_ms
from shoal.cli.output import print_json, print_table, printable
from shoal.errors import ConfigError, ShoalError

if TYPE_CHECKING:
    from shoal.spark.history.report import FleetReport, GroupSummary

app = typer.Typer(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Report on all groups of a cluster, and record their history.",
)

_UUID_CHARACTERS: Final = 37
"""Member ids end with a dash and a UUID, which nobody reads."""


@app.command("report")
@for_cluster
def report(
    target: Target,
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
    limit: Annotated[int, typer.Option(min=1, help="At most so many rows of each table.")] = 20,
    draw: Annotated[Path | None, typer.Option(help="Draw into this file: .svg or .png.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of tables.")] = False,
) -> None:
    """Lag and rebalances of all groups: how far behind, why they rebalanced, what moved."""
    from shoal.records.arrow import need_arrow
    from shoal.spark.history.report import make_report
    from shoal.spark.history.sources import ClusterSource, directory_source

    need_arrow()
    _check_picture(draw)
    since_us = time_ms(since) * 1000 if since else 0
    with ExitStack() as stack:
        if directory is not None:
            source = directory_source(directory)
        else:
            source = ClusterSource(stack.enter_context(target.admin()), target.settings)
        found = make_report(source, wanted=_wanted(group), since_us=since_us)
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
    target: Target,
    directory: Annotated[Path, typer.Argument(help="Where to keep it; goes on if it is there.")],
    every: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="Seconds between looks.")
    ] = 30.0,
    rounds: Annotated[int | None, typer.Option(min=1, help="Stop after so many looks.")] = None,
) -> None:
    """Keep the history of all groups, because the cluster forgets it; until Ctrl-C."""
    from shoal.spark.history.recorder import Recorder

    total = 0

    def seen(count: int) -> None:
        nonlocal total
        total += count
        if count:
            typer.echo(f"{count:,} records kept, {total:,} since the start", err=True)

    def failed(error: ShoalError) -> None:
        typer.echo(f"nothing kept this time: {printable(str(error))}", err=True)

    with target.admin() as admin, Recorder(admin, target.settings, directory) as recorder:
        recorder.run(every, seen=seen, failed=failed, rounds=rounds)


def _check_picture(draw: Path | None) -> None:
    if draw is not None and draw.suffix not in (".svg", ".png"):
        raise ConfigError(f"{draw}: pictures are .svg or .png files")


def _wanted(patterns: list[str] | None) -> Callable[[str], bool]:
    if not patterns:
        return lambda _: True
    return lambda name: any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


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
    columns = ("group", "state", "members", "partitions", "lag", "behind", "uneven", "rebalances")
    print_table((*columns, "last"), [_group_row(one) for one in worst[:limit]], title=title)
    _say_more(len(worst), limit, "groups")
    if found.rebalances:
        recent = list(reversed(found.rebalances))[:limit]
        names = ("when", "group", "generation", "cause", "sure", "who", "moved", "took", "pause")
        print_table(names, [_rebalance_row(row) for row in recent], title="latest rebalances")
        _say_more(len(found.rebalances), limit, "rebalances")
    if found.unreadable:
        typer.echo(f"{found.unreadable:,} records cannot be read and are left out", err=True)


def _say_more(count: int, limit: int, what: str) -> None:
    if count > limit:
        typer.echo(f"{count - limit:,} more {what}; --limit shows them")


def _group_row(one: GroupSummary) -> tuple[object, ...]:
    return (
        one.group,
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
        " ".join(map(short_member, who)),
        row["moved"],
        None if took is None else _duration(took / 1000),
        None if pause is None else _duration(pause / 1000),
    )


def short_member(member_id: str) -> str:
    """A member id without the UUID that Kafka's coordinators append to the client id."""
    tail = member_id[-_UUID_CHARACTERS:]
    is_uuid = tail.count("-") == 5 and tail.startswith("-")
    return member_id[:-_UUID_CHARACTERS] if is_uuid and len(member_id) > len(tail) else member_id
