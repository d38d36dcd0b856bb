"""``spark_read`` with Apache Kafka as the broker: what both sources do with a cluster of today.

The connector needs about half a second per task there, whatever the task reads, so 200 partitions
are read without a warm-up of their own (the session is warm by then) and to nowhere only.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.peers.cache import PeerMissingError
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka

from benchmarks.measuring import Report, json_argument
from benchmarks.spark_read import JOBS, Size, compare
from benchmarks.spark_setting import PACKAGES

SIZES = (
    Size(2, 12_000_000, 2, 2, ">= 3x and >= 4,000,000"),
    Size(12, 5_000_000, 1, 2, ">= 5x"),
    Size(200, 2_000_000, 0, 1, ">= 50x"),
)


def main(arguments: Sequence[str]) -> None:
    """Run it, if Apache Kafka can be had."""
    report = Report("spark_read_kafka", PACKAGES)
    try:
        kafka_jars()
    except PeerMissingError as missing:
        print(f"  not run: {missing}")
        return
    with ApacheKafka() as kafka:
        compare(report, kafka.bootstrap_servers, SIZES, JOBS[:1], where=" of Apache Kafka")
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
