"""The demo's Spark pipeline: orders → revenue per shop and window → a topic and Parquet.

Spark takes seconds to start; this happens in a thread while the consumer group plays its act.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shoal.cli.demo_orders import PRODUCTS
from shoal.client.admin import Admin
from shoal.errors import RequestTimeoutError, ShoalError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# A short job: compiling less and collecting garbage simply starts faster (docs/spark.md).
_SETTINGS: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}

QUERIES: Final = 2
PORTION: Final = 8_000


def failed(error: BaseException) -> ShoalError:
    """What went wrong in Spark, without the pages of Java's stack."""
    if isinstance(error, ShoalError):
        return error
    # Py4J's errors hold Java's own; the text of either begins with what happened.
    said = str(getattr(error, "java_exception", error)).strip().partition("\n")[0]
    return ShoalError(f"the Spark pipeline failed: {said or type(error).__name__}")


class Pipeline:
    """Two streaming queries over one topic, until nothing is left to read."""

    def __init__(self, bootstrap_servers: str, *, topic: str, results: str, group_id: str) -> None:
        self._servers = bootstrap_servers
        self._topic = topic
        self._results = results
        self._group_id = group_id
        self._scratch = Path(tempfile.mkdtemp(prefix="shoal-demo-"))
        self.parquet = self._scratch / "revenue.parquet"
        self._failure: BaseException | None = None
        self._queries: list[Any] = []
        self._spark: SparkSession | None = None
        self._thread = threading.Thread(target=self._start, name="demo-spark", daemon=True)
        self._thread.start()

    def _start(self) -> None:
        try:
            self._run()
        except Exception as error:  # noqa: BLE001 - raised again by finish(), in the demo's thread
            self._failure = error

    def _run(self) -> None:
        from shoal.spark.local import session
        from shoal.spark.pipelines import ORDER_SCHEMA, PRODUCT_SCHEMA, as_records, revenue

        self._spark = spark = session("shoal-demo", quiet=True, settings=_SETTINGS)
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
            .option("path", str(self.parquet))
            .option("checkpointLocation", str(self._scratch / "parquet"))
            .outputMode("append")
            .trigger(processingTime="1 second")
            .start()
        )

    def finish(self, *, closed_ms: int, timeout_s: float) -> dict[str, Any]:
        """Wait until every window up to ``closed_ms`` is closed and written; what was done."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._failure is None:
            if len(self._queries) == QUERIES and all(
                self._watermark_ms(query) >= closed_ms for query in self._queries
            ):
                break
            for query in self._queries:
                if (error := query.exception()) is not None:
                    raise failed(error) from error
            time.sleep(0.1)
        else:
            if self._failure is not None:
                raise failed(self._failure) from self._failure
            raise RequestTimeoutError(
                f"the Spark pipeline did not finish within {timeout_s:g} s; is the machine busy?"
            )
        return {
            "rows": [self._read(query) for query in self._queries],
            "batches": [len(query.recentProgress) for query in self._queries],
            "windows_in_parquet": self._closed_windows(),
        }

    def lag(self) -> int:
        """How far the pipeline's group is behind."""
        with Admin(bootstrap_servers=self._servers) as admin:
            return sum(one.lag or 0 for one in admin.group_lag(self._group_id).values())

    @staticmethod
    def _read(query: Any) -> int:
        return sum(progress["numInputRows"] for progress in query.recentProgress)

    @staticmethod
    def _watermark_ms(query: Any) -> int:
        """The watermark the last finished micro-batch ran with: windows before it are written."""
        if not query.recentProgress:
            return 0
        text = query.recentProgress[-1]["eventTime"].get("watermark", "1970-01-01T00:00:00.000Z")
        return int(datetime.fromisoformat(text).timestamp() * 1000)

    def _closed_windows(self) -> int:
        assert self._spark is not None
        if not any(self.parquet.glob("*.parquet")):
            return 0
        return int(self._spark.read.parquet(str(self.parquet)).count())

    def close(self, keep: Path | None = None) -> None:
        """Stop the queries and Spark; the Parquet files go to ``keep``."""
        self._thread.join(timeout=60)
        for query in self._queries:
            query.stop()
        if self._spark is not None:
            self._spark.stop()
        if keep is not None and self.parquet.exists():
            shutil.rmtree(keep, ignore_errors=True)
            shutil.copytree(self.parquet, keep)
        shutil.rmtree(self._scratch, ignore_errors=True)
