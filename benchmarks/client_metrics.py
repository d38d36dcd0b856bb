"""What counting costs the clients: CPU per record of ``send`` and of ``poll``, counted and not.

One process has a client of a broker and does the same work again and again; every other time what
counts is replaced by nothing. (Two processes would differ by where their objects happen to lie in
memory, and by more than what is measured.) Each pair of turns gives a ratio of the CPU of the whole
process, its engine's thread included. Goal: at least 0.98x of the records per second of CPU, by the
mean of the pairs; the interval that is printed holds that mean with 95 %.

    python -m benchmarks client_metrics
    python -m benchmarks client_metrics --pairs 15 --only poll
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.broker_setting import create_topic, start, stop
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin, Consumer, Producer, TopicPartition

PAIRS = 60
PAIRS_OF_A_PROCESS = 12
RECORDS = 200_000
SENDS = 50_000
SMALL_POLLS = 4_000
VALUE = bytes(100)
HERE = Path(__file__).resolve().parents[1]
# Of Student's distribution, for so many pairs at least.
_STUDENT_95 = {25: 2.064, 15: 2.145, 10: 2.262, 5: 2.776, 2: 12.706}

ROWS = (
    ("send", "send of 100 bytes", ">= 0.98x"),
    ("poll", "poll of up to 500 records", ">= 0.98x"),
    ("arrow", "poll_arrow", ">= 0.98x"),
    ("small", "poll of up to 10 records", ""),
)


# --- in a process of its own ---


def switched() -> Callable[[bool], None]:
    """A switch: whether this process counts from here on."""
    from shoal.client import sensors, tallies

    def nothing(*_: object, **__: object) -> None:
        return None

    counting = [
        (owner, name, getattr(owner, name))
        for owner, names in (
            (sensors.Sensor, ("record",)),
            (sensors.HourlySensor, ("record",)),
            (tallies.ConsumedTally, ("took", "finished")),
            (tallies.PollTally, ("polled",)),
            (tallies.FetchTally, ("answered", "fetched")),
            (tallies.SendTally, ("sends", "answered")),
        )
        for name in names
    ]

    def switch(counts: bool) -> None:
        for owner, name, method in counting:
            setattr(owner, name, method if counts else nothing)

    return switch


def work_of(kind: str, servers: str) -> Callable[[], int]:
    """One turn; returns how many records it was about."""
    if kind == "send":
        producer = Producer(bootstrap_servers=servers, linger_ms=5)

        def send() -> int:
            for _ in range(SENDS):
                producer.send("sent", VALUE, partition=0)
            producer.flush()
            return SENDS

        return send
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("read", 0)])
    total = SMALL_POLLS * 10 if kind == "small" else RECORDS

    def read() -> int:
        consumer.seek_to_beginning()
        left = total
        while left > 0:
            if kind == "arrow":
                left -= consumer.poll_arrow(1.0).num_rows
            else:
                left -= len(consumer.poll(1.0, max_records=10 if kind == "small" else None))
        return total

    # One pass would be too short to measure.
    return lambda: sum(read() for _ in range(5))


def worker(kind: str, servers: str) -> None:
    switch, work = switched(), work_of(kind, servers)
    for line in sys.stdin:
        switch(line == "on\n")
        before = time.process_time()
        count = work()
        print((time.process_time() - before) / count, flush=True)


# --- in turns ---


@contextmanager
def running(kind: str, servers: str) -> Iterator[Callable[[str], float]]:
    """A worker; each call, "on" or "off", is one turn: microseconds of CPU per record."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.client_metrics", "--worker", kind, servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HERE)},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def turn(switch: str) -> float:
        print(switch, file=process.stdin, flush=True)
        return float(process.stdout.readline()) * 1e6  # type: ignore[union-attr]

    try:
        yield turn
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def interval(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of ratios, and between what it lies with 95 %."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = statistics.mean(logs)
    factor = next(factor for pairs, factor in _STUDENT_95.items() if len(logs) >= pairs)
    half = factor * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def fill(servers: str) -> None:
    with Producer(bootstrap_servers=servers, linger_ms=20) as producer:
        for _ in range(RECORDS):
            producer.send("read", VALUE, partition=0)


def argument(arguments: Sequence[str], name: str) -> str | None:
    if name not in arguments:
        return None
    return arguments[list(arguments).index(name) + 1]


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("client_metrics")
    pairs, only = int(argument(arguments, "--pairs") or PAIRS), argument(arguments, "--only")
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        process, address, _ = start(directory, "--durability", "os")
        try:
            servers = f"{address[0]}:{address[1]}"
            create_topic(address, "read")
            create_topic(address, "sent")
            fill(servers)
            for kind, what, goal in ROWS:
                if only in (None, kind):
                    report.add(measured(kind, what, goal, servers, pairs))
                if kind == "send":
                    with Admin(bootstrap_servers=servers) as admin:
                        admin.delete_records({TopicPartition("sent", 0): -1})
        finally:
            stop(process)
    report.finish(json_argument(arguments))


def measured(kind: str, what: str, goal: str, servers: str, pairs: int) -> Row:
    spent: dict[str, list[float]] = {"off": [], "on": []}
    while len(spent["on"]) < pairs:
        with running(kind, servers) as turn:
            for number in range(PAIRS_OF_A_PROCESS + 1):
                for switch in ("off", "on") if number % 2 else ("on", "off"):
                    found = turn(switch)
                    if number:  # the first pair is for warming up
                        spent[switch].append(found)
    ratios = [a / b for a, b in zip(spent["off"], spent["on"], strict=True)]
    mean, low, high = interval(ratios)
    load = os.getloadavg()[0]
    return Row(
        f"{what} ({mean:.3f}x, {low:.3f} to {high:.3f}, {len(ratios)} pairs, load {load:.0f})",
        "us of CPU",
        statistics.mean(spent["on"]),
        statistics.mean(spent["off"]),
        "not counted",
        goal,
        higher_is_better=False,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:4])
    else:
        main(sys.argv[1:])
