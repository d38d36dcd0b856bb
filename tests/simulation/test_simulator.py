"""The simulator: no invariant breaks, runs repeat exactly, failures can be made smaller."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation import swarm
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.shrinking import failure_of, kind_of, shrink
from shoal.testing.simulation.simulator import Report, Simulation, repeat_command, simulate
from shoal.testing.simulation.swarm import FaultKind
from tests.simulation.seeds import FOUND

ROOT = Path(__file__).resolve().parents[2]
CI_SEEDS = 200
CI_EVENTS = 3_000_000
CI_SECONDS = 120
CHUNK = 10


def run_chunk(first: int) -> Report:
    total = Report()
    for seed in range(first, first + CHUNK):
        total.add(simulate(seed))
    return total


@pytest.mark.slow
def test_the_budget_of_ci_breaks_no_invariant() -> None:
    began = time.process_time() + _children_time()
    total = Report()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        first = 0
        while total.seeds < CI_SEEDS or total.events < CI_EVENTS:
            chunks = [first, first + CHUNK]
            first += 2 * CHUNK
            for report in pool.map(run_chunk, chunks):
                total.add(report)
    spent = time.process_time() + _children_time() - began
    print(command.describe(total, spent))
    assert total.seeds >= CI_SEEDS
    assert total.events >= CI_EVENTS
    assert set(total.faults) == set(FaultKind), "every kind of fault happened"
    # Two cores have twice as many CPU seconds; a busy machine has no more of them.
    assert spent <= 2 * CI_SECONDS


def _children_time() -> float:
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: str(seed))
def test_a_seed_that_found_a_bug_finds_it_no_more(seed: int) -> None:
    simulate(seed)


@pytest.mark.slow
def test_a_run_is_the_same_under_every_hash_seed() -> None:
    script = "from shoal.testing.simulation.simulator import *; r = Report()\n"
    script += "for seed in range(8): r.add(simulate(seed))\nprint(r.events, r.trace)"
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "1", "4242")
    }
    assert len(answers) == 1


def test_another_seed_is_another_run() -> None:
    assert swarm.scenario(1) != swarm.scenario(2)
    assert swarm.faults(swarm.scenario(1)) != swarm.faults(swarm.scenario(2))
    assert swarm.faults(swarm.scenario(1)) == swarm.faults(swarm.scenario(1))


@pytest.mark.slow
def test_faults_can_be_left_out() -> None:
    drawn = swarm.faults(swarm.scenario(5))
    report = simulate(5, without=range(len(drawn)))
    assert report.faults.total() == 0
    assert report.generations >= 1


def test_a_failure_says_how_to_see_it_again() -> None:
    world = swarm.scenario(3)
    simulation = Simulation(world)
    # What a coordinator that forgets a generation would look like to the watcher.
    simulation.clock.at(20_000, lambda _: setattr(simulation.watcher.model, "generation", 10**6))
    with pytest.raises(Violation) as caught:
        simulation.run()
    assert caught.value.invariant in ("G2", "G4")
    assert list(simulation.notes)
    assert repeat_command(3) == "to see it again: make simulate SEED=3"
    assert repeat_command(3, {7, 2}).endswith('make simulate SEED=3 ARGS="--without 2,7"')


@pytest.mark.parametrize("needed", [{3}, {0, 17}, {5, 6, 7}])
def test_a_shrunk_failure_has_no_fault_it_does_not_need(needed: set[int]) -> None:
    def fails(seed: int, without: Collection[int]) -> BaseException | None:
        if needed & set(without):
            # Another failure is not the one that is looked for.
            return ValueError() if len(without) % 3 == 0 else None
        return Violation("G1", f"{seed}")

    told: list[str] = []
    smallest = shrink(1, progress=told.append, failure_of=fails)
    drawn = swarm.faults(swarm.scenario(1))
    assert smallest is not None
    assert smallest.needed == tuple(drawn[number] for number in sorted(needed))
    assert smallest.without == set(range(len(drawn))) - needed
    assert told[-1] == f"{len(needed)} faults left"


def test_a_failure_that_needs_no_fault_is_shrunk_to_none() -> None:
    smallest = shrink(1, failure_of=lambda seed, without: KeyError("always"))
    assert smallest is not None
    assert smallest.needed == ()
    assert kind_of(KeyError()) == "KeyError"


@pytest.mark.slow
def test_a_seed_that_does_not_fail_cannot_be_shrunk() -> None:
    assert failure_of(2) is None
    assert shrink(2) is None


@pytest.mark.slow
def test_the_command_line_runs_seeds_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--seeds", "2", "--first", "7", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "2 seeds" in shown
    assert "no invariant was broken" in shown
    assert command.main(["--seed", "2", "--without", "0,1"]) == 0
    assert "trace" in capsys.readouterr().out
    assert command.main(["--seed", "2", "--shrink"]) == 0
    assert "does not fail" in capsys.readouterr().out
    assert command.main(["--seconds", "0"]) == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--seeds 0", "'0' is not a number of at least 1"),
        ("--seed 1 --without 3;4", "'3;4' is not like 3,17"),
        ("--seed 1 --without 99999", "seed 1 has the faults 0 to "),
        ("--without 3", "name it with --seed"),
        ("--shrink", "name it with --seed"),
        ("--clients --producers", "not allowed with"),
    ],
)
def test_what_cannot_be_simulated_is_refused(
    arguments: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments.split())
    assert ended.value.code == 2
    assert told in capsys.readouterr().err
