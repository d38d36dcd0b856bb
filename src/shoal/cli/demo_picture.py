"""The demo's picture: members from top to bottom, time from left to right, a strip a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shoal.cli.demo_group import Change
from shoal.drawing import FAINT, INK, Canvas, color_of

LEFT, TOP, WIDTH, STRIP, GAP = 70, 40, 760, 9, 16


def ownership_picture(changes: Sequence[Change], partitions: int) -> str:
    """Who owned which partition when, as SVG."""
    members = sorted({change.member for change in changes})
    end = max((change.at_s for change in changes), default=1.0) + 0.5
    lane = partitions * STRIP + GAP
    canvas = Canvas(LEFT + WIDTH + 30, TOP + len(members) * lane + 40)
    canvas.text(LEFT, 22, "who owns which partition, and when", size=15)
    scale = WIDTH / end
    for index, member in enumerate(members):
        top = TOP + index * lane
        canvas.text(LEFT - 8, top + lane / 2, member, anchor="end")
        canvas.line([(LEFT, top + lane - GAP / 2), (LEFT + WIDTH, top + lane - GAP / 2)], FAINT)
        for number, begin, stop in _spans(changes, member, end):
            canvas.rectangle(
                LEFT + begin * scale,
                top + number * STRIP,
                (stop - begin) * scale,
                STRIP - 1,
                color_of(number),
                title=f"{member}: partition {number}, {begin:.1f} s to {stop:.1f} s",
            )
        for change in changes:
            if change.member == member and change.kind == "dies":
                x = LEFT + change.at_s * scale
                canvas.line([(x, top - 4), (x, top + lane - GAP)], INK, width=2)
                canvas.text(x + 4, top + 8, "killed", size=11)
    _axis(canvas, end, scale, TOP + len(members) * lane)
    return canvas.to_svg()


def _spans(
    changes: Sequence[Change], member: str, end: float
) -> Iterator[tuple[int, float, float]]:
    since: dict[int, float] = {}
    for change in changes:
        if change.member != member:
            continue
        for number in change.partitions:
            if change.kind == "gets":
                since[number] = change.at_s
            elif number in since:
                yield number, since.pop(number), change.at_s
    for number, begin in since.items():
        yield number, begin, end


def _axis(canvas: Canvas, end: float, scale: float, y: float) -> None:
    for second in range(0, int(end) + 1, max(1, int(end) // 10)):
        x = LEFT + second * scale
        canvas.line([(x, y), (x, y + 4)])
        canvas.text(x, y + 17, f"{second} s", size=10, anchor="middle")
