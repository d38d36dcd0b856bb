"""100 connections, one small record in flight each, acks=all: acknowledgements per second.

Ours are synced to the disk, a group at a time; Apache Kafka's are not. Goal: not fewer than theirs.

    python -m benchmarks broker_small
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.broker_setting import (
    PEER,
    Target,
    apache_kafka,
    cpu_seconds,
    create_topic,
    has_peer,
    in_turns,
    many_small,
    produce_frame,
    shoal_broker,
)
from benchmarks.measuring import Report, Row, json_argument

ROUNDS = 3
CONNECTIONS = 100
SECONDS = 5.0


def measure(target: Target) -> dict[str, float]:
    create_topic(target.address, "small")
    frame = produce_frame("small", 0, 100, acks=-1)
    many_small(target.address, lambda _: frame, CONNECTIONS, SECONDS / 2)
    cpu = cpu_seconds(target.pid)
    rate, p50, p99 = many_small(target.address, lambda _: frame, CONNECTIONS, SECONDS)
    spent = (cpu_seconds(target.pid) - cpu) / (rate * SECONDS)
    return {"rate": rate, "p50": p50, "p99": p99, "cpu": spent * 1e6}


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_small")
    makers = [lambda: shoal_broker("group"), shoal_broker]
    makers += [apache_kafka] if has_peer() else []
    medians = in_turns(makers, measure, ROUNDS)
    theirs = medians.get(PEER, {})
    for name, how, goal in (("group", "fsynced", ">= 1x"), ("os", "not fsynced", "")):
        ours = medians[f"shoal ({name})"]
        what = f"small records, {CONNECTIONS} connections, acks=all, {how}"
        report.add(Row(what, "per s", ours["rate"], theirs.get("rate"), PEER, goal))
        for unit, key in (("ms, p50", "p50"), ("ms, p99", "p99"), ("us of broker CPU", "cpu")):
            report.add(
                Row(
                    *(f"  {how}", unit, ours[key], theirs.get(key), PEER),
                    higher_is_better=False,
                )
            )
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
