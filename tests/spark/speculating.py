"""A Spark driver whose first task hangs, so that Spark starts a second copy of it elsewhere.

    python speculating.py SERVERS TOPIC DIRECTORY MASTER

Leaves a file per attempt in DIRECTORY; prints the partition and offset of every row as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from shoal.spark import session

HANGS_S = 60.0


def main() -> None:
    servers, topic, directory, master = sys.argv[1:]
    spark = session(
        "speculating",
        cores=2,
        quiet=True,
        settings={
            "spark.master": master,
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.1",
            # Elapsed time alone decides, not the rate of rows.
            "spark.speculation.efficiency.enabled": "false",
        },
    )
    frame = (
        spark.read.format("shoal")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("maxTasks", "2")
        .load()
        .select("partition", "offset")
        .mapInArrow(_hang_once(directory), "partition int, offset long")
    )
    print(json.dumps([list(row) for row in frame.collect()]), flush=True)
    spark.stop()


def _hang_once(directory: str):  # type: ignore[no-untyped-def]  # pickled to executors as it is
    def hang(batches):  # type: ignore[no-untyped-def]  # pickled to executors as it is
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = context.partitionId(), context.attemptNumber()
        (Path(directory) / f"{task}-{attempt}").touch()
        for number, batch in enumerate(batches):
            yield batch
            if (task, attempt, number) == (0, 0, 0):
                time.sleep(HANGS_S)

    return hang


if __name__ == "__main__":
    main()
