"""The seeds by which planted bugs are noticed: without a bug they find nothing."""

from __future__ import annotations

import logging

import pytest

from shoal.testing.simulation.consumer_group_simulator import simulate_consumer_groups
from shoal.testing.simulation.producer_simulator import simulate_producers
from shoal.testing.simulation.simulator import simulate
from shoal.testing.simulation.sink_simulator import simulate_sinks
from shoal.testing.simulation.transaction_simulator import simulate_transactions
from tests.simulation.planted import SEEDS, seeds_of
from tests.simulation.planted_consumer_groups import CONSUMER_GROUP_BUGS
from tests.simulation.planted_groups import GROUP_BUGS
from tests.simulation.planted_producers import PRODUCER_BUGS
from tests.simulation.planted_sinks import SINK_BUGS
from tests.simulation.planted_transactions import TRANSACTION_BUGS

EVERY_BUG = (*GROUP_BUGS, *PRODUCER_BUGS, *CONSUMER_GROUP_BUGS, *TRANSACTION_BUGS, *SINK_BUGS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of(GROUP_BUGS))
def test_a_group_keeps_its_promises(seed: int) -> None:
    simulate(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of(PRODUCER_BUGS))
def test_producers_keep_theirs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    simulate_producers(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of(CONSUMER_GROUP_BUGS))
def test_consumer_groups_keep_theirs(seed: int) -> None:
    simulate_consumer_groups(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of(TRANSACTION_BUGS))
def test_transactions_keep_theirs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    simulate_transactions(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds_of(SINK_BUGS))
def test_sinks_keep_theirs(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    simulate_sinks(seed)


def test_every_bug_has_a_seed_and_no_seed_is_left_over() -> None:
    assert list(SEEDS) == [bug.name for bug in EVERY_BUG], "run make seeds"
    assert len(GROUP_BUGS) >= 30
    assert len(CONSUMER_GROUP_BUGS) >= 30
    assert len(TRANSACTION_BUGS) >= 25
