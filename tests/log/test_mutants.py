"""The suite can fail: it catches every planted bug."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.log.mutants import MUTANTS, NOTORIOUS, Mutant, run


def name(mutant: Mutant) -> str:
    return mutant.name.replace(" ", "-")


@pytest.mark.slow
@pytest.mark.parametrize("mutant", NOTORIOUS, ids=name)
def test_the_bugs_that_cost_other_systems_data_are_caught(mutant: Mutant, tmp_path: Path) -> None:
    survived = run(mutant, tmp_path)
    assert survived is None, f"{mutant.name}: nobody noticed\n{survived}"


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS[len(NOTORIOUS) :], ids=name)
def test_every_planted_bug_is_caught(mutant: Mutant, tmp_path: Path) -> None:
    survived = run(mutant, tmp_path)
    assert survived is None, f"{mutant.name}: nobody noticed\n{survived}"


def test_every_planted_bug_still_has_its_place() -> None:
    source = Path(__file__).parents[2] / "src" / "shoal" / "log"
    for mutant in MUTANTS:
        assert (source / mutant.file).read_text().count(mutant.old) == 1, mutant.name
