"""Writes docs/benchmarks.md from the kept results: ``python -m docs.generate_benchmarks``.

``python -m benchmarks --json benchmarks/results.jsonl`` appends a line per benchmark; the last of
each name counts. Nothing on the page is typed by hand but the words around it.
"""

from __future__ import annotations

import json
from math import log10
from pathlib import Path
from typing import Any

from shoal.drawing import FAINT, INK, Canvas, color_of

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results.jsonl"
TARGET = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "benchmarks.svg"

INTRODUCTION = """# Benchmarks

Every number comes from a program in `benchmarks/` that runs the peer on the same machine, in turns,
and prints medians. The machines have two shared cores: trust ratios, not seconds. To repeat:

<!-- not run: takes minutes and measures the machine -->
```sh
python -m benchmarks records_decode
make bench
```

A ratio above 1 means better than the peer, whichever direction is better. Where a goal is not met,
the number says so: nothing was left out.

![Ratios to the peer](pictures/benchmarks.svg)
"""


def results() -> dict[str, dict[str, Any]]:
    """The last result of every benchmark, by name."""
    found: dict[str, dict[str, Any]] = {}
    for line in RESULTS.read_text().splitlines():
        entry = json.loads(line)
        found[entry["name"]] = entry
    return dict(sorted(found.items()))


def page() -> str:
    """The page as text."""
    parts = [INTRODUCTION]
    for name, entry in results().items():
        parts += [f"## {name}", "", f"`python -m benchmarks {name}` on {entry['machine']};"]
        parts += [f"{', '.join(entry['versions'])}.", ""]
        parts += ["| what | Shoal | peer | ratio | goal |", "|---|---|---|---|---|"]
        parts += [_row(row) for row in entry["rows"]]
        parts.append("")
    return "\n".join(parts)


def _row(row: dict[str, Any]) -> str:
    ours = f"{_number(row['ours'])} {row['unit']}"
    peer = "" if row["peer"] is None else f"{row['peer_name']}: {_number(row['peer'])}"
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.1f}x"
    return f"| {row['what']} | {ours} | {peer} | {ratio} | {row['goal']} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def picture() -> str:
    """Every ratio as a bar on a logarithmic scale, one colour a benchmark."""
    rows = [
        (index, f"{entry['name']}: {row['what']}", row["ratio"])
        for index, entry in enumerate(results().values())
        for row in entry["rows"]
        if row["ratio"]
    ]
    left, width, height = 430, 420, 14
    canvas = Canvas(left + width + 70, 40 + height * len(rows))
    for power in range(5):
        x = left + width * power / 4
        canvas.line([(x, 24), (x, 30 + height * len(rows))], FAINT if power else INK)
        canvas.text(x, 18, f"{10**power}x", size=10, anchor="middle")
    for position, (index, text, ratio) in enumerate(rows):
        y = 28 + position * height
        canvas.text(left - 6, y + 10, text[:72], size=9, anchor="end")
        x = left + width * min(1.0, max(-0.1, log10(ratio) / 4))
        canvas.rectangle(min(left, x), y + 2, abs(x - left), height - 4, color_of(index))
        canvas.text(max(x, left) + 4, y + 10, f"{ratio:.1f}x", size=9)
    return canvas.to_svg()


def main() -> None:
    """Write page and picture."""
    TARGET.write_text(page())
    PICTURE.write_text(picture())


if __name__ == "__main__":
    main()
