"""The recorder's Spark form as a program of its own, so that a test can kill it.

    python recording_driver.py SERVERS DIRECTORY

Keeps what is there now, in small portions, merges early, and ends.
"""

from __future__ import annotations

import sys

from shoal.fleet import recording_files
from shoal.spark import history, session

SHORT_JOBS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main(servers: str, directory: str) -> None:
    recording_files.FILES_MAX = 3  # type: ignore[misc]  # final for everybody else
    spark = session(
        "recording", cores=2, quiet=True, settings={"spark.driver.extraJavaOptions": SHORT_JOBS}
    )
    options = {"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": "40"}
    history.record(spark, directory, options, every=None).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
