"""The sink's own driver and tasks, the real client and the real broker, Spark played: T14.

What these simulations found first: nothing in the sink; a planted bug for each rule shows that
they would.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation.blocking_caller import BlockingCaller
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.simulator import Report
from shoal.testing.simulation.sink_invariants import SinkWatcher
from shoal.testing.simulation.sink_simulator import SinkSimulation, simulate_sinks
from shoal.testing.simulation.sink_swarm import (
    PlannedSinkFault,
    SinkFault,
    SinkScenario,
    sink_faults,
    sink_scenario,
)

CI_SINK_SEEDS = 60


@pytest.fixture(autouse=True)
def _without_complaints() -> Any:
    logger = logging.getLogger("shoal")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)


@pytest.mark.slow
def test_sinks_break_no_invariant() -> None:
    total = Report()
    for seed in range(CI_SINK_SEEDS):
        total.add(simulate_sinks(seed))
    print(command.describe(total, 0.0))
    done = total.sinks
    assert set(done.faults) == set(SinkFault), "every kind of fault happened"
    assert done.runs > 2 * CI_SINK_SEEDS
    assert done.decisions >= 3 * CI_SINK_SEEDS
    assert min(done.revisions, done.conflicts) > 0, "transactions were lost, drivers were refused"


@pytest.mark.slow
def test_a_run_of_a_sink_repeats() -> None:
    first, second = simulate_sinks(3), simulate_sinks(3)
    assert (first.events, first.trace) == (second.events, second.trace)


def test_the_command_line_runs_sinks_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--sinks", "--seeds", "1", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "written exactly once by" in said
    assert "no invariant was broken" in said


def test_a_seed_draws_the_same_query_and_the_same_faults_every_time() -> None:
    assert sink_scenario(7) == sink_scenario(7)
    assert sink_faults(sink_scenario(7)) == sink_faults(sink_scenario(7))


# --- one query, made by hand ---------------------------------------------------------------------


def calm_query(**changes: Any) -> SinkScenario:
    fields: dict[str, Any] = {
        "seed": 1,
        "duration_ms": 2_000,
        "topics": {"out": 2, "__shoal_sink": 1, "__transaction_state": 2, "__consumer_offsets": 2},
        "configs": {"segment.bytes": "2000"},
        "durability": "group",
        "network_delay_ms": 5,
        "disk_delay_ms": 5,
        "rows": (3, 0, 2),
        "tasks": 2,
        "flow": 0,
        "timeout_ms": 3_000,
        "trigger_ms": 200,
        "fault_kinds": {},
    }
    return SinkScenario(**{**fields, **changes})


def run(scenario: SinkScenario, *faults: PlannedSinkFault) -> Any:
    simulation = SinkSimulation(scenario, faults)
    try:
        simulation.run()
    finally:
        simulation.stage.end()
    return simulation.sinks


@pytest.mark.parametrize("flow", [1, 2])
def test_a_calm_query_decides_each_micro_batch_with_rows_once(flow: int) -> None:
    world = run(calm_query(flow=flow))
    assert set(world.watcher.decided) == {(0, 0), (2, 0)}
    assert world.watcher.committed == {"0/0": 1, "0/1": 1, "0/2": 1, "2/0": 1, "2/1": 1}


@pytest.mark.parametrize("kind", SinkFault, ids=lambda kind: kind.name)
def test_every_fault_alone_breaks_nothing(kind: SinkFault) -> None:
    faults = [PlannedSinkFault(at, kind, at, 300) for at in (150, 301, 602)]
    world = run(calm_query(), *faults)
    assert world.counts[kind] == len(faults)


# --- the watcher itself --------------------------------------------------------------------------


def test_a_row_that_is_missing_or_too_many_in_the_end_is_noticed() -> None:
    watcher = SinkWatcher({0: ["0/0"]})
    with pytest.raises(Violation, match="lost"):
        watcher.judge()
    watcher.committed.update(["0/0", "0/9"])
    with pytest.raises(Violation, match="added"):
        watcher.judge()


# --- code that blocks, on a loop -----------------------------------------------------------------


def test_a_blocking_call_gets_what_the_loop_has_for_it() -> None:
    caller = BlockingCaller()

    async def answer() -> int:
        return 3

    async def refuse() -> int:
        raise KeyError("no")

    def work() -> int:
        with pytest.raises(KeyError):
            caller.ask(refuse)
        return caller.ask(answer) + 1

    assert asyncio.run(caller.run(work)) == 4
