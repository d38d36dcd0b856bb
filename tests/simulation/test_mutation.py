"""The simulator is only worth what it catches: bugs planted in the real code must be noticed."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import (
    CI_PRODUCER_SEEDS,
    CI_SEEDS,
    CONTROL,
    PRODUCER_CONTROL,
    gate,
    patched,
    report,
)
from tests.simulation.producer_mutants import PRODUCER_MUTANTS

# Caught within a few seeds, one per part of the code: a check of the gate itself.
QUICK = (
    "commit between join and sync is accepted",
    "nobody rebalances when a member dies",
    "eager members do not revoke",
    "who does not poll stays",
    "heartbeats do not renew the session",
)
QUICK_SEEDS = 12
QUICK_PRODUCERS = (
    "a retry gets another sequence",
    "a failed batch is overtaken by what waits",
    "a batch that is there is appended again",
    "records are acknowledged before they are stored",
)
QUICK_PRODUCER_SEEDS = 8
LONG_SEEDS = 10 * CI_SEEDS


@pytest.mark.parametrize("mutant", [*MUTANTS, *PRODUCER_MUTANTS], ids=lambda mutant: mutant.name)
def test_every_patch_still_finds_its_place(mutant: object) -> None:
    patched(mutant)  # type: ignore[arg-type]  # parametrized


def test_there_are_enough_planted_bugs_with_names_of_their_own() -> None:
    assert len(MUTANTS) >= 30
    everything = (*MUTANTS, *PRODUCER_MUTANTS)
    assert len({mutant.name for mutant in everything}) == len(everything)


@pytest.mark.slow
def test_a_few_planted_bugs_are_noticed_quickly() -> None:
    chosen = [mutant for mutant in MUTANTS if mutant.name in QUICK]
    assert len(chosen) == len(QUICK)
    control, *results = gate([CONTROL, *chosen], QUICK_SEEDS)
    assert control.finding is None
    assert all(result.finding for result in results), report(results)


@pytest.mark.slow
def test_a_few_bugs_planted_on_the_way_of_a_record_are_noticed_quickly() -> None:
    chosen = [mutant for mutant in PRODUCER_MUTANTS if mutant.name in QUICK_PRODUCERS]
    assert len(chosen) == len(QUICK_PRODUCERS)
    control, *results = gate([PRODUCER_CONTROL, *chosen], QUICK_PRODUCER_SEEDS)
    assert control.finding is None
    assert all(result.finding for result in results), report(results)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_bugs_planted_on_the_way_of_a_record_are_noticed_by_more_seeds_all() -> None:
    control, *results = gate([PRODUCER_CONTROL, *PRODUCER_MUTANTS], CI_PRODUCER_SEEDS)
    assert control.finding is None
    print(report(results))
    escaped = [result.mutant for result in results if result.finding is None]
    assert len(escaped) <= 0.05 * len(results), report(results)
    assert all(each.finding for each in gate(escaped, 20 * CI_PRODUCER_SEEDS)), report(results)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_the_budget_of_ci_notices_at_least_95_percent_of_all_planted_bugs_and_more_seeds_all() -> (
    None
):
    control, *results = gate([CONTROL, *MUTANTS], CI_SEEDS)
    assert control.finding is None
    print(report(results))
    escaped = [result.mutant for result in results if result.finding is None]
    assert len(escaped) <= 0.05 * len(results), report(results)
    assert all(each.finding for each in gate(escaped, LONG_SEEDS)), report(results)
