"""``shoal transaction`` against a script: what it asks before it acts, and what it prints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.commands import app
from tests.client.scripted_transactions import OPENED_AT, ScriptedCoordinator

Run = Callable[..., Result]


@pytest.fixture
def coordinator() -> Iterator[ScriptedCoordinator]:
    with ScriptedCoordinator(2) as coordinator:
        yield coordinator


@pytest.fixture
def run(coordinator: ScriptedCoordinator, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("SHOAL_BOOTSTRAP", coordinator.servers)

    def run(*arguments: str, stdin: str = "") -> Result:
        return CliRunner().invoke(app, ["transaction", *arguments], input=stdin)

    return run


def test_nothing_is_aborted_without_a_yes(coordinator: ScriptedCoordinator, run: Run) -> None:
    where = ("--partition", "t-0", "--start-offset", str(OPENED_AT))
    for arguments in (("abort", "billing-1"), ("abort", *where)):
        refused = run(*arguments)
        assert refused.exit_code != 0, "a pipe is no answer"
        assert coordinator.log == []
    assert run("abort", "billing-1", "--yes").exit_code == 0
    assert run("abort", *where, "--yes").exit_code == 0
    assert coordinator.told == ["InitProducerId", "WriteTxnMarkers"]


def test_an_id_that_is_not_there_is_not_made_by_aborting_it(
    coordinator: ScriptedCoordinator, run: Run
) -> None:
    coordinator.fail("DescribeTransactions", 105)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in str(run("abort", "billing-2", "--yes").exception)
    assert coordinator.log == []


def test_a_hanging_transaction_is_told_with_a_code_of_its_own(
    coordinator: ScriptedCoordinator, run: Run
) -> None:
    calm = run("find-hanging", "t")
    assert (calm.exit_code, calm.stdout.split()[0]) == (0, "partition")
    assert len(calm.stdout.splitlines()) == 1
    coordinator.hangs = True
    found = run("find-hanging", "t", "--json")
    assert found.exit_code == 3
    (one,) = json.loads(found.stdout)
    assert (one["partition"], one["start_offset"], one["producer_id"]) == ("t-0", OPENED_AT, 7)
    assert run("find-hanging", "t", "--idle", "1e15").exit_code == 0


def test_what_is_described_can_be_read_by_programs(run: Run) -> None:
    (listed,) = json.loads(run("list", "--json").stdout)
    assert listed == {
        "transactional_id": "billing-1",
        "state": "Ongoing",
        "producer_id": 7,
        "coordinator": 1,
    }
    described = json.loads(run("describe", "billing-1", "--json").stdout)
    assert described["partitions"] == ["t-0"]
    assert (described["producer_epoch"], described["timeout_ms"]) == (3, 60_000)
    assert described["open_s"] > 1e9, "since the first second of 1970"
    assert "billing-1" in run("list").stdout
    assert "epoch 3" in run("describe", "billing-1").stdout
