"""Spark Declarative Pipelines on the same source and sink.

    pip install 'pyspark[pipelines]'    # the packages of Spark Connect: grpcio and a few more
    python examples/spark_pipeline.py

Starts a broker, writes orders, and has ``spark-pipelines`` run the definition in
``examples/pipeline``. With a catalog that lasts (a Hive metastore, say), the next run takes on
where this one ended; Spark's own forgets its tables with the process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from shoal import Consumer, Producer, TopicPartition
from shoal.client.admin import Admin
from shoal.testing.broker import Broker

DEFINITION = Path(__file__).with_name("pipeline")


def main() -> None:
    with (
        Broker(topics={"orders": 3, "large-orders": 1}) as broker,
        tempfile.TemporaryDirectory() as scratch,
    ):
        servers = broker.bootstrap_servers
        project = Path(scratch) / "pipeline"
        shutil.copytree(DEFINITION, project)
        with (project / "spark-pipeline.yml").open("a") as definition:
            definition.write(f"storage: {project.as_uri()}/storage\n")
        write_orders(servers)
        run_pipeline(project, servers)
        print(f"{count(servers)} large orders, lag {lag(servers)}")


def write_orders(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(100):
            shop = ("riga", "oslo", "lima")[number % 3]
            cents = 2000 if number % 10 == 0 else 500
            order = {"shop": shop, "product": f"p{number % 20}", "cents": cents}
            producer.send("orders", json.dumps(order), shop)


def run_pipeline(project: Path, servers: str) -> None:
    program = Path(sys.executable).with_name("spark-pipelines")
    environment = {
        **os.environ,
        "ORDERS_SERVERS": servers,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [str(program), "run", "--spec", str(project / "spark-pipeline.yml")],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stdout[-2000:] + done.stderr[-4000:])


def count(servers: str) -> int:
    with Consumer(bootstrap_servers=servers) as consumer:
        return sum(consumer.end_offsets([TopicPartition("large-orders", 0)]).values())


def lag(servers: str) -> int:
    with Admin(bootstrap_servers=servers) as admin:
        return sum(one.lag or 0 for one in admin.group_lag("revenue-pipeline").values())


if __name__ == "__main__":
    main()
