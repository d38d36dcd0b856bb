"""What a replay says against what the real coordinator and members do, in the lab."""

from __future__ import annotations

import pytest

from shoal.assign.plan import PlannedGroup, PlannedMember, PlannedTopic
from shoal.assign.plan_broker import broker_assignors
from shoal.fleet.group_changes import DepartedMember, RecordedChange
from shoal.fleet.scheme_replay import CONSUMER, COOPERATIVE, EAGER, ReplayPace, ReplayScheme, replay
from shoal.lab.running import run_scenario
from shoal.lab.scenario import Act, Event, Scenario, member_name
from tests.fleet.past import history_of

pytestmark = pytest.mark.slow

REAL = {
    "cooperative": ReplayScheme(COOPERATIVE, "cooperative-sticky"),
    "incremental": ReplayScheme(CONSUMER, broker_assignors()[0]),
    "eager": ReplayScheme(EAGER, "range"),
}


@pytest.mark.parametrize("scheme", REAL)
@pytest.mark.parametrize("act", [Act.JOIN, Act.LEAVE, Act.CRASH])
def test_the_real_coordinator_and_members_stand_still_for_about_as_long(
    scheme: str, act: Act
) -> None:
    """Six runs, so that the event falls into every part of a heartbeat interval."""
    names = [member_name(number) for number in range(1, 5)]
    who = None if act is Act.JOIN else names[1]
    runs = [
        run_scenario(
            Scenario("one change", 4, {"t": 12}, (Event(1_000 + 833 * n, act, who),), seed=n),
            scheme,
        ).metrics
        for n in range(1, 7)
    ]
    wanted = PlannedMember(("t",))
    how = "expired" if act is Act.CRASH else "left"
    change = RecordedChange(0, departed=[DepartedMember(names[1], how, 10.0)])
    if act is Act.JOIN:
        change = RecordedChange(0, joined={"m5": wanted})
    group = PlannedGroup({"t": PlannedTopic(12)}, dict.fromkeys(names, wanted))
    found = replay(history_of(group, change), REAL[scheme], ReplayPace(session_s=10.0))
    assert {run.moved_partitions for run in runs} == {found.moved}
    real_s = sum(run.stopped_partition_s for run in runs) / len(runs)
    # The lab's members hear of a rebalance at the same moment, because they heartbeat since the
    # same moment; ours are spread. That makes up to a round of difference where all must be heard.
    slack_s = (
        found.stopped * ReplayPace().joining_s / 2 if scheme == "eager" or act is Act.LEAVE else 0.0
    )
    assert 0.8 * real_s <= found.stopped_s <= 1.25 * real_s + slack_s
