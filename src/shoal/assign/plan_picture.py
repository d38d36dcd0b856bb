"""A plan as a table's rows, as JSON values, and as a matrix of members by partitions.

The matrix shows before and after in one: what a member keeps, what it gets, what it gives up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import Any, Final

from shoal.assign.plan import Load, Outcome, Plan
from shoal.drawing import COLORS, FAINT, Canvas
from shoal.types import TopicPartition

# Cells of one picture; more cannot be told apart, and would make files nobody can open.
CELLS_MAX: Final = 100_000
_PAGE: Final = 900
"""How wide a picture of several small matrices may be."""


class Cell(Enum):
    """What a partition is to a member."""

    NEVER = "·"
    KEEPS = "■"
    GETS = "+"
    LOSES = "-"


LEGEND: Final = f"{Cell.KEEPS.value} keeps  {Cell.GETS.value} gets  {Cell.LOSES.value} gives up"
_COLORS: Final = {Cell.KEEPS: COLORS[0], Cell.GETS: COLORS[2], Cell.LOSES: COLORS[1]}


def columns(plan: Plan) -> list[TopicPartition]:
    """All partitions of the plan, by topic and number."""
    found: set[TopicPartition] = set()
    for outcome in plan.outcomes:
        for owned in (outcome.before, outcome.after):
            found.update(tp for partitions in owned.values() for tp in partitions)
    return sorted(found)


def members(outcome: Outcome) -> list[str]:
    """Everybody before and after, in the order of the group."""
    return list(dict.fromkeys([*outcome.before, *outcome.after]))


def matrix(outcome: Outcome, partitions: Sequence[TopicPartition]) -> dict[str, list[Cell]]:
    """Member id → a cell for every partition."""
    rows = {}
    for member_id in members(outcome):
        had = set(outcome.before.get(member_id, ()))
        has = set(outcome.after.get(member_id, ()))
        rows[member_id] = [_cell(tp in had, tp in has) for tp in partitions]
    return rows


def _cell(had: bool, has: bool) -> Cell:
    if has:
        return Cell.KEEPS if had else Cell.GETS
    return Cell.LOSES if had else Cell.NEVER


def matrix_lines(outcome: Outcome, partitions: Sequence[TopicPartition], width: int) -> list[str]:
    """The matrix as text, or counts per topic where it would be wider than ``width``."""
    rows = matrix(outcome, partitions)
    left = max(map(len, rows), default=0) + 2
    topics = list(dict.fromkeys(tp.topic for tp in partitions))
    cells = {topic: [i for i, tp in enumerate(partitions) if tp.topic == topic] for topic in topics}
    wide = {topic: max(len(topic), 2 * len(cells[topic]) - 1) for topic in topics}
    if left + sum(wide.values()) + 2 * len(topics) <= width:
        shown = {
            member_id: [" ".join(row[i].value for i in cells[topic]) for topic in topics]
            for member_id, row in rows.items()
        }
    else:
        shown = {
            member_id: [_tally([row[i] for i in cells[topic]]) for topic in topics]
            for member_id, row in rows.items()
        }
        wide = {
            topic: max(len(topic), *(len(shown[member_id][index]) for member_id in shown))
            for index, topic in enumerate(topics)
        }
        fitting = _fitting(topics, wide, width - left)
        if fitting < len(topics):
            return [*_lines(topics[:fitting], wide, left, shown), f"… {len(topics)} topics in all"]
    return _lines(topics, wide, left, shown)


def _tally(cells: Sequence[Cell]) -> str:
    """For example ``12 +3 -1``: keeps twelve, gets three, gives up one."""
    counts = {kind: sum(cell is kind for cell in cells) for kind in Cell}
    parts = [str(counts[Cell.KEEPS])]
    parts += [f"{k.value}{counts[k]}" for k in (Cell.GETS, Cell.LOSES) if counts[k]]
    return " ".join(parts)


def _fitting(topics: Sequence[str], wide: Mapping[str, int], width: int) -> int:
    used = 0
    for index, topic in enumerate(topics):
        used += wide[topic] + 2
        if used > width:
            return max(1, index)
    return len(topics)


def _lines(
    topics: Sequence[str], wide: Mapping[str, int], left: int, shown: Mapping[str, Sequence[str]]
) -> list[str]:
    head = " " * left + "  ".join(topic.ljust(wide[topic]) for topic in topics)
    lines = [head.rstrip()]
    for member_id, parts in shown.items():
        padded = "  ".join(
            part.ljust(wide[topic]) for part, topic in zip(parts, topics, strict=False)
        )
        lines.append((member_id.ljust(left) + padded).rstrip())
    return lines


def as_json(plan: Plan) -> dict[str, Any]:
    """Everything about a plan in plain values."""
    return {
        "changes": [str(change) for change in plan.changes],
        "outcomes": [
            {
                "assignor": outcome.assignor,
                "protocol": outcome.protocol.name,
                "rebalances": outcome.rebalances,
                "moved": outcome.moved,
                "stopped": outcome.stopped,
                "loads": {
                    "before": _loads(outcome.loads_before),
                    "after": _loads(outcome.loads_after),
                },
                "steps": [asdict(step) for step in outcome.steps],
                "before": _owned(outcome.before),
                "after": _owned(outcome.after),
            }
            for outcome in plan.outcomes
        ],
    }


def _loads(loads: Mapping[str, Load]) -> dict[str, dict[str, float]]:
    return {name: asdict(load) for name, load in loads.items()}


def _owned(owned: Mapping[str, Sequence[TopicPartition]]) -> dict[str, list[list[Any]]]:
    return {member_id: [list(tp) for tp in partitions] for member_id, partitions in owned.items()}


def picture(plan: Plan) -> Canvas:
    """The matrices of all assignors below each other.

    Raises:
        ValueError: there are too many cells to draw.
    """
    partitions = columns(plan)
    rows = max(len(members(outcome)) for outcome in plan.outcomes)
    if rows * len(partitions) > CELLS_MAX:
        raise ValueError(
            f"{rows} members by {len(partitions)} partitions are more than the {CELLS_MAX} cells "
            "a picture can show; use the table or JSON"
        )
    side = max(3.0, min(24.0, 1000 / max(1, len(partitions))))
    height = max(min(side, 18.0), 14.0)
    left = 12 + 7 * max(len(member_id) for o in plan.outcomes for member_id in members(o))
    captions = [f"{o.assignor}: {o.moved} moved, {o.stopped} stopped" for o in plan.outcomes]
    cell = max(left + len(partitions) * side, 7.2 * max(map(len, captions))) + 24
    # Beside each other as far as a page is wide, so that no half of the paper is empty.
    below = -(-len(plan.outcomes) // max(1, int(_PAGE // cell)))
    beside = -(-len(plan.outcomes) // below)
    panel = 44 + rows * height
    title = ", ".join(map(str, plan.changes)) or "no change"
    canvas = Canvas(max(cell * beside, 8.4 * len(title) + 24, 270), 62 + panel * below)
    canvas.text(12, 22, title, size=15)
    _legend(canvas, 42)
    for number, outcome in enumerate(plan.outcomes):
        x0, top = cell * (number % beside), 72 + panel * (number // beside)
        canvas.text(x0 + 12, top, captions[number], size=13)
        for row, (member_id, cells) in enumerate(matrix(outcome, partitions).items()):
            y = top + 22 + row * height
            canvas.text(x0 + left - 6, y + height - 4, member_id, size=12, anchor="end")
            for column, one in enumerate(cells):
                canvas.rectangle(
                    x0 + left + column * side,
                    y,
                    side - 1,
                    height - 1,
                    _COLORS.get(one, "#f2f2f2"),
                    title=f"{partitions[column]} {one.name.lower()} {member_id}",
                )
        _topics(canvas, partitions, x0 + left, side, top + 20, rows * height + 2)
    return canvas


def _legend(canvas: Canvas, y: float) -> None:
    x = 12.0
    for cell in (Cell.KEEPS, Cell.GETS, Cell.LOSES):
        canvas.rectangle(x, y - 9, 10, 10, _COLORS[cell])
        name = {"KEEPS": "keeps", "GETS": "gets", "LOSES": "gives up"}[cell.name]
        canvas.text(x + 14, y, name, size=12)
        x += 80


def _topics(
    canvas: Canvas,
    partitions: Sequence[TopicPartition],
    left: float,
    side: float,
    top: float,
    height: float,
) -> None:
    """Names above and lines between topics."""
    start = 0
    for end in range(1, len(partitions) + 1):
        if end < len(partitions) and partitions[end].topic == partitions[start].topic:
            continue
        x = left + start * side
        fitting = int((end - start) * side / 6)
        canvas.text(x, top - 4, partitions[start].topic[:fitting], size=11)
        if start:
            canvas.line([(x - 0.5, top), (x - 0.5, top + height)], FAINT, width=1)
        start = end
