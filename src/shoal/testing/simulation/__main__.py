"""``python -m shoal.testing.simulation``: run seeds, report, and say how to see a failure again.

make simulate                       seeds until a minute is over
make simulate SECONDS_TO_RUN=3600   until an hour is over
make simulate SEED=7                one seed, with its faults and its last events if it fails
make simulate SEED=7 ARGS=--shrink  and the smallest list of faults that still breaks it
make simulate ARGS=--clients        whole clients, bytes and all, instead of bare group members,
                                    and producers beside them
make simulate ARGS=--producers      producers and the broker they send to, alone
make simulate ARGS=--transactions   transactional producers, pipelines and readers, and their broker
make simulate ARGS=--sinks          a streaming query that writes exactly once, and its broker
make simulate ARGS="--consumer-groups --events 100000000 --processes 2 --ledger runs.jsonl"
                                    groups of the new protocol until there were so many events, on
                                    two cores; said again, it goes on behind the last seed
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from shoal.testing.simulation.kinds import KINDS, Kind
from shoal.testing.simulation.producer_swarm import SendReport
from shoal.testing.simulation.seed_runs import SeedLedger, SeedOrder, Totals, run_seeds
from shoal.testing.simulation.shrinking import failure_of, shrink
from shoal.testing.simulation.simulator import Report, repeat_command
from shoal.testing.simulation.sink_swarm import SinkReport
from shoal.testing.simulation.transaction_swarm import TransactionReport

_PROGRESS_SECONDS = 10.0


def describe(report: Report, cpu_seconds: float) -> str:
    rate = report.events / cpu_seconds if cpu_seconds else 0.0
    hours = report.simulated_ms / 3_600_000
    faults: list[Enum] = [*report.faults, *report.sending.faults, *report.transactions.faults]
    faults += report.sinks.faults
    width = max((len(kind.name) for kind in faults), default=0)
    lines = [
        f"{report.seeds:,} seeds, {report.events:,} events, {hours:,.1f} simulated hours, "
        f"{report.generations:,} generations",
        f"{rate:,.0f} events per CPU second; slowest healing {report.slowest_healing_ms:,} ms; "
        f"{report.late_messages:,} messages arrived on connections that were gone",
        *_describe_sending(report.sending),
        *_describe_transactions(report.transactions),
        *_describe_sinks(report.sinks),
        "faults:",
        *_describe_faults(report.faults, width),
        *_describe_faults(report.sending.faults, width),
        *_describe_faults(report.transactions.faults, width),
        *_describe_faults(report.sinks.faults, width),
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


def _describe_transactions(done: TransactionReport) -> list[str]:
    if not done.begun:
        return []
    return [
        f"{done.begun:,} transactions: {done.committed:,} committed, {done.aborted:,} aborted; "
        f"{done.copied:,} records copied exactly once, {done.read:,} read as committed",
        f"{done.fenced:,} producers fenced; {done.restarts:,} restarts of their broker; "
        f"{done.late_messages:,} messages to it arrived on connections that were gone; "
        f"{done.compactions:,} rounds of compaction",
    ]


def _describe_sinks(done: SinkReport) -> list[str]:
    if not done.runs:
        return []
    return [
        f"{done.batches:,} micro-batches with {done.rows:,} rows, written exactly once by "
        f"{done.runs:,} drivers and {done.attempts:,} attempts of tasks",
        f"{done.decisions:,} decisions, {done.revisions:,} of them revised; {done.conflicts:,} "
        f"drivers refused; {done.restarts:,} restarts of their broker",
    ]


def _describe_faults(faults: Mapping[Any, int], width: int) -> list[str]:
    return [
        f"  {kind.name:{width}}  {count:>9,}  {kind.value}"
        for kind, count in sorted(faults.items(), key=lambda entry: str(entry[0].name))
    ]


def run_many(order: SeedOrder, *, processes: int, ledger: SeedLedger | None, quiet: bool) -> int:
    """Seeds until it is enough. What goes wrong is told at once, and the others go on."""
    told = time.monotonic()
    shown = 0

    def progress(totals: Totals) -> None:
        nonlocal told, shown
        for text in totals.violations[shown:]:
            print(text, file=sys.stderr)
        if len(totals.violations) > shown or time.monotonic() - told > _PROGRESS_SECONDS:
            told, shown = time.monotonic(), len(totals.violations)
            if ledger is not None:
                ledger.keep(order.first, totals)
            if not quiet:
                report = totals.report
                print(f"... {report.seeds:,} seeds, {report.events:,} events", file=sys.stderr)

    totals = run_seeds(order, processes=processes, progress=progress)
    print(describe(totals.report, totals.cpu_seconds))
    print(f"seeds {order.first} to {totals.next_seed - 1}; go on with --first {totals.next_seed}")
    if ledger is not None:
        ledger.keep(order.first, totals)
        print(ledger.sum(order.first, totals))
    count = len(totals.violations)
    print(f"{count} violations" if count else "no invariant was broken")
    return 1 if count else 0


def run_one(seed: int, *, without: Sequence[int], shrinks: bool, kind: Kind) -> int:
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
    parser.add_argument("--first", type=int, help="the first of many seeds; 0 if nothing is said")
    parser.add_argument("--seeds", type=_at_least_one, help="how many seeds")
    parser.add_argument("--events", type=_at_least_one, help="until there were so many events")
    parser.add_argument(
        "--processes", type=_at_least_one, default=1, help="how many run seeds at once"
    )
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="go on behind the seeds of earlier runs in it, and sum them up",
    )
    parser.add_argument("--seconds", type=float, help="how long; 60 if nothing else is said")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--clients", action="store_true", help="whole clients, not only members")
    kinds.add_argument("--producers", action="store_true", help="producers and a broker, no group")
    kinds.add_argument(
        "--transactions", action="store_true", help="transactional producers, pipelines, readers"
    )
    kinds.add_argument(
        "--sinks", action="store_true", help="a streaming query that writes exactly once"
    )
    kinds.add_argument(
        "--consumer-groups", action="store_true", help="groups of the new protocol (KIP-848)"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")
    options = parser.parse_args(arguments)
    if options.seed is None and (options.without or options.shrink):
        parser.error("--without and --shrink are about one run: name it with --seed")
    chosen = [name for name in KINDS if name and getattr(options, name.replace("-", "_"))]
    name = chosen[0] if chosen else ""
    if options.seed is not None:
        kind = KINDS[name]()
        planned = len(kind.faults(options.seed))
        if any(not 0 <= number < planned for number in options.without):
            parser.error(f"--without: seed {options.seed} has the faults 0 to {planned - 1}")
        return run_one(options.seed, without=options.without, shrinks=options.shrink, kind=kind)
    try:
        ledger = SeedLedger(options.ledger, name) if options.ledger is not None else None
    except (ValueError, OSError) as error:
        parser.error(f"--ledger: {error}")
    seconds = options.seconds
    if seconds is None and options.seeds is None and options.events is None:
        seconds = 60.0
    first = options.first
    if first is None:
        first = ledger.next_seed if ledger is not None else 0
    order = SeedOrder(name, first, options.seeds, seconds, options.events)
    return run_many(order, processes=options.processes, ledger=ledger, quiet=options.quiet)


if __name__ == "__main__":
    sys.exit(main())
