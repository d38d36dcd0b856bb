"""Consuming 100-byte records over TCP: ours as Arrow and as objects, against other clients.

Records per second of client CPU, from one broker process, each client alone in its process; wall
clock is shown beside. Goals: ``poll_arrow`` at least 10 M and 5x confluent-kafka's consume();
``poll`` at least aiokafka's.

    python -m benchmarks client_consume
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.client_workers import brokers, filled_topic, java_consumer, run_worker
from benchmarks.measuring import Report, Row, json_argument

ROUNDS = 5
RECORDS = 12_000_000
# How many each reads: about a second's worth.
COUNTS = {
    "consume_shoal_arrow": 11_000_000,
    "consume_shoal_objects": 600_000,
    "consume_confluent": 600_000,
    "consume_aiokafka": 300_000,
    "consume_kafka_python": 100_000,
}


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("client_consume", ("confluent-kafka", "aiokafka", "kafka-python", "pyarrow"))
    with brokers() as found:
        for name, servers in found.items():
            topic = filled_topic(servers, RECORDS)
            cpu: dict[str, list[float]] = {role: [] for role in COUNTS}
            wall: dict[str, list[float]] = {role: [] for role in COUNTS}
            java: list[float | None] = []
            for _ in range(ROUNDS):
                for role, count in COUNTS.items():
                    result = run_worker(role, servers, topic, count)
                    cpu[role].append(result["records"] / result["cpu_s"] / 1e6)
                    wall[role].append(result["records"] / result["wall_s"] / 1e6)
                java.append(java_consumer(servers, topic, COUNTS["consume_shoal_arrow"]))
            _rows(report, name, "per client CPU-second", cpu, (">= 10", ">= 5x", ">= 1x"))
            _rows(report, name, "per second by the clock", wall, ("", "", ""))
            known = [rate for rate in java if rate is not None]
            if known:
                ours, theirs = median(wall["consume_shoal_arrow"]), median(known)
                what = f"poll_arrow, {name}, per second by the clock"
                report.add(Row(what, "M records", ours, theirs, "Java's perf tool", ">= 1x"))
    report.finish(json_argument(arguments))


def _rows(
    report: Report, name: str, how: str, found: dict[str, list[float]], goals: Sequence[str]
) -> None:
    rate = {role: median(values) for role, values in found.items()}
    unit = "M records"
    arrow, objects = rate["consume_shoal_arrow"], rate["consume_shoal_objects"]
    peer = rate["consume_confluent"]
    report.add(Row(f"poll_arrow, {name}, {how}", unit, arrow, goal=goals[0]))
    report.add(
        Row(f"poll_arrow, {name}, {how}", unit, arrow, peer, "confluent consume()", goals[1])
    )
    report.add(
        Row(f"poll, {name}, {how}", unit, objects, rate["consume_aiokafka"], "aiokafka", goals[2])
    )
    report.add(Row(f"poll, {name}, {how}", unit, objects, peer, "confluent consume()"))
    report.add(
        Row(f"poll, {name}, {how}", unit, objects, rate["consume_kafka_python"], "kafka-python")
    )
