"""Would a group move to the consumer protocol?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from shoal.client.group_admin import GroupDescription, MemberDescription
from shoal.fleet.migration_rehearsal import rehearse_migration
from shoal.types import TopicPartition

SETTINGS = {
    "group.consumer.migration.policy": "bidirectional",
    "group.consumer.max.size": "10",
    "group.consumer.session.timeout.ms": "45000",
}


def member(name: str, **fields: Any) -> MemberDescription:
    given = {"group_instance_id": None, "client_id": name, "host": "h", "topics": ("t",)}
    return MemberDescription(name, assignment=(TopicPartition("t", 0),), **{**given, **fields})


GROUP = GroupDescription("g", "Stable", "consumer", "range", (member("a"), member("b")), 1)


def problems(group: GroupDescription = GROUP, offered: bool = True, **settings: str) -> list[str]:
    given = SETTINGS | {f"group.consumer.{key}": value for key, value in settings.items()}
    found = rehearse_migration(group, given, is_offered=offered)
    return [one.what for one in found if one.level == "problem"]


def test_a_usual_group_may_move_and_timeouts_become_the_brokers() -> None:
    assert problems() == []
    notes = [one.what for one in rehearse_migration(GROUP, SETTINGS, is_offered=True)]
    assert any("group.consumer.session.timeout.ms 45000" in one for one in notes)
    assert not any("static" in one for one in notes)


@pytest.mark.parametrize(
    ("blocked", "why"),
    [
        ({"offered": False}, "does not offer"),
        ({"migration.policy": "downgrade"}, "is downgrade"),
        ({"migration.policy": "disabled"}, "is disabled"),
        ({"max.size": "1"}, "it has 2 members, and group.consumer.max.size is 1"),
        ({"group": replace(GROUP, protocol_type="connect")}, "speak 'connect'"),
        (
            {"group": replace(GROUP, assignor="mine", members=(member("a", attached=3),))},
            "'mine' attaches data to the assignments of 1 member,",
        ),
    ],
)
def test_what_its_coordinator_would_refuse_it_for(blocked: dict[str, Any], why: str) -> None:
    (found,) = problems(**blocked)
    assert why in found


def test_a_group_without_members_moves_whatever_the_policy() -> None:
    empty = replace(GROUP, members=(), state="Empty")
    assert problems(empty, True, **{"migration.policy": "disabled"}) == []


def test_static_members_are_told_of_a_difference() -> None:
    group = replace(GROUP, members=(member("a", group_instance_id="i"),))
    found = rehearse_migration(group, SETTINGS, is_offered=True)
    assert any("1 static member: a second one" in one.what for one in found)


def test_a_group_that_has_moved_or_is_on_its_way_is_said_to_be_so() -> None:
    new = replace(GROUP, protocol="consumer", members=(member("a", protocol="consumer"),))
    (done,) = rehearse_migration(new, SETTINGS, is_offered=True)
    assert done.level == "ok"
    mixed = replace(new, members=(*new.members, member("b")))
    (going,) = rehearse_migration(mixed, SETTINGS, is_offered=True)
    assert "1 of 2 members are classic" in going.what
