"""Plans as text, JSON and pictures."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from shoal.assign.plan import Plan, PlannedGroup, PlannedMember, PlannedTopic, plan
from shoal.assign.plan_document import EXAMPLES, read
from shoal.assign.plan_picture import Cell, as_json, columns, matrix, matrix_lines, picture


def planned(name: str) -> Plan:
    group, changes = read(EXAMPLES[name])
    return plan(group, changes)


def test_the_matrix_shows_before_and_after_in_one() -> None:
    result = planned("one-leaves")
    round_robin = result.outcomes[1]
    assert matrix_lines(round_robin, columns(result), 80) == [
        "    t0   t1   t2   t3",
        "c0  ■ ·  + -  + ·  ■ ·",
        "c1  · -  · ·  - ·  · -",
        "c2  · +  - +  · ■  · +",
    ]


def test_a_matrix_too_wide_shows_counts_and_then_fewer_topics() -> None:
    result = planned("one-leaves")
    round_robin = result.outcomes[1]
    assert matrix_lines(round_robin, columns(result), 21)[:3] == [
        "    t0    t1",
        "c0  1     0 +1 -1",
        "c1  0 -1  0",
    ]
    assert matrix_lines(round_robin, columns(result), 21)[-1] == "… 4 topics in all"


def test_every_partition_is_kept_or_got_by_exactly_one() -> None:
    for name in EXAMPLES:
        result = planned(name)
        for outcome in result.outcomes:
            rows = matrix(outcome, columns(result)).values()
            for cells in zip(*rows, strict=True):
                assert sum(cell in (Cell.KEEPS, Cell.GETS) for cell in cells) == 1


def test_json_holds_the_numbers_and_the_partitions() -> None:
    value = json.loads(json.dumps(as_json(planned("unequal"))))
    assert value["changes"] == ["c0 leaves"]
    sticky = next(one for one in value["outcomes"] if one["assignor"] == "sticky")
    assert sticky["moved"] == 1
    assert sticky["protocol"] == "EAGER"
    assert sticky["before"]["c0"] == [["t0", 0]]
    assert sticky["loads"]["after"]["partitions"]["maximum"] == 3
    assert sticky["steps"] == [{"what": "c0 leaves", "rounds": 1, "moved": 1, "stopped": 6}]


def test_the_picture_has_a_cell_for_every_member_and_partition() -> None:
    result = planned("unequal")
    root = ET.fromstring(picture(result).to_svg())
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 4 * 3 * 6
    assert "t0-0 loses c0" in titles
    assert "t0-0 gets c1" in titles
    texts = {text.text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"c0 leaves", "t2", "sticky: 1 moved, 6 stopped"} <= texts


def test_a_picture_of_too_much_is_refused_with_the_limit() -> None:
    members = {f"c{n}": PlannedMember(("t",)) for n in range(30)}
    result = plan(PlannedGroup({"t": PlannedTopic(5000)}, members), assignors=["range"])
    with pytest.raises(ValueError, match=r"30 members by 5000 partitions.*100000"):
        picture(result)


def test_counts_are_enough_when_they_fit() -> None:
    result = plan(
        PlannedGroup(
            {"t": PlannedTopic(30)}, {"c0": PlannedMember(["t"]), "c1": PlannedMember(["t"])}
        ),
        [],
    )
    assert matrix_lines(result.outcomes[0], columns(result), 30) == [
        "    t",
        "c0  15",
        "c1  15",
    ]
