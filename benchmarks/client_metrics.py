"""What counting costs the clients: CPU per record of ``send`` and of ``poll``, counted and not.

Two processes each have a client of one broker and do the same work in turns; in one of them what
counts was replaced by nothing. Each pair of turns gives a ratio of the CPU of the whole process,
its engine's thread included. Goal: at least 0.98x of the records per second of CPU, by the mean of
the pairs; the interval that is printed holds that mean with 95 %.

    python -m benchmarks client_metrics
    python -m benchmarks client_metrics --old DIRECTORY    # the peer: another version's src
    python -m benchmarks client_metrics --pairs 15
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

PAIRS = 30
# Then both processes are made anew: where one happens to lie in memory makes more difference than
# what is measured, and lasts as long as it does.
PAIRS_OF_A_PROCESS = 3
RECORDS = 200_000
SENDS = 50_000
SMALL_POLLS = 20_000
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


def switch_off() -> None:
    """Nothing is counted from here on, in this process."""
    from shoal.client import sensors, tallies

    def nothing(*_: object, **__: object) -> None:
        return None

    for owner, names in (
        (sensors.Sensor, ("record",)),
        (sensors.HourlySensor, ("record",)),
        (tallies.ConsumedTally, ("took", "finished")),
        (tallies.PollTally, ("polled",)),
        (tallies.FetchTally, ("answered", "fetched")),
        (tallies.SendTally, ("sends", "answered")),
    ):
        for name in names:
            setattr(owner, name, nothing)


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

    # Columns come so fast that one pass would be too short to measure.
    return (lambda: sum(read() for _ in range(5))) if kind == "arrow" else read


def worker(kind: str, servers: str, switch: str) -> None:
    if switch == "off":
        switch_off()
    work = work_of(kind, servers)
    for _ in sys.stdin:
        before = time.process_time()
        count = work()
        print((time.process_time() - before) / count, flush=True)


# --- in turns ---


@contextmanager
def running(
    kind: str, servers: str, switch: str, source: str | None
) -> Iterator[Callable[[], float]]:
    """A worker; each call is one turn, and gives microseconds of CPU per record."""
    path = os.pathsep.join([*([source] if source else ()), str(HERE)])
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.client_metrics", "--worker", kind, servers, switch],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def turn() -> float:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
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
    old, pairs = argument(arguments, "--old"), int(argument(arguments, "--pairs") or PAIRS)
    only = argument(arguments, "--only")
    switch, peer = ("on", "before") if old else ("off", "not counted")
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        process, address, _ = start(directory, "--durability", "os")
        try:
            servers = f"{address[0]}:{address[1]}"
            create_topic(address, "read")
            create_topic(address, "sent")
            fill(servers)
            for kind, what, goal in ROWS:
                if only in (None, kind):
                    report.add(measured(kind, what, goal, servers, (switch, old, peer), pairs))
                if kind == "send":
                    with Admin(bootstrap_servers=servers) as admin:
                        admin.delete_records({TopicPartition("sent", 0): -1})
        finally:
            stop(process)
    report.finish(json_argument(arguments))


def measured(
    kind: str,
    what: str,
    goal: str,
    servers: str,
    other: tuple[str, str | None, str],
    pairs: int,
) -> Row:
    switch, source, peer = other
    spent: tuple[list[float], list[float]] = ([], [])
    while len(spent[0]) < pairs:
        with (
            running(kind, servers, switch, source) as off,
            running(kind, servers, "on", None) as on,
        ):
            for number in range(PAIRS_OF_A_PROCESS + 1):
                for which in (0, 1) if number % 2 else (1, 0):
                    found = (off, on)[which]()
                    if number:  # the first pair is for warming up
                        spent[which].append(found)
    ratios = [a / b for a, b in zip(*spent, strict=True)]
    mean, low, high = interval(ratios)
    load = os.getloadavg()[0]
    return Row(
        f"{what} ({mean:.3f}x, {low:.3f} to {high:.3f}, {len(ratios)} pairs, load {load:.0f})",
        "us of CPU",
        statistics.mean(spent[1]),
        statistics.mean(spent[0]),
        peer,
        goal,
        higher_is_better=False,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(*sys.argv[2:5])
    else:
        main(sys.argv[1:])
