"""The demo's Spark job, as a process of its own: ``python -m shoal.cli.demo_spark``.

Two streaming queries over one topic. Says on standard output what it did once every window up to
the given time is closed and written, or what went wrong, in one JSON object; stops Spark when its
standard input ends. Whoever cannot wait for that kills its process group.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.cli.demo_orders import PRODUCTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PORTION: Final = 8_000
LOOK_S: Final = 0.1


def main() -> None:
    """Run until the windows are closed, report, and wait for the end of standard input."""
    servers, topic, results, group_id, scratch, closed_ms = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    is_over = threading.Event()
    threading.Thread(target=_listen, args=(is_over,), daemon=True).start()
    job = Job(servers, topic=topic, results=results, group_id=group_id, scratch=Path(scratch))
    try:
        job.start()
        if job.wait(int(closed_ms), is_over):
            _say(job.summary())
            is_over.wait()
    except Exception as error:  # noqa: BLE001 - told to the demo, which raises it again
        _say({"failed": _reason(error)})
    finally:
        job.stop()


def _say(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told)}\n")
    sys.stdout.flush()


def _listen(is_over: threading.Event) -> None:
    sys.stdin.buffer.read()
    is_over.set()


def _reason(error: BaseException) -> str:
    """What went wrong in Spark, without the pages of Java's stack."""
    # Py4J's errors hold Java's own; the text of either begins with what happened.
    said = str(getattr(error, "java_exception", error)).strip().partition("\n")[0]
    return said or type(error).__name__


class Job:
    """Orders → revenue per shop and window → a topic, with a group's progress, and Parquet."""

    def __init__(
        self, servers: str, *, topic: str, results: str, group_id: str, scratch: Path
    ) -> None:
        self._servers = servers
        self._topic = topic
        self._results = results
        self._group_id = group_id
        self._scratch = scratch
        self._parquet = scratch / "revenue.parquet"
        self._queries: list[Any] = []
        self._spark: SparkSession | None = None

    def start(self) -> None:
        """Start Spark and both queries."""
        from shoal.spark.local import session
        from shoal.spark.pipelines import ORDER_SCHEMA, PRODUCT_SCHEMA, as_records, revenue

        settings = {
            # A short job: compiling less and collecting garbage simply starts faster.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.sql.streaming.numRecentProgressUpdates": "10000",
            "spark.local.dir": str(self._scratch / "local"),
        }
        self._spark = spark = session("shoal-demo", quiet=True, settings=settings)
        products = spark.createDataFrame(list(PRODUCTS), PRODUCT_SCHEMA)

        def read(group_id: str | None) -> DataFrame:
            reader = (
                spark.readStream.format("shoal")
                .option("kafka.bootstrap.servers", self._servers)
                .option("subscribe", self._topic)
                .option("startingOffsets", "earliest")
                # Several micro-batches, however slow the start: late orders find closed windows.
                .option("maxOffsetsPerTrigger", str(PORTION))
                .option("valueFormat", "json")
                .option("valueSchema", ORDER_SCHEMA)
            )
            return (reader.option("groupId", group_id) if group_id else reader).load()

        by_window = revenue(read(self._group_id), products)
        self._queries.append(
            as_records(by_window, key="shop")
            .writeStream.format("shoal")
            .option("kafka.bootstrap.servers", self._servers)
            .option("topic", self._results)
            .option("checkpointLocation", str(self._scratch / "topic"))
            .outputMode("append")
            .trigger(processingTime="1 second")
            .start()
        )
        self._queries.append(
            revenue(read(None), products)
            .writeStream.format("parquet")
            .option("path", str(self._parquet))
            .option("checkpointLocation", str(self._scratch / "parquet"))
            .outputMode("append")
            .trigger(processingTime="1 second")
            .start()
        )

    def wait(self, closed_ms: int, is_over: threading.Event) -> bool:
        """Whether every window up to ``closed_ms`` was closed and written before the end came."""
        while not is_over.is_set():
            if all(_watermark_ms(query) >= closed_ms for query in self._queries):
                return True
            for query in self._queries:
                if (error := query.exception()) is not None:
                    raise error
            time.sleep(LOOK_S)
        return False

    def summary(self) -> dict[str, Any]:
        """What was read and written."""
        return {
            "rows": [_rows(query) for query in self._queries],
            "batches": [len(query.recentProgress) for query in self._queries],
            "windows_in_parquet": self._closed_windows(),
        }

    def _closed_windows(self) -> int:
        assert self._spark is not None
        if not any(self._parquet.glob("*.parquet")):
            return 0
        return int(self._spark.read.parquet(str(self._parquet)).count())

    def stop(self) -> None:
        """Stop the queries, then Spark."""
        for query in self._queries:
            query.stop()
        if self._spark is not None:
            self._spark.stop()


def _rows(query: Any) -> int:
    return sum(progress["numInputRows"] for progress in query.recentProgress)


def _watermark_ms(query: Any) -> int:
    """The watermark the last finished micro-batch ran with: windows before it are written."""
    if not query.recentProgress:
        return 0
    text = query.recentProgress[-1]["eventTime"].get("watermark", "1970-01-01T00:00:00.000Z")
    return int(datetime.fromisoformat(text).timestamp() * 1000)


if __name__ == "__main__":
    main()
