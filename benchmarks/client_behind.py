"""A consumer 100 million records behind: does its memory stay flat while it catches up?

A topic of 100 M records of 100 bytes in compressed batches, as a busy service would leave behind;
the same few batches again and again, so that filling it takes seconds. The reader's resident
memory is noted after every poll. It goes up and down with what is buffered; flat means that around
the end it is what it was around the beginning. Goal: the median over the last tenth at most 1.1
times the median over the first. confluent-kafka and ``poll`` read the first millions beside it.

    python -m benchmarks client_behind
"""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.client_workers import PARTITIONS, VALUE_BYTES, our_broker
from benchmarks.measuring import Report, Row, json_argument

RECORDS = 100_000_000
PEER_RECORDS = 6_000_000
_MIB = 1024 * 1024


def main(arguments: Sequence[str] = ()) -> None:
    if arguments and arguments[0] == "read":
        print(json.dumps(_read(*arguments[1:])))
        return
    report = Report("client_behind", ("confluent-kafka", "pyarrow"))
    with our_broker() as servers:
        topic = _fill(servers)
        ours = _in_process("arrow", servers, topic, RECORDS)
        objects = _in_process("objects", servers, topic, PEER_RECORDS)
        theirs = _in_process("confluent", servers, topic, PEER_RECORDS)
    yardstick = theirs["highest"]
    for when in ("first", "last"):
        what = f"poll_arrow, resident over the {when} tenth of 100 M records"
        report.add(Row(what, "MiB", ours[when], higher_is_better=False))
    rows = (
        ("poll_arrow, highest over 100 M", ours["highest"]),
        ("poll, highest over 6 M of 100 M", objects["highest"]),
    )
    for what, highest in rows:
        report.add(Row(what, "MiB", highest, yardstick, "confluent, 6 M", higher_is_better=False))
    flat = ours["last"] / ours["first"]
    report.add(Row("poll_arrow, last tenth / first tenth", "x", flat, goal="<= 1.1"))
    report.add(Row("poll_arrow, lz4, by the clock", "M records/s", RECORDS / ours["wall_s"] / 1e6))
    report.finish(json_argument(arguments))


def _fill(servers: str) -> str:
    """Batches made once and sent many times; every one gets its own offsets from the broker."""
    import pyarrow as pa

    from shoal import Admin, Producer, TopicPartition
    from shoal.records.batch import read_header
    from shoal.records.compression import Codec
    from shoal.records.encoding import encode_columns

    topic = f"behind-{time.time_ns()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    chance = random.Random(8)
    # Half noise, half repetition: about what JSON with ids in it compresses to.
    tail = b" status=shipped" * VALUE_BYTES
    values = [chance.randbytes(VALUE_BYTES // 4) + tail for _ in range(20_000)]
    column = pa.array([value[:VALUE_BYTES] for value in values])
    batches = encode_columns(None, column, batch_bytes=256 * 1024, codec=Codec.LZ4)
    counts = [read_header(batch).record_count for batch in batches]
    sent = index = 0
    with Producer(bootstrap_servers=servers, acks=1, buffer_memory=64 * _MIB) as producer:
        producer.partitions_for(topic)
        while sent < RECORDS + PARTITIONS * 10_000:
            which = index % len(batches)
            producer._send_batch(TopicPartition(topic, index % PARTITIONS), batches[which])
            sent += counts[which]
            index += 1
        producer.flush(120)
    return topic


def _in_process(how: str, servers: str, topic: str, count: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.client_behind", "read", how, servers, topic, str(count)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{how} failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def _read(how: str, servers: str, topic: str, count: str) -> dict[str, Any]:
    """Resident MiB, seen after every poll: over the first and the last tenth, and the highest."""
    work = _READERS[how](servers, topic)
    wanted, done = int(count), 0
    seen: list[tuple[int, float]] = []
    began = time.perf_counter()
    while done < wanted:
        done += work()
        seen.append((done, _resident_mib()))
    return {
        "first": median(mib for at, mib in seen if at <= wanted / 10),
        "last": median(mib for at, mib in seen if at > wanted * 0.9),
        "highest": max(mib for _, mib in seen),
        "wall_s": time.perf_counter() - began,
    }


def _resident_mib() -> float:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / _MIB


def _arrow(servers: str, topic: str) -> Callable[[], int]:
    consumer = _consumer(servers, topic)
    return lambda: int(consumer.poll_arrow(5).num_rows)


def _objects(servers: str, topic: str) -> Callable[[], int]:
    consumer = _consumer(servers, topic)
    return lambda: len(consumer.poll(5))


def _consumer(servers: str, topic: str) -> Any:
    from shoal import Consumer, TopicPartition

    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
    return consumer


def _confluent(servers: str, topic: str) -> Callable[[], int]:
    import confluent_kafka

    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "behind"})
    begin = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(topic, n, begin) for n in range(PARTITIONS)])
    return lambda: len(consumer.consume(10_000, 1.0))


_READERS: dict[str, Callable[[str, str], Callable[[], int]]] = {
    "arrow": _arrow,
    "objects": _objects,
    "confluent": _confluent,
}


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    main(sys.argv[1:])
