"""Draws the pictures of the docs from the code: ``python -m docs.generate_pictures``."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

from shoal.drawing import FAINT, INK, Canvas, color_of
from shoal.group.states import MOVES, GroupState

PICTURES = Path(__file__).resolve().parent / "pictures"

_PLACES = {
    GroupState.EMPTY: (110, 60),
    GroupState.PREPARING_REBALANCE: (330, 60),
    GroupState.COMPLETING_REBALANCE: (590, 60),
    GroupState.STABLE: (590, 220),
    GroupState.DEAD: (110, 220),
}
_BOX = (170, 40)


def states_picture() -> str:
    """The states of a classic group and every legal move, from the table the code obeys."""
    canvas = Canvas(740, 280)
    for start, ends in MOVES.items():
        for end in ends:
            # Everything may end in Dead; drawn faint, or nothing else could be seen.
            _arrow(canvas, _PLACES[start], _PLACES[end], faint=end is GroupState.DEAD)
    width, height = _BOX
    for index, (state, (x, y)) in enumerate(_PLACES.items()):
        canvas.rectangle(x - width / 2, y - height / 2, width, height, color_of(index))
        canvas.text(x, y + 5, state.value, size=14, color="#ffffff", anchor="middle")
    return canvas.to_svg()


def _arrow(
    canvas: Canvas, start: tuple[float, float], end: tuple[float, float], *, faint: bool
) -> None:
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    # Both directions of one pair are drawn beside each other.
    shift = (8 * math.cos(angle + math.pi / 2), 8 * math.sin(angle + math.pi / 2))
    a = (start[0] + shift[0], start[1] + shift[1])
    b = _edge((end[0] + shift[0], end[1] + shift[1]), angle)
    color = FAINT if faint else INK
    canvas.line([a, b], color, width=1.5)
    for turn in (2.7, -2.7):
        tip = (b[0] + 10 * math.cos(angle + turn), b[1] + 10 * math.sin(angle + turn))
        canvas.line([b, tip], color, width=1.5)


def _edge(center: tuple[float, float], angle: float) -> tuple[float, float]:
    """Where an arrow that comes in at ``angle`` meets the box around ``center``."""
    width, height = _BOX[0] / 2 + 3, _BOX[1] / 2 + 3
    dx, dy = abs(math.cos(angle)), abs(math.sin(angle))
    reach = min(width / dx if dx > 1e-9 else math.inf, height / dy if dy > 1e-9 else math.inf)
    return center[0] - reach * math.cos(angle), center[1] - reach * math.sin(angle)


def main() -> None:
    """Write every picture that does not need a run of the demo or the lab."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "group-states.svg").write_text(states_picture())
    for example in ("two-topics", "unequal", "one-leaves"):
        target = PICTURES / f"plan-{example}.svg"
        subprocess.run(
            [sys.executable, "-m", "shoal", "plan", "--example", example, "--svg", str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    main()
