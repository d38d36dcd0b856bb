"""Real producers and the real broker in simulated worlds: C10, whatever goes wrong.

What these simulations found first, each with a test of its own or a planted bug:

* a record whose answer was lost went again under another producer id, and was stored twice
* a batch that was given up arrived late, behind what had been sent after it (``partition_queue``)
* records for a topic that was being deleted failed with a KeyError
* while there was no producer id, or no connection, delivery_timeout_ms did not count
* a power cut right after a roll left a hole that was never promised (``test_directory``)
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.client.producer_batch import ProducerBatch
from shoal.client.sender import Sender
from shoal.errors import RetriableError
from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.producer_invariants import Deliveries, Promise, value_of
from shoal.testing.simulation.producer_simulator import ProducerSimulation, simulate_producers
from shoal.testing.simulation.producer_swarm import (
    PlannedFault,
    SendFault,
    SendScenario,
    SimulatedProducerSettings,
    send_faults,
    send_scenario,
)
from shoal.testing.simulation.simulator import Report
from shoal.types import TopicPartition

ROOT = Path(__file__).resolve().parents[2]
CI_PRODUCER_SEEDS = 60
CHUNK = 20


@pytest.fixture(autouse=True)
def _without_complaints() -> Any:
    logger = logging.getLogger("shoal")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    yield
    logger.setLevel(before)


def run_chunk(first: int) -> Report:
    logging.disable(logging.CRITICAL)
    total = Report()
    for seed in range(first, first + CHUNK):
        total.add(simulate_producers(seed))
    return total


@pytest.mark.slow
def test_producers_break_no_promise() -> None:
    total = Report()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for report in pool.map(run_chunk, range(0, CI_PRODUCER_SEEDS, CHUNK)):
            total.add(report)
    print(command.describe(total, 0.0))
    assert total.seeds == CI_PRODUCER_SEEDS
    assert set(total.sending.faults) == set(SendFault), "every kind of fault happened"
    assert total.sending.acknowledged > 300 * CI_PRODUCER_SEEDS
    assert total.sending.failed > 0
    assert total.sending.duplicates > 0, "without idempotence there are some"
    assert total.sending.late_messages > 0


@pytest.mark.slow
def test_a_run_with_producers_is_the_same_under_every_hash_seed() -> None:
    script = "import logging; logging.disable(logging.CRITICAL)\n"
    script += "from shoal.testing.simulation.producer_simulator import *; r = Report()\n"
    script += "for seed in range(6): r.add(simulate_producers(seed))\nprint(r.events, r.trace)"
    answers = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("0", "4242")
    }
    assert len(answers) == 1


@pytest.mark.slow
def test_the_command_line_runs_producers(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--producers", "--seeds", "2", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "records acknowledged" in told
    assert "no invariant was broken" in told
    assert command.main(["--producers", "--seed", "1", "--shrink"]) == 0
    assert "does not fail" in capsys.readouterr().out


def test_a_failure_says_how_to_see_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Report:
        raise Violation("C10", "planted")

    monkeypatch.setattr(ProducerSimulation, "run", fail)
    with pytest.raises(Violation) as caught:
        simulate_producers(3, without=[1, 2])
    notes = "\n".join(caught.value.__notes__)
    assert 'make simulate SEED=3 ARGS="--producers --without 1,2"' in notes


def test_faults_come_in_order_and_from_the_seed_alone() -> None:
    world = send_scenario(7)
    drawn = send_faults(world)
    assert drawn == send_faults(send_scenario(7))
    assert [fault.at_ms for fault in drawn] == sorted(fault.at_ms for fault in drawn)
    assert all(fault.at_ms < world.duration_ms for fault in drawn)


# --- worlds with one fault, on purpose -----------------------------------------------------------


def calm_world(*, acks: str = "all") -> SendScenario:
    settings = SimulatedProducerSettings(
        acks=acks,
        max_in_flight=5,
        linger_ms=0,
        batch_size=1,
        request_timeout_ms=1_000,
        delivery_timeout_ms=30_000,
        retries=1_000,
        compression="none",
        send_interval_ms=50,
        prebuilt_share=0.2,
    )
    return SendScenario(
        seed=1,
        duration_ms=4_000,
        topics={"p0": 2},
        configs={"segment.bytes": "2000"},
        durability="group",
        network_delay_ms=5,
        disk_delay_ms=5,
        producers=(settings,),
        fault_kinds={},
    )


def run(scenario: SendScenario, *faults: PlannedFault) -> Report:
    simulation = ProducerSimulation(scenario, faults)
    try:
        return simulation.run()
    finally:
        simulation.stage.end()


def test_in_a_calm_world_everything_is_stored_once() -> None:
    sending = run(calm_world()).sending
    assert sending.failed == sending.duplicates == 0
    assert sending.acknowledged == sending.stored > 100


@pytest.mark.parametrize("kind", SendFault, ids=lambda kind: kind.name)
def test_every_fault_alone_leaves_idempotent_producers_without_duplicates(kind: SendFault) -> None:
    faults = [PlannedFault(at_ms, kind, at_ms, 300) for at_ms in (900, 1_501, 2_302)]
    sending = run(calm_world(), *faults).sending
    assert sending.faults[kind] == len(faults)
    assert sending.duplicates == 0
    assert sending.acknowledged > 50


def test_a_lost_answer_is_a_duplicate_only_without_idempotence() -> None:
    faults = [
        PlannedFault(at_ms, SendFault.SEND_LOST_ANSWER, 0, 0) for at_ms in (900, 1_500, 2_300)
    ]
    assert run(calm_world(acks="1"), *faults).sending.duplicates > 0
    assert run(calm_world(acks="all"), *faults).sending.duplicates == 0


# --- the watcher itself --------------------------------------------------------------------------

TP = TopicPartition("t", 0)


def watched(*numbers: int, is_idempotent: bool = True) -> Deliveries:
    """A log in which records of producer ``s`` with these numbers stand; five were sent."""
    deliveries = Deliveries()
    deliveries.started("s", Promise(is_idempotent, has_acks=True))
    for _ in range(5):
        deliveries.sent("s", TP)
    model = deliveries._model(TP, b"id")
    for number in numbers:
        deliveries._found(TP, model, value_of("s", number))
    return deliveries


@pytest.mark.parametrize("numbers", [(0, 1, 1), (0, 2, 1), (0, 1, 2, 0), (5,)])
def test_an_idempotent_producers_records_stand_once_and_in_order(numbers: tuple[int, ...]) -> None:
    with pytest.raises(Violation, match="C10"):
        watched(*numbers)


def test_without_idempotence_a_repetition_is_counted() -> None:
    deliveries = watched(0, 1, 0, 1, 2, is_idempotent=False)
    assert deliveries.duplicates == 2
    for number, offset in ((0, 2), (1, 3), (2, 4)):
        deliveries.was_acknowledged("s", TP, number, offset)


def test_without_idempotence_what_was_acknowledged_is_in_order() -> None:
    deliveries = watched(1, 0, is_idempotent=False)
    deliveries.was_acknowledged("s", TP, 0, 1)
    with pytest.raises(Violation, match="out of its order"):
        deliveries.was_acknowledged("s", TP, 1, 0)


@pytest.mark.parametrize("offset", [0, 2, None])
def test_an_acknowledged_record_is_where_it_was_said_to_be(offset: int | None) -> None:
    with pytest.raises(Violation, match="C10"):
        watched(0, 1).was_acknowledged("s", TP, 1, offset)


def test_a_topic_that_is_deleted_while_its_batch_waits_is_looked_for_again() -> None:
    sender = SimpleNamespace(_cluster=SimpleNamespace(metadata=SimpleNamespace(topics={})))
    with pytest.raises(RetriableError, match="t-0"):
        Sender._topic_ids(sender, [ProducerBatch(TP, 0.0)])  # type: ignore[arg-type]  # a stand-in with what this method uses
