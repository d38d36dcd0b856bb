"""Scenario files: what can be written, and that every mistake names its line and field."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ConfigError
from shoal.lab import Act, Event, load, parse

GOOD = """\
name: nightly
description: Everything that can be written.
members: 3
static: yes
topics: {orders: 6, refunds: 2}
subscriptions:
  m1: [orders]
seed: 7
duration: 2m
warmup: 15s
work: {records_per_second: 2.5, processing_ms: 10}
timing:
  session_timeout_ms: 45000
events:
  - {at: 1s, join: m9}
  - {at: 1500ms, leave: m1}
  - {at: 2, crash: m2}
  - {at: 3s, restart: m3, for: 4s, jitter: 500ms}
  - {at: 4s, stall: m3, for: 20s}
  - {at: 5s, pause: m3, for: 1s}
  - {at: 6s, cut: m3, for: 1s}
  - {at: 7s, failover: 3s}
  - {at: 8s, add-partitions: orders, to: 8}
  - {at: 9s, subscribe: m3, topics: [refunds]}
"""


def test_everything_that_can_be_written_is_read() -> None:
    scenario = parse(GOOD)
    assert (scenario.name, scenario.members, scenario.static, scenario.seed) == (
        "nightly",
        3,
        True,
        7,
    )
    assert scenario.topics == {"orders": 6, "refunds": 2}
    assert scenario.subscriptions == {"m1": ("orders",)}
    assert (scenario.duration_ms, scenario.warmup_ms) == (120_000, 15_000)
    assert scenario.work.records_per_second == 2.5
    assert scenario.timing.session_timeout_ms == 45_000
    assert [event.act for event in scenario.events] == [
        Act.JOIN,
        Act.LEAVE,
        Act.CRASH,
        Act.RESTART,
        Act.STALL,
        Act.PAUSE,
        Act.CUT,
        Act.FAILOVER,
        Act.ADD_PARTITIONS,
        Act.SUBSCRIBE,
    ]
    assert scenario.events[3] == Event(3_000, Act.RESTART, "m3", for_ms=4_000, jitter_ms=500)
    assert scenario.events[7].for_ms == 3_000
    assert scenario.events[9].topics == ("refunds",)


@pytest.mark.parametrize(
    ("change", "line", "field"),
    [
        (("members: 3", "members: three"), 3, "members"),
        (("members: 3", "members: -1"), 3, "members"),
        (("members: 3", "members: 99999"), 3, "members"),
        (("static: yes", "static: perhaps"), 4, "static"),
        (("orders: 6", "orders: 0"), 5, "topics.orders"),
        (("topics: {orders: 6, refunds: 2}", "topics: {}"), 5, "topics"),
        (("topics: {orders: 6, refunds: 2}", "topics: orders"), 5, "topics"),
        (("m1: [orders]", "m8: [orders]"), 7, "subscriptions.m8"),
        (("m1: [orders]", "m1: [nothing]"), 7, "subscriptions.m1"),
        (("m1: [orders]", "m1: []"), 7, "subscriptions.m1"),
        (("seed: 7", "seed: 7.5"), 8, "seed"),
        (("duration: 2m", "duration: long"), 9, "duration"),
        (("duration: 2m", "duration: 900h"), 9, "duration"),
        (("processing_ms: 10", "processing_ms: 0"), 11, "work.processing_ms"),
        (("processing_ms: 10", "procesing_ms: 1"), 11, "procesing_ms"),
        (("session_timeout_ms: 45000", "session_timeout: 5"), 13, "session_timeout"),
        (("join: m9", "jion: m9"), 15, "events[0]"),
        (("crash: m2", "crash: m7"), 17, "events[2].crash"),
        (("{at: 2, crash: m2}", "{crash: m2}"), 17, "events[2].at"),
        (("{at: 2, crash: m2}", "{at: 200, crash: m2}"), 17, "events[2].at"),
        (("{at: 2, crash: m2}", "{at: 2, crash: m2, leave: m3}"), 17, "events[2]"),
        (("stall: m3, for: 20s", "stall: m3"), 19, "events[4].for"),
        (("failover: 3s", "failover: soon"), 22, "events[7].failover"),
        (("to: 8", "to: 3"), 23, "events[8].to"),
        ((", to: 8", ""), 23, "events[8].to"),
        (("topics: [refunds]", "topics: [x]"), 24, "events[9].subscribe"),
        (("seed: 7", "seeed: 7"), 8, "seeed"),
        (("seed: 7", "name: again"), 8, "name"),
    ],
)
def test_a_mistake_is_answered_with_its_line_and_field(
    change: tuple[str, str], line: int, field: str
) -> None:
    assert change[0] in GOOD
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace(*change, 1), "group.yaml")
    assert str(caught.value).startswith(f"group.yaml:{line}: {field}: ")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty"),
        ("members: 3", "topics: is missing"),
        ("topics: {a: 1}", "members: is missing"),
        ("members: [3", "not YAML"),
        ("[" * 20_000, "nested too deeply"),
        ("- a\n- b", "a mapping was expected"),
        ("members: 0\ntopics: {a: 1}", "nobody"),
        ("members: !!python/object:os.system 3\ntopics: {a: 1}", "members"),
    ],
)
def test_what_is_no_scenario_is_refused(text: str, words: str) -> None:
    if "python" in text:
        assert parse(text).members == 3, "tags are not obeyed"
        return
    with pytest.raises(ConfigError, match=words):
        parse(text)


@pytest.mark.slow
@given(st.text(max_size=200))
def test_any_text_is_a_scenario_or_an_error_of_ours(text: str) -> None:
    problem = ""
    try:
        parse(text)
    except ConfigError as error:
        problem = str(error)
    assert "\n" not in problem


@pytest.mark.slow
@given(st.integers(0, len(GOOD) - 1), st.characters(max_codepoint=200))
def test_a_file_with_one_wrong_character_is_read_or_refused(place: int, character: str) -> None:
    with suppress(ConfigError):
        parse(GOOD[:place] + character + GOOD[place + 1 :])


def test_a_file_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "weekend.yaml"
    file.write_text("members: 1\ntopics: {a: 1}\n")
    assert load(str(file)).name == "weekend"


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "log.yaml"
    file.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="larger than"):
        load(str(file))


def test_the_example_of_the_docs_can_be_read_and_its_pictures_are_there() -> None:
    docs = Path(__file__).parents[2] / "docs"
    page = (docs / "lab.md").read_text()
    example = page.split("<<'END'\n")[1].split("\nEND\n")[0]
    assert len(parse(example).events) == 3
    pictures = re.findall(r"\((pictures/lab-[\w-]+\.svg)\)", page)
    assert len(pictures) >= 9
    assert all((docs / picture).is_file() for picture in pictures)
