"""The broker's ``uniform`` assignor against Apache Kafka's own class: 5,000 members, 250,000
partitions, everybody subscribed to everything.

Goal: at least as fast as Kafka's, warm, in the same run. Both compute the same target: the
benchmark fails if a checksum differs. CPU of the one thread that assigns; Java's compiler and
garbage collector have threads of their own, which are not counted. Python's collector runs in that
thread, and is set as in a broker's process.

    python -m benchmarks assign_server
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
import zlib
from collections.abc import Sequence

from tests.assign.oracle import Oracle
from tests.peers.jars import KAFKA_VERSION

from benchmarks.assign_cases import member_ids, started_oracle
from benchmarks.measuring import Report, Row, json_argument
from shoal.assign.server import ServerMember, Target, UniformAssignor
from shoal.broker.process import COLLECTED_AFTER

MEMBERS, PARTITIONS = 5_000, 250_000
TOPICS = (10, 100)
ROUNDS = 9
JAVA_WARM_UP = 30
"""Runs before those that count: its compiler has seen everything by then."""


def shoal(topics: int, *, joins: bool) -> tuple[float, int]:
    """Our median in seconds, and a checksum of the target."""
    counts = {_topic_id(number): PARTITIONS // topics for number in range(1, topics + 1)}
    wanted = frozenset(counts)
    ids = member_ids(MEMBERS)
    owned: dict[str, Target] = {}
    if joins:
        members = {each: ServerMember(wanted, subscription=wanted) for each in ids[:-1]}
        owned = UniformAssignor().assign(members, counts)
    members = {each: ServerMember(wanted, owned.get(each, {}), None, wanted) for each in ids}
    taken = []
    target: dict[str, Target] = {}
    for _ in range(ROUNDS + 1):
        gc.collect()
        began = time.thread_time()
        target = UniformAssignor().assign(members, counts)
        taken.append(time.thread_time() - began)
    return statistics.median(taken[1:]), _checksum(target)


def _topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def _checksum(target: dict[str, Target]) -> int:
    crc = 0
    for member_id in sorted(target):
        given = sorted(target[member_id].items())
        numbered = ((int.from_bytes(topic, "big"), numbers) for topic, numbers in given)
        text = "".join(f"{topic}-{each};" for topic, numbers in numbered for each in numbers)
        crc = zlib.crc32(text.encode(), zlib.crc32(member_id.encode(), crc))
    return crc


def java(oracle: Oracle, topics: int, *, joins: bool) -> tuple[float, int]:
    answered = oracle.ask(
        {
            "benchServer": "uniform",
            "topics": topics,
            "partitions": PARTITIONS // topics,
            "members": MEMBERS,
            "joins": joins,
            "runs": JAVA_WARM_UP + ROUNDS,
        }
    )
    if "error" in answered:
        raise RuntimeError(answered["error"])
    return statistics.median(answered["seconds"][JAVA_WARM_UP:]), answered["checksum"]


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("assign_server", ("numpy",))
    gc.set_threshold(*COLLECTED_AFTER)
    oracle = started_oracle("2g")
    for topics in TOPICS:
        for joins in (False, True):
            ours, checksum = shoal(topics, joins=joins)
            theirs = None
            if oracle is not None:
                theirs, expected = java(oracle, topics, joins=joins)
                if checksum != expected:
                    sys.exit(f"{topics} topics, joins={joins}: another target than Kafka's")
            what = "one joins" if joins else "fresh"
            report.add(
                Row(
                    f"uniform, {MEMBERS:,} x {PARTITIONS:,}, {topics} topics, {what}",
                    "ms",
                    ours * 1e3,
                    theirs * 1e3 if theirs is not None else None,
                    f"Kafka {KAFKA_VERSION}",
                    ">= 1x",
                    higher_is_better=False,
                )
            )
    if oracle is not None:
        oracle.close()
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
