"""``shoal group watch``: a live view of a group in the terminal, or JSON lines of its events."""

from __future__ import annotations

import itertools
import sys
import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING

from shoal.cli.output import print_json, printable
from shoal.cli.snapshots import Event, Observer, Snapshot, take

if TYPE_CHECKING:
    from rich.console import RenderableType

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
    from rich.live import Live

    events: deque[Event] = deque(maxlen=EVENTS_SHOWN)
    with Live(screen=False, auto_refresh=False) as live:
        for number in numbers:
            if number:
                time.sleep(interval_s)
            now = take(admin, group_id, time.monotonic() - started)
            events.extend(observer.look(now))
            live.update(_view(group_id, now, list(events)), refresh=True)


def _print_events(events: list[Event], now: Snapshot, *, as_json: bool, first: bool) -> None:
    if first:
        events = [Event(now.at_s, "state", f"{now.state}, {len(now.members)} members")]
    for event in events:
        if as_json:
            print_json({**asdict(event), "lag": now.lag, "members": len(now.members)})
        else:
            print(f"{event.at_s:7.1f} s  {event.kind:10} {printable(event.text)}", flush=True)


def _view(group_id: str, now: Snapshot, events: list[Event]) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = f"{group_id}: {now.state}, {len(now.members)} members, {now.lag:,} records behind"
    table = Table(box=box.SIMPLE_HEAD, title=Text(printable(title)), title_justify="left")
    for name in ("member", "host", "partitions", "lag"):
        table.add_column(name, justify="right" if name in ("partitions", "lag") else "left")
    for member in sorted(now.members.values(), key=lambda one: one.name):
        cells = (member.name, member.host, str(len(member.partitions)), f"{now.lag_of(member):,}")
        table.add_row(*(Text(printable(cell)) for cell in cells))
    lines = [f"{event.at_s:7.1f} s  {event.kind:10} {printable(event.text)}" for event in events]
    return Group(table, Text("\n".join(lines)))
