"""The history of a fleet of groups, with Spark: why they rebalanced, and how far they are behind.

    python examples/spark_fleet.py                            # with a broker and groups of its own
    python examples/spark_fleet.py localhost:9092 DIRECTORY   # records, then reports, a cluster

Keeps ``__consumer_offsets`` and samples of end offsets in a directory, then makes tables of them.
Run it again later with the same directory, and it has a longer history.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack

from shoal import Consumer, Producer
from shoal.spark import history, session
from shoal.testing.broker import Broker


def main() -> None:
    with ExitStack() as stack:
        if len(sys.argv) == 3:
            servers, directory = sys.argv[1:]
        else:
            servers = embedded(stack)
            directory = stack.enter_context(tempfile.TemporaryDirectory())
        spark = session("fleet", quiet=True)
        stack.callback(spark.stop)
        options = {"kafka.bootstrap.servers": servers}
        history.record(spark, directory, options, every=None).awaitTermination()
        records, ends = history.recorded(spark, directory)
        causes = history.rebalances(records).select("at", "group", "cause", "certain", "moved")
        causes.orderBy("at").show(truncate=False)
        print("lag by group and sample")
        history.group_lag(history.lag(records, ends)).orderBy("at", "group").show(truncate=False)


def embedded(stack: ExitStack) -> str:
    """A broker in this process, with two groups that have something to tell."""
    broker = stack.enter_context(Broker(topics={"orders": 4}))
    servers = broker.bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(400):
            producer.send("orders", str(number), str(number))
    members = []
    for group, size in (("billing", 2), ("search", 1)):
        for number in range(size):
            member = Consumer(
                bootstrap_servers=servers,
                group_id=group,
                client_id=f"{group}-{number}",
                auto_offset_reset="earliest",
                heartbeat_interval_ms=200,
            )
            member.subscribe(["orders"])
            members.append(stack.enter_context(member))
            while not all(one.assignment() for one in members):
                for one in members:
                    one.poll(0.1, max_records=50)
    for one in members:
        one.commit_sync()
    return servers


if __name__ == "__main__":
    main()
