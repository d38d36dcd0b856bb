"""A run told as text: what happened, when, and why."""

from __future__ import annotations

import pytest

from shoal.lab import SCHEMES, built_in, run_scenario
from shoal.lab.explanation import HOW, explain


def told(name: str, scheme: str, seed: int | None = None, width: int = 200) -> list[str]:
    run = run_scenario(built_in(name), scheme, seed=seed)
    return explain(run, width=width).splitlines()


def at(lines: list[str], words: str) -> float:
    """The second of the first line with these words."""
    return float(next(line for line in lines if words in line).split()[0])


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_is_told_with_how_it_works_and_where_its_offsets_are(scheme: str) -> None:
    text = " ".join(" ".join(told("member-crashes", scheme)).split())
    assert HOW[scheme] in text
    assert SCHEMES[scheme].offsets in text
    assert "* m2 crash" in text
    assert "In total: stable after" in text


def test_two_owners_are_told_with_their_cause() -> None:
    lines = told("network-cut", "watchers", 3)
    double = next(line for line in lines if "both read" in line)
    assert "the session of m2 has ended, and it reads on" in double
    assert at(lines, "is cut off") < at(lines, "both read") < at(lines, "its session is gone")


def test_a_split_brain_is_told_as_one() -> None:
    for seed in range(20):
        lines = told("split-brain", "watchers", seed)
        doubles = [line for line in lines if "both read" in line]
        if doubles:
            break
    assert "decided on another view, and overlooked that its claim failed" in doubles[0]
    assert not any("session is gone" in line for line in lines)


def test_since_scheme_2_the_same_member_is_fenced() -> None:
    for scheme in list(SCHEMES)[1:]:
        lines = told("network-cut", scheme, 3)
        assert any("m2 keeps reading 2 partitions" in line and "fenced" in line for line in lines)
        assert not any("both read" in line for line in lines)


def test_what_means_nothing_under_a_scheme_is_said_to() -> None:
    assert any("there is no registry here" in line for line in told("split-brain", "eager"))
    assert any("there is no coordinator here" in line for line in told("coordinator-cut", "1"))
    assert not any("there is no" in line for line in told("split-brain", "central"))


def test_a_takeover_is_told_with_who_and_how_long() -> None:
    lines = told("coordinator-cut", "central")
    assert any("coordinates: elected with epoch 2" in line for line in lines)
    assert any("steps down: another was elected meanwhile" in line for line in lines)
    assert "s without a coordinator" in " ".join(lines)


@pytest.mark.parametrize("width", [60, 80, 100])
def test_it_fits_the_width_and_is_in_order(width: int) -> None:
    lines = told("rolling-restart", "watchers", width=width)
    assert all(len(line) <= width for line in lines)
    times = [float(line.split()[0]) for line in lines if line[8:11] == " s "]
    assert len(times) > 10
    assert times == sorted(times)


def test_many_members_are_counted_and_not_named() -> None:
    from dataclasses import replace

    scenario = replace(built_in("member-joins"), members=20, topics={"orders": 40})
    text = explain(run_scenario(scenario, "watchers"), width=200)
    assert " members stop and look at the registry" in text
