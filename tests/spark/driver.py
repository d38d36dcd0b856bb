"""A Spark driver as a program of its own, so that a test can kill it: topic → topic, in portions.

    python driver.py SERVERS IN OUT CHECKPOINT GROUP [--master M] [--rows N] [--set name=value]
                     [--tasks N] [--exactly-once] [--endless]

Prints one line when it reads, one when it is done. Everything of it dies with its process group.
"""

from __future__ import annotations

import argparse
import time

from shoal.spark import session

SHORT_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("servers", "topic", "out", "checkpoint", "group"):
        parser.add_argument(name)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--rows", default="100")
    parser.add_argument("--slowly", type=float, default=0.0, help="seconds a task takes")
    parser.add_argument("--tasks", help="of each micro-batch")
    parser.add_argument("--exactly-once", action="store_true")
    parser.add_argument("--endless", action="store_true", help="wait for more at the end")
    parser.add_argument("--set", action="append", default=[])
    given = parser.parse_args()
    settings = {"spark.master": given.master, "spark.driver.extraJavaOptions": SHORT_JOBS}
    settings |= dict(one.split("=", 1) for one in given.set)
    spark = session("driver", cores=2, quiet=True, settings=settings)
    frame = (
        spark.readStream.format("shoal")
        .option("kafka.bootstrap.servers", given.servers)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", given.rows)
        .option("groupId", given.group)
        .options(**_tasks(given.tasks))
        .load()
        .select("key", "value")
    )
    if given.slowly:
        frame = frame.mapInArrow(_slow(given.slowly), "key binary, value binary")
    query = (
        frame.writeStream.format("shoal")
        .option("kafka.bootstrap.servers", given.servers)
        .option("topic", given.out)
        .option("exactlyOnce", given.exactly_once)
        .option("checkpointLocation", given.checkpoint)
        .trigger(**({"processingTime": "0 seconds"} if given.endless else {"availableNow": True}))
        .start()
    )
    print("reading", flush=True)
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


def _tasks(count: str | None) -> dict[str, str]:
    return {} if count is None else {"minPartitions": count, "maxTasks": count}


def _slow(seconds: float):  # type: ignore[no-untyped-def]  # pickled to executors as it is
    def slow(batches):  # type: ignore[no-untyped-def]  # pickled to executors as it is
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return slow


if __name__ == "__main__":
    main()
