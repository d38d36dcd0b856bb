"""From ``format("kafka")`` to ``format("shoal")``: the format name is the whole change.

    python examples/spark_migration.py

The options below are those of Spark's own Kafka source, unchanged. A checkpoint that Spark's source
wrote is carried on (tests/spark/test_connector.py does that with the published jars).
"""

from __future__ import annotations

import tempfile

from shoal import Producer
from shoal.spark import session
from shoal.testing.broker import Broker


def main() -> None:
    with (
        Broker(topics={"events": 4}) as broker,
        tempfile.TemporaryDirectory() as checkpoint,
    ):
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(1000):
                producer.send("events", str(number), str(number % 10))
        spark = session("spark-migration", quiet=True)
        events = (
            spark.readStream.format("shoal")  # was: "kafka"
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .option("subscribe", "events")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "400")
            .option("failOnDataLoss", "true")
            .load()
        )
        query = (
            events.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
            .writeStream.format("memory")
            .queryName("moved")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        print(
            spark.table("moved").count(), "records in", len(query.recentProgress), "micro-batches"
        )
        spark.stop()


if __name__ == "__main__":
    main()
