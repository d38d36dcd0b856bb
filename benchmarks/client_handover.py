"""A member joins: how long do partitions stand still that stay with the member they had?

One record per partition every few milliseconds, read by two members: a quick one, and a busy one
that is half a second in user code after each poll. A third joins and takes some from both. Of the
partitions that stay with the quick one: the longest time without a record until the third reads.
Cooperative members should not notice; eager ones stop everything until the busy one is back, too.
Ours and confluent-kafka's, both schemes, in turns, each member in a process of its own. The gap
without any rebalance is the yardstick.

    python -m benchmarks client_handover
"""

from __future__ import annotations

import importlib
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from benchmarks.client_workers import brokers
from benchmarks.measuring import Report, Row, json_argument

PARTITIONS = 9
BUSY_S = 0.5
EVERY_S = 0.005
ROUNDS = 3
ATTEMPTS = 5
HEARTBEAT_MS = 200
CONTESTANTS = {
    "cooperative": ("shoal cooperative-sticky", "confluent cooperative-sticky"),
    "eager": ("shoal range", "confluent range"),
}

Arrivals = list[tuple[float, int]]


def main(arguments: Sequence[str] = ()) -> None:
    if arguments and arguments[0] == "member":
        _member(*arguments[1:])
        return
    report = Report("client_handover", ("confluent-kafka",))
    with brokers() as found:
        for name, servers in found.items():
            gaps: dict[str, list[tuple[float, float, float]]] = {}
            for _ in range(ROUNDS):
                for pair in CONTESTANTS.values():
                    for contestant in pair:
                        gaps.setdefault(contestant, []).append(_one_join(servers, contestant))
            for scheme, (ours, theirs) in CONTESTANTS.items():
                _rows(report, f"{scheme}, {name}", gaps[ours], gaps[theirs])
    report.finish(json_argument(arguments))


def _rows(
    report: Report,
    how: str,
    ours: list[tuple[float, float, float]],
    theirs: list[tuple[float, float, float]],
) -> None:
    whats = (
        "longest gap of partitions that stay",
        "longest gap without a rebalance",
        "third member constructed to its first record",
    )
    for index, what in enumerate(whats):
        a, b = (median(one[index] for one in side) * 1000 for side in (ours, theirs))
        row = Row(f"{what}, {how}", "ms", a, b, "confluent-kafka", higher_is_better=False)
        report.add(row)


# --- one join, seen from outside ---


def _one_join(servers: str, contestant: str) -> tuple[float, float, float]:
    for _ in range(ATTEMPTS):
        found = _try_join(servers, contestant)
        if found is not None:
            return found
    raise RuntimeError(f"{contestant}: another rebalance came each time")


def _try_join(servers: str, contestant: str) -> tuple[float, float, float] | None:
    """Seconds: longest gap of what stays, longest gap before the join, join to first record;
    ``None`` if another rebalance was under way."""
    from shoal import Admin

    topic = f"handover-{time.time_ns()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with (
        _records_flowing(servers, topic),
        _process(servers, topic, contestant) as quick,
        _process(servers, topic, contestant, BUSY_S) as busy,
    ):
        for one in (quick, busy):
            _line(one)
        time.sleep(2 * BUSY_S)  # whatever their own joining began has ended
        with _process(servers, topic, contestant) as third:
            joined, reading = map(float, _line(third).split())
            time.sleep(0.6)
            # Before the third leaves: its leaving is another rebalance.
            arrivals: Arrivals = json.loads(_ask(quick, "report"))
    until = reading + 0.4
    after = {partition for at, partition in arrivals if at > reading + 0.1}
    before = [(at, p) for at, p in arrivals if joined - 0.9 < at < joined]
    during = [(at, p) for at, p in arrivals if joined - 0.1 < at < until]
    if not 0 < len(after) < PARTITIONS:
        return None
    return _longest(during, after), _longest(before, after), reading - joined


def _longest(arrivals: Arrivals, partitions: set[int]) -> float:
    longest, last = 0.0, dict[int, float]()
    for at, partition in arrivals:
        if partition in partitions:
            longest = max(longest, at - last.get(partition, at))
            last[partition] = at
    return longest


@contextmanager
def _records_flowing(servers: str, topic: str) -> Iterator[None]:
    from shoal import Producer

    done = threading.Event()

    def flow() -> None:
        with Producer(bootstrap_servers=servers, linger_ms=0, acks=1) as producer:
            while not done.wait(EVERY_S):
                for partition in range(PARTITIONS):
                    producer.send(topic, b"x", partition=partition)

    thread = threading.Thread(target=flow)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _process(
    servers: str, topic: str, contestant: str, busy_s: float = 0.0
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "benchmarks.client_handover", "member"]
    process = subprocess.Popen(
        [*command, servers, topic, contestant, str(busy_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        # Not closed: nobody joins this group again. And librdkafka does not leave a cooperative
        # group when it is closed with no partitions, so the others, whose JoinGroup waits for it
        # (on Apache Kafka as well), would take a whole session to close.
        process.kill()
        process.communicate()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "a member died"
    return line


def _ask(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return _line(process)


# --- one member, in a process of its own ---


def _member(servers: str, topic: str, contestant: str, busy_s: str) -> None:
    """Read until killed; say when the first records came, and on request all arrivals."""
    client, _, assignor = contestant.partition(" ")
    importlib.import_module({"shoal": "shoal.client.consumer"}.get(client, "confluent_kafka"))
    began = time.monotonic()
    poll = _MEMBERS[client](servers, topic, assignor)
    asked = threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            asked.set()

    threading.Thread(target=listen, daemon=True).start()
    arrivals: Arrivals = []
    is_ready = False
    while True:
        partitions = poll()
        now = time.monotonic()
        arrivals += [(now, partition) for partition in partitions]
        if not is_ready and arrivals:
            is_ready = True
            print(began, arrivals[0][0], flush=True)
        if asked.is_set():
            asked.clear()
            print(json.dumps(arrivals), flush=True)
        if partitions and float(busy_s):
            time.sleep(float(busy_s))


Poll = Callable[[], list[int]]


def _shoal(servers: str, topic: str, assignor: str) -> Poll:
    from shoal import Consumer

    consumer = Consumer(
        bootstrap_servers=servers,
        group_id=topic,
        assignors=[assignor],
        auto_offset_reset="latest",
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe([topic])
    return lambda: [record.partition for record in consumer.poll(0.05)]


def _confluent(servers: str, topic: str, assignor: str) -> Poll:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": topic,
            "partition.assignment.strategy": assignor,
            "auto.offset.reset": "latest",
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
    )
    consumer.subscribe([topic])

    def poll() -> list[int]:
        record = consumer.poll(0.05)
        if record is None or record.error():
            return []
        return [record.partition()]

    return poll


_MEMBERS: dict[str, Callable[[str, str, str], Poll]] = {
    "shoal": _shoal,
    "confluent": _confluent,
}


if __name__ == "__main__":
    logging.disable(logging.ERROR)
    main(sys.argv[1:])
