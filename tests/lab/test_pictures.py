"""Timelines, message charts and plots show what is in the trace."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from shoal.drawing import Label, Line, Rectangle
from shoal.errors import ConfigError
from shoal.lab import SCHEMES, Run, built_in, compare, run_scenario
from shoal.lab.growth import draw_growth, measure_newcomer
from shoal.lab.message_chart import PHASES, draw_messages
from shoal.lab.terminal import draw_text
from shoal.lab.timeline import RED, draw_timeline, members_of, window_of


@pytest.fixture(scope="module")
def cut() -> list[Run]:
    return compare(built_in("network-cut"), seed=3)


def test_a_timeline_has_a_strip_for_every_span(cut: list[Run]) -> None:
    window = window_of(cut)
    canvas = draw_timeline(cut)
    titles = [s.title for s in canvas.shapes if isinstance(s, Rectangle) and " to " in s.title]
    shown = sum(window.shows(span.begin_ms, span.end_ms) for run in cut for span in run.trace.spans)
    assert len([t for t in titles if t.startswith("m")]) == shown


def test_double_ownership_is_red_and_only_where_it_was(cut: list[Run]) -> None:
    def red(runs: list[Run]) -> int:
        shapes = draw_timeline(runs).shapes
        # One frame belongs to the legend.
        return sum(isinstance(s, Line) and s.color == RED for s in shapes) - 1

    assert red(cut[:1]) == 2 * cut[0].metrics.two_owners > 0
    assert red(cut[1:]) == 0


def test_all_schemes_share_one_time_axis(cut: list[Run]) -> None:
    texts = [s.text for s in draw_timeline(cut).shapes if isinstance(s, Label)]
    assert sum(bool(re.fullmatch(r"\d+ s", text)) for text in texts) <= 15
    for scheme in SCHEMES.values():
        assert any(text.startswith(scheme.name) for text in texts)


def test_the_line_of_an_event_crosses_no_words(cut: list[Run]) -> None:
    shapes = draw_timeline(cut).shapes
    lines = [s for s in shapes if isinstance(s, Line) and s.dashed]
    words = [s for s in shapes if isinstance(s, Label) and s.size >= 11 and s.anchor == "start"]
    assert len(lines) == len(cut), "one for each scheme"
    for line in lines:
        (x, top), (_, bottom) = line.points
        for text in words:
            is_beside = x < text.x or x > text.x + 7 * len(text.text)
            assert is_beside or text.y < top or text.y - text.size > bottom, text.text


def test_the_svg_is_well_formed_and_the_png_a_png(cut: list[Run]) -> None:
    pytest.importorskip("PIL")
    canvas = draw_timeline(cut[:1])
    assert ET.fromstring(canvas.to_svg()).tag.endswith("svg")
    assert canvas.to_png(scale=0.3).startswith(b"\x89PNG")


def test_the_terminal_shows_two_owners_fencing_and_stops(cut: list[Run]) -> None:
    text = draw_text(cut, width=90)
    panels = text.split("\n\n")
    assert "!" in panels[1]
    assert "!" not in "".join(panels[2:6])
    assert all("~" in panel for panel in panels[2:6])
    assert all(len(line) <= 90 for line in text.splitlines())


def test_a_short_stop_is_seen_in_the_terminal() -> None:
    text = draw_text([run_scenario(built_in("member-joins"), "central")], width=60)
    assert re.search(r"stopped +6", text)


@pytest.mark.slow
def test_of_a_large_group_those_are_shown_to_whom_something_happens() -> None:
    scenario = replace(built_in("member-crashes"), members=30, topics={"t": 60})
    runs = [run_scenario(scenario, "central")]
    shown = members_of(runs)
    assert len(shown) == 12
    assert "m2" in shown


@pytest.mark.parametrize("scheme", ["eager", "cooperative"])
def test_the_message_chart_draws_each_message_of_the_trace_once(scheme: str) -> None:
    run = run_scenario(built_in("member-joins"), scheme)
    canvas = draw_messages(run)
    colors = {color for _, color in PHASES.values()}
    arrows = [s for s in canvas.shapes if isinstance(s, Line) and s.color in colors]
    # A shaft and two sides of a tip.
    assert len(arrows) % 3 == 0
    words = [s.text for s in canvas.shapes if isinstance(s, Label)]
    first_ms = run.trace.events[0][0]
    joins = [m for m in run.trace.messages if m.what == "JoinGroup" and m.sent_ms >= first_ms]
    assert words.count("JoinGroup") == len(joins)
    assert "FindCoordinator" in words
    assert words.count("assignment") == sum(
        m.what == "SyncGroup reply" and m.sent_ms >= first_ms for m in run.trace.messages
    )


def test_a_run_without_messages_has_no_chart() -> None:
    run = run_scenario(built_in("member-joins"), "eager")
    run.trace.messages.clear()
    with pytest.raises(ConfigError, match="no messages"):
        draw_messages(run)


@pytest.mark.slow
def test_the_herd_grows_faster_under_watchers_than_under_a_coordinator() -> None:
    points = [measure_newcomer(scheme, size, size) for scheme in SCHEMES for size in (10, 40)]
    growth = {
        scheme: points[2 * index + 1].messages / points[2 * index].messages
        for index, scheme in enumerate(SCHEMES)
    }
    assert growth["watchers"] > 5
    assert all(growth[scheme] <= 4.5 for scheme in ("central", "eager", "cooperative"))
    assert growth["incremental"] < 2
    canvas = draw_growth(points, points)
    assert sum(isinstance(s, Rectangle) for s in canvas.shapes) == 3 * len(points)
