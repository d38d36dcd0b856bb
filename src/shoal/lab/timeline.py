"""The picture of a comparison: members from top to bottom, time from left to right.

Each partition is a strip in its own colour, in the lane of whoever holds it. A pale strip is held
by somebody who stands still, or led by no broker; a hatched one is held by somebody whose commits
would be refused, a red frame means two owners. Below each scheme black shows how many partitions
nobody reads.

Rule: the schemes of one picture share one time axis, so what is longer looks longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from shoal.drawing import FAINT, INK, Canvas, color_of, ink_on
from shoal.errors import counted
from shoal.lab.running import Run
from shoal.lab.trace import Holding, Span, Trace
from shoal.types import TopicPartition

MEMBERS_MAX: Final = 12
LEFT, RIGHT, WIDTH = 96, 24, 860
TOP, STRIP, LANE_GAP, PANEL_GAP = 78, 10, 14, 26
HEAD: Final = 44
"""The words above a panel."""
STOPS_HEIGHT: Final = 22
RED: Final = "#d00000"
_SHOWN_MARKS: Final = {
    "starts": "starts",
    "crash": "crashes",
    "leave": "leaves",
    "restart": "restarts",
    "stall": "stalls",
    "pause": "pauses",
    "cut": "is cut off",
    "gives up": "gives up",
    "session expired": "session expired",
    "expired": "expired",
    "poll timeout": "poll timeout",
}


class Window(NamedTuple):
    """The part of a run that is shown."""

    begin_ms: int
    end_ms: int

    def x(self, at_ms: float) -> float:
        inside = min(max(at_ms, self.begin_ms), self.end_ms)
        return LEFT + (inside - self.begin_ms) / (self.end_ms - self.begin_ms) * WIDTH

    def shows(self, begin_ms: int, end_ms: int) -> bool:
        return end_ms > self.begin_ms and begin_ms < self.end_ms


def window_of(runs: Sequence[Run]) -> Window:
    """From a little before the first event to a little after the last change of any scheme."""
    trace = runs[0].trace
    first_ms = trace.events[0][0] if trace.events else 0
    last_ms = max((at for at, _ in trace.events), default=0)
    for run in runs:
        changes = [span.begin_ms for span in run.trace.spans]
        changes += [s.end_ms for s in run.trace.spans if s.end_ms < run.trace.end_ms]
        last_ms = max([last_ms, *changes])
    return Window(max(first_ms - 4_000, trace.begin_ms), min(last_ms + 4_000, trace.end_ms))


def members_of(runs: Sequence[Run]) -> list[str]:
    """Whom to show: everybody, or in a large group those to whom something happened."""
    names: dict[str, None] = {}
    for run in runs:
        names |= dict.fromkeys(run.trace.members)
    if len(names) <= MEMBERS_MAX:
        return sorted(names, key=lambda name: (len(name), name))
    touched: dict[str, int] = {}
    for run in runs:
        for mark in run.trace.marks:
            if mark.member and mark.at_ms >= 0 and mark.what in _SHOWN_MARKS:
                touched[mark.member] = touched.get(mark.member, 0) + 1_000
        for move in run.trace.moves:
            if move.at_ms >= 0:
                touched[move.taker] = touched.get(move.taker, 0) + 1
    first = sorted(names, key=lambda name: (-touched.get(name, 0), len(name), name))[:MEMBERS_MAX]
    return sorted(first, key=lambda name: (len(name), name))


def draw_timeline(runs: Sequence[Run], window: Window | None = None) -> Canvas:
    """One panel for each run."""
    window = window or window_of(runs)
    members = members_of(runs)
    colors = {tp: color_of(i) for i, tp in enumerate(_all_partitions(runs))}
    panels = [_Panel(run, members, window, colors) for run in runs]
    height = TOP + sum(panel.height + PANEL_GAP for panel in panels) + 64
    canvas = Canvas(LEFT + WIDTH + RIGHT, height)
    scenario = runs[0].scenario
    canvas.text(LEFT, 26, f"{scenario.name}: {scenario.description}".rstrip(": "), size=17)
    moments = _events(canvas, runs[0].trace, window)
    top: float = TOP
    for panel in panels:
        # A line for each event, but not through the words above a panel.
        for x in moments:
            canvas.line([(x, top + HEAD - 12), (x, top + panel.height)], "#777777", dashed=True)
        panel.draw(canvas, top)
        top += panel.height + PANEL_GAP
    _axis(canvas, window, top - 12)
    _legend(canvas, height - 14)
    return canvas


def _all_partitions(runs: Sequence[Run]) -> list[TopicPartition]:
    found: dict[TopicPartition, None] = {}
    for run in runs:
        found |= dict.fromkeys(run.trace.partitions)
    return sorted(found)


def _events(canvas: Canvas, trace: Trace, window: Window) -> list[float]:
    """What happened, above everything; returns where it was."""
    free_x = [0.0, 0.0]
    moments: dict[float, None] = {}
    for at_ms, what in trace.events:
        x = window.x(at_ms)
        moments[x] = None
        width = 6 * len(what)
        # Two rows of words, so that events close to each other can both be read.
        left = min(x + 3, LEFT + WIDTH + RIGHT - width)
        row = next((row for row in (0, 1) if free_x[row] <= left), None)
        if row is not None:
            y = 46 + 14 * row
            canvas.line([(x, y - 8), (x, y + 3)], "#777777")
            canvas.text(left, y, what, size=11, color="#555555")
            free_x[row] = left + width + 5
    return list(moments)


class _Panel:
    """One scheme."""

    def __init__(
        self,
        run: Run,
        members: Sequence[str],
        window: Window,
        colors: dict[TopicPartition, str],
    ) -> None:
        self._run = run
        self._window = window
        self._colors = colors
        shown = [s for s in run.trace.spans if window.shows(s.begin_ms, s.end_ms)]
        self._lanes = {
            name: _pack([span for span in shown if span.member == name]) for name in members
        }
        self._heights = {
            name: max(1, 1 + max((row for _, row in lane), default=0)) * (STRIP + 1) + LANE_GAP
            for name, lane in self._lanes.items()
        }
        self.height = HEAD + sum(self._heights.values()) + STOPS_HEIGHT + 6

    def draw(self, canvas: Canvas, top: float) -> None:
        run = self._run
        number = f"{run.scheme.name} ({run.scheme.since}): {run.scheme.title}"
        canvas.text(LEFT, top + 11, number, size=14)
        canvas.text(LEFT, top + 27, _summary(run), size=11, color="#555555")
        y = top + HEAD
        for name, lane in self._lanes.items():
            self._lane(canvas, y, name, lane)
            y += self._heights[name]
        self._stops(canvas, y - 4)

    def _lane(
        self, canvas: Canvas, top: float, name: str, lane: Sequence[tuple[Span, int]]
    ) -> None:
        height = self._heights[name] - LANE_GAP
        canvas.text(LEFT - 8, top + height / 2 + 4, name, anchor="end")
        base = top + height + 2
        canvas.line([(LEFT, base), (LEFT + WIDTH, base)], FAINT)
        rows: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        for span, row in lane:
            self._strip(canvas, span, top + row * (STRIP + 1))
            rows.setdefault(span.tp, []).append((span.begin_ms, span.end_ms, row))
        for double in self._run.trace.doubles:
            if name in double.members:
                for begin, end, row in rows.get(double.tp, ()):
                    if begin < double.end_ms and end > double.begin_ms:
                        y = top + row * (STRIP + 1)
                        _frame(canvas, self._window, double.begin_ms, double.end_ms, y)
        self._words(canvas, top, name)

    def _strip(self, canvas: Canvas, span: Span, y: float) -> None:
        x, end = self._window.x(span.begin_ms), self._window.x(span.end_ms)
        color = self._colors[span.tp]
        fill = color if span.holding is Holding.READING else _pale(color)
        title = (
            f"{span.member} {span.holding.value} {span.tp}, "
            f"{span.begin_ms / 1000:.2f} s to {span.end_ms / 1000:.2f} s"
        )
        canvas.rectangle(x, y, max(end - x, 0.5), STRIP, fill, title=title)
        if span.holding is Holding.FENCED:
            step = x + 3
            while step < end:
                canvas.line([(step, y + STRIP), (min(step + 4, end), y)], INK, width=0.7)
                step += 7
        elif end - x > 16:
            number = str(span.tp.partition)
            canvas.text(x + 3, y + STRIP - 2, number, size=8, color=ink_on(fill))

    def _words(self, canvas: Canvas, top: float, name: str) -> None:
        free_x = 0.0
        for mark in self._run.trace.marks:
            what = _SHOWN_MARKS.get(mark.what)
            if mark.member != name or what is None:
                continue
            if not self._window.begin_ms <= mark.at_ms < self._window.end_ms:
                continue
            x = self._window.x(mark.at_ms)
            canvas.line([(x, top - 9), (x, top + STRIP + 2)], INK, width=2)
            if x >= free_x:
                canvas.text(x + 4, top - 2, what, size=9)
                free_x = x + 5.2 * len(what) + 6

    def _stops(self, canvas: Canvas, top: float) -> None:
        """How many partitions have no reader, as black columns."""
        trace, window = self._run.trace, self._window
        total = max(len(trace.partitions), 1)
        canvas.text(LEFT - 8, top + STOPS_HEIGHT - 5, "stopped", size=10, anchor="end")
        canvas.rectangle(LEFT, top, WIDTH, STOPS_HEIGHT, "#f1f1f1")
        edges = sorted(
            [
                (max(gap.begin_ms, window.begin_ms), 1)
                for gap in trace.gaps
                if window.shows(*gap[1:])
            ]
            + [(min(gap.end_ms, window.end_ms), -1) for gap in trace.gaps if window.shows(*gap[1:])]
        )
        count, since_ms = 0, window.begin_ms
        for at_ms, change in edges:
            if count and at_ms > since_ms:
                x, end = window.x(since_ms), window.x(at_ms)
                height = STOPS_HEIGHT * count / total
                title = f"{count} of {total} partitions: {since_ms} ms to {at_ms} ms"
                y = top + STOPS_HEIGHT - height
                canvas.rectangle(x, y, max(end - x, 1.2), height, INK, title=title)
            count, since_ms = count + change, at_ms


def _pack(spans: Sequence[Span]) -> list[tuple[Span, int]]:
    """Give each strip the first free row of its lane; a partition stays in its row if it can."""
    packed: list[tuple[Span, int]] = []
    free_ms: list[int] = []
    last_row: dict[TopicPartition, int] = {}
    for span in sorted(spans, key=lambda s: (s.begin_ms, s.tp)):
        free = [row for row, at_ms in enumerate(free_ms) if at_ms <= span.begin_ms]
        row = last_row.get(span.tp, -1)
        if row not in free:
            row = free[0] if free else len(free_ms)
        if row == len(free_ms):
            free_ms.append(0)
        free_ms[row] = span.end_ms
        last_row[span.tp] = row
        packed.append((span, row))
    return packed


def _summary(run: Run) -> str:
    metrics = run.metrics
    parts = [
        f"stopped {metrics.stopped_partition_s:.1f} partition-s",
        f"moved {metrics.moved_partitions}",
    ]
    if metrics.two_owners:
        parts.append(f"two owners {metrics.two_owners_partition_s:.1f} partition-s")
    if metrics.records_twice:
        parts.append(f"{counted(metrics.records_twice, 'record')} twice")
    parts.append(f"worst 100 ms {metrics.worst_window_messages:,} messages")
    return " · ".join(parts)


def _frame(canvas: Canvas, window: Window, begin_ms: int, end_ms: int, y: float) -> None:
    x, end = window.x(begin_ms), window.x(end_ms)
    end = max(end, x + 2)
    corners = [(x, y), (end, y), (end, y + STRIP), (x, y + STRIP), (x, y)]
    canvas.line(corners, RED, width=2.4)


def _pale(color: str) -> str:
    parts = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return "#" + "".join(f"{255 - (255 - part) * 3 // 10:02x}" for part in parts)


def _axis(canvas: Canvas, window: Window, y: float) -> None:
    span_s = (window.end_ms - window.begin_ms) / 1_000
    step_s = next((s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300) if span_s / s <= 14), 600)
    canvas.line([(LEFT, y), (LEFT + WIDTH, y)])
    first = -(-window.begin_ms // (step_s * 1_000)) * step_s
    for second in range(first, window.end_ms // 1_000 + 1, step_s):
        x = window.x(second * 1_000)
        canvas.line([(x, y), (x, y + 4)])
        canvas.text(x, y + 16, f"{second} s", size=10, anchor="middle")


def _legend(canvas: Canvas, y: float) -> None:
    color = color_of(0)
    x: float = LEFT
    for kind, words in (
        ("reads", "reads"),
        ("idle", "paused, or no broker leads"),
        ("fenced", "reads, commits refused"),
        ("double", "two owners"),
        ("stopped", "nobody reads (share of partitions)"),
    ):
        fill = {"reads": color, "double": color, "stopped": INK}.get(kind, _pale(color))
        canvas.rectangle(x, y - 9, 26, STRIP, fill)
        if kind == "fenced":
            for step in range(3, 24, 7):
                canvas.line([(x + step, y + 1), (x + step + 4, y - 9)], INK, width=0.7)
        if kind == "double":
            canvas.line(
                [(x, y - 9), (x + 26, y - 9), (x + 26, y + 1), (x, y + 1), (x, y - 9)],
                RED,
                width=2.4,
            )
        canvas.text(x + 31, y, words, size=11)
        x += 46 + 6.2 * len(words)
