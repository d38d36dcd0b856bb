"""What every benchmark shares: rounds, medians, and a table that names machine and versions.

Rule: our code and its peer are measured in the same run, interleaved, and only ratios are claimed.
A benchmark is a module with ``main(arguments)``; ``python -m benchmarks NAME`` runs it and
``python -m benchmarks`` runs them all. ``--json FILE`` keeps the rows for the docs.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_GOAL = re.compile(r"(>=|<=|<) ([\d.,]+)(x?)")


@dataclass(frozen=True)
class Row:
    """One measured number: ours, the peer's, and what was to be reached.

    A goal is written like ``>= 3x`` for the ratio to the peer or ``<= 150`` for our own number in
    the unit of the row; ``>= 3x and >= 4,000,000`` asks for both.
    """

    what: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    goal: str = ""
    higher_is_better: bool = True

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer."""
        if not self.peer or not self.ours:
            return None
        return self.ours / self.peer if self.higher_is_better else self.peer / self.ours

    @property
    def is_met(self) -> bool:
        """Whether every part of the goal was reached; a ratio without its peer is not asked for."""
        return all(self._reaches(part) for part in self.goal.split(" and ") if self.goal)

    def _reaches(self, part: str) -> bool:
        found = _GOAL.fullmatch(part)
        if found is None:
            raise ValueError(f"goal {part!r} is not like '>= 3x', '>= 10' or '<= 0.5'")
        sign, bound = found[1], float(found[2].replace(",", ""))
        number = self.ratio if found[3] else self.ours
        if number is None:
            return True
        return number >= bound if sign == ">=" else number <= bound


@dataclass
class Report:
    """The rows of one benchmark."""

    name: str
    packages: Sequence[str] = ()
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Keep a row and show it at once: long benchmarks should show life."""
        self.rows.append(row)
        print(_line(row), flush=True)

    def finish(self, json_file: str | None = None) -> None:
        """Print where this was measured; keep it in ``json_file`` in place of an earlier run."""
        print(f"  on {machine()}; {', '.join(versions(self.packages))}")
        if json_file:
            entry = {
                "name": self.name,
                "machine": machine(),
                "versions": versions(self.packages),
                "rows": [
                    {**asdict(row), "ratio": row.ratio, "is_met": row.is_met} for row in self.rows
                ],
            }
            path = Path(json_file)
            lines = path.read_text().splitlines() if path.exists() else []
            kept = [line for line in lines if json.loads(line)["name"] != self.name]
            path.write_text("\n".join([*kept, json.dumps(entry)]) + "\n")


def _line(row: Row) -> str:
    text = f"  {row.what:58} {row.ours:>12,.4g} {row.unit}"
    if row.peer is not None:
        text += f"  {row.peer_name} {row.peer:,.4g}"
    if row.ratio is not None:
        text += f"  ({row.ratio:.1f}x)"
    if row.goal:
        text += f"  goal {row.goal}{'' if row.is_met else ', NOT MET'}"
    return text


def machine() -> str:
    """Processor, cores and Python, in one line."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}"


def versions(packages: Iterable[str]) -> list[str]:
    """Installed versions, ours first."""
    found = []
    for name in ("shoal", *packages):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} absent")
    return found


def medians(
    contestants: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 5,
    clock: Callable[[], float] = time.thread_time,
) -> dict[str, float]:
    """Median seconds of each contestant, measured in turns so that noise hits all alike.

    ``time.thread_time`` counts CPU, which a busy neighbour does not change; give
    ``time.perf_counter`` for work that other processes or threads do.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    for _ in range(rounds):
        for name, run in contestants.items():
            before = clock()
            run()
            taken[name].append(clock() - before)
    return {name: statistics.median(times) for name, times in taken.items()}


def json_argument(arguments: Sequence[str]) -> str | None:
    """The file after ``--json``, if given."""
    if "--json" in arguments:
        position = list(arguments).index("--json") + 1
        if position >= len(arguments):
            sys.exit("--json needs a file name")
        return arguments[position]
    return None
