"""Metrics that clients pushed, as they are shown: added up, within limits, as the clients' own."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.broker.client_metrics import ReceivedMetrics, metric_name
from shoal.metrics.exposition import render
from shoal.wire.otlp import OtlpPoint, OtlpResource
from tests.metrics.scraping import Samples, samples

A, B = b"a" * 16, b"b" * 16


def pushed(*points: OtlpPoint, **attributes: str) -> list[OtlpResource]:
    return [OtlpResource(attributes, list(points))]


def value(name: str, number: float, **attributes: str) -> OtlpPoint:
    return OtlpPoint(name, number, attributes, is_counter=False, is_delta=False)


def count(name: str, number: float, *, is_delta: bool = True) -> OtlpPoint:
    return OtlpPoint(name, number, {}, is_counter=True, is_delta=is_delta)


def shown(received: ReceivedMetrics) -> Samples:
    text = render(received.families(), openmetrics=True).decode()
    found = samples(text, openmetrics=True)
    return {name: one for name, one in found.items() if name.startswith("kafka_client_")}


def test_counters_of_all_instances_are_added_up_and_of_values_the_largest_counts() -> None:
    received = ReceivedMetrics()
    lag = "org.apache.kafka.consumer.records.lag.max"
    received.take(A, "app", pushed(count("sent.total", 5), value(lag, 3), group_id="g"))
    received.take(B, "app", pushed(count("sent.total", 2), value(lag, 8), group_id="g"))
    received.take(A, "app", pushed(count("sent.total", 1), value(lag, 4), group_id="g"))
    labels = ("app", "g", "", "", "")
    assert shown(received) == {
        "kafka_client_sent_total": {labels: 8},
        "kafka_client_consumer_records_lag_max": {labels: 8},
    }


def test_what_is_told_from_the_beginning_grows_by_the_difference() -> None:
    received = ReceivedMetrics()
    for told in (5, 7, 7, 2):
        received.take(A, "app", pushed(count("sent", told, is_delta=False)))
    (found,) = shown(received)["kafka_client_sent_total"].values()
    assert found == 9, "5, 2 more, none, and 2 after it began anew"


def test_labels_are_what_ends() -> None:
    received = ReceivedMetrics()
    point = value("lag", 1, topic="t", partition="3", thread="x", **{"node.id": "9"})
    received.take(A, "app", pushed(point, client_rack="r", **{"group.id": "g"}))
    assert shown(received) == {"kafka_client_lag": {("app", "g", "t", "3", "9"): 1}}


def test_a_client_that_is_gone_takes_its_values_and_the_last_one_all() -> None:
    received = ReceivedMetrics()
    for instance in (A, B):
        received.take(instance, "app", pushed(count("sent", 1), value("lag", 5)))
    received.forget(A)
    received.forget(A)
    labels = ("app", "", "", "", "")
    assert shown(received) == {
        "kafka_client_sent_total": {labels: 2},
        "kafka_client_lag": {labels: 5},
    }
    received.forget(B)
    assert shown(received) == {}
    assert received._series == 0
    assert not any((received._instances, received._client_ids, received._told))


def test_series_without_end_are_not_kept() -> None:
    received = ReceivedMetrics(series_max=3)
    received.take(A, "app", pushed(*(value(f"m{number}", 1) for number in range(10))))
    received.take(A, "app", pushed(value("m0", 2), count("more", 1)))
    assert sorted(shown(received)) == [f"kafka_client_m{number}" for number in range(3)]
    assert received.refused == 8
    received.forget(A)
    received.take(B, "app", pushed(value("m9", 1)))
    assert list(shown(received)) == ["kafka_client_m9"], "there is room again"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_shown(number: float) -> None:
    received = ReceivedMetrics()
    received.take(A, "app", pushed(value("lag", number), count("sent", -1)))
    assert (shown(received), received.refused) == ({}, 2)


def test_one_name_is_one_kind() -> None:
    received = ReceivedMetrics()
    received.take(A, "app", pushed(count("x", 1), value("x", 2)))
    received.take(A, "app", pushed(value("y", 2), count("y", 1)))
    assert shown(received).keys() == {"kafka_client_x_total", "kafka_client_y"}
    assert received.refused == 2


@given(
    st.lists(
        st.tuples(
            st.text(max_size=40) | st.sampled_from(["x", "x.total", "x_total", "x.sum", "kafka"]),
            st.text(max_size=10),
            st.booleans(),
        ),
        max_size=20,
    )
)
def test_whatever_clients_call_things_a_scrape_can_be_read(
    names: list[tuple[str, str, bool]],
) -> None:
    received = ReceivedMetrics()
    for name, client_id, is_counter in names:
        point = OtlpPoint(name, 1.0, {"topic": client_id}, is_counter, True)
        received.take(A, "app", pushed(point))
    for name in shown(received):
        assert name.startswith("kafka_client_")


def test_no_name_can_pass_for_one_of_ours() -> None:
    assert metric_name("kafka_brokers", is_counter=False) == "kafka_client_kafka_brokers"
    assert metric_name('x"} 1\n', is_counter=False) == "kafka_client_x_1"
    assert metric_name("org.apache.kafka.a.b-c", is_counter=False) == "kafka_client_a_b_c"
    assert len(metric_name("y" * 10_000, is_counter=True)) < 200
