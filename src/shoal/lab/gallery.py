"""The pictures of the docs: ``shoal lab draw --docs docs/pictures`` writes all of them.

Rule: a picture in the docs is the output of a run, with the scenario and seed that stand here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from shoal.drawing import Canvas
from shoal.lab import growth
from shoal.lab.built_in import built_in
from shoal.lab.message_chart import draw_messages
from shoal.lab.running import SCHEMES, compare, run_scenario
from shoal.lab.timeline import draw_timeline


class Timeline(NamedTuple):
    """A scenario in the docs."""

    seed: int = 1
    schemes: tuple[str, ...] = tuple(SCHEMES)


TIMELINES: Final[dict[str, Timeline]] = {
    "member-joins": Timeline(),
    "member-crashes": Timeline(),
    "member-stalls": Timeline(),
    "slow-member": Timeline(),
    "network-cut": Timeline(3),
    "split-brain": Timeline(4, ("watchers",)),
    "split-brain-synced": Timeline(4, ("watchers",)),
    "registry-split": Timeline(3, ("watchers", "central")),
    "coordinator-cut": Timeline(1, ("central", "eager")),
    "broker-dies": Timeline(),
    "rolling-restart": Timeline(),
    "rolling-restart-static": Timeline(),
}


def pictures() -> Iterator[tuple[str, Canvas]]:
    """Name and picture, one after the other."""
    for name, (seed, schemes) in TIMELINES.items():
        yield f"lab-{name}", draw_timeline(compare(built_in(name), schemes, seed=seed))
    join = built_in("member-joins")
    for scheme in ("central", "eager", "cooperative", "incremental"):
        yield f"lab-messages-{scheme}", draw_messages(run_scenario(join, scheme))
    yield "lab-growth", growth.draw_growth(growth.over_members(), growth.over_partitions())


def draw_all(folder: Path) -> Iterator[Path]:
    """Write every picture as SVG and say which one was written."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, canvas in pictures():
        path = folder / f"{name}.svg"
        path.write_text(canvas.to_svg(), encoding="utf-8")
        yield path
