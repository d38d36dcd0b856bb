"""What Prometheus' own parsers read of what we write."""

from __future__ import annotations

import math
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from shoal.metrics.cluster import (
    GroupFacts,
    PartitionPosition,
    ShownCluster,
    cluster_families,
)
from shoal.metrics.exposition import PIECE_LINES, Buckets, Family, gauge, render, render_both
from shoal.types import TopicPartition

both = pytest.mark.parametrize("openmetrics", [False, True])


def parsed(*families: Family, openmetrics: bool) -> dict[str, list[tuple[str, dict, float]]]:
    """Family → its samples, as the oracle reads them."""
    text = render(families, openmetrics=openmetrics).decode()
    parse = parse_openmetrics if openmetrics else parse_text
    return {
        one.name: [(sample.name, sample.labels, sample.value) for sample in one.samples]
        for one in parse(text)
    }


@both
def test_gauges_and_counters_have_the_names_people_query(openmetrics: bool) -> None:
    lag = Family("kafka_lag", "gauge", "How far.", ("topic",), {("a",): 3, ("b",): 0.5})
    seen = Family("seen", "counter", "How often.", (), {(): 7})
    assert parsed(lag, seen, openmetrics=openmetrics) == {
        "kafka_lag": [("kafka_lag", {"topic": "a"}, 3), ("kafka_lag", {"topic": "b"}, 0.5)],
        "seen": [("seen_total", {}, 7)],
    }


@both
def test_buckets_are_added_up(openmetrics: bool) -> None:
    took = Buckets((0.5, 2.0), (3, 0, 4), 30.5)
    family = Family("took_seconds", "histogram", "How long.", ("cause",), {("left",): took})
    left = {"cause": "left"}
    assert parsed(family, openmetrics=openmetrics)["took_seconds"] == [
        ("took_seconds_bucket", {**left, "le": "0.5"}, 3),
        ("took_seconds_bucket", {**left, "le": "2.0"}, 3),
        ("took_seconds_bucket", {**left, "le": "+Inf"}, 7),
        ("took_seconds_count", left, 7),
        ("took_seconds_sum", left, 30.5),
    ]
    assert family.series == 5


@both
@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e300, 2**60, -1])
def test_every_number_comes_back(openmetrics: bool, value: float) -> None:
    assert parsed(gauge("x", "y", value), openmetrics=openmetrics) == {"x": [("x", {}, value)]}


def test_no_number_is_not_a_number() -> None:
    assert render([gauge("x", "y", math.nan)]).endswith(b"x NaN\n")


@both
@pytest.mark.parametrize("name", ['x"} 1\n# TYPE y gauge\ny 2', "back\\slash\\n", "ünï", "}{,="])
def test_a_hostile_name_is_only_a_name(openmetrics: bool, name: str) -> None:
    family = Family("lag", "gauge", "a\nb\\c", ("group",), {(name,): 1})
    assert parsed(family, openmetrics=openmetrics) == {"lag": [("lag", {"group": name}, 1)]}


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_name_comes_back(name: str) -> None:
    text = render([Family("lag", "gauge", "text", ("group",), {(name,): 1})]).decode()
    # The oracle cuts lines where Python does; Prometheus cuts at the line feed alone.
    (line,) = [one for one in text.split("\n") if one.startswith("lag{")]
    value = line.removeprefix('lag{group="').removesuffix('"} 1')
    back = value.replace("\\\\", "\0").replace('\\"', '"').replace("\\n", "\n")
    if "\0" not in name:
        assert back.replace("\0", "\\") == name


def test_what_is_no_text_does_not_stop_a_scrape() -> None:
    assert b'group="a?b"' in render(
        [Family("lag", "gauge", "text", ("group",), {("a\udc80b",): 1})]
    )


def test_names_of_what_is_left_out_are_bounded_too() -> None:
    def fine() -> list[Family]:
        return [Family(f"m{n}", "gauge", "x", ("a",), {("b",): 1}) for n in range(500)]

    shown = ShownCluster({}, {}, {}, ())
    families = cluster_families(shown, series_max=100, fine=fine())
    assert sum(family.series for family in families) <= 100
    dropped = families[-1].samples
    gone = sum(value for _, value in dropped.items() if isinstance(value, int | float))
    assert gone + sum(one.name.startswith("m") for one in families) == 500


def test_both_formats_are_the_ones_that_are_made_alone_and_share_what_they_can() -> None:
    families = [
        Family("lag", "gauge", "x", ("a",), {(str(n),): n for n in range(2 * PIECE_LINES)}),
        Family("seen", "counter", "x", (), {(): 1}),
        Family("took", "histogram", "x", (), {(): Buckets((1.0,), (2, 3), 4.5)}),
    ]
    texts = render_both(families)
    for openmetrics, found in texts.items():
        assert b"".join(found) == render(families, openmetrics=openmetrics, is_end=False)
        assert max(piece.count(b"\n") for piece in found) <= PIECE_LINES
    shared = [one for one in texts[False] if any(one is other for other in texts[True])]
    assert [one.split(b" ")[2] for one in shared if one.startswith(b"#")] == [b"lag", b"took"]


@pytest.mark.slow
def test_a_scrape_of_many_partitions_needs_little_more_than_its_text() -> None:
    positions = {TopicPartition("orders", n): PartitionPosition(n, n, 0.0) for n in range(10)}
    groups = [
        GroupFacts(f"group-{n}", "Stable", "classic", 1, 1, dict(positions)) for n in range(600)
    ]
    tracemalloc.start()
    try:
        shown = ShownCluster({}, {}, {}, groups)
        texts = render_both(cluster_families(shown, series_max=1_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    text = sum(map(len, texts[False]))
    assert sum(piece.count(b'partition="7"') for piece in texts[False]) == 2 * len(groups)
    assert peak < 1.8 * text, f"{peak:,} bytes for a text of {text:,}"


def test_openmetrics_ends_once() -> None:
    begin = render([gauge("x", "y", 1)], openmetrics=True, is_end=False)
    end = render([gauge("z", "y", 1)], openmetrics=True)
    assert (begin + end).count(b"# EOF") == 1
    assert len(list(parse_openmetrics((begin + end).decode()))) == 2
