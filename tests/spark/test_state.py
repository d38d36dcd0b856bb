"""What ``shoal[spark]`` installs is enough for streams that keep state in Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_a_stateful_processor_counts_the_records_of_a_key(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Counting(StatefulProcessor):  # type: ignore[misc]  # pyspark is not typed for us
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "n long")

        def handleInputRows(self, key: Any, rows: Any, timers: Any) -> Iterator[Any]:
            (before,) = self._count.get() or (0,)
            count = before + sum(len(frame) for frame in rows)
            self._count.update((count,))
            yield pd.DataFrame({"key": [key[0]], "n": [count]})

        def close(self) -> None:
            """Nothing is open."""

    topic = topics.create()
    topics.write_numbers(topic, range(25))
    frame = topics.stream(spark, subscribe=topic, startingOffsets="earliest")
    counted = (
        frame.selectExpr("string(key) key")
        .groupBy("key")
        .transformWithStateInPandas(
            Counting(), outputStructType="key string, n long", outputMode="Update", timeMode="None"
        )
    )
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    try:
        query = (
            counted.writeStream.format("memory")
            .queryName("counted")
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(150)
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")
    shown = {row.key: row.n for row in spark.table("counted").collect()}
    assert shown == {str(digit): 3 if digit < 5 else 2 for digit in range(10)}
