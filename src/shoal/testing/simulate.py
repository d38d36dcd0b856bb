"""``python -m shoal.testing.simulate``: run seeds, report, and say how to see a failure again.

make simulate                       seeds until a minute is over
make simulate SECONDS_TO_RUN=3600   until an hour is over
make simulate SEED=7                one seed, with its faults and its last events if it fails
make simulate SEED=7 ARGS=--shrink  and the smallest list of faults that still breaks it
make simulate ARGS=--clients        whole clients, bytes and all, instead of bare group members,
                                    and producers beside them
make simulate ARGS=--producers      producers and the broker they send to, alone
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple

from shoal.testing import swarm
from shoal.testing.producer_swarm import SendReport
from shoal.testing.shrinking import Run, failure_of, shrink
from shoal.testing.simulator import Report, repeat_command, simulate

_PROGRESS_SECONDS = 10.0


class Kind(NamedTuple):
    """What is simulated, in which world, and what goes wrong there."""

    name: str
    run: Run
    world: Callable[[int], object]
    faults: Callable[[int], Sequence[object]]


MEMBERS = Kind("", simulate, swarm.scenario, lambda seed: swarm.faults(swarm.scenario(seed)))


def clients() -> Kind:
    """Slow to import: a whole client, and a broker."""
    from shoal.testing import client_simulator

    _silence()
    return Kind(
        "clients",
        client_simulator.simulate_clients,
        client_simulator.worlds,
        client_simulator.planned_faults,
    )


def producers() -> Kind:
    from shoal.testing import producer_simulator, producer_swarm

    _silence()
    return Kind(
        "producers",
        producer_simulator.simulate_producers,
        producer_swarm.send_scenario,
        lambda seed: producer_swarm.send_faults(producer_swarm.send_scenario(seed)),
    )


def _silence() -> None:
    """Clients and brokers complain about every fault, as they should."""
    logging.getLogger("shoal").setLevel(logging.CRITICAL + 1)


def describe(report: Report, cpu_seconds: float) -> str:
    rate = report.events / cpu_seconds if cpu_seconds else 0.0
    hours = report.simulated_ms / 3_600_000
    faults: list[Enum] = [*report.faults, *report.sending.faults]
    width = max((len(kind.name) for kind in faults), default=0)
    lines = [
        f"{report.seeds:,} seeds, {report.events:,} events, {hours:,.1f} simulated hours, "
        f"{report.generations:,} generations",
        f"{rate:,.0f} events per CPU second; slowest healing {report.slowest_healing_ms:,} ms; "
        f"{report.late_messages:,} messages arrived on connections that were gone",
        *_describe_sending(report.sending),
        "faults:",
        *_describe_faults(report.faults, width),
        *_describe_faults(report.sending.faults, width),
        f"trace {report.trace:08x}",
    ]
    return "\n".join(lines)


def _describe_sending(sending: SendReport) -> list[str]:
    if not sending.producers:
        return []
    return [
        f"{sending.producers:,} producers: {sending.acknowledged:,} records acknowledged, "
        f"{sending.failed:,} failed, {sending.stored:,} stored, {sending.duplicates:,} of them "
        "again (without idempotence)",
        f"{sending.restarts:,} restarts of their broker; {sending.late_messages:,} messages "
        "to it arrived on connections that were gone",
    ]


def _describe_faults(faults: Mapping[Any, int], width: int) -> list[str]:
    return [
        f"  {kind.name:{width}}  {count:>9,}  {kind.value}"
        for kind, count in sorted(faults.items(), key=lambda entry: str(entry[0].name))
    ]


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
    print(kind.world(seed))
    try:
        report = kind.run(seed, without=without)
    except Exception:  # noqa: BLE001 - whatever a bug raises is what is looked for
        for number, fault in enumerate(kind.faults(seed)):
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
        faults=kind.faults,
    )
    if smallest is None:
        print(f"seed {seed} does not fail")
        return 0
    print(smallest.failure)
    for fault in smallest.needed:
        print(f"  {fault}")
    print(repeat_command(seed, smallest.without, kind=kind.name))
    return 1


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(number) for number in text.split(",") if number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not like 3,17") from None


def _at_least_one(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seed", type=int, help="run this one")
    parser.add_argument(
        "--without", type=_numbers, default=(), help="numbers of faults to leave out, 3,17"
    )
    parser.add_argument("--shrink", action="store_true", help="leave out what is not needed")
    parser.add_argument("--first", type=int, default=0, help="the first of many seeds")
    parser.add_argument("--seeds", type=_at_least_one, help="how many seeds")
    parser.add_argument("--seconds", type=float, help="how long; 60 if nothing else is said")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--clients", action="store_true", help="whole clients, not only members")
    kinds.add_argument("--producers", action="store_true", help="producers and a broker, no group")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    if options.seed is None and (options.without or options.shrink):
        parser.error("--without and --shrink are about one run: name it with --seed")
    kind = clients() if options.clients else producers() if options.producers else MEMBERS
    if options.seed is not None:
        planned = len(kind.faults(options.seed))
        if any(not 0 <= number < planned for number in options.without):
            parser.error(f"--without: seed {options.seed} has the faults 0 to {planned - 1}")
        return run_one(options.seed, without=options.without, shrinks=options.shrink, kind=kind)
    seconds = options.seconds
    if seconds is None and options.seeds is None:
        seconds = 60.0
    return run_many(
        options.first, seeds=options.seeds, seconds=seconds, quiet=options.quiet, kind=kind
    )


if __name__ == "__main__":
    sys.exit(main())
