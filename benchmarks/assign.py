"""Assignors: against Kafka's own Java classes at a million partitions, and the Python clients.

Goals (1,000,000 partitions, 2,000 members): sticky and cooperative-sticky at least 5x faster than
Java warm, its general path 3x, range and round robin 20x; the bytes for SyncGroup in 0.2 s.
10,000 partitions by 100 members in 10 ms. Two classes of subscriptions and a member with all topics
that replaces another, which takes Java minutes, in 2 s.

Java and we must give the same lists; the benchmark fails if a checksum differs.

    python -m benchmarks assign
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tests.assign.oracle import Oracle

from benchmarks.assign_cases import (
    Case,
    a_tenth_joins,
    aiokafka,
    fresh,
    java,
    kafka_python,
    one_leaves,
    one_wants_less,
    request,
    shoal,
    started_oracle,
    timed_once,
    two_classes,
)
from benchmarks.measuring import Report, Row, json_argument

MILLION = (500, 2000, 2000)
TEN_THOUSAND = (100, 100, 100)
RUNS = 5
# Beside one that warms up; one takes Java up to ten seconds, and the cases before it have warmed
# up most of the code.
JAVA_RUNS = 3
# How long Java may take over the case it does not finish; waiting longer would not change the row.
PATIENCE_S = 20.0


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table; see the module's text for the goals."""
    report = Report("assign", ("numpy", "kafka-python", "aiokafka"))
    oracle = started_oracle("6g")
    million(report, oracle)
    ten_thousand(report)
    hopeless(report)
    report.finish(json_argument(arguments))


def million(report: Report, oracle: Oracle | None) -> None:
    sticky: list[tuple[str, Case, str]] = [
        ("fresh", fresh(*MILLION), ">= 5x"),
        ("one leaves", one_leaves(*MILLION), ">= 5x"),
        ("200 join", a_tenth_joins(*MILLION), ">= 5x"),
        ("one wants one topic, fresh", one_wants_less(*MILLION, 1), ">= 3x"),
        ("one wants one topic, again", one_wants_less(*MILLION, 2), ">= 3x"),
    ]
    cases = [(name, *case) for name in ("sticky", "cooperative-sticky") for case in sticky]
    cases += [(name, "fresh", fresh(*MILLION), ">= 20x") for name in ("range", "roundrobin")]
    for name, what, case, goal in cases:
        ours = shoal(name, case, RUNS)
        runs = JAVA_RUNS if goal != ">= 3x" else JAVA_RUNS - 1  # its general path takes longest
        theirs = java(oracle, name, case, runs) if oracle else None
        if theirs is not None and theirs.checksum != ours.checksum:
            sys.exit(f"{name}, {what}: another assignment than Java's")
        report.add(
            Row(
                f"1M x 2,000 {name}, {what}",
                "s",
                ours.seconds,
                theirs.seconds if theirs else None,
                "Java",
                goal,
                higher_is_better=False,
            )
        )
        if what == "fresh":
            report.add(
                Row(
                    f"1M x 2,000 {name}, encoded",
                    "s",
                    ours.encode_seconds,
                    theirs.encode_seconds if theirs else None,
                    "Java",
                    "< 0.2",
                    higher_is_better=False,
                )
            )
    if oracle is not None:
        oracle.close()


def ten_thousand(report: Report) -> None:
    for what, case in (("fresh", fresh(*TEN_THOUSAND)), ("one leaves", one_leaves(*TEN_THOUSAND))):
        for name in ("sticky", "cooperative-sticky", "range", "roundrobin"):
            if what == "one leaves" and name in ("range", "roundrobin"):
                continue
            ours = shoal(name, case, RUNS).seconds * 1000
            peers = {"kafka-python": kafka_python}
            if name != "cooperative-sticky":
                peers["aiokafka"] = aiokafka
            for peer_name, peer in peers.items():
                theirs = timed_once(peer(name, case)) * 1000
                report.add(
                    Row(
                        f"10,000 x 100 {name}, {what}",
                        "ms",
                        ours,
                        theirs,
                        peer_name,
                        "< 10",
                        higher_is_better=False,
                    )
                )


def hopeless(report: Report) -> None:
    case = two_classes(100, 200, 500)
    ours = shoal("cooperative-sticky", case, RUNS).seconds
    peer = None
    oracle = started_oracle("2g")
    if oracle is not None:
        finished = oracle.answers_within(request("cooperative-sticky", case), PATIENCE_S)
        oracle.close()
        peer = None if finished else PATIENCE_S
    report.add(
        Row(
            "20,000 x 500, two classes, one with all topics replaces another",
            "s",
            ours,
            peer,
            "Java, not finished after" if peer else "",
            "< 2",
            higher_is_better=False,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
