"""The table of states: Kafka's moves, no others, and the diagram drawn from it."""

from __future__ import annotations

import re
from itertools import product

import pytest

from shoal.group.coordinator.states import MOVES, GroupState, may_move, mermaid

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

# As Kafka has it: from which states may this one be entered?
ENTERED_FROM = {
    EMPTY: {PREPARING},
    PREPARING: {EMPTY, COMPLETING, STABLE},
    COMPLETING: {PREPARING},
    STABLE: {COMPLETING},
    DEAD: {EMPTY, PREPARING, COMPLETING, STABLE},
}


@pytest.mark.parametrize(("old", "new"), list(product(GroupState, GroupState)))
def test_the_moves_are_those_of_kafka(old: GroupState, new: GroupState) -> None:
    assert may_move(old, new) == (old is new or old in ENTERED_FROM[new])


def test_a_state_is_spelled_as_kafka_spells_it() -> None:
    assert {state.value for state in GroupState} == {
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    }


def test_every_move_says_why() -> None:
    assert all(why for targets in MOVES.values() for why in targets.values())


def test_the_diagram_shows_every_move_once_and_nothing_else() -> None:
    drawn = re.findall(r"^    (\w+) --> (\w+): [^;:]+$", mermaid(), flags=re.MULTILINE)
    assert sorted(drawn) == sorted(
        (old.value, new.value) for old, targets in MOVES.items() for new in targets
    )
    assert mermaid().startswith("stateDiagram-v2\n")
