"""``shoal group watch``: a live view of a group in the terminal, or JSON lines of its events."""

from __future__ import annotations

import itertools
import sys
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING

from shoal.cli.output import live_table, print_json, tell
from shoal.errors import counted
from shoal.fleet.snapshots import GroupChange, Observer, Snapshot, take

if TYPE_CHECKING:
    from shoal.client.admin import Admin

EVENTS_SHOWN = 12


def watch_group(
    admin: Admin, group_id: str, *, interval_s: float, looks: int | None, as_json: bool
) -> None:
    """Look at a group again and again, and show what changes."""
    observer = Observer()
    started = time.monotonic()
    numbers = itertools.count() if looks is None else range(looks)
    if as_json or not sys.stdout.isatty():
        for number in numbers:
            if number:
                time.sleep(interval_s)
            now = take(admin, group_id, time.monotonic() - started)
            _print_events(observer.look(now), now, as_json=as_json, first=number == 0)
        return
    events: deque[GroupChange] = deque(maxlen=EVENTS_SHOWN)
    with live_table() as show:
        for number in numbers:
            if number:
                time.sleep(interval_s)
            now = take(admin, group_id, time.monotonic() - started)
            events.extend(observer.look(now))
            show(
                ("member", "host", "partitions", "lag"),
                [
                    (one.name, one.host, len(one.partitions), now.lag_of(one))
                    for one in sorted(now.members.values(), key=lambda one: one.name)
                ],
                title=f"{group_id}: {_state(now)}, {counted(now.lag, 'record')} behind",
                lines=map(_line, events),
            )


def _print_events(events: list[GroupChange], now: Snapshot, *, as_json: bool, first: bool) -> None:
    if first:
        events = [GroupChange(now.at_s, "state", _state(now))]
    for event in events:
        if as_json:
            print_json({**asdict(event), "lag": now.lag, "members": len(now.members)})
        else:
            tell(_line(event))


def _state(now: Snapshot) -> str:
    # Kafka's word for a group that was never there as well as for one that was deleted.
    state = "Dead (there is no such group now)" if now.state == "Dead" else now.state
    return f"{state}, {counted(len(now.members), 'member')}"


def _line(event: GroupChange) -> str:
    return f"{event.at_s:7.1f} s  {event.kind:10} {event.text}"
