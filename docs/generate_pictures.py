"""Draws the pictures of the docs from the code: ``python -m docs.generate_pictures``."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shoal.assign.plan import PlannedGroup, PlannedMember, PlannedTopic
from shoal.cli.fleet_picture import fleet_picture
from shoal.drawing import INK, Canvas, color_of
from shoal.fleet import what_if_picture
from shoal.fleet.group_changes import DepartedMember, GroupHistory, RecordedChange
from shoal.fleet.rehearse import outlook, rehearse
from shoal.fleet.report import FleetReport
from shoal.group.coordinator.states import MOVES, GroupState

PICTURES = Path(__file__).resolve().parent / "pictures"

_PLACES = {
    GroupState.EMPTY: (120, 70),
    GroupState.PREPARING_REBALANCE: (410, 70),
    GroupState.COMPLETING_REBALANCE: (710, 70),
    GroupState.STABLE: (710, 210),
    GroupState.DEAD: (265, 250),
}
_BOX = (180, 42)
_LIST = 310
"""Where the list of what the numbers mean begins."""


def states_picture() -> str:
    """The states of a classic group and every legal move, from the table the code obeys.

    Arrows have numbers, and the list below says what causes each: whole sentences do not fit
    beside an arrow.
    """
    moves = [(start, end, why) for start, ends in MOVES.items() for end, why in ends.items()]
    half = (len(moves) + 1) // 2
    canvas = Canvas(860, _LIST + 24 * half + 14)
    canvas.text(30, 28, "States of a classic consumer group", size=16)
    for start, end, _ in moves:
        # Everything may end in Dead; drawn faint, or nothing else could be seen.
        _arrow(canvas, _PLACES[start], _PLACES[end], faint=end is GroupState.DEAD)
    for number, (start, end, _) in enumerate(moves, 1):
        _number(canvas, _middle(_PLACES[start], _PLACES[end]), number)
    width, height = _BOX
    for index, (state, (x, y)) in enumerate(_PLACES.items()):
        canvas.rectangle(x - width / 2, y - height / 2, width, height, color_of(_COLOUR[index]))
        canvas.text(x, y + 5, state.value, size=15, color="#ffffff", anchor="middle")
    for number, (_, _, why) in enumerate(moves, 1):
        x, y = (
            (30, _LIST + 24 * (number - 1))
            if number <= half
            else (440, _LIST + 24 * (number - 1 - half))
        )
        _number(canvas, (x, y), number)
        canvas.text(x + 18, y + 4, why, size=12)
    return canvas.to_svg()


_COLOUR = (0, 5, 7, 2, 8)  # dark enough for white letters


def _number(canvas: Canvas, at: tuple[float, float], number: int) -> None:
    canvas.rectangle(at[0] - 10, at[1] - 9, 20, 18, INK)
    canvas.text(at[0], at[1] + 4.5, str(number), size=12, color="#ffffff", anchor="middle")


def _ends(
    start: tuple[float, float], end: tuple[float, float], box: tuple[float, float] = _BOX
) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Where an arrow leaves the one box and meets the other; both ways lie beside each other."""
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    shift = (11 * math.cos(angle + math.pi / 2), 11 * math.sin(angle + math.pi / 2))
    a = _edge((start[0] + shift[0], start[1] + shift[1]), angle + math.pi, start, box)
    b = _edge((end[0] + shift[0], end[1] + shift[1]), angle, end, box)
    return a, b, angle


def _middle(start: tuple[float, float], end: tuple[float, float]) -> tuple[float, float]:
    a, b, _ = _ends(start, end)
    return (a[0] + b[0]) / 2, (a[1] + b[1]) / 2


def consumer_protocol() -> dict[str, str]:
    """Of the protocol of KIP-848: by file name."""
    from docs.consumer_protocol_pictures import BOX, epoch_picture, member_states_picture

    def between(canvas: Canvas, start: tuple[float, float], end: tuple[float, float]) -> None:
        _arrow(canvas, start, end, faint=False, box=BOX)

    return {
        "consumer-member-states.svg": member_states_picture(between, arrow_along),
        "consumer-epochs.svg": epoch_picture(),
    }


def _arrow(
    canvas: Canvas,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    faint: bool,
    box: tuple[float, float] = _BOX,
) -> None:
    a, b, _ = _ends(start, end, box)
    arrow_along(canvas, [a, b], faint=faint)


