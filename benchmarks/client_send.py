"""Single records, one by one: ``send``, ``await send`` and ``poll``, against other clients.

100-byte values with keys, idempotent, acks=all, linger 5 ms, no compression, and somebody is told
of every record that it was stored. Who reads looks at key, value and headers of each. Records per
second of client CPU, every thread of the process counted; ours and a peer's run in turns, and the
ratio is the median over those pairs, with the lowest and highest beside it. Goals: ``send`` at
least as fast as confluent-kafka's produce() and 3x aiokafka's, ``await send`` 3x aiokafka's,
``poll`` 2x confluent-kafka's consume().

    python -m benchmarks client_send [--rounds N]
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.client_workers import PARTITIONS, VALUE_BYTES, our_broker, run_worker
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin, Producer

ROUNDS = 5
RECORDS = 1_000_000
COUNTS = {
    "send_shoal": 400_000,
    "send_shoal_many": 400_000,
    "send_confluent": 300_000,
    "send_kafka_python": 40_000,
    "send_aiokafka": 60_000,
    "enqueue_shoal": 150_000,
    "await_shoal": 100_000,
    "await_aiokafka": 50_000,
    "read_shoal": 700_000,
    "read_confluent": 500_000,
    "read_aiokafka": 300_000,
}
# What, who of ours, whose peer, its call, and the goal.
PAIRS = (
    ("send", "send_shoal", "send_confluent", "confluent produce()", ">= 1x"),
    ("send", "send_shoal", "send_aiokafka", "aiokafka send()", ">= 3x"),
    ("send", "send_shoal", "send_kafka_python", "kafka-python send()", ""),
    ("send_many", "send_shoal_many", "send_confluent", "confluent produce()", ">= 1x"),
    ("await enqueue", "enqueue_shoal", "send_aiokafka", "aiokafka send()", ""),
    ("await send", "await_shoal", "await_aiokafka", "aiokafka send_and_wait()", ">= 3x"),
    ("poll, no headers", "read_shoal", "read_confluent", "confluent consume()", ">= 2x"),
    ("poll, no headers", "read_shoal", "read_aiokafka", "aiokafka getmany()", ""),
    ("poll, one header", "read_shoal", "read_confluent", "confluent consume()", ">= 2x"),
    ("poll, one header", "read_shoal", "read_aiokafka", "aiokafka getmany()", ""),
)


def main(arguments: Sequence[str] = ()) -> None:
    given = list(arguments)
    rounds = int(given[given.index("--rounds") + 1]) if "--rounds" in given else ROUNDS
    report = Report("client_send", ("confluent-kafka", "aiokafka", "kafka-python"))
    with our_broker() as servers:
        topics = {
            "poll, no headers": _filled(servers, is_headed=False),
            "poll, one header": _filled(servers, is_headed=True),
        }
        rates: dict[tuple[str, str], list[float]] = {}
        grown: list[float] = []
        for _ in range(rounds):
            for what, role in dict.fromkeys(
                (what if what in topics else "", role) for what, *pair in PAIRS for role in pair[:2]
            ):
                topic = topics.get(what) or _new_topic(servers)
                result = run_worker(
                    role, servers, topic, COUNTS[role], module="benchmarks.record_workers"
                )
                rates.setdefault((what, role), []).append(result["records"] / result["cpu_s"] / 1e6)
                if "grown_bytes" in result:
                    grown.append(result["grown_bytes"] / 2**20)
                if what not in topics:
                    with Admin(bootstrap_servers=servers) as admin:
                        admin.delete_topics(topic)
        for what, ours, peer, call, goal in PAIRS:
            place = what if what in topics else ""
            _row(report, what, rates[place, ours], rates[place, peer], call, goal)
        what = "send, memory grown over the second half of the records"
        report.add(Row(what, "MiB", median(grown), goal="<= 40", higher_is_better=False))
    load = " ".join(f"{one:.0f}" for one in os.getloadavg())
    print(f"  load {load} (1, 5, 15 minutes)")
    report.finish(json_argument(arguments))


def _row(
    report: Report, what: str, ours: list[float], theirs: list[float], call: str, goal: str
) -> None:
    """The peer's number is made to fit the median of the ratios, which noise moves less."""
    ratios = sorted(mine / other for mine, other in zip(ours, theirs, strict=True))
    middle = median(ours)
    call = f"{call} ({ratios[0]:.2f} to {ratios[-1]:.2f}x in {len(ratios)} pairs)"
    peer = middle / median(ratios)
    report.add(Row(f"{what}, per client CPU-second", "M records", middle, peer, call, goal))


def _new_topic(servers: str) -> str:
    topic = f"bench-{time.time_ns()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    return topic


def _filled(servers: str, *, is_headed: bool) -> str:
    import pyarrow as pa

    topic, part = _new_topic(servers), 100_000
    columns = {
        "key": [b"key-%06d" % n for n in range(part)],
        "value": [os.urandom(VALUE_BYTES) for _ in range(part)],
    }
    if is_headed:
        pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
        rows = [[{"key": "trace-id", "value": b"%016d" % n}] for n in range(part)]
        columns["headers"] = pa.array(rows, pa.list_(pair))
    table = pa.table(columns)
    with Producer(bootstrap_servers=servers, max_request_size=64 * 1024) as producer:
        for _ in range(-(-RECORDS // part)):
            producer.send_arrow(topic, table)
        producer.flush(300)
    return topic
