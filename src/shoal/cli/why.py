"""``shoal why GROUP``: what is wrong with a group, and what to do about it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from shoal.cli import completion
from shoal.cli.connecting import ClusterTarget, for_cluster
from shoal.cli.output import print_json, tell
from shoal.errors import counted
from shoal.fleet.diagnosis import Finding, diagnose, diagnose_history, worst_first
from shoal.fleet.member_names import short_names
from shoal.fleet.open_transactions import (
    diagnose_pending_commits,
    diagnose_transactions,
    look_for_pending_commits,
    look_for_transactions,
)
from shoal.fleet.recent import recent_rebalances
from shoal.fleet.snapshots import GroupChange, Observer, Snapshot, take

app = typer.Typer(rich_markup_mode=None)

_MARKS = {"problem": "✗", "note": "!", "ok": "✓"}
EXIT_PROBLEM = 3
_HOURS_MAX = 100 * 365 * 24  # nothing was recorded before
REBALANCES_SHOWN = 5


@app.command()
@for_cluster
def why(
    target: ClusterTarget,
    group: Annotated[
        str,
        typer.Argument(metavar="GROUP", help="The group.", autocompletion=completion.groups),
    ],
    seconds: Annotated[float, typer.Option(min=0.5, max=86_400, help="How long to look.")] = 5.0,
    hours: Annotated[
        float, typer.Option(min=0.1, help="How far back to look for rebalances.")
    ] = 24.0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of lines.")] = False,
) -> None:
    """Diagnose a group: state, stuck members, uneven load, lag, open transactions.

    Looks at the group for some seconds, and reads what the cluster still knows of its rebalances.
    Exit code 3 if there is a problem.
    """
    observer = Observer()
    looks: list[Snapshot] = []
    events: list[GroupChange] = []
    began = time.monotonic()
    with target.admin() as admin:
        # Two at least, however slow the cluster is: one look shows no trend.
        while len(looks) < 2 or time.monotonic() - began < seconds:
            if looks:
                time.sleep(min(1.0, seconds / 3))
            looks.append(take(admin, group, time.monotonic() - began))
            events += observer.look(looks[-1])
        since_us = time.time_ns() // 1000 - int(min(hours, _HOURS_MAX) * 3_600_000_000)
        rebalances = recent_rebalances(admin, target.settings, group, since_us)
        now_ms = time.time_ns() // 1_000_000
        held = look_for_transactions(admin, looks[-1], now_ms)
        pending = look_for_pending_commits(admin, group, looks[-1], now_ms)
    findings = worst_first(
        [
            *diagnose(looks, {one.topic_partition for one in held if one.holds}),
            *diagnose_transactions(held),
            *diagnose_pending_commits(pending),
            *diagnose_history(rebalances or (), hours),
        ]
    )
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
        show_findings(findings)
        for event in events:
            tell(f"  {event.at_s:5.1f} s  {event.kind:10} {event.text}")
        for row in (rebalances or ())[-REBALANCES_SHOWN:]:
            tell(f"  {_rebalance(row)}")
    if any(one.level == "problem" for one in findings):
        raise typer.Exit(EXIT_PROBLEM)


def show_findings(findings: Sequence[Finding]) -> None:
    """A line each, and what to do about it."""
    for one in findings:
        tell(f"{_MARKS[one.level]} {one.what}", meaning=one.level)
        if one.advice:
            tell(f"    → {one.advice}")


def _rebalance(row: dict[str, Any]) -> str:
    who = [*row["joined"], *row["left"], *row["expired"], *row["gone"], *row["restarted"]]
    shown = [row["at"].astimezone().strftime("%m-%d %H:%M:%S"), str(row["cause"])]
    if who:
        shown.append("(" + ", ".join(short_names(who)[:5]) + ")")
    shown.append(f"{counted(row['moved'], 'partition')} moved")
    return " ".join(shown)
