"""The demo's story and picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shoal.cli.demo_group import OwnershipChange
from shoal.cli.demo_picture import ownership_picture, taken_over_s
from tests.cli.conftest import Run

CHANGES = [
    OwnershipChange(5.0, "ann", "gets", (0, 1)),
    OwnershipChange(5.1, "ben", "gets", (2, 3)),
    OwnershipChange(9.0, "dora", "gets", (1,)),
    OwnershipChange(8.8, "ann", "gives up", (1,)),
    OwnershipChange(10.0, "ben", "dies", (2, 3)),
    OwnershipChange(16.0, "ann", "gets", (2,)),
    OwnershipChange(16.2, "dora", "gets", (3,)),
    OwnershipChange(20.5, "ann", "gives up", (0, 2)),
]


def _widths(svg: str) -> list[float]:
    return [
        float(width) for width in re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.-]+)"', svg)
    ]


def test_the_picture_has_a_legend_and_says_why_partitions_wait() -> None:
    svg = ownership_picture(CHANGES, 4, end_s=18.0, session_s=6.0)
    for number in range(4):
        assert f">orders-{number}<" in svg
    assert "ben is killed; for the session timeout (6 s) nobody reads what was ben" in svg
    assert "dora joins" in svg
    assert "nobody reads it" in svg


def test_the_picture_begins_with_the_first_share_and_ends_before_the_good_byes() -> None:
    svg = ownership_picture(CHANGES, 4, end_s=18.0, session_s=6.0)
    assert ">0 s<" in svg
    assert ">13 s<" in svg, "from 5 s to 18 s"
    assert ">14 s<" not in svg
    assert max(_widths(svg)) <= 760
    assert min(_widths(svg)) >= 0


def test_how_long_nobody_read_is_measured_by_partition() -> None:
    death = CHANGES[4]
    assert taken_over_s(CHANGES, death) == {2: 16.0, 3: 16.2}


@pytest.mark.slow
def test_the_fast_demo_tells_what_to_look_at(shoal: Run, tmp_path: Path) -> None:
    told = shoal("demo", "--fast", "-o", "out")
    assert told.returncode == 0, told.stderr
    for line in ("Look at: every partition", "session timeout (2 s", "Nobody read orders-"):
        assert line in told.stdout
    picture = tmp_path / "out" / "group.svg"
    assert picture.as_uri() in told.stdout
    assert picture.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.slow
def test_the_fast_demo_for_programs(shoal: Run) -> None:
    assert "give --fast or --spark" in shoal("demo", "--fast", "--spark").stderr
    told = shoal("demo", "--fast", "--json")
    assert sum(json.loads(told.stdout)["group"]["read"].values()) >= 12_000
