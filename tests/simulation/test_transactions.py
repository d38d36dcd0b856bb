"""Real transactional producers, pipelines, readers and the real broker: T1 to T13.

What these simulations found first, each with a test of its own or a planted bug:

* a power cut kept a batch and took the record that its transaction began with it; the batch was
  aborted, its retry taken for it and acknowledged, and the commit lacked it
  (``test_what_was_aborted_as_unknown_is_not_taken_for_what_is_sent_again``)
* an abort during which partitions were refused, or the producer was fenced, failed with an
  AssertionError (``test_who_is_fenced_while_its_batches_drain_is_told_so_by_the_abort``)
* a producer whose connection was gone began its next transaction in the old flow
  (``test_a_producer_whose_connection_is_gone_begins_in_the_flow_it_knows``)
* fetches of 32 KB and more from a disk in memory broke their connection
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation.compaction_invariants import left_of
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.simulator import Report
from shoal.testing.simulation.transaction_invariants import (
    History,
    TransactionWatcher,
    _LogModel,
    _Span,
)
from shoal.testing.simulation.transaction_simulator import (
    TransactionSimulation,
    simulate_transactions,
)
from shoal.testing.simulation.transaction_swarm import (
    Compaction,
    PlannedTransactionFault,
    TransactionalSettings,
    TransactionFault,
    TransactionScenario,
    transaction_faults,
    transaction_scenario,
)
from shoal.transaction.journal import TransactionRecord
from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition

ROOT = Path(__file__).resolve().parents[2]
CI_TRANSACTION_SEEDS = 60
CHUNK = 15
TP = TopicPartition("t0", 0)
FLOWS = pytest.mark.parametrize("flow", [1, 2])


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
        total.add(simulate_transactions(seed))
    return total


@pytest.mark.slow
def test_transactions_break_no_invariant() -> None:
    total = Report()
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for report in pool.map(run_chunk, range(0, CI_TRANSACTION_SEEDS, CHUNK)):
            total.add(report)
    print(command.describe(total, 0.0))
    done = total.transactions
    assert set(done.faults) == set(TransactionFault), "every kind of fault happened"
    assert done.committed > 10 * CI_TRANSACTION_SEEDS
    assert min(done.aborted, done.copied, done.fenced, done.restarts) > CI_TRANSACTION_SEEDS
    assert done.compactions > CI_TRANSACTION_SEEDS


@pytest.mark.slow
def test_a_run_with_transactions_is_the_same_under_every_hash_seed() -> None:
    script = "import logging; logging.disable(logging.CRITICAL)\n"
    script += "from shoal.testing.simulation.transaction_simulator import *; r = Report()\n"
    script += "for seed in range(5): r.add(simulate_transactions(seed))\nprint(r.events, r.trace)"
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
def test_the_command_line_runs_transactions_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--transactions", "--seeds", "2", "--quiet"]) == 0
    assert "no invariant was broken" in capsys.readouterr().out
    assert command.main(["--transactions", "--seed", "2", "--shrink"]) == 0
    assert "does not fail" in capsys.readouterr().out


def test_a_seed_draws_the_same_world_and_the_same_faults_every_time() -> None:
    assert transaction_scenario(7) == transaction_scenario(7)
    assert transaction_faults(transaction_scenario(7)) == transaction_faults(
        transaction_scenario(7)
    )


# --- one world, made by hand ---------------------------------------------------------------------


def calm_world(
    flow: int,
    *,
    duration_ms: int = 2_500,
    commit_share: float = 1.0,
    compaction: Compaction | None = None,
) -> Any:
    def settings(name: str) -> TransactionalSettings:
        return TransactionalSettings(
            transactional_id=name,
            flow=flow,
            timeout_ms=3_000,
            request_timeout_ms=1_000,
            delivery_timeout_ms=3_000,
            batch_size=150,
            max_in_flight=5,
            records_max=4,
            commit_share=commit_share,
            rest_ms=100,
            first_epoch=None,
        )

    return TransactionScenario(
        seed=1,
        duration_ms=duration_ms,
        topics={"t0": 2, "in": 1, "out": 1, "__transaction_state": 2, "__consumer_offsets": 2},
        configs={"segment.bytes": "2000"},
        durability="group",
        network_delay_ms=5,
        disk_delay_ms=5,
        writers=(settings("w0"),),
        copiers=(settings("c0"),),
        readers=1,
        compaction=compaction,
        fault_kinds={},
    )


def run(scenario: TransactionScenario, *faults: PlannedTransactionFault) -> Any:
    simulation = TransactionSimulation(scenario, faults)
    try:
        simulation.run()
    finally:
        simulation.stage.end()
    return simulation.transactions


@FLOWS
def test_one_transaction_from_its_begin_to_its_readers(flow: int) -> None:
    """Empty, Ongoing, Prepare, markers, Complete: in the log, in this order, once each."""
    simulation = TransactionSimulation(calm_world(flow, duration_ms=1))
    world, watcher = simulation.transactions, simulation.transactions.watcher
    states: list[tuple[TransactionState, int]] = []
    moved = watcher._moved

    def seen(before: TransactionRecord | None, after: TransactionRecord) -> None:
        if after.transactional_id == "w0":
            states.append((after.state, after.epoch))
        moved(before, after)

    watcher._moved = seen  # type: ignore[method-assign]  # only looks
    try:
        simulation.run()
    finally:
        simulation.stage.end()
    said = world.history.transactions
    (only,) = [each for each in said.values() if each.producer.startswith("w0")]
    assert only.told is True
    assert only.outcome is True
    assert only.ended == set(only.sent) == {TP, TopicPartition("t0", 1), TopicPartition("in", 0)}
    bump = flow - 1
    written = [state for state, _ in states]
    first = written.index(TransactionState.PREPARE_COMMIT)
    assert set(written[first - 1 : first]) == {TransactionState.ONGOING}
    assert written[first + 1] is TransactionState.COMPLETE_COMMIT
    assert states[first][1] == states[first - 1][1] + bump
    assert world.history.copies == {"in-0@0": 1}


@FLOWS
def test_in_a_calm_world_everything_is_committed_and_copied_once(flow: int) -> None:
    history = run(calm_world(flow)).history
    assert history.committed > 10
    assert history.copies
    assert set(history.copies.values()) == {1}


def test_what_is_compacted_loses_nothing_that_counts() -> None:
    world = run(calm_world(2, commit_share=0.5, compaction=Compaction(300, 500)))
    log = world.broker.directory.partitions[TP]
    model = world.watcher.readable(TP)
    left = [one.offset for found in left_of(log, lambda _, value: value) for one in found]
    assert log.state.cleaned_until > 0
    assert len(left) < len(model.values), "something was taken"
    assert set(model.last.values()) <= set(left)


@pytest.mark.parametrize("kind", TransactionFault, ids=lambda kind: kind.name)
def test_every_fault_alone_breaks_nothing(kind: TransactionFault) -> None:
    faults = [PlannedTransactionFault(at, kind, at, 300) for at in (800, 1_301, 1_902)]
    world = run(calm_world(0, commit_share=0.7), *faults)
    assert world.counts[kind] == len(faults)
    assert world.history.committed > 3


# --- the watcher itself --------------------------------------------------------------------------


def spanned(history: History, *values: bytes, first: int = 0) -> _Span:
    transaction = history.begin("w", 2)
    for _ in range(2):
        history.sends(transaction, TP)
    return _Span(first, 0, transaction, list(values), [])


def test_a_commit_without_all_of_its_records_is_noticed() -> None:
    history = History()
    span = spanned(history, b"w.1/0=")
    span.transaction.asked = True
    with pytest.raises(Violation, match="T1"):
        history.ends(span, TP, commit=True)


def test_a_transaction_with_two_ends_is_noticed() -> None:
    history = History()
    span = spanned(history)
    history.ends(span, TopicPartition("t0", 1), commit=False)
    with pytest.raises(Violation, match="T1"):
        history.ends(span, TP, commit=True)


@pytest.mark.parametrize(("told", "commit"), [(True, False), (False, True)])
def test_an_end_that_was_not_told_is_noticed(told: bool, commit: bool) -> None:
    history = History()
    span = spanned(history, b"w.1/0=", b"w.1/1=")
    span.transaction.asked = True
    history.told(span.transaction, committed=told)
    with pytest.raises(Violation, match="T2"):
        history.ends(span, TP, commit=commit)


def test_a_commit_nobody_asked_for_is_noticed() -> None:
    history = History()
    with pytest.raises(Violation, match="T2"):
        history.ends(spanned(history, b"w.1/0=", b"w.1/1="), TP, commit=True)


@pytest.mark.parametrize(
    ("offset", "value", "position"),
    [(1, b"b", 0), (2, b"c", 3), (3, b"d", 0), (2, b"x", 2), (4, b"e", 0)],
    ids=["aborted", "twice", "skipping", "another value", "beyond the last stable offset"],
)
def test_a_reader_that_gets_anything_else_is_noticed(
    offset: int, value: bytes, position: int
) -> None:
    watcher = TransactionWatcher(History(), 0)
    model = watcher._logs[TP] = _LogModel()
    model.values = [b"a", b"b", b"c", b"d", b"e"]
    model.fates = [True, False, True, True, None]
    model.lso = 4
    watcher.read(TP, 0, 0, b"a")
    watcher.read(TP, 1, 2, b"c")
    with pytest.raises(Violation, match="T3"):
        watcher.read(TP, position, offset, value)
