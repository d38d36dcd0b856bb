"""Pictures in the docs that are drawn from the code show what the code says."""

from __future__ import annotations

import json

import pytest
from docs.consumer_protocol_pictures import AT_ANY_TIME, IN_THE_GROUP, STATE_PLACES, hand_over
from docs.generate_monitoring_pictures import KEPT, TITLES, panels, picture
from docs.generate_pictures import PICTURES, consumer_protocol, states_picture

from shoal.group.member.consumer_states import MOVES, ConsumerMemberState
from shoal.lab.built_in import built_in
from shoal.lab.gallery import TIMELINES
from shoal.lab.running import compare
from shoal.lab.timeline import draw_timeline

DRAWN = {"group-states.svg": states_picture, **dict.fromkeys(consumer_protocol())}


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_is_as_the_code_draws_it(name):
    drawn = DRAWN[name]
    made = consumer_protocol()[name] if drawn is None else drawn()
    assert (PICTURES / name).read_text() == made, "run: python -m docs.generate_pictures"


@pytest.mark.slow
@pytest.mark.parametrize("name", TIMELINES)
def test_a_timeline_is_as_the_lab_draws_it(name: str) -> None:
    seed, schemes = TIMELINES[name]
    drawn = draw_timeline(compare(built_in(name), schemes, seed=seed)).to_svg()
    assert (PICTURES / f"lab-{name}.svg").read_text() == drawn, (
        "run: shoal lab draw --docs docs/pictures"
    )


def test_every_state_of_a_member_has_its_place():
    assert STATE_PLACES.keys() == set(ConsumerMemberState)
    for state in IN_THE_GROUP:
        assert set(AT_ANY_TIME) <= MOVES[state], "one arrow stands for all of these"


def test_a_partition_changes_hands_as_the_page_says():
    steps = hand_over()
    assert [moment.members["a"] for moment in steps] == [
        (2, "stable"),
        (2, "stable"),
        (2, "unrevoked_partitions"),
        (3, "stable"),
        (3, "stable"),
    ]
    assert [moment.members.get("b") for moment in steps][1:] == [
        *[(3, "unreleased_partitions")] * 3,
        (3, "stable"),
    ]
    assert steps[3].holders == ["a", "a", None, None], "nobody holds what is on its way"
    assert steps[-1].holders == steps[-1].target == ["a", "a", "b", "b"]


@pytest.mark.parametrize("name", TITLES)
def test_panels_are_as_prometheus_answered(name: str) -> None:
    kept = json.loads(KEPT.read_text())
    drawn = picture(name, kept)
    assert (PICTURES / name).read_text() == drawn, (
        "run: python -m docs.generate_monitoring_pictures"
    )
    for title in TITLES[name]:
        assert title in panels(), "a panel of the dashboard"
        assert any(value for line in kept["panels"][title].values() for value in line), title


def test_the_run_behind_the_panels_is_as_the_page_tells() -> None:
    shown = json.loads(KEPT.read_text())["panels"]
    behind = shown["How far behind, in seconds"]
    assert 40 < max(value or 0 for value in behind["billing"]) < 60
    assert max(value or 0 for value in behind["audit"]) < 10
    assert {"expired", "joined", "left"} <= shown["Rebalances in ten minutes, by cause"].keys()
