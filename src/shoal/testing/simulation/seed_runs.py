"""Many seeds: on several processes, as long as wanted, summed over runs.

    totals = run_seeds(SeedOrder(kind="consumer-groups", first=0, seeds=1_000), processes=2)
    totals.next_seed        # where another run goes on

A seed that breaks an invariant is told and counted, and the others go on: the sum is of all that
were run. A ledger is a file with one line for each run; whoever names it begins behind the last
seed in it, and is told the sum of all its lines.

Rule: what is printed does not depend on the number of processes. Seeds are dealt out in blocks and
put together in their order.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.pool import AsyncResult
from pathlib import Path
from typing import Any, Final

from shoal.testing.simulation.kinds import KINDS
from shoal.testing.simulation.simulator import Report

VIOLATIONS_MAX: Final = 10
"""After this many, the rest would say nothing new."""
_BLOCK: Final = 8
"""Seeds that a process takes at once."""
_GARBAGE_THRESHOLD: Final = 50_000
"""A simulation makes much and little of it in circles: look for those less often than usual."""


@dataclass(frozen=True, slots=True)
class SeedOrder:
    """Which seeds, and when it is enough: whatever comes first."""

    kind: str
    first: int = 0
    seeds: int | None = None
    seconds: float | None = None
    events: int | None = None


@dataclass(slots=True)
class Totals:
    """What was run. ``next_seed`` is the first that was not."""

    next_seed: int
    report: Report = field(default_factory=Report)
    violations: list[str] = field(default_factory=list)
    """The text of each, which says how to see it again."""
    cpu_seconds: float = 0.0


Block = tuple[str, int, int]
"""A kind's name, and seeds from one to another."""
Outcome = tuple[Report, list[str], float]


def run_block(block: Block) -> Outcome:
    """Run the seeds of one block, in whatever process this is."""
    name, first, end = block
    kind = KINDS[name]()
    began = time.process_time()
    report = Report()
    violations = []
    for seed in range(first, end):
        try:
            report.add(kind.run(seed, without=()))
        except Exception:  # noqa: BLE001 - whatever a bug raises is what is looked for
            report.seeds += 1
            violations.append(traceback.format_exc())
    return report, violations, time.process_time() - began


def run_seeds(
    order: SeedOrder,
    *,
    processes: int = 1,
    progress: Callable[[Totals], None] = lambda _: None,
) -> Totals:
    """Run what was ordered; ``progress`` hears of every block that is done."""
    totals = Totals(order.first)
    with _outcomes(_blocks(order, totals), processes) as outcomes:
        for (_, _, end), (report, violations, cpu_seconds) in outcomes:
            totals.report.add(report)
            totals.violations += violations
            totals.cpu_seconds += cpu_seconds
            totals.next_seed = end
            progress(totals)
    return totals


def _blocks(order: SeedOrder, totals: Totals) -> Iterator[Block]:
    """As long as it is not enough."""
    began = time.monotonic()
    seed = order.first
    last = None if order.seeds is None else order.first + order.seeds
    while (
        (last is None or seed < last)
        and (order.seconds is None or time.monotonic() - began < order.seconds)
        and (order.events is None or totals.report.events < order.events)
        and len(totals.violations) < VIOLATIONS_MAX
    ):
        end = seed + _BLOCK if last is None else min(seed + _BLOCK, last)
        yield order.kind, seed, end
        seed = end


@contextmanager
def _outcomes(blocks: Iterator[Block], processes: int) -> Iterator[Iterator[tuple[Block, Outcome]]]:
    """In order. What was begun is waited for, so that no seed between two others is missing."""
    _tame_garbage()
    if processes == 1:
        yield ((block, run_block(block)) for block in blocks)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, _tame_garbage) as pool:
        yield _dealt(pool, blocks, ahead=2 * processes)


def _dealt(pool: Any, blocks: Iterator[Block], ahead: int) -> Iterator[tuple[Block, Outcome]]:
    begun: deque[tuple[Block, AsyncResult[Outcome]]] = deque()
    for block in blocks:
        begun.append((block, pool.apply_async(run_block, (block,))))
        if len(begun) >= ahead:
            first, outcome = begun.popleft()
            yield first, outcome.get()
    for block, outcome in begun:
        yield block, outcome.get()


def _tame_garbage() -> None:
    gc.set_threshold(_GARBAGE_THRESHOLD)


class SeedLedger:
    """The totals of runs, one line of JSON each; the line of a run is kept up to date."""

    def __init__(self, path: Path, kind: str) -> None:
        """
        Raises:
            ValueError: it is not a ledger, or one of another kind.
        """
        self._path = path
        self._kind = kind
        self._before = self._read()

    def _read(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        try:
            text = self._path.read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.splitlines()]
            kinds = {line["kind"] for line in lines}
            assert all(isinstance(line[name], int) for line in lines for name in _COUNTED)
        except (ValueError, LookupError, TypeError, AssertionError, UnicodeDecodeError):
            raise ValueError(f"{self._path} is not a ledger of simulated seeds") from None
        if kinds - {self._kind}:
            other = ", ".join(repr(each) for each in sorted(kinds))
            raise ValueError(f"{self._path} is a ledger of {other}, not of {self._kind!r}")
        return lines

    @property
    def next_seed(self) -> int:
        """Behind all that were run."""
        return max((int(line["next_seed"]) for line in self._before), default=0)

    def keep(self, first: int, totals: Totals) -> None:
        """Write what this run has come to; a reader sees the old file or the new one."""
        lines = [*self._before, self._line(first, totals)]
        draft = self._path.with_name(self._path.name + ".new")
        draft.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        draft.replace(self._path)

    def _line(self, first: int, totals: Totals) -> dict[str, Any]:
        return {
            "kind": self._kind,
            "first": first,
            "next_seed": totals.next_seed,
            "seeds": totals.report.seeds,
            "events": totals.report.events,
            "violations": len(totals.violations),
            "cpu_seconds": round(totals.cpu_seconds, 1),
            "trace": f"{totals.report.trace:08x}",
        }

    def sum(self, first: int, totals: Totals) -> str:
        """All runs, this one too, in one sentence."""
        lines = [*self._before, self._line(first, totals)]
        seeds, events, violations = (sum(line[name] for line in lines) for name in _COUNTED)
        cpu_seconds = sum(line["cpu_seconds"] for line in lines)
        return (
            f"{len(lines)} runs together: {seeds:,} seeds, {events:,} events, "
            f"{violations:,} violations, {cpu_seconds:,.0f} CPU seconds"
        )


_COUNTED: Final = ("seeds", "events", "violations")
