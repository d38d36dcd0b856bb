"""Real clients in simulated worlds: what holds for bare members holds for everything around them.

What these simulations found first, each with a test of its own:

* a revocation callback that raised left the partition to be read on
* an automatic commit that took longer than its interval kept a poll spinning
* ``close`` and ``commit_sync`` waited for the time of earlier commits, not their own
* ``unsubscribe`` that was woken had left half of the group
* an asynchronous commit of nothing was sent to the coordinator
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Coroutine
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import pytest

from shoal.errors import RebalanceListenerError, WakeupError
from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation import swarm
from shoal.testing.simulation.client_simulator import ClientSimulation, scenario, simulate_clients
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.simulated_client import SimulatedClient
from shoal.testing.simulation.simulator import Report
from shoal.testing.simulation.swarm import FaultKind

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 40
CHUNK = 10


@pytest.fixture(autouse=True)
def _without_the_clients_complaints() -> Any:
    logger = logging.getLogger("shoal.client")
    before, logger.disabled = logger.level, False
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def run_chunk(first: int) -> Report:
    logging.getLogger("shoal.client").setLevel(logging.CRITICAL)
    total = Report()
    for seed in range(first, first + CHUNK):
        total.add(simulate_clients(seed))
    return total


@pytest.mark.slow
def test_whole_clients_break_no_invariant() -> None:
    total = Report()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for report in pool.map(run_chunk, range(0, SEEDS, CHUNK)):
            total.add(report)
    print(command.describe(total, 0.0))
    assert total.seeds == SEEDS
    assert set(total.faults) == set(FaultKind), "every kind of fault happened"
    assert total.generations > 5 * SEEDS


@pytest.mark.slow
def test_a_run_with_clients_is_the_same_under_every_hash_seed() -> None:
    script = "import logging; logging.disable(logging.CRITICAL)\n"
    script += "from shoal.testing.simulation.client_simulator import *; r = Report()\n"
    script += "for seed in range(6): r.add(simulate_clients(seed))\nprint(r.events, r.trace)"
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


@pytest.mark.slow
def test_the_command_line_runs_clients_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--clients", "--seeds", "2", "--quiet"]) == 0
    assert "no invariant was broken" in capsys.readouterr().out
    assert command.main(["--clients", "--seed", "2", "--shrink"]) == 0
    assert "does not fail" in capsys.readouterr().out


# --- a world without faults, driven by hand ------------------------------------------------------


class World:
    """One client in a calm world; its user does only what the test says."""

    def __init__(self, *, auto_commit: bool = True) -> None:
        # Seed 2 of a swarm is as good as any other: what matters is set here.
        quiet = swarm.scenario(2)
        self.simulation = ClientSimulation(
            replace(
                quiet,
                members=0,
                topics={"t0": 2},
                uses_pattern=False,
                static_share=0.0,
                assignors=("range",),
                mixed_assignors=("range",),
                auto_commit_share=float(auto_commit),
                network_delay_ms=5,
                disk_delay_ms=0,
            )
        )
        self.simulation.start_consumer()
        (self.client,) = self.simulation.started

    def __enter__(self) -> Self:
        self.run(20_000)
        return self

    def __exit__(self, *_: object) -> None:
        self.simulation.end()

    def run(self, milliseconds: int) -> None:
        self.simulation.run_until(self.simulation.clock.now_ms + milliseconds)

    @property
    def requests(self) -> list[str]:
        return [note.split(maxsplit=1)[1] for note in self.simulation.notes]

    def settle(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Let the client do something else than poll, and wait for it."""
        task = self.simulation.loop.create_task(work, context=self.client.engine.context)
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        while not task.done():
            self.run(50)
        return task.result()


def stop(client: SimulatedClient) -> None:
    """The user goes for a walk; what the test does with the session is all that happens."""
    client.stalled_until_ms = 10**9


def test_a_client_reads_what_is_there_and_commits_it() -> None:
    with World() as world:
        topics, committed = world.simulation.topics, world.simulation.watcher.committed
        for tp, end in topics.ends.items():
            assert committed[tp][0] > 0.8 * end > 0
        assert world.client.owned == set(topics.ends)


def test_what_a_failed_callback_revoked_is_read_no_more() -> None:
    with World() as world:
        client, session = world.client, world.client.session
        stop(client)
        world.run(2_000)
        client.stalled_until_ms = 0
        client.next_callback_raises = True
        with pytest.raises(RebalanceListenerError):
            world.settle(session.unsubscribe())
        assert not session.positions.partitions()
        assert session.reader.take(10) == []


def test_a_woken_unsubscribe_has_changed_nothing_and_can_be_repeated() -> None:
    with World() as world:
        client, session = world.client, world.client.session
        stop(client)
        world.run(2_000)
        client.stalled_until_ms = 0
        owned = session.positions.partitions()
        client.next_callback_is_woken = True
        with pytest.raises(WakeupError):
            world.settle(session.unsubscribe())
        assert session.positions.partitions() == owned
        assert session.subscription() == {"t0"}
        world.settle(session.unsubscribe())
        assert session.subscription() == frozenset()
        assert any("LeaveGroup" in each for each in world.requests)


@pytest.mark.parametrize("timeout_s", [0.5, 2.0])
def test_a_commit_waits_no_longer_than_it_may_for_earlier_ones(timeout_s: float) -> None:
    with World(auto_commit=False) as world:
        simulation, session = world.simulation, world.client.session
        stop(world.client)
        world.run(2_000)
        simulation.cluster.crash(kept=0, down_ms=20_000, moves=False)
        world.settle(session.commit_async(None, None))
        began_ms = simulation.clock.now_ms
        with pytest.raises(Exception, match="commit did not succeed within"):
            world.settle(session.commit_sync(None, timeout_s))
        assert simulation.clock.now_ms - began_ms <= timeout_s * 1000 + 150


def test_an_automatic_commit_that_takes_long_does_not_keep_a_poll_busy() -> None:
    with World() as world:
        simulation, session = world.simulation, world.client.session
        simulation.cluster.pause(8_000)
        world.run(1_500)
        stop(world.client)
        world.run(1_500)
        before = simulation.loop.steps
        world.settle(session.prepare(2.0))
        assert simulation.loop.steps - before < 500


def test_a_commit_of_nothing_is_no_request() -> None:
    with World(auto_commit=False) as world:
        session = world.client.session
        stop(world.client)
        world.run(2_000)
        told: list[Exception | None] = []
        before = len(world.requests)
        world.settle(session.commit_async({}, lambda _, error: told.append(error)))
        world.settle(session.prepare(0.1))
        assert told == [None]
        assert not [each for each in world.requests[before:] if "OffsetCommit" in each]


def test_a_user_who_gets_anything_wrong_says_so() -> None:
    with World() as world:
        tp = next(iter(world.simulation.topics.ends))
        world.client._next[tp] = 10**6
        with pytest.raises(Violation, match="C1"):
            world.run(10_000)


def test_a_smaller_world_has_the_faults_of_its_seed() -> None:
    world = scenario(7)
    assert world.duration_ms < swarm.scenario(7).duration_ms
    assert world.fault_kinds == swarm.scenario(7).fault_kinds
    assert all(fault.at_ms < world.duration_ms for fault in swarm.faults(world))
