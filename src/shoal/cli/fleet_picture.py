"""The picture of a fleet: lag over time above, rebalances of each group below, on one time axis.

A rebalance is a mark in the lane of its group, in the colour of its cause and as wide as it took.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from shoal.drawing import FAINT, INK, Canvas, color_of

if TYPE_CHECKING:
    from shoal.fleet.report import FleetReport

LEFT, WIDTH, RIGHT = 170, 760, 190
TOP, LAG_HEIGHT, LANE = 56, 190, 16
LINES_MAX: Final = 8
LANES_MAX: Final = 40
# The first that a cause holds decides; what is worse comes first.
_KINDS: Final = {
    "left or expired": "#7f5fbf",
    "expired": "#d55e00",
    "left": "#e69f00",
    "joined": "#009e73",
    "restarted": "#56b4e9",
    "subscription changed": "#cc79a7",
    "topic grew": "#8c6d4f",
    "second round": "#0072b2",
    "started": "#444444",
}
_OTHER: Final = ("other", "#777777")


class _Axis(NamedTuple):
    begin: float
    end: float

    def x(self, at: float) -> float:
        return LEFT + (at - self.begin) / (self.end - self.begin) * WIDTH


def kind_of(cause: str) -> tuple[str, str]:
    """What to call a cause in a picture, and its colour."""
    return next(((name, color) for name, color in _KINDS.items() if name in cause), _OTHER)


def fleet_picture(report: FleetReport) -> Canvas:
    """Lag and rebalances of the groups with most of them."""
    lanes = _lanes(report)
    axis = _axis(report)
    lag_height = LAG_HEIGHT if report.lag else 0
    kinds = {kind_of(row["cause"]) for row in report.rebalances}
    height = TOP + lag_height + 34 + max(len(lanes) * LANE + 40, len(kinds) * 15 + 16)
    canvas = Canvas(LEFT + WIDTH + RIGHT, height)
    title = f"groups: {len(report.groups):,}, rebalances: {len(report.rebalances):,}"
    canvas.text(LEFT, 26, title, size=17)
    if report.lag:
        _draw_lag(canvas, report.lag, axis)
    top = TOP + lag_height + 34
    canvas.text(LEFT, top - 10, "rebalances", size=13)
    for index, group in enumerate(lanes):
        _draw_lane(canvas, group, report.rebalances, axis, top + index * LANE)
    bottom = top + len(lanes) * LANE
    _draw_axis(canvas, axis, bottom)
    _draw_legend(canvas, sorted(kinds), top)
    return canvas


def _axis(report: FleetReport) -> _Axis:
    times = [row["at"].timestamp() for row in (*report.rebalances, *report.lag)] or [0.0]
    begin, end = min(times), max(times)
    margin = max((end - begin) * 0.02, 1.0)
    return _Axis(begin - margin, end + margin)


def _lanes(report: FleetReport) -> list[str]:
    count: dict[str, int] = {}
    for row in report.rebalances:
        count[row["group"]] = count.get(row["group"], 0) + 1
    most = sorted(count, key=lambda group: (-count[group], group))[:LANES_MAX]
    return sorted(most)


def _draw_lag(canvas: Canvas, rows: Sequence[dict[str, Any]], axis: _Axis) -> None:
    series: dict[str, list[tuple[float, int]]] = {}
    for row in rows:
        series.setdefault(row["group"], []).append((row["at"].timestamp(), row["lag"]))
    worst = sorted(series, key=lambda group: (-max(lag for _, lag in series[group]), group))
    top_lag = _round_above(max(lag for points in series.values() for _, lag in points))
    base = TOP + LAG_HEIGHT - 8
    canvas.text(LEFT, TOP - 8, "records behind", size=13)
    for share in (0.0, 0.5, 1.0):
        y = base - share * (LAG_HEIGHT - 24)
        canvas.line([(LEFT, y), (LEFT + WIDTH, y)], FAINT)
        canvas.text(LEFT - 8, y + 4, f"{top_lag * share:,.0f}", size=10, anchor="end")
    for index, group in enumerate(worst[:LINES_MAX]):
        points = [
            (axis.x(at), base - lag / top_lag * (LAG_HEIGHT - 24)) for at, lag in series[group]
        ]
        color = color_of(index)
        if len(points) == 1:
            ((x, y),) = points
            canvas.rectangle(x - 2, y - 2, 4, 4, color, title=group)
        else:
            canvas.line(points, color, width=1.6)
        y = TOP + 12 + index * 15
        canvas.rectangle(LEFT + WIDTH + 14, y - 8, 10, 8, color)
        canvas.text(LEFT + WIDTH + 30, y, _cut(group, 24), size=11)


def _round_above(lag: int) -> int:
    """The top of a scale whose half is round, too."""
    power: int = 10 ** max(len(str(lag)) - 2, 0)
    steps = (2, 4, 6, 8, 10, 12, 16, 20, 24, 30, 32, 40, 50, 60, 80, 100)
    return next(step * power for step in steps if step * power >= lag)


def _draw_lane(
    canvas: Canvas, group: str, rows: Sequence[dict[str, Any]], axis: _Axis, top: float
) -> None:
    canvas.text(LEFT - 8, top + LANE - 5, _cut(group, 24), size=11, anchor="end")
    canvas.line([(LEFT, top + LANE - 2), (LEFT + WIDTH, top + LANE - 2)], FAINT)
    for row in rows:
        if row["group"] != group:
            continue
        end = row["at"].timestamp()
        begin = end - (row["duration_ms"] or 0) / 1000
        x = axis.x(begin)
        title = f"{row['at']:%Y-%m-%d %H:%M:%S} {row['cause']}, {row['moved']} moved"
        color = kind_of(row["cause"])[1]
        canvas.rectangle(x, top + 2, max(axis.x(end) - x, 3), LANE - 5, color, title=title)


def _draw_axis(canvas: Canvas, axis: _Axis, y: float) -> None:
    canvas.line([(LEFT, y), (LEFT + WIDTH, y)], INK)
    span = axis.end - axis.begin
    layout = "%H:%M:%S" if span < 3_600 else "%m-%d %H:%M"
    for index in range(7):
        at = axis.begin + span * index / 6
        x = axis.x(at)
        canvas.line([(x, y), (x, y + 4)], INK)
        label = datetime.fromtimestamp(at).astimezone().strftime(layout)
        canvas.text(x, y + 17, label, size=10, anchor="end" if index == 6 else "middle")


def _draw_legend(canvas: Canvas, kinds: Sequence[tuple[str, str]], top: float) -> None:
    for index, (name, color) in enumerate(kinds):
        y = top + 10 + index * 15
        canvas.rectangle(LEFT + WIDTH + 14, y - 8, 10, 8, color)
        canvas.text(LEFT + WIDTH + 30, y, name, size=11)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