def arrow_along(canvas: Canvas, points: list[tuple[float, float]], *, faint: bool) -> None:
    """A line with corners, and a tip at its end."""
    color = "#999999" if faint else INK
    canvas.line(points, color, width=1.5, dashed=faint)
    a, b = points[-2:]
    angle = math.atan2(b[1] - a[1], b[0] - a[0])
    for turn in (2.7, -2.7):
        tip = (b[0] + 10 * math.cos(angle + turn), b[1] + 10 * math.sin(angle + turn))
        canvas.line([b, tip], color, width=1.5)


def _edge(
    point: tuple[float, float],
    angle: float,
    center: tuple[float, float],
    box: tuple[float, float],
) -> tuple[float, float]:
    """Where a line that comes in at ``angle`` and goes to ``point`` meets the box at ``center``."""
    width, height = box[0] / 2 + 2, box[1] / 2 + 2
    x, y = math.cos(angle), math.sin(angle)
    reach = []
    for offset, size, part in (
        (point[0] - center[0], width, x),
        (point[1] - center[1], height, y),
    ):
        if abs(part) > 1e-9:
            reach.append((offset + size if part > 0 else size - offset) / abs(part))
    back = min(reach)
    return point[0] - back * x, point[1] - back * y


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
    report = FleetReport(groups, rebalances, lags, 0, 0)  # type: ignore[arg-type]  # counted only
    return fleet_picture(report).to_svg()


def what_if_example() -> dict[str, str]:
    """The future of made-up groups: small and large, restarted, scaled, with members that die."""
    chance = random.Random(7)
    teams = ("billing", "search", "fraud", "mail", "audit", "reports", "stock", "prices")
    rows = []
    for number in range(160):
        history = _made_up(f"{chance.choice(teams)}-{number}", chance)
        rows += rehearse(history)
    pictures = {
        "headline": what_if_picture.headline(outlook(rows)),
        "scatter": what_if_picture.scatter(rows),
        "worst": what_if_picture.worst(rows),
    }
    return {name: canvas.to_svg() for name, canvas in pictures.items()}


def _made_up(name: str, chance: random.Random) -> GroupHistory:
    """A group whose members go one after another; most of them come back."""
    count = chance.choice((2, 3, 4, 6, 10, 20))
    topic = PlannedTopic(count * chance.choice((1, 2, 6, 12)))
    wanted = PlannedMember(("t",))
    members = {f"m{place}": wanted for place in range(count)}
    changes: list[RecordedChange] = []
    present = list(members)
    for step in range(chance.randint(1, 20)):
        at_us = step * 600_000_000
        gone = chance.choice(present)
        how = chance.choices(("left", "expired"), (5, 1))[0]
        away_s = chance.choice((2.0, 6.0, 25.0, 90.0))
        back = f"r{step}"
        changes += [
            RecordedChange(
                at_us, departed=[DepartedMember(gone, how, 45.0, away_s=away_s, back_as=back)]
            ),
            RecordedChange(at_us + round(away_s * 1e6), joined={back: wanted}),
        ]
        present = [one for one in present if one != gone] + [back]
    kinds = ("range", "roundrobin", "cooperative-sticky", "company-weighted", None)
    assignor = chance.choices(kinds, (9, 2, 5, 1, 3))[0]
    return GroupHistory(
        group=name,
        protocol="classic" if assignor else "consumer",
        protocol_type="consumer",
        assignor=assignor,
        start=PlannedGroup({"t": topic}, members),
        changes=changes,
        observed_s=len(changes) * 300.0,
        rebalances=len(changes),
        moved=0,
        missed=0,
        members=count,
        partitions=topic.partitions,
        static=0,
        client_ids=[name],
    )


def main() -> None:
    """Write every picture that does not need a run of the demo or the lab."""
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / "group-states.svg").write_text(states_picture())
    for name, picture in consumer_protocol().items():
        (PICTURES / name).write_text(picture)
    (PICTURES / "fleet.svg").write_text(fleet_example())
    for name, drawn in what_if_example().items():
        (PICTURES / f"what-if-{name}.svg").write_text(drawn)
    for example in ("two-topics", "unequal", "one-leaves"):
        target = PICTURES / f"plan-{example}.svg"
        subprocess.run(
            [sys.executable, "-m", "shoal", "plan", "--example", example, "--svg", str(target)],
            check=True,
            stdout=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    main()
