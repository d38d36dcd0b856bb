"""The simulator is only worth what it catches: bugs planted in the real code must be noticed."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.mutation import CI_SEEDS, CONTROL, gate, patched, report

# Caught within a few seeds, one per part of the code: a check of the gate itself.
QUICK = (
    "commit between join and sync is accepted",
    "nobody rebalances when a member dies",
    "eager members do not revoke",
    "who does not poll stays",
    "heartbeats do not renew the session",
)
QUICK_SEEDS = 12
LONG_SEEDS = 10 * CI_SEEDS


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_patch_still_finds_its_place(mutant: object) -> None:
    patched(mutant)  # type: ignore[arg-type]


def test_there_are_enough_planted_bugs_with_names_of_their_own() -> None:
    assert len(MUTANTS) >= 30
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.slow
def test_a_few_planted_bugs_are_noticed_quickly() -> None:
    chosen = [mutant for mutant in MUTANTS if mutant.name in QUICK]
    assert len(chosen) == len(QUICK)
    control, *results = gate([CONTROL, *chosen], QUICK_SEEDS)
    assert control.finding is None
    assert all(result.finding for result in results), report(results)


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
