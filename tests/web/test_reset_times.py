"""When the records were written between which a reset moves a group, on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shoal import Admin, Producer
from shoal.fleet.offset_reset import PlannedReset
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.web import reset_times as module
from shoal.web.reset_times import reset_times

TP, EMPTY = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture(scope="module")
def settings() -> Iterator[dict[str, Any]]:
    with Broker(topics={"orders": 2}) as broker:
        found: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
        with Producer(**found) as producer:
            for number in range(10):
                at_ms = 1_700_000_000_000 + number * 60_000
                producer.send("orders", b"%d" % number, partition=0, timestamp_ms=at_ms)
        yield found


def test_a_time_is_that_of_the_record_that_would_be_read_next(settings: dict[str, Any]) -> None:
    found, why = reset_times(settings, [PlannedReset(TP, 7, 2, 0, 10)])
    assert found == {(TP, 7): 1_700_000_420_000, (TP, 2): 1_700_000_120_000}
    assert why == ""


def test_the_end_and_what_is_before_the_beginning_have_no_time(settings: dict[str, Any]) -> None:
    rows = [PlannedReset(TP, 3, 10, 5, 10), PlannedReset(EMPTY, None, 0, 0, 0)]
    assert reset_times(settings, rows) == ({}, "")


@pytest.mark.slow
def test_what_cannot_be_read_is_said_and_hides_nothing_else(settings: dict[str, Any]) -> None:
    found, why = reset_times(settings, [PlannedReset(TopicPartition("none", 0), 1, 0, 0, 9)])
    assert found == {}
    assert "none" in why


def test_many_partitions_are_not_all_looked_at_and_that_is_said(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PARTITIONS_MAX", 1)
    rows = [PlannedReset(TP, 1, 0, 0, 10), PlannedReset(EMPTY, None, 0, 0, 0)]
    found, why = reset_times(settings, rows)
    assert len(found) == 2
    assert "1 more" in why


@pytest.mark.slow
def test_a_preview_on_the_page_has_them(settings: dict[str, Any]) -> None:
    from tests.web.dashboard import dashboard

    with Admin(**settings) as admin:
        admin.alter_group_offsets("g", {TP: 7})
    with dashboard(**settings) as served:
        given = {"group": "g", "to": "earliest"}
        shown = served.visitor().post("/api/reset/preview", given).json
    (row,) = shown["rows"]
    assert (row["from_ms"], row["to_ms"]) == (1_700_000_420_000, 1_700_000_000_000)
    assert shown["times_unknown"] == ""
