"""``python -m shoal.testing.simulate``: run seeds, report, and say how to see a failure again.

make simulate                       seeds until a minute is over
make simulate SECONDS_TO_RUN=3600   until an hour is over
make simulate SEED=7                one seed, with its faults and its last events if it fails
make simulate SEED=7 ARGS=--shrink  and the smallest list of faults that still breaks it
make simulate ARGS=--clients        whole clients, bytes and all, instead of bare group members
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoal.testing import swarm
from shoal.testing.shrinking import Run, failure_of, shrink
from shoal.testing.simulator import Report, repeat_command, simulate

_PROGRESS_SECONDS = 10.0


class Kind(NamedTuple):
    """What is simulated, and in which world."""

    run: Run
    world: Callable[[int], swarm.Scenario]
    clients: bool


MEMBERS = Kind(simulate, swarm.scenario, clients=False)


def clients() -> Kind:
    """Slow to import: a whole client."""
    from shoal.testing import client_simulator

    return Kind(client_simulator.simulate_clients, client_simulator.scenario, clients=True)


def describe(report: Report, cpu_seconds: float) -> str:
    rate = report.events / cpu_seconds if cpu_seconds else 0.0
    hours = report.simulated_ms / 3_600_000
    kinds = sorted(report.faults.items(), key=lambda entry: entry[0].name)
    width = max((len(kind.name) for kind, _ in kinds), default=0)
    lines = [
        f"{report.seeds:,} seeds, {report.events:,} events, {hours:,.1f} simulated hours, "
        f"{report.generations:,} generations",
        f"{rate:,.0f} events per CPU second; slowest healing {report.slowest_healing_ms:,} ms; "
        f"{report.late_messages:,} messages arrived on connections that were gone",
        "faults:",
        *(f"  {kind.name:{width}}  {count:>9,}  {kind.value}" for kind, count in kinds),
        f"trace {report.trace:08x}",
    ]
    return "\n".join(lines)


def run_many(
    first: int, *, seeds: int | None, seconds: float | None, quiet: bool, kind: Kind = MEMBERS
) -> int:
    """Seeds from ``first`` on, until there were enough or the time is over."""
    total = Report()
    began, began_cpu = time.monotonic(), time.process_time()
    told = began
    seed = first
    while (seeds is None or seed < first + seeds) and (
        seconds is None or time.monotonic() - began < seconds
    ):
        try:
            total.add(kind.run(seed, without=()))
        except Exception:  # noqa: BLE001 - whatever a bug raises is what is looked for
            traceback.print_exc()
            return 1
        seed += 1
        if not quiet and time.monotonic() - told > _PROGRESS_SECONDS:
            told = time.monotonic()
            print(f"... {total.seeds:,} seeds, {total.events:,} events", file=sys.stderr)
    print(describe(total, time.process_time() - began_cpu))
    print("no invariant was broken")
    return 0


def run_one(seed: int, *, without: Sequence[int], shrinks: bool, kind: Kind = MEMBERS) -> int:
    if shrinks:
        return _run_shrunk(seed, kind)
    began_cpu = time.process_time()
    world = kind.world(seed)
    print(world)
    try:
        report = kind.run(seed, without=without)
    except Exception:  # noqa: BLE001 - whatever a bug raises is what is looked for
        for number, fault in enumerate(swarm.faults(world)):
            if number not in without:
                print(f"{number:4} {fault}")
        traceback.print_exc()
        return 1
    print(describe(report, time.process_time() - began_cpu))
    return 0


def _run_shrunk(seed: int, kind: Kind) -> int:
    smallest = shrink(
        seed,
        progress=lambda text: print(text, file=sys.stderr),
        failure_of=lambda seed, without: failure_of(seed, without, kind.run),
        world=kind.world,
    )
    if smallest is None:
        print(f"seed {seed} does not fail")
        return 0
    print(smallest.failure)
    for fault in smallest.needed:
        print(f"  {fault}")
    print(repeat_command(seed, smallest.without, clients=kind.clients))
    return 1


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument("--without", default="", help="numbers of faults to leave out")
    parser.add_argument("--shrink", action="store_true", help="leave out what is not needed")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=int, help="how many seeds")
    parser.add_argument("--seconds", type=float, help="how long; 60 if nothing else is said")
    parser.add_argument("--clients", action="store_true", help="whole clients, not only members")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    kind = clients() if options.clients else MEMBERS
    if options.seed is not None:
        without = [int(number) for number in options.without.split(",") if number]
        return run_one(options.seed, without=without, shrinks=options.shrink, kind=kind)
    seconds = options.seconds
    if seconds is None and options.seeds is None:
        seconds = 60.0
    return run_many(
        options.first, seeds=options.seeds, seconds=seconds, quiet=options.quiet, kind=kind
    )


if __name__ == "__main__":
    sys.exit(main())
