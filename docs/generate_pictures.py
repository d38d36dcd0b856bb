"""Draws the pictures of the docs from the code: ``python -m docs.generate_pictures``."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shoal.cli.fleet_picture import fleet_picture
from shoal.drawing import FAINT, INK, Canvas, color_of
from shoal.group.states import MOVES, GroupState
from shoal.spark.history.report import FleetReport

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


def fleet_example() -> str:
    """A report on an afternoon of made-up groups: what such a picture looks like."""
    chance = random.Random(9)
    begin = datetime(2026, 1, 31, 12, tzinfo=UTC)
    causes = ("member joined", "member left", "member expired", "topic grew", "group started")
    groups = ("billing", "search", "fraud", "mail", "audit", "reports")
    rebalances, lags = [], []
    for index, group in enumerate(groups):
        lag = 0.0
        for minute in range(0, 240, 4):
            at = begin + timedelta(minutes=minute)
            if chance.random() < 0.03 * (index + 1):
                cause = chance.choice(causes)
                row = {"at": at, "group": group, "cause": cause, "moved": 4, "duration_ms": 9_000}
                rebalances.append(row)
                lag += 40_000 * chance.random() * (cause == "member expired")
            lag = max(0.0, lag * 0.8 + chance.gauss(300, 400))
            lags.append({"at": at, "group": group, "lag": round(lag)})
    return fleet_picture(FleetReport(groups, rebalances, lags, 0, 0)).to_svg()


def main() -> None:
    """Write every picture that does not need a run of the demo or the lab."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "group-states.svg").write_text(states_picture())
    (PICTURES / "fleet.svg").write_text(fleet_example())
    for example in ("two-topics", "unequal", "one-leaves"):
        target = PICTURES / f"plan-{example}.svg"
        subprocess.run(
            [sys.executable, "-m", "shoal", "plan", "--example", example, "--svg", str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    main()
