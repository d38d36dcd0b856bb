"""The pipelines we ship, as DataFrame → DataFrame functions: the same code in a job, a stream, a
declarative pipeline or a test.

``revenue`` is the one of ``shoal demo``: orders in, revenue per shop and window out.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

ORDER_SCHEMA: Final = "order_id string, shop string, product string, quantity int, event_ms bigint"
PRODUCT_SCHEMA: Final = "product string, category string, price_cents int"


def orders(records: DataFrame) -> DataFrame:
    """Rows of ``format("shoal")`` with ``valueFormat=json`` as orders with an event time."""
    return records.select("value.*").withColumn("event_time", f.timestamp_millis("event_ms"))


def revenue(
    records: DataFrame, products: DataFrame, *, window: str = "5 minutes", late: str = "2 minutes"
) -> DataFrame:
    """Revenue per shop and window of event time, joined with the products' prices.

    Args:
        records: Orders as they come from the source.
        products: The product table (``PRODUCT_SCHEMA``).
        window: Length of a window.
        late: How late an order may come; a window closes this much after its end.
    """
    priced = (
        orders(records)
        .withWatermark("event_time", late)
        .join(f.broadcast(products), "product")
        .withColumn("amount_cents", f.col("quantity") * f.col("price_cents"))
    )
    return (
        priced.groupBy(f.window("event_time", window), "shop")
        .agg(f.count("*").alias("orders"), f.sum("amount_cents").alias("revenue_cents"))
        .select("window.start", "window.end", "shop", "orders", "revenue_cents")
    )


def as_records(frame: DataFrame, *, key: str) -> DataFrame:
    """Rows as records for the sink: ``key`` as the key, the whole row as JSON in the value."""
    return frame.select(
        f.col(key).cast("string").alias("key"), f.to_json(f.struct("*")).alias("value")
    )
