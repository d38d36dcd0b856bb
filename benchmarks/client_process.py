"""``process``: many records at a time while each waits for something, against one at a time.

The handler waits 5 ms, as for an answer of a database, and every record has a key of its own. With
eight workers seven times as many records are handled in a second as with one, or more; the same
with an async handler. And the memory of the process stays what it is however long that goes on:
measured over the second half of a run with a handler that waits for nothing.

    python -m benchmarks client_process [--rounds N]
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.client_workers import our_broker
from benchmarks.measuring import Report, Row, json_argument
from shoal import Admin, AsyncConsumer, Consumer, Producer
from shoal.errors import WakeupError

ROUNDS = 15  # a pair takes two seconds, and waits of 5 ms are stretched by whoever else runs
WAIT_S = 0.005
WORKERS = 8
RECORDS = 200  # for one worker; eight get eight times as many
MEMORY_RECORDS = 100_000
PARTITIONS = 4


def main(arguments: Sequence[str] = ()) -> None:
    given = list(arguments)
    rounds = int(given[given.index("--rounds") + 1]) if "--rounds" in given else ROUNDS
    report = Report("client_process")
    with our_broker() as servers:
        topic = _filled(servers, MEMORY_RECORDS)
        ways: dict[str, Callable[..., float]] = {"process": _threads, "await process": _tasks}
        for what, way in ways.items():
            pairs = []
            for _ in range(rounds):
                one = RECORDS / way(servers, topic, RECORDS, 1)
                many = WORKERS * RECORDS / way(servers, topic, WORKERS * RECORDS, WORKERS)
                pairs.append((many, one))
            _row(report, what, pairs)
        grown = _memory_grown(servers, topic) / 2**20
        what = "process, memory grown over the second half of 100,000 records"
        report.add(Row(what, "MiB", grown, goal="<= 10", higher_is_better=False))
    load = " ".join(f"{one:.0f}" for one in os.getloadavg())
    print(f"  load {load} (1, 5, 15 minutes)")
    report.finish(json_argument(arguments))


def _row(report: Report, what: str, pairs: list[tuple[float, float]]) -> None:
    """The ratio is the median over pairs; so is what one worker is said to do."""
    ratios = sorted(many / one for many, one in pairs)
    ours = median(many for many, _ in pairs)
    peer_name = f"1 worker ({ratios[0]:.1f} to {ratios[-1]:.1f}x in {len(ratios)} pairs)"
    row = Row(
        f"{what}, {WORKERS} workers, handler waits 5 ms",
        "records/s",
        ours,
        ours / median(ratios),
        peer_name,
        ">= 7x",
    )
    report.add(row)


def _settings(servers: str) -> dict[str, Any]:
    return {
        "bootstrap_servers": servers,
        "group_id": f"bench-{time.time_ns()}",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }


class _Watch:
    """From the first record that begins to the last that is done."""

    def __init__(self, count: int, wake: Callable[[], None]) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._wake = wake
        self._began = 0.0
        self.took_s = 0.0

    def begins(self) -> None:
        if not self._began:
            self._began = time.perf_counter()

    def ended(self) -> None:
        with self._lock:
            self._left -= 1
            if not self._left:
                self.took_s = time.perf_counter() - self._began
                self._wake()


def _threads(servers: str, topic: str, count: int, workers: int) -> float:
    with Consumer(**_settings(servers)) as consumer:
        consumer.subscribe([topic])
        watch = _Watch(count, consumer.wakeup)

        def handle(_: Any) -> None:
            watch.begins()
            time.sleep(WAIT_S)
            watch.ended()

        with contextlib.suppress(WakeupError):
            consumer.process(handle, workers=workers, order="key")
        return watch.took_s


def _tasks(servers: str, topic: str, count: int, workers: int) -> float:
    async def run() -> float:
        async with AsyncConsumer(**_settings(servers)) as consumer:
            await consumer.subscribe([topic])
            watch = _Watch(count, consumer.wakeup)

            async def handle(_: Any) -> None:
                watch.begins()
                await asyncio.sleep(WAIT_S)
                watch.ended()

            with contextlib.suppress(WakeupError):
                await consumer.process(handle, workers=workers, order="key")
            return watch.took_s

    return asyncio.run(run())


def _memory_grown(servers: str, topic: str) -> int:
    sizes: list[int] = []
    with Consumer(**_settings(servers)) as consumer:
        consumer.subscribe([topic])

        def measure() -> None:
            sizes.append(_resident_bytes())

        def end() -> None:
            measure()
            consumer.wakeup()

        halves = _Watch(MEMORY_RECORDS // 2, measure), _Watch(MEMORY_RECORDS, end)

        def handle(_: Any) -> None:
            for watch in halves:
                watch.ended()

        with contextlib.suppress(WakeupError):
            consumer.process(handle, workers=WORKERS, order="key")
    return sizes[-1] - sizes[0]


def _resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _filled(servers: str, count: int) -> str:
    topic = f"bench-{time.time_ns()}"
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic(topic, partitions=PARTITIONS)
    with Producer(bootstrap_servers=servers) as producer:
        values = [bytes(100)] * 1_000
        for first in range(0, count, 1_000):
            keys = [b"%d" % number for number in range(first, first + 1_000)]
            producer.send_many(topic, values, keys)
        producer.flush(120)
    return topic
