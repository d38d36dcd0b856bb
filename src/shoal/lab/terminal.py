"""The timeline as text: one line a member, one column a piece of time.

A digit is how many partitions a member reads; ``!`` two owners, ``~`` fenced, ``z`` stands still,
``·`` holds nothing. The line below counts the partitions nobody reads.

Rule: a column shows the worst that happened in it, so nothing short is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final

from shoal.lab.running import Run
from shoal.lab.timeline import Window, members_of, window_of
from shoal.lab.trace import Gap, Holding, Span

_LEGEND: Final = "digit: partitions read · !: two owners · ~: fenced · z: paused · '·': nothing"


def draw_text(runs: Sequence[Run], *, width: int = 80, window: Window | None = None) -> str:
    """All schemes under one time axis."""
    window = window or window_of(runs)
    members = members_of(runs)
    margin = max(8, *(len(name) + 1 for name in members))
    columns = max(width - margin, 10)
    lines = [_events_line(runs[0], window, margin, columns)]
    for run in runs:
        title = f"{run.scheme.name} ({run.scheme.since}): {run.scheme.title}"
        lines += ["", *wrap(title, width)]
        lines += [f"{name:<{margin}}{_lane(run, name, window, columns)}" for name in members]
        lines.append(f"{'stopped':<{margin}}{_stops(run, window, columns)}")
    lines += [
        "",
        f"{'':<{margin}}{_axis(window, columns)}",
        *wrap(_LEGEND, width),
    ]
    return "\n".join(line.rstrip() for line in lines)


def _column(window: Window, columns: int, index: int) -> tuple[float, float]:
    piece = (window.end_ms - window.begin_ms) / columns
    return window.begin_ms + index * piece, window.begin_ms + (index + 1) * piece


def _overlaps(item: Span | Gap, begin: float, end: float) -> bool:
    return item.begin_ms < end and item.end_ms > begin


def _lane(run: Run, name: str, window: Window, columns: int) -> str:
    spans = [span for span in run.trace.spans if span.member == name]
    doubles = [double for double in run.trace.doubles if name in double.members]
    cells = []
    for index in range(columns):
        begin, end = _column(window, columns, index)
        held = [span for span in spans if _overlaps(span, begin, end)]
        if any(d.begin_ms < end and d.end_ms > begin for d in doubles):
            cells.append("!")
        elif any(span.holding is Holding.FENCED for span in held):
            cells.append("~")
        elif any(span.holding is Holding.IDLE for span in held):
            cells.append("z")
        else:
            # The fewest at any time: a short stop must be seen.
            counts = _counts(held, begin, end)
            cells.append(_digit(min(counts)) if any(counts) else "·")
    return "".join(cells)


def _counts(held: Sequence[Span], begin: float, end: float) -> list[int]:
    moments = [begin, *(s.begin_ms for s in held), *(s.end_ms for s in held)]
    return [
        sum(s.begin_ms <= at < s.end_ms for s in held) for at in moments if begin <= at < end
    ] or [0]


def _digit(count: int) -> str:
    if count == 0:
        return "·"
    return str(count) if count < 10 else "+"


def _stops(run: Run, window: Window, columns: int) -> str:
    cells = []
    for index in range(columns):
        begin, end = _column(window, columns, index)
        count = len({gap.tp for gap in run.trace.gaps if _overlaps(gap, begin, end)})
        cells.append(_digit(count) if count else " ")
    return "".join(cells)


def _events_line(run: Run, window: Window, margin: int, columns: int) -> str:
    line = [" "] * columns
    free = 0
    for at_ms, what in run.trace.events:
        piece = (window.end_ms - window.begin_ms) / columns
        index = int((at_ms - window.begin_ms) / piece)
        # At the right edge the words stand before their moment.
        fits = index + len(what) < columns
        text = f"↓{what}" if fits else f"{what}↓"
        start = index if fits else index + 1 - len(text)
        if free <= start and index < columns:
            line[start : start + len(text)] = text
            free = start + len(text) + 1
    return " " * margin + "".join(line)


def _axis(window: Window, columns: int) -> str:
    line = [" "] * columns
    step = max(columns // 6, 8)
    for index in range(0, columns - 5, step):
        text = f"|{_column(window, columns, index)[0] / 1_000:.0f} s"
        line[index : index + len(text)] = text
    return "".join(line)
