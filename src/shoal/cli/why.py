"""``shoal why GROUP``: what is wrong with a group, and what to do about it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from shoal.cli.connecting import Target, for_cluster
from shoal.cli.fleet import short_member
from shoal.cli.output import COLOURS, print_json, printable
from shoal.cli.recent import recent_rebalances
from shoal.cli.snapshots import (
    Event,
    Observer,
    Snapshot,
    diagnose,
    diagnose_history,
    take,
    worst_first,
)

app = typer.Typer(rich_markup_mode=None)

_MARKS = {"problem": "✗", "note": "!", "ok": "✓"}
EXIT_PROBLEM = 3
_HOURS_MAX = 100 * 365 * 24  # nothing was recorded before
REBALANCES_SHOWN = 5


@app.command()
@for_cluster
def why(
    target: Target,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    seconds: Annotated[float, typer.Option(min=0.5, max=86_400, help="How long to look.")] = 5.0,
    hours: Annotated[
        float, typer.Option(min=0.1, help="How far back to look for rebalances.")
    ] = 24.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
) -> None:
    """What is wrong with this group: state, stuck members, uneven load, lag, and what to do.

    Looks at the group for some seconds, and reads what the cluster still knows of its rebalances.
    Exit code 3 if there is a problem.
    """
    observer = Observer()
    looks: list[Snapshot] = []
    events: list[Event] = []
    began = time.monotonic()
    with target.admin() as admin:
        while not looks or time.monotonic() - began < seconds:
            if looks:
                time.sleep(min(1.0, seconds / 3))
            looks.append(take(admin, group, time.monotonic() - began))
            events += observer.look(looks[-1])
        since_us = time.time_ns() // 1000 - int(min(hours, _HOURS_MAX) * 3_600_000_000)
        rebalances = recent_rebalances(admin, target.settings, group, since_us)
    findings = worst_first([*diagnose(looks), *diagnose_history(rebalances or (), hours)])
    if as_json:
        print_json(
            {
                "group": group,
                "findings": [asdict(one) for one in findings],
                "events": [asdict(one) for one in events],
                "rebalances": rebalances,
            }
        )
    else:
        for one in findings:
            typer.secho(f"{_MARKS[one.level]} {printable(one.what)}", fg=COLOURS[one.level])
            if one.advice:
                typer.echo(f"    → {printable(one.advice)}")
        for event in events:
            typer.echo(f"  {event.at_s:5.1f} s  {event.kind:10} {printable(event.text)}")
        for row in (rebalances or ())[-REBALANCES_SHOWN:]:
            typer.echo(f"  {_rebalance(row)}")
    if any(one.level == "problem" for one in findings):
        raise typer.Exit(EXIT_PROBLEM)


def _rebalance(row: dict[str, Any]) -> str:
    who = [*row["joined"], *row["left"], *row["expired"], *row["gone"], *row["restarted"]]
    shown = [row["at"].astimezone().strftime("%m-%d %H:%M:%S"), str(row["cause"])]
    if who:
        shown.append("(" + ", ".join(map(short_member, who[:5])) + ")")
    shown.append(f"{row['moved']} partitions moved")
    return printable(" ".join(shown))
