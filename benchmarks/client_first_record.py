"""From a constructor to the first record of a new group, in milliseconds, on a warm broker.

Goal: at most 100 ms, on our broker and on Apache Kafka's (confluent-kafka: about 160).

    python -m benchmarks client_first_record
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.client_workers import brokers, filled_topic, run_worker
from benchmarks.measuring import Report, Row, json_argument

TIMES = 15


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("client_first_record", ("confluent-kafka",))
    with brokers() as found:
        for name, servers in found.items():
            topic = filled_topic(servers, 10_000)
            run_worker("first_shoal", servers, topic, 2)  # the broker's own first group
            ours = run_worker("first_shoal", servers, topic, TIMES)
            theirs = run_worker("first_confluent", servers, topic, TIMES)
            report.add(
                Row(
                    f"construct + subscribe to first record, {name}",
                    "ms",
                    ours["median_s"] * 1000,
                    theirs["median_s"] * 1000,
                    "confluent-kafka",
                    "100",
                    higher_is_better=False,
                )
            )
    report.finish(json_argument(arguments))
