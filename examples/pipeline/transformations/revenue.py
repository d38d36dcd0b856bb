"""Orders in from a topic, a table and a view of them, revenue out to another topic.

The source and the sink are the same ``format("shoal")`` as in any other job. The brokers are given
in the environment, because a pipeline's definition takes no arguments.
"""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SERVERS = os.environ["ORDERS_SERVERS"]
SCHEMA = "shop string, product string, cents int"
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    """Every order once, as it comes."""
    records = (
        spark.readStream.format("shoal")
        .option("kafka.bootstrap.servers", SERVERS)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("groupId", "revenue-pipeline")  # so that its lag shows
        .option("valueFormat", "json")
        .option("valueSchema", SCHEMA)
        .load()
    )
    return records.select("value.*", "timestamp")


@dp.materialized_view
def revenue_by_shop() -> DataFrame:
    """Rebuilt from the table at each run."""
    return spark.read.table("orders").groupBy("shop").agg(f.sum("cents").alias("cents"))


dp.create_sink(
    "large_orders", "shoal", {"kafka.bootstrap.servers": SERVERS, "topic": "large-orders"}
)


@dp.append_flow(target="large_orders")
def large_orders_out() -> DataFrame:
    """Orders over ten euros, on to another topic."""
    large = spark.readStream.table("orders").where("cents > 1000")
    return large.select(
        f.col("shop").alias("key"), f.to_json(f.struct("shop", "product", "cents")).alias("value")
    )
