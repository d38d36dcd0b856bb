"""The group simulator: events per CPU second, with faults, invariants checked.

Peer: none; Apache Kafka has no simulator for groups. Goal: at least 50,000 per core.

    python -m benchmarks simulator
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks.measuring import Report, Row, json_argument
from shoal.testing.simulation.simulator import Report as Run
from shoal.testing.simulation.simulator import simulate

SEEDS = 40
ROUNDS = 5


def run(first: int) -> tuple[float, Run]:
    """Events per CPU second over some seeds."""
    total = Run()
    before = time.process_time()
    for seed in range(first, first + SEEDS):
        total.add(simulate(seed))
    return total.events / (time.process_time() - before), total


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and print."""
    report = Report("simulator", packages=("numpy",))
    simulate(0)
    rounds = [run(SEEDS * number) for number in range(ROUNDS)]
    rates = [rate for rate, _ in rounds]
    whole = Run()
    for _, each in rounds:
        whole.add(each)
    what = f"group events with faults, {whole.events:,} of {whole.seeds} seeds"
    report.add(Row(what, "/s CPU", statistics.median(rates), goal=">= 50,000"))
    hours = whole.simulated_ms / 3_600_000
    spent = sum(each.events / rate for rate, each in rounds)
    report.add(Row(f"simulated time, {hours:.1f} hours", "x real", hours * 3_600 / spent))
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
