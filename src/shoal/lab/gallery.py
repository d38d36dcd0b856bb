"""The pictures of the docs: ``shoal lab draw --docs docs/pictures`` writes all of them.

Rule: a picture in the docs is the output of a run, with the scenario and seed that stand here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from shoal.drawing import Canvas
from shoal.lab import growth
from shoal.lab.built_in import built_in
from shoal.lab.message_chart import draw_messages
from shoal.lab.running import compare, run_scenario
from shoal.lab.timeline import draw_timeline

TIMELINES: Final[dict[str, int]] = {
    "member-joins": 1,
    "member-crashes": 1,
    "member-stalls": 1,
    "slow-member": 1,
    "network-cut": 3,
    "rolling-restart": 1,
    "rolling-restart-static": 1,
}
"""Scenario → seed."""


def pictures() -> Iterator[tuple[str, Canvas]]:
    """Name and picture, one after the other."""
    for name, seed in TIMELINES.items():
        yield f"lab-{name}", draw_timeline(compare(built_in(name), seed=seed))
    join = built_in("member-joins")
    for scheme in ("eager", "cooperative"):
        yield f"lab-messages-{scheme}", draw_messages(run_scenario(join, scheme))
    yield "lab-growth", growth.draw_growth(growth.over_members(), growth.over_partitions())


def draw_all(folder: Path) -> Iterator[Path]:
    """Write every picture as SVG and say which one was written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, canvas in pictures():
        path = folder / f"{name}.svg"
        path.write_text(canvas.to_svg(), encoding="utf-8")
        yield path
