"""The listener: what micro-batches read, and how far they are behind, on a real session."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from shoal.types import TopicPartition
from tests.spark.topics import Topics

pytest.importorskip("pyspark")

from shoal.spark.query_metrics import (
    BatchMetrics,
    QueryMetrics,
    QueryTotals,
    ReportBook,
    lag_of,
)
from shoal.spark.read_tally import ADDRESS_SETTING, TaskReport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 150.0


def report(batch_id: int = 0, *, task: int = 0, rows: int = 10, query_id: str = "q") -> TaskReport:
    return TaskReport(query_id, batch_id, 1, task, rows, 1_000, 5, 9)


def test_a_batch_waits_for_its_rows_and_takes_the_last_word_of_each_task() -> None:
    book = ReportBook()
    book.add(report(rows=4))
    book.add(report(rows=10))  # the task was repeated
    late = threading.Timer(0.05, book.add, [report(task=1, rows=20)])
    late.start()
    assert [each.rows for each in book.take("q", 0, 30, PATIENCE_S)] == [10, 20]
    assert len(book) == 0
    late.join()


def test_a_report_that_never_comes_is_not_waited_for_for_ever() -> None:
    book = ReportBook()
    book.add(report(rows=4))
    assert [each.rows for each in book.take("q", 0, 5, 0.01)] == [4]


def test_only_what_is_over_is_forgotten() -> None:
    book = ReportBook()
    for each in (report(0), report(1), report(2), report(1, query_id="other")):
        book.add(each)
    book.take("q", 1, 0, 0)
    assert len(book) == 2
    book.forget("q")
    assert len(book) == 1


def test_memory_is_bounded_when_no_batch_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.spark.query_metrics.REPORTS_MAX", 3)
    book = ReportBook()
    for number in range(5):
        book.add(report(task=number, rows=number))
    assert [each.rows for each in book.take("q", 0, 0, 0)] == [2, 3, 4]


def source(end: Any, latest: Any) -> SimpleNamespace:
    return SimpleNamespace(endOffset=end, latestOffset=latest)


def batch_metrics(query_id: str, *, batch_id: int = 0, name: str | None = None) -> BatchMetrics:
    lag = {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4}
    return BatchMetrics(query_id, name, batch_id, 10, 1_000, 2.5, 1.5, 2, 7, lag, batch_id == 0)


def test_prometheus_takes_what_queries_did_and_how_far_they_are_behind() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    from shoal.client.prometheus import ClientCollector

    totals = QueryTotals()
    registry = prometheus_client.CollectorRegistry()
    clients = ClientCollector(registry)
    clients.add(totals, name="spark")
    totals.add(batch_metrics("1", name="orders"))
    totals.add(batch_metrics("1", batch_id=1, name="orders"))
    totals.add(batch_metrics("2"))

    def value(name: str, **labels: str) -> float | None:
        found = registry.get_sample_value(f"shoal_streaming_query_{name}", labels)
        return None if found is None else float(found)

    one = {"client": "spark", "query": "orders", "query_id": "1"}
    assert value("rows_total", **one) == 20
    assert value("bytes_total", **one) == 2_000
    assert value("batches_total", **one) == 2
    assert value("incomplete_batches_total", **one) == 1
    assert value("fetch_time_ms_total", **one) == 5
    assert value("decode_time_ms_total", **one) == 3
    assert value("lag", **one) == 7
    assert value("batch_id", **one) == 1
    assert value("partition_lag", **one, topic="t", partition="1") == 4
    assert value("rows_total", client="spark", query="2", query_id="2") == 10
    totals.forget("1")
    assert value("rows_total", **one) is None


def test_lag_is_told_by_partition_and_foreign_sources_have_none() -> None:
    ours = source(json.dumps({"t": {"0": 7, "1": 5}}), json.dumps({"t": {"0": 10, "1": 5, "2": 4}}))
    found = lag_of([ours, source("17", '{"files": 3}'), source(None, None), source("nonsense", "")])
    assert found == {
        TopicPartition("t", 0): 3,
        TopicPartition("t", 1): 0,
        TopicPartition("t", 2): 4,
    }


@pytest.mark.spark
@pytest.mark.slow
def test_every_micro_batch_says_what_it_read_and_what_is_left(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(partitions=2)
    topics.write_numbers(topic, range(100))
    told: list[BatchMetrics] = []

    def keep(metrics: BatchMetrics) -> None:
        told.append(metrics)
        raise RuntimeError("a callback that fails stops neither the query nor what is told")

    with QueryMetrics(spark, keep) as metrics:
        spark.streams.addListener(metrics)
        try:
            frame = topics.stream(
                spark, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=40
            )
            writer = frame.writeStream.format("noop").queryName("watched")
            query = writer.option("checkpointLocation", str(tmp_path)).start()
            deadline = time.monotonic() + PATIENCE_S
            while sum(each.rows for each in told) < 100:
                assert query.exception() is None
                assert time.monotonic() < deadline, "the metrics did not come"
                time.sleep(0.05)
            running = metrics.metrics()
            query.stop()
        finally:
            spark.streams.removeListener(metrics)
        read = [each for each in told if each.rows]
        assert all(each.is_complete for each in read), told
        assert sum(each.rows for each in read) == 100
        # A record of these takes some seven bytes of framing at least, and its value.
        assert all(each.size_bytes > 7 * each.rows for each in read)
        assert all(each.decode_ms > 0 and each.fetch_ms > 0 and each.tasks >= 1 for each in read)
        assert read[0].lag == 100 - read[0].rows
        assert read[0].lag_by_partition.keys() == {TopicPartition(topic, n) for n in (0, 1)}
        assert told[-1].lag == 0
        tags = {"query": "watched", "query-id": told[0].query_id}
        assert running.value("rows-total", **tags) == 100
        assert running.value("bytes-total", **tags) == sum(each.size_bytes for each in read)
        assert metrics.last("watched") == metrics.last(told[0].query_id)
        assert metrics.last("another") is None
        assert "rows from" in str(read[0])
    assert spark.conf.get(ADDRESS_SETTING, None) is None


@pytest.mark.spark
@pytest.mark.slow
def test_a_closed_listener_leaves_the_next_one_alone(spark: SparkSession) -> None:
    first = QueryMetrics(spark)
    with QueryMetrics(spark):
        wanted = spark.conf.get(ADDRESS_SETTING)
        first.close()
        first.close()
        assert spark.conf.get(ADDRESS_SETTING) == wanted
    assert spark.conf.get(ADDRESS_SETTING, None) is None
