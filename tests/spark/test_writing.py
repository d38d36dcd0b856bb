"""Rows on their way to topics, without Spark around them: what is refused, and where rows go."""

from __future__ import annotations

from typing import Any

import pytest

from shoal import Consumer, Producer, TopicPartition
from shoal.errors import ConfigError, ShoalError
from shoal.testing import Broker

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

from shoal.spark.writer import acknowledged, by_topic, by_wish, gathered, send  # noqa: E402 - needs them


def rows(**columns: list[object]):
    return pa.RecordBatch.from_pydict(columns)


def test_rows_that_the_broker_refuses_fail_the_write(shoal_broker: Broker) -> None:
    shoal_broker.create_topic("t", 1)
    with Producer(bootstrap_servers=shoal_broker.bootstrap_servers) as producer:
        shoal_broker.fail("Produce", "INVALID_RECORD")
        sent = send(producer, "t", rows(value=[b"a", b"b"]))
        with pytest.raises(ShoalError, match="INVALID_RECORD"):
            acknowledged(producer, sent)


def test_a_row_that_names_its_partition_goes_there_and_others_by_their_key(
    shoal_broker: Broker,
) -> None:
    shoal_broker.create_topic("t", 2)
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"one", b"free", b"zero"], "partition": pa.array([1, None, 0], pa.int32())}
    )
    parts = list(by_wish(batch))
    assert [part.column("value").to_pylist() for part in parts] == [[b"one", b"zero"], [b"free"]]
    assert "partition" not in parts[1].schema.names
    settings: dict[str, Any] = {"bootstrap_servers": shoal_broker.bootstrap_servers}
    with Producer(**settings) as producer:
        acknowledged(producer, send(producer, "t", parts[0]))
    with Consumer(**settings) as consumer:
        consumer.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        consumer.seek_to_beginning(*consumer.assignment())
        found: dict[Any, Any] = {}
        while len(found) < 2:
            found.update({one.value: one.partition for one in consumer.poll(timeout=5)})
    assert found == {b"one": 1, b"zero": 0}


def test_an_option_wins_over_the_column_and_a_row_without_a_topic_is_refused() -> None:
    batch = rows(value=[b"a", b"b", b"c"], topic=["x", "y", "x"])
    by_column = {name: part.column("value").to_pylist() for name, part in by_topic(batch, None)}
    assert by_column == {"x": [b"a", b"c"], "y": [b"b"]}
    ((name, part),) = by_topic(batch, "mine")
    assert (name, part.num_rows, part.schema.names) == ("mine", 3, ["value"])
    with pytest.raises(ConfigError, match="a row has no topic"):
        list(by_topic(rows(value=[b"a", b"b"], topic=["x", None]), None))


def test_gathering_keeps_every_row_in_order() -> None:
    batches = [rows(value=[n * 3, n * 3 + 1, n * 3 + 2]) for n in range(50)]
    (whole,) = gathered(iter(batches))
    assert whole.column("value").to_pylist() == list(range(150))
    assert list(gathered(iter(()))) == []
