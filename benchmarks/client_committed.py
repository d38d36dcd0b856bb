"""``poll_arrow`` with ``read_committed`` against ``read_uncommitted``, on the same logs.

Two topics of 100-byte records written in transactions, all of them committed, and every second
aborted. Both levels read the whole log, in turns, one process for the reader and one for the
broker. What is counted is the reader's CPU per offset of the log, aborted ones included: what a
reader of committed records leaves out it has fetched and looked at all the same. The ratio is the
median of the pairs, with its 95 % interval by resampling.

Goal: at least 0.95x, with no and with half of the records aborted.

    python -m benchmarks client_committed
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Sequence
from statistics import median

import pyarrow as pa

from benchmarks.broker_setting import shoal_broker
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin, Consumer, Producer, TopicPartition

PAIRS = 31
PARTITIONS = 2
TRANSACTIONS = 200
RECORDS = 10_000  # of one transaction
LEVELS = ("read_committed", "read_uncommitted")


def fill(servers: str, *, aborted_share: float) -> str:
    """A topic of transactions; that share of them, evenly spread, was aborted."""
    topic = f"committed-{uuid.uuid4().hex[:8]}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    rows = pa.table({"value": [bytes(100)] * RECORDS})
    with Producer(bootstrap_servers=servers, transactional_id=topic) as producer:
        producer.init_transactions()
        debt = 0.0
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            producer.send_arrow(topic, rows, partition=number % PARTITIONS)
            producer.flush()  # an abort would take back what is not sent
            debt += aborted_share
            if debt >= 1:
                debt -= 1
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    return topic


def read(servers: str, topic: str, level: str, wanted: int) -> float:
    """Seconds of CPU to read a topic to its last row."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=level
    ) as consumer:
        consumer.assign(tps)
        rows = consumer.poll_arrow(5).num_rows
        began = time.process_time()
        while rows < wanted:
            rows += consumer.poll_arrow(5).num_rows
        assert rows == wanted, f"{rows} rows instead of {wanted}"
        return time.process_time() - began


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Where the median lies in 95 of 100 draws."""
    dice = random.Random(1)
    draws = sorted(median(dice.choices(ratios, k=len(ratios))) for _ in range(2000))
    return draws[50], draws[1949]


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("client_committed", ("pyarrow",))
    with shoal_broker() as broker:
        for what, share in (("no record aborted", 0.0), ("half of them aborted", 0.5)):
            topic = fill(broker.servers, aborted_share=share)
            every = TRANSACTIONS * RECORDS
            wanted = {"read_uncommitted": every, "read_committed": int(every * (1 - share))}
            took: dict[str, list[float]] = {level: [] for level in LEVELS}
            for number in range(PAIRS + 1):
                for level in LEVELS if number % 2 else reversed(LEVELS):
                    cpu_s = read(broker.servers, topic, level, wanted[level])
                    if number:  # the first pair warms up
                        took[level].append(cpu_s)
            ratios = [
                theirs / ours
                for ours, theirs in zip(*(took[level] for level in LEVELS), strict=True)
            ]
            low, high = interval(ratios)
            print(
                f"  {what}: median of {PAIRS} pairs {median(ratios):.3f}x, 95 % {low:.3f} to "
                f"{high:.3f}"
            )
            rate = {level: every / median(values) / 1e6 for level, values in took.items()}
            report.add(
                Row(
                    f"poll_arrow, read_committed, {what}, per client CPU-second",
                    "M offsets",
                    rate["read_committed"],
                    rate["read_committed"] / median(ratios),
                    "read_uncommitted",
                    ">= 0.95x",
                )
            )
    report.finish(json_argument(arguments))
