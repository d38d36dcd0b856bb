"""Many seeds: told apart, summed up, and gone on with."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation import kinds, seed_runs
from shoal.testing.simulation.invariants import Violation
from shoal.testing.simulation.kinds import Kind
from shoal.testing.simulation.seed_runs import SeedLedger, SeedOrder, Totals, run_seeds
from shoal.testing.simulation.simulator import Report


def _made_up(seed: int, *, without: Collection[int] = ()) -> Report:
    """Ten events a seed, and every tenth seed breaks something."""
    assert not without
    if seed % 10 == 9:
        raise Violation("E1", f"seed {seed}")
    return Report(seeds=1, events=10, trace=seed)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> str:
    made = Kind("consumer-groups", _made_up, lambda seed: seed, lambda _: ())
    monkeypatch.setitem(kinds.KINDS, "consumer-groups", lambda: made)
    return "consumer-groups"


def test_a_seed_that_breaks_something_is_counted_and_the_others_go_on(made_up: str) -> None:
    totals = run_seeds(SeedOrder(made_up, first=5, seeds=30))
    assert totals.next_seed == 35
    assert totals.report.seeds == 30
    assert totals.report.events == 270
    assert [text.splitlines()[-1].rsplit(" ")[-1] for text in totals.violations] == [
        "9",
        "19",
        "29",
    ]


def test_too_many_violations_end_a_run(made_up: str) -> None:
    totals = run_seeds(SeedOrder(made_up, seeds=10_000))
    assert seed_runs.VIOLATIONS_MAX <= len(totals.violations) < 2 * seed_runs.VIOLATIONS_MAX
    assert totals.next_seed < 300


def test_enough_events_end_a_run(made_up: str) -> None:
    totals = run_seeds(SeedOrder(made_up, events=500))
    assert 500 <= totals.report.events < 600


@pytest.mark.slow
def test_two_processes_come_to_the_same_as_one() -> None:
    order = SeedOrder("consumer-groups", first=3, seeds=10)
    one, two = run_seeds(order), run_seeds(order, processes=2)
    assert one.report == two.report
    assert one.next_seed == two.next_seed == 13
    assert not one.violations
    assert not two.violations


def test_a_ledger_goes_on_behind_the_last_seed_and_sums_up(
    made_up: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "runs.jsonl"
    arguments = [f"--{made_up}", "--quiet", "--seeds", "8", "--ledger", str(path)]
    assert command.main(arguments) == 0
    assert "seeds 0 to 7; go on with --first 8" in capsys.readouterr().out
    assert command.main(arguments) == 1
    told = capsys.readouterr()
    assert "2 runs together: 16 seeds, 150 events, 1 violations" in told.out
    assert told.out.endswith("1 violations\n")
    assert "E1: seed 9" in told.err
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["first"], line["next_seed"], line["events"]) for line in lines] == [
        (0, 8, 80),
        (8, 16, 70),
    ]


def test_a_ledger_names_its_kind_and_what_is_none(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    SeedLedger(path, "clients").keep(0, Totals(next_seed=3))
    assert SeedLedger(path, "clients").next_seed == 3
    with pytest.raises(ValueError, match=r"a ledger of 'clients', not of 'producers'"):
        SeedLedger(path, "producers")
    for text in ("what?", '{"kind": "clients"}', "[]", '{"kind": "clients", "seeds": "1"}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"runs\.jsonl is not a ledger of simulated seeds"):
            SeedLedger(path, "clients")


def test_the_command_refuses_what_is_no_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("milk, bread")
    with pytest.raises(SystemExit):
        command.main(["--ledger", str(path)])
    assert "notes.txt is not a ledger of simulated seeds" in capsys.readouterr().err
