"""How the herd grows: the messages one newcomer causes, against members and partitions.

Rule: what is caused by the event is what was sent after it, less what was sent in the same length
of time before it. Heartbeats and commits cancel out; what is left is the rebalance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from shoal.drawing import FAINT, Canvas, color_of
from shoal.lab.running import SCHEMES, Run, run_scenario
from shoal.lab.scenario import Act, Event, Scenario, Work

MEMBERS: Final = (2, 5, 10, 20, 50, 100, 200, 500)
PARTITIONS: Final = (20, 50, 100, 200, 500, 1_000)
_MEMBERS_FIXED: Final = 20
_WINDOW_MS: Final = 30_000
"""A multiple of the intervals of heartbeats, pings and commits."""
_WARMUP_MS: Final = 60_000


class Point(NamedTuple):
    """What one newcomer caused."""

    scheme: str
    members: int
    partitions: int
    messages: int
    notifications: int
    worst_window_messages: int
    stopped_partition_s: float


def newcomer(members: int, partitions: int) -> Scenario:
    """A settled group, and one more member."""
    return Scenario(
        f"newcomer-{members}-{partitions}",
        members=members,
        topics={"orders": partitions},
        events=(Event(0, Act.JOIN),),
        duration_ms=_WINDOW_MS,
        warmup_ms=_WARMUP_MS,
        work=Work(records_per_second=2, processing_ms=2, poll_interval_ms=1_000),
    )


def measure_newcomer(scheme: str, members: int, partitions: int) -> Point:
    """Run it and count."""
    run = run_scenario(newcomer(members, partitions), scheme)
    metrics = run.metrics
    return Point(
        scheme,
        members,
        partitions,
        caused(run),
        metrics.notifications,
        metrics.worst_window_messages,
        metrics.stopped_partition_s,
    )


def caused(run: Run) -> int:
    """Messages after the event less those before."""
    after = before = 0
    for message in run.trace.messages:
        if 0 <= message.sent_ms < _WINDOW_MS:
            after += message.times
        elif -_WINDOW_MS <= message.sent_ms < 0:
            before += message.times
    return max(after - before, 0)


def over_members(
    schemes: Iterable[str] = tuple(SCHEMES), sizes: Sequence[int] = MEMBERS
) -> list[Point]:
    """Two partitions a member."""
    return [measure_newcomer(scheme, size, 2 * size) for scheme in schemes for size in sizes]


def over_partitions(
    schemes: Iterable[str] = tuple(SCHEMES), sizes: Sequence[int] = PARTITIONS
) -> list[Point]:
    return [measure_newcomer(scheme, _MEMBERS_FIXED, size) for scheme in schemes for size in sizes]


def draw_growth(by_members: Sequence[Point], by_partitions: Sequence[Point]) -> Canvas:
    """Three plots with logarithmic axes."""
    canvas = Canvas(1_080, 400)
    canvas.text(60, 28, "what one newcomer causes, against the size of the group", size=16)
    _plot(
        canvas, 60, "messages (2 partitions a member)", "members", by_members,
        lambda p: p.members, lambda p: p.messages,
    )  # fmt: skip
    _plot(
        canvas, 410, "messages in the worst 100 ms", "members", by_members,
        lambda p: p.members, lambda p: p.worst_window_messages,
    )  # fmt: skip
    _plot(
        canvas, 760, f"messages ({_MEMBERS_FIXED} members)", "partitions", by_partitions,
        lambda p: p.partitions, lambda p: p.messages,
    )  # fmt: skip
    x = 60.0
    for index, name in enumerate(SCHEMES):
        canvas.line([(x, 378), (x + 24, 378)], color_of(index), width=3)
        canvas.text(x + 30, 382, name, size=12)
        x += 70 + 7 * len(name)
    return canvas


def _plot(
    canvas: Canvas,
    left: float,
    title: str,
    axis: str,
    points: Sequence[Point],
    x_of: Callable[[Point], int],
    y_of: Callable[[Point], int],
) -> None:
    top, width, height = 76.0, 270.0, 230.0
    sizes = sorted({x_of(point) for point in points})
    ceiling = max(math.ceil(math.log10(max(y_of(p) for p in points) + 1)), 1)
    canvas.text(left, top - 16, title, size=12)

    def place(size: int, value: int) -> tuple[float, float]:
        span = math.log(sizes[-1] / sizes[0]) or 1
        x = left + math.log(size / sizes[0]) / span * width
        return x, top + height - math.log10(max(value, 1)) / ceiling * height

    for power in range(ceiling + 1):
        y = top + height - power / ceiling * height
        canvas.line([(left, y), (left + width, y)], FAINT)
        canvas.text(left - 5, y + 4, _short(10**power), size=9, anchor="end")
    for size in sizes:
        canvas.text(place(size, 1)[0], top + height + 15, f"{size}", size=9, anchor="middle")
    canvas.text(left + width / 2, top + height + 31, axis, size=11, anchor="middle")
    for index, name in enumerate(SCHEMES):
        line = [place(x_of(p), y_of(p)) for p in points if p.scheme == name]
        if line:
            canvas.line(line, color_of(index), width=2.2)
        for x, y in line:
            canvas.rectangle(x - 2.5, y - 2.5, 5, 5, color_of(index))


def _short(number: int) -> str:
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= limit:
            return f"{number // limit}{unit}"
    return str(number)
