"""Runs the simulator against a planted bug: ``python -m tests.simulation.mutation NAME --seeds N``.

The patch is applied to the source while it is imported, so this must happen before anything of
Shoal is. The process ends with 0 if the bug was noticed and with 1 if it was not.

``--all`` and ``--producers`` run the whole gate, a process per mutant, and print what escaped.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import logging
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.producer_mutants import PRODUCER_MUTANTS

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
CI_SEEDS = 260
"""About three million events."""
CI_PRODUCER_SEEDS = 60
"""Of the simulations that look for planted bugs on the way of a record into the log."""

CONTROL = Mutant("nothing", "shoal/group/member.py", "class Member:", "class Member:")
"""Whatever is noticed of this is no planted bug."""
PRODUCER_CONTROL = Mutant(
    "nothing in the log", "shoal/log/producers.py", "class Producers:", "class Producers:"
)


def patched(mutant: Mutant) -> bytes:
    text = (SOURCE / mutant.file).read_text()
    found = text.count(mutant.old)
    if found != 1:
        raise LookupError(f"{mutant.name}: its place in {mutant.file} was found {found} times")
    return text.replace(mutant.old, mutant.new).encode()


def plant(mutant: Mutant) -> None:
    """From now on, importing the file gives the patched one."""
    assert not any(name.startswith("shoal") for name in sys.modules), "too late"
    target, source = str(SOURCE / mutant.file), patched(mutant)
    original = importlib.machinery.SourceFileLoader.get_data
    # Compiled files are found by the source's time, which does not change: look nowhere.
    sys.dont_write_bytecode = True
    sys.pycache_prefix = "/nowhere"

    def get_data(self: importlib.machinery.SourceFileLoader, path: str) -> bytes:
        return source if path == target else original(self, path)

    importlib.machinery.SourceFileLoader.get_data = get_data  # type: ignore[method-assign]  # that is how the bug is planted


def hunt(mutant: Mutant, seeds: Iterable[int]) -> str | None:
    """How the bug showed itself, or ``None``."""
    plant(mutant)
    run: Any
    if mutant in PRODUCER_MUTANTS or mutant == PRODUCER_CONTROL:
        logging.disable(logging.CRITICAL)
        from shoal.testing.producer_simulator import simulate_producers as run
    else:
        from shoal.testing.simulator import simulate as run

    for seed in seeds:
        try:
            run(seed)
        except Exception as finding:
            return f"seed {seed}: {type(finding).__name__}: {str(finding)[:100]}"
    return None


class Result(NamedTuple):
    mutant: Mutant
    finding: str | None
    seconds: float


def run_apart(mutant: Mutant, seeds: int) -> Result:
    """In a process of its own."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "tests.simulation.mutation", mutant.name]
    done = subprocess.run(
        [*command, "--seeds", str(seeds)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    finding = done.stdout.strip() if done.returncode == 0 else None
    return Result(mutant, finding, time.perf_counter() - started)


def gate(mutants: Iterable[Mutant], seeds: int, *, workers: int = 2) -> list[Result]:
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda mutant: run_apart(mutant, seeds), mutants))


def report(results: list[Result]) -> str:
    lines = [
        f"{'caught ' if each.finding else 'ESCAPED'} {each.seconds:6.1f} s  {each.mutant.name}"
        + (f"\n                   {each.finding}" if each.finding else "")
        for each in results
    ]
    caught = sum(each.finding is not None for each in results)
    lines.append(f"{caught} of {len(results)} planted bugs were noticed")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--all", action="store_true", help="those of groups")
    parser.add_argument("--producers", action="store_true", help="all those of producers")
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    if options.all or options.producers:
        chosen: Iterable[Mutant] = MUTANTS
        control, seeds = CONTROL, options.seeds or CI_SEEDS
        if options.producers:
            chosen, control = PRODUCER_MUTANTS, PRODUCER_CONTROL
            seeds = options.seeds or CI_PRODUCER_SEEDS
        assert run_apart(control, seeds).finding is None, "the code itself fails"
        results = gate(chosen, seeds)
        print(report(results))
        return int(any(each.finding is None for each in results))
    everything = (*MUTANTS, CONTROL, *PRODUCER_MUTANTS, PRODUCER_CONTROL)
    (mutant,) = (each for each in everything if each.name == options.name)
    finding = hunt(mutant, range(options.seeds or CI_SEEDS))
    print(finding or "nothing noticed")
    return int(finding is None)


if __name__ == "__main__":
    sys.exit(main())
