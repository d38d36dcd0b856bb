"""Producing 100-byte records: objects and Arrow columns, against other clients.

Idempotent, acks=all, linger 5 ms, no compression; until everything is acknowledged. Goals:
objects at least 2x kafka-python, ``send_arrow`` at least 5x confluent-kafka's produce(), per
second of client CPU.

    python -m benchmarks client_produce
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median

from benchmarks.client_workers import PARTITIONS, brokers, run_worker
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin

ROUNDS = 3
COUNTS = {
    "produce_shoal_arrow": 2_000_000,
    "produce_shoal_objects": 200_000,
    "produce_confluent": 600_000,
    "produce_kafka_python": 50_000,
    "produce_aiokafka": 50_000,
}


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("client_produce", ("confluent-kafka", "kafka-python", "aiokafka", "pyarrow"))
    with brokers() as found:
        for name, servers in found.items():
            topic = f"bench-{time.time_ns()}"
            with Admin(bootstrap_servers=servers) as admin:
                admin.create_topic(topic, partitions=PARTITIONS)
            cpu: dict[str, list[float]] = {role: [] for role in COUNTS}
            wall: dict[str, list[float]] = {role: [] for role in COUNTS}
            for _ in range(ROUNDS):
                for role, count in COUNTS.items():
                    result = run_worker(role, servers, topic, count)
                    cpu[role].append(result["records"] / result["cpu_s"] / 1e6)
                    wall[role].append(result["records"] / result["wall_s"] / 1e6)
            _rows(report, name, "per client CPU-second", cpu, (">= 5x", ">= 2x"))
            _rows(report, name, "per second by the clock", wall, ("", ""))
    report.finish(json_argument(arguments))


def _rows(
    report: Report, name: str, how: str, found: dict[str, list[float]], goals: Sequence[str]
) -> None:
    rate = {role: median(values) for role, values in found.items()}
    unit = "M records"
    arrow, objects = rate["produce_shoal_arrow"], rate["produce_shoal_objects"]
    confluent, kafka_python = rate["produce_confluent"], rate["produce_kafka_python"]
    report.add(
        Row(f"send_arrow, {name}, {how}", unit, arrow, confluent, "confluent produce()", goals[0])
    )
    report.add(Row(f"send, {name}, {how}", unit, objects, kafka_python, "kafka-python", goals[1]))
    report.add(Row(f"send, {name}, {how}", unit, objects, rate["produce_aiokafka"], "aiokafka"))
    report.add(Row(f"send, {name}, {how}", unit, objects, confluent, "confluent produce()"))
