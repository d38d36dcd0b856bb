"""Writes docs/concepts/assignors-growth.md and its plot: ``python -m docs.generate_growth``.

The numbers are the last result of ``python -m benchmarks assign_growth`` in the kept results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from pathlib import Path
from typing import Any

from docs.generate_benchmarks import results
from shoal.drawing import FAINT, INK, Canvas, color_of

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "concepts" / "assignors-growth.md"
PICTURE = ROOT / "docs" / "pictures" / "assign-growth.svg"

INTRODUCTION = """# How assignment grows

CPU milliseconds for one fresh assignment: partitions by members. A peer that took more than a
second was not asked about larger groups. "One member wants one topic" is the general algorithm of
`sticky`; the others are groups whose members all subscribe to the same. Java is Kafka's own class,
warm, without its garbage collector; where the one member cannot be given its share (fewer members
than topics), it did not answer within minutes, and is left out.

![Time by partitions and by members](../pictures/assign-growth.svg)
"""

Sizes = dict[tuple[int, int], dict[str, float]]
"""(partitions, members) → milliseconds, by whose."""


def measured() -> tuple[dict[str, Any], dict[str, Sizes]]:
    """The benchmark's entry, and its numbers by what was assigned."""
    entry = results()["assign_growth"]
    found: dict[str, Sizes] = {}
    for row in entry["rows"]:
        what, _, size = row["what"].rpartition(": ")
        partitions, members = (int(part.replace(",", "")) for part in size.split(" x "))
        times = found.setdefault(what, {}).setdefault((partitions, members), {})
        times["Shoal"] = row["ours"]
        if row["peer"] is not None:
            times[row["peer_name"]] = row["peer"]
    return entry, found


def page(entry: Mapping[str, Any], found: Mapping[str, Sizes]) -> str:
    """The page as text."""
    parts = [INTRODUCTION, f"Measured on {entry['machine']}; {', '.join(entry['versions'])}.", ""]
    for what, sizes in found.items():
        names = list(dict.fromkeys(name for times in sizes.values() for name in times))
        parts += [f"## {what}", "", f"| partitions x members | {' | '.join(names)} |"]
        parts.append("|---" * (len(names) + 1) + "|")
        for (partitions, members), times in sorted(sizes.items()):
            shown = [_shown(times[name]) if name in times else "" for name in names]
            parts.append(f"| {partitions:,} x {members:,} | {' | '.join(shown)} |")
        parts.append("")
    return "\n".join(parts)


def _shown(milliseconds: float) -> str:
    return f"{milliseconds:,.0f}" if milliseconds >= 100 else f"{milliseconds:.3g}"


def picture(found: Mapping[str, Sizes]) -> str:
    """Two plots side by side, both scales logarithmic: by partitions, by members."""
    canvas = Canvas(980, 470)
    lines = {
        ("sticky", "Shoal"): color_of(0),
        ("sticky", "Java"): color_of(1),
        ("sticky", "kafka-python"): color_of(2),
        ("range", "Shoal"): color_of(3),
        ("range", "Java"): color_of(4),
        ("sticky, one member wants one topic", "Shoal"): color_of(5),
        # Not the one in between: a thin line of yellow is hardly seen on paper.
        ("sticky, one member wants one topic", "Java"): color_of(7),
    }
    for left, title, axis in (
        (60, "partitions, 100 members", 0),
        (550, "members, 100,000 partitions", 1),
    ):
        _plot(canvas, left, title, axis, found, lines)
    for index, ((what, name), color) in enumerate(lines.items()):
        x, y = 60 + (index % 3) * 310, 410 + (index // 3) * 20
        canvas.line([(x, y - 4), (x + 24, y - 4)], color, width=3, dashed=name != "Shoal")
        canvas.text(x + 30, y, f"{what}: {name}", size=12)
    return canvas.to_svg()


def _plot(
    canvas: Canvas,
    left: float,
    title: str,
    axis: int,
    found: Mapping[str, Sizes],
    lines: Mapping[tuple[str, str], str],
) -> None:
    top, width, height = 40.0, 380.0, 320.0
    fixed = (100, 100_000)[axis]
    canvas.text(left + width / 2, 22, f"milliseconds by {title}", size=13, anchor="middle")

    def points(what: str, name: str) -> Sequence[tuple[float, float]]:
        return [
            (log10(size[axis]), log10(times[name]))
            for size, times in sorted(found.get(what, {}).items())
            if size[1 - axis] == fixed and name in times
        ]

    drawn = {key: points(*key) for key in lines}
    xs = [x for line in drawn.values() for x, _ in line]
    ys = [y for line in drawn.values() for _, y in line]
    low_x, high_x, low_y, high_y = min(xs), max(xs), floor(min(ys)), max(ys)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - low_x) / (high_x - low_x)
        up = (y - low_y) / (high_y - low_y)
        return left + width * across, top + height * (1 - up)

    for power in range(round(low_x), round(high_x) + 1):
        x, _ = place(power, low_y)
        canvas.line([(x, top), (x, top + height)], FAINT)
        canvas.text(x, top + height + 16, f"{10**power:,}", size=10, anchor="middle")
    for power in range(low_y, floor(high_y) + 1):
        _, y = place(low_x, power)
        canvas.line([(left, y), (left + width, y)], FAINT)
        canvas.text(left - 6, y + 4, f"{10.0**power:g}", size=10, anchor="end")
    canvas.line([(left, top), (left, top + height), (left + width, top + height)], INK)
    for key, line in drawn.items():
        if line:
            canvas.line(
                [place(*point) for point in line], lines[key], width=2, dashed=key[1] != "Shoal"
            )


def main() -> None:
    """Write page and picture."""
    entry, found = measured()
    TARGET.write_text(page(entry, found))
    PICTURE.write_text(picture(found))


if __name__ == "__main__":
    main()
