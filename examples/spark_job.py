"""A plain DataFrame job: which shops sold most, from a topic, once.

    python examples/spark_job.py                 # with a broker of its own and a few orders
    python examples/spark_job.py localhost:9092 orders

Prints a table. The value of a record is an order as JSON; ``valueFormat`` makes it columns.
"""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack

from shoal import Producer
from shoal.spark import session
from shoal.testing.broker import Broker

SCHEMA = "shop string, product string, quantity int"


def main() -> None:
    with ExitStack() as stack:
        if len(sys.argv) == 3:
            servers, topic = sys.argv[1:]
        else:
            servers, topic = embedded(stack)
        spark = session("spark-job", quiet=True)
        stack.callback(spark.stop)
        orders = (
            spark.read.format("shoal")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("valueFormat", "json")
            .option("valueSchema", SCHEMA)
            .load()
        )
        best = orders.select("value.*").groupBy("shop").sum("quantity")
        best.orderBy("sum(quantity)", ascending=False).show()


def embedded(stack: ExitStack) -> tuple[str, str]:
    """A broker in this process, with orders."""
    broker = stack.enter_context(Broker(topics={"orders": 3}))
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(3000):
            shop = ("riga", "oslo", "lima")[number % 7 % 3]
            order = {"shop": shop, "product": f"p{number % 20}", "quantity": 1 + number % 4}
            producer.send("orders", json.dumps(order), shop)
    return broker.bootstrap_servers, "orders"


if __name__ == "__main__":
    main()
