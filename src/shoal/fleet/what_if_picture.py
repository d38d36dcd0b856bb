"""A fleet's future as three pictures: verdicts, now against then, and the worst groups.

    headline   how many groups each scheme makes better, the same or worse, and which it is not for
    scatter    partition-seconds now against then, a panel for each scheme; on the diagonal nothing
               changes, below it the scheme is better
    worst      the groups that stand still for longest, and what the best change makes of it

Rule: rows in, canvases out.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final

from shoal.drawing import FAINT, INK, Canvas
from shoal.errors import counted
from shoal.fleet.rehearse import (
    BETTER,
    BLOCKED,
    IN_USE,
    SAME,
    SCHEMES,
    TOO_FEW,
    UNKNOWN_NOW,
    WORSE,
    FleetOutlook,
    Rehearsal,
    worst_groups,
)

COLORS_OF: Final = {
    BETTER: "#009e73",
    SAME: "#999999",
    WORSE: "#d55e00",
    BLOCKED: "#cc79a7",
    TOO_FEW: "#dddddd",
    UNKNOWN_NOW: "#e69f00",
    IN_USE: "#0072b2",
}
WORST: Final = 20
_LEFT, _BAR, _LANE = 130, 620, 34
_PANEL, _GAP, _DOT = 250, 74, 3
_JUDGED: Final = (SAME, WORSE, BETTER)


def headline(found: FleetOutlook) -> Canvas:
    """One bar for each scheme, divided by verdict."""
    canvas = Canvas(_LEFT + _BAR + 40, 118 + len(SCHEMES) * _LANE)
    canvas.text(20, 30, headline_text(found), size=16)
    x = float(_LEFT)
    for verdict, color in COLORS_OF.items():
        canvas.rectangle(x, 50, 10, 10, color)
        canvas.text(x + 15, 59, verdict, size=11)
        x += 34 + 6.2 * len(verdict)
    for index, totals in enumerate(found.totals):
        y = 78 + index * _LANE
        canvas.text(_LEFT - 10, y + 17, totals.scheme, size=13, anchor="end")
        x = float(_LEFT)
        for verdict, color in COLORS_OF.items():
            count = totals.verdicts[verdict]
            width = _BAR * count / max(found.groups, 1)
            if count:
                title = f"{totals.scheme}: {counted(count, 'group')} {verdict}"
                canvas.rectangle(x, y, width, _LANE - 10, color, title=title)
                if width > 7 * len(f"{count:,}") + 6:
                    dark = verdict in (SAME, TOO_FEW, UNKNOWN_NOW)
                    ink = INK if dark else "#ffffff"
                    canvas.text(x + width / 2, y + 16, f"{count:,}", color=ink, anchor="middle")
            x += width
    rule = "same: less than a tenth, or less than one partition-second, apart"
    canvas.text(_LEFT, 78 + len(SCHEMES) * _LANE + 16, rule, size=11)
    return canvas


def headline_text(found: FleetOutlook) -> str:
    """The whole fleet in one line, each group under what is best for it."""
    return (
        f"{len(found.advice):,} of {counted(found.groups, 'group')} could stand still for less: "
        f"{found.saves:,.0f} partition-seconds saved"
    )


def scatter(rows: Sequence[Rehearsal]) -> Canvas:
    """Now against then, on logarithmic axes."""
    judged = [one for one in rows if one.verdict in _JUDGED]
    shown = [scheme for scheme in SCHEMES if any(one.scheme == scheme for one in judged)]
    across = min(3, max(1, len(shown)))
    down = max(1, ceil(len(shown) / across))
    canvas = Canvas(40 + across * (_PANEL + _GAP), 66 + down * (_PANEL + _GAP))
    canvas.text(20, 28, "partition-seconds stood still, now and then", size=16)
    if not shown:
        canvas.text(20, 60, "no group has changes enough for a verdict", size=13)
        return canvas
    values = [v for one in judged for v in (one.stopped_now, one.stopped_then) if v]
    low = floor(log10(max(min(values, default=1.0), 0.1)))
    high = max(ceil(log10(max(values, default=10.0))), low + 1)
    for index, scheme in enumerate(shown):
        left = 60 + index % across * (_PANEL + _GAP)
        top = 72 + index // across * (_PANEL + _GAP)
        axes = _Axes(left, top, low, high)
        axes.draw(canvas, scheme)
        axes.points(canvas, [one for one in judged if one.scheme == scheme])
    return canvas


class _Axes:
    """One panel; what is less than the first power of ten lies on its edge."""

    def __init__(self, left: float, top: float, low: int, high: int) -> None:
        self._left, self._top, self._low, self._high = left, top, low, high

    def _share(self, value: float) -> float:
        decades = self._high - self._low
        return max(0.0, (log10(value) - self._low) / decades) if value > 0 else 0.0

    def place(self, now: float, then: float) -> tuple[float, float]:
        return (
            self._left + self._share(now) * _PANEL,
            self._top + _PANEL - self._share(then) * _PANEL,
        )

    def draw(self, canvas: Canvas, scheme: str) -> None:
        left, top, bottom = self._left, self._top, self._top + _PANEL
        canvas.text(left, top - 8, scheme, size=13)
        every = max(1, (self._high - self._low) // 5)
        for power in range(self._low, self._high + 1, every):
            x, y = self.place(10.0**power, 10.0**power)
            canvas.line([(x, top), (x, bottom)], FAINT)
            canvas.line([(left, y), (left + _PANEL, y)], FAINT)
            label = f"{10.0**power:,.0f}" if power >= 0 else f"{10.0**power:g}"
            canvas.text(x, bottom + 14, label, size=9, anchor="middle")
            canvas.text(left - 5, y + 3, label, size=9, anchor="end")
        canvas.line([(left, bottom), (left + _PANEL, top)], INK, dashed=True)
        canvas.text(left + _PANEL, bottom + 28, "now", size=10, anchor="end")
        canvas.text(left - 5, top - 8, "then", size=10, anchor="end")

    def points(self, canvas: Canvas, rows: Sequence[Rehearsal]) -> None:
        taken: set[tuple[int, int]] = set()
        for verdict in _JUDGED:
            for one in rows:
                if one.verdict != verdict:
                    continue
                assert one.stopped_now is not None
                assert one.stopped_then is not None
                x, y = self.place(one.stopped_now, one.stopped_then)
                # Thousands of groups: one mark where several would cover each other.
                cell = (round(x / _DOT), round(y / _DOT))
                if cell in taken:
                    continue
                taken.add(cell)
                title = f"{one.group}: {one.stopped_now:,.0f} s to {one.stopped_then:,.0f} s"
                half = _DOT / 2
                canvas.rectangle(x - half, y - half, _DOT, _DOT, COLORS_OF[verdict], title=title)


def worst(rows: Sequence[Rehearsal]) -> Canvas:
    """Twenty groups: a line from what is to what the best change would make of it."""
    found = worst_groups(rows, WORST)
    left, width, lane = 230, 480, 24
    canvas = Canvas(left + width + 330, 92 + max(1, len(found)) * lane)
    canvas.text(20, 28, "groups that stand still for longest, and their best change", size=16)
    canvas.rectangle(left, 44, 9, 9, INK)
    canvas.text(left + 15, 53, "now", size=11)
    canvas.rectangle(left + 60, 44, 9, 9, COLORS_OF[BETTER])
    canvas.text(left + 75, 53, "then", size=11)
    most = max([one[0].stopped_now or 0.0 for one in found], default=0.0) or 1.0
    for index, (best, *_) in enumerate(found):
        y = 80 + index * lane
        now = best.stopped_now or 0.0
        is_better = best.verdict == BETTER and best.stopped_then is not None
        then = (best.stopped_then or 0.0) if is_better else now
        x_now, x_then = left + now / most * width, left + then / most * width
        canvas.text(left - 12, y + 5, _cut(best.group, 30), size=11, anchor="end")
        canvas.line([(left, y), (left + width, y)], FAINT)
        canvas.line([(x_then, y), (x_now, y)], COLORS_OF[BETTER], width=3)
        canvas.rectangle(x_now - 4, y - 4, 8, 8, INK, title=f"{now:,.1f} partition-seconds now")
        if is_better:
            title = f"{then:,.1f} partition-seconds with {best.scheme}"
            canvas.rectangle(x_then - 4, y - 4, 8, 8, COLORS_OF[BETTER], title=title)
        text = f"{now:,.0f} s to {then:,.0f} s: {best.scheme}" if is_better else f"{now:,.0f} s"
        canvas.text(left + width + 16, y + 4, text, size=11)
    return canvas


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
