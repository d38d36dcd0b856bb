"""Groups of the new protocol in virtual time: no invariant breaks, and everything happens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import EventKind, GroupDecision
from shoal.testing.simulation import __main__ as command
from shoal.testing.simulation.consumer_group_invariants import ConsumerGroupWatcher
from shoal.testing.simulation.consumer_group_simulator import (
    ConsumerGroupSimulation,
    simulate_consumer_groups,
)
from shoal.testing.simulation.consumer_group_swarm import (
    ConsumerGroupFault,
    consumer_group_faults,
    consumer_group_scenario,
)
from shoal.testing.simulation.invariants import Moment, Violation
from shoal.testing.simulation.simulator import GROUP_ID, Report
from shoal.testing.simulation.swarm import FaultKind
from tests.simulation.seeds import FOUND_IN_CONSUMER_GROUPS

ROOT = Path(__file__).resolve().parents[2]
CI_SEEDS = 60


@pytest.mark.slow
def test_the_budget_of_ci_breaks_no_invariant_of_consumer_groups() -> None:
    total = Report()
    for seed in range(1_000, 1_000 + CI_SEEDS):
        total.add(simulate_consumer_groups(seed))
    assert total.events > 500_000
    assert total.late_messages > 0
    assert set(total.faults) == {*FaultKind, *ConsumerGroupFault}, "every kind of fault happened"


@pytest.mark.slow
@pytest.mark.parametrize("seed", FOUND_IN_CONSUMER_GROUPS)
def test_a_seed_that_found_a_bug_in_consumer_groups_finds_it_no_more(seed: int) -> None:
    simulate_consumer_groups(seed)


class _CountingWatcher(ConsumerGroupWatcher):
    seen: ClassVar[Counter[str]] = Counter()

    def decided(self, request: Any, decision: GroupDecision, now: Moment) -> None:
        super().decided(request, decision, now)
        for event in decision.events:
            self.seen[event.kind.name] += 1
            if event.kind is EventKind.PROTOCOL_CHANGED:
                self.seen["up" if "new protocol joined" in event.cause else "down"] += 1


class _CountingSimulation(ConsumerGroupSimulation):
    def _new_watcher(self, config: GroupConfig) -> ConsumerGroupWatcher:
        return _CountingWatcher(GROUP_ID, self.topics, config)


@pytest.mark.slow
def test_groups_change_their_protocol_in_both_directions_and_members_are_fenced() -> None:
    """What the invariants are about does happen, in a handful of seeds."""
    for seed in (19, 28, 29, 42):
        world = consumer_group_scenario(seed)
        _CountingSimulation(world, consumer_group_faults(world)).run()
    seen = _CountingWatcher.seen
    for what in ("up", "down", "MEMBER_EXPIRED", "MEMBER_REPLACED", "TARGET_COMPUTED"):
        assert seen[what], f"{what} never happened: {seen}"


@pytest.mark.slow
def test_a_run_of_consumer_groups_is_the_same_under_every_hash_seed() -> None:
    script = "from shoal.testing.simulation.consumer_group_simulator import *; r = Report()\n"
    script += (
        "for seed in range(4): r.add(simulate_consumer_groups(seed))\nprint(r.events, r.trace)"
    )
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


def test_a_failure_of_a_consumer_group_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: ConsumerGroupSimulation) -> Report:
        raise Violation("E1", "two owners")

    monkeypatch.setattr(ConsumerGroupSimulation, "run", fail)
    with pytest.raises(Violation) as caught:
        simulate_consumer_groups(3, without={5})
    (how, _) = caught.value.__notes__
    assert how.endswith('make simulate SEED=3 ARGS="--consumer-groups --without 5"')


@pytest.mark.slow
def test_the_command_line_runs_consumer_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--consumer-groups", "--seeds", "1", "--first", "2", "--quiet"]) == 0
    assert "no invariant was broken" in capsys.readouterr().out
    assert command.main(["--consumer-groups", "--seed", "2"]) == 0
    shown = capsys.readouterr().out
    assert "consumer_share" in shown
    assert "trace" in shown
