"""The throughput of ``spark_stream`` with Apache Kafka as the broker."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.peers.cache import PeerMissingError
from tests.peers.jars import kafka_jars
from tests.peers.kafka import ApacheKafka

from benchmarks.measuring import Report, json_argument
from benchmarks.spark_setting import PACKAGES, forms, session
from benchmarks.spark_stream import GOALS, fill_for_throughput, steady, throughput


def main(arguments: Sequence[str]) -> None:
    """Run it, if Apache Kafka can be had."""
    report = Report("spark_stream_kafka", PACKAGES)
    try:
        kafka_jars()
    except PeerMissingError as missing:
        print(f"  not run: {missing}")
        return
    with ApacheKafka() as kafka:
        fill_for_throughput(kafka.bootstrap_servers)
        spark, has_connector = session()
        try:
            servers, sources = kafka.bootstrap_servers, forms(has_connector)
            goals = {**GOALS, 12: ">= 5x"}
            throughput(report, spark, servers, sources, goals, where=" of Apache Kafka")
            steady(report, spark, servers, sources, where=" of Apache Kafka")
        finally:
            spark.stop()
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
