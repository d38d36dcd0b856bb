"""The demo's picture: members from top to bottom, time from left to right, a strip a partition.

Rule: it begins with the first share and ends before the members leave: what matters lies between.
What a dead member had is outlined until somebody takes it over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from shoal.cli.demo_group import OwnershipChange
from shoal.drawing import FAINT, INK, Canvas, color_of

LEFT, TOP, WIDTH, STRIP, GAP = 70, 80, 760, 9, 34
PAUSE = "#999999"


def ownership_picture(
    changes: Sequence[OwnershipChange],
    partitions: int,
    *,
    end_s: float | None = None,
    session_s: float | None = None,
    topic: str = "orders",
) -> str:
    """Who owned which partition when, as SVG.

    Args:
        end_s: nothing is drawn after it; the last change if not given.
        session_s: the session timeout of the members, written beside the gap it causes.
    """
    members = sorted({change.member for change in changes})
    begin = min((change.at_s for change in changes), default=0.0)
    last = max((change.at_s for change in changes), default=1.0)
    end = max(begin + 1.0, last if end_s is None else end_s)
    lane = partitions * STRIP + GAP
    bottom = TOP + len(members) * lane
    canvas = Canvas(LEFT + WIDTH + 30, bottom + 34)
    canvas.text(LEFT, 24, "Who reads which partition, and when", size=16)
    _legend(canvas, partitions, topic)
    scale = WIDTH / (end - begin)

    def x_of(at_s: float) -> float:
        return LEFT + (min(max(at_s, begin), end) - begin) * scale

    _axis(canvas, begin, end, scale, bottom)
    for index, member in enumerate(members):
        top = TOP + index * lane
        canvas.text(LEFT - 10, top + partitions * STRIP / 2 + 4, member, anchor="end", size=13)
        canvas.line([(LEFT, top + lane - GAP / 2), (LEFT + WIDTH, top + lane - GAP / 2)], FAINT)
        for number, since, stop in _spans(changes, member, end):
            if since < end:
                canvas.rectangle(
                    x_of(since),
                    top + number * STRIP,
                    x_of(stop) - x_of(since),
                    STRIP - 1,
                    color_of(number),
                    title=f"{member}: {topic}-{number} for {stop - since:.1f} s",
                )
        if index > 0 and (first := _first(changes, member)) is not None and first > begin + 2.0:
            _mark(canvas, x_of(first), top, partitions, f"{member} joins")
        for change in changes:
            if change.member == member and change.kind == "dies":
                _gap(canvas, changes, change, top, x_of, session_s)
    return canvas.to_svg()


def taken_over_s(changes: Sequence[OwnershipChange], death: OwnershipChange) -> dict[int, float]:
    """When each partition of a dead member got a new owner."""
    found: dict[int, float] = {}
    for change in changes:
        if change.at_s > death.at_s and change.kind == "gets":
            for number in set(change.partitions) & set(death.partitions) - found.keys():
                found[number] = change.at_s
    return found


def _legend(canvas: Canvas, partitions: int, topic: str) -> None:
    x = LEFT
    for number in range(partitions):
        canvas.rectangle(x, 38, 12, 12, color_of(number))
        canvas.text(x + 17, 48, f"{topic}-{number}", size=12)
        x += 34 + 7 * len(f"{topic}-{number}")
    canvas.line([(x, 44), (x + 16, 44)], PAUSE, dashed=True, width=1.5)
    canvas.text(x + 21, 48, "nobody reads it", size=12)


def _mark(canvas: Canvas, x: float, top: float, partitions: int, text: str) -> None:
    canvas.line([(x, top - 3), (x, top + partitions * STRIP + 2)], INK, width=2)
    canvas.text(x, top - 5, text, size=11)


def _gap(
    canvas: Canvas,
    changes: Sequence[OwnershipChange],
    death: OwnershipChange,
    top: float,
    x_of: Callable[[float], float],
    session_s: float | None,
) -> None:
    """What a dead member had, until somebody else has it."""
    taken = taken_over_s(changes, death)
    left = x_of(death.at_s)
    _mark(canvas, left, top, max(death.partitions, default=0) + 1, "")
    for number in death.partitions:
        y = top + number * STRIP + STRIP / 2
        right = x_of(taken.get(number, float("inf")))
        canvas.line([(left, y), (right, y)], PAUSE, dashed=True, width=1.5)
    why = f"{death.member} is killed"
    if session_s is not None:
        why += f"; for the session timeout ({session_s:g} s) nobody reads what was {death.member}'s"
    # To the left of the mark where the text would not fit beside it.
    is_late = left > LEFT + WIDTH - 6.0 * len(why)
    canvas.text(
        LEFT + WIDTH if is_late else left,
        top - 5,
        why,
        size=11,
        anchor="end" if is_late else "start",
    )


def _first(changes: Sequence[OwnershipChange], member: str) -> float | None:
    return next((one.at_s for one in changes if one.member == member), None)


def _spans(
    changes: Sequence[OwnershipChange], member: str, end: float
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


def _axis(canvas: Canvas, begin: float, end: float, scale: float, y: float) -> None:
    span = int(end - begin)
    for second in range(0, span + 1, max(1, span // 10)):
        x = LEFT + second * scale
        canvas.line([(x, y), (x, y + 4)])
        canvas.text(x, y + 18, f"{second} s", size=11, anchor="middle")
