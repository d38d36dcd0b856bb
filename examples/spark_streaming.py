"""A streaming job with state: sessions of visitors, from one topic to another.

    python examples/spark_streaming.py

Clicks come in; a visitor who is silent for 30 minutes of event time has ended a session, which goes
out as one record. The progress is a consumer group's, so ``shoal group describe sessions-etl``
shows its lag. Stopped and started again with the same checkpoint, it goes on and repeats nothing.
"""

from __future__ import annotations

import json
import tempfile
from typing import TYPE_CHECKING

from shoal import Producer
from shoal.client.admin import Admin
from shoal.spark import session
from shoal.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CLICK = "visitor string, page string, at_ms bigint"
MINUTE_MS = 60_000


def sessions(clicks: DataFrame) -> DataFrame:
    """Clicks to finished sessions; works on batches and streams alike."""
    from pyspark.sql import functions as f

    visits = clicks.select("value.*").withColumn("at", f.timestamp_millis("at_ms"))
    gap = f.session_window("at", "30 minutes")
    counted = visits.withWatermark("at", "10 minutes").groupBy(gap, "visitor").count()
    return counted.select(
        f.col("visitor").alias("key"),
        f.to_json(f.struct("visitor", "session_window.start", "count")).alias("value"),
    )


def run(spark: SparkSession, servers: str, checkpoint: str) -> None:
    """Everything there is now, then stop."""
    clicks = (
        spark.readStream.format("shoal")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .option("groupId", "sessions-etl")
        .option("valueFormat", "json")
        .option("valueSchema", CLICK)
        .load()
    )
    query = (
        sessions(clicks)
        .writeStream.format("shoal")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", "sessions")
        .option("checkpointLocation", checkpoint)
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def click(producer: Producer, visitor: str, minute: int) -> None:
    value = {"visitor": visitor, "page": "/", "at_ms": minute * MINUTE_MS}
    producer.send("clicks", json.dumps(value), visitor)


def main() -> None:
    with (
        Broker(topics={"clicks": 2, "sessions": 1}) as broker,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        servers = broker.bootstrap_servers
        spark = session("spark-streaming", quiet=True)
        with Producer(bootstrap_servers=servers) as producer:
            for minute in (0, 5, 9, 70, 72):
                click(producer, "ann", minute)
            click(producer, "ben", 3)
            click(producer, "cleo", 300)  # time goes on: everything before is finished
        run(spark, servers, checkpoint)
        with Producer(bootstrap_servers=servers) as producer:
            click(producer, "cleo", 900)
        run(spark, servers, checkpoint)
        done = spark.read.format("shoal").option("kafka.bootstrap.servers", servers)
        done = done.option("subscribe", "sessions").option("valueFormat", "utf8").load()
        for row in done.select("value").collect():
            print(row.value)
        with Admin(bootstrap_servers=servers) as admin:
            print("lag:", sum(one.lag or 0 for one in admin.group_lag("sessions-etl").values()))
        spark.stop()


if __name__ == "__main__":
    main()
