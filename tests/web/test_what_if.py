"""Changes a browser may ask about: checked, and never code."""

from __future__ import annotations

import pytest

from shoal.assign.plan import (
    Join,
    Leave,
    PlannedGroup,
    PlannedMember,
    PlannedTopic,
    Resize,
    Restart,
    Switch,
    plan,
)
from shoal.errors import ConfigError
from shoal.web.what_if import changes_of

GROUP = PlannedGroup(
    {"orders": PlannedTopic(4)}, {name: PlannedMember(("orders",)) for name in ("a", "b")}
)


def test_what_was_chosen_becomes_changes_the_planner_takes() -> None:
    given = {
        "partitions": {"orders": 6},
        "leave": ["a"],
        "join": 2,
        "assignor": "sticky",
        "restart": "static",
    }
    changes = changes_of(GROUP, given)
    assert [type(one) for one in changes] == [Resize, Leave, Join, Switch, Restart]
    assert plan(GROUP, changes).outcomes[0].assignor == "sticky"
    assert changes_of(GROUP, {}) == []


@pytest.mark.parametrize(
    "given",
    [
        {"assignor": "os:system"},
        {"assignor": "shoal.assign.range:RangeAssignor"},
        {"assignor": ""},
        {"assignor": ["range"]},
        {"join": -1},
        {"join": 51},
        {"join": True},
        {"join": "1"},
        {"leave": "a"},
        {"leave": [1]},
        {"partitions": {"orders": 0}},
        {"partitions": {"orders": 10**9}},
        {"partitions": {"other": 3}},
        {"partitions": []},
        {"restart": "often"},
    ],
)
def test_what_is_no_change_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        changes_of(GROUP, given)
