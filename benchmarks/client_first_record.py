"""From a constructor to the first record of a new group, in milliseconds, on a warm broker.

Goal: at most 100 ms, on our broker and on Apache Kafka's (confluent-kafka: about 160).

    python -m benchmarks client_first_record
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.client_workers import brokers, filled_topic, run_worker
from benchmarks.measuring import Report, Row, json_argument

# How often each is measured.
TIMES = 15
PEERS = {
    "confluent-kafka": ("first_confluent", 15),
    "kafka-python": ("first_kafka_python", 10),
    "aiokafka": ("first_aiokafka", 10),
}


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("client_first_record", tuple(PEERS))
    with brokers() as found:
        for name, servers in found.items():
            topic = filled_topic(servers, 10_000)
            run_worker("first_shoal", servers, topic, 2)  # the broker's own first group
            ours = run_worker("first_shoal", servers, topic, TIMES)["median_s"]
            for peer, (role, times) in PEERS.items():
                theirs = run_worker(role, servers, topic, times)["median_s"]
                what = f"construct + subscribe to first record, {name}"
                goal = "<= 100" if peer == "confluent-kafka" else ""
                report.add(
                    Row(
                        *(what, "ms", ours * 1000, theirs * 1000, peer, goal),
                        higher_is_better=False,
                    )
                )
    report.finish(json_argument(arguments))
