"""What metrics cost: produce and fetch with a port for Prometheus and without, and a scrape.

One broker has a port for metrics; a signal takes away what it measures requests with, as if it had
none, and the next one gives it back. (Two brokers would differ by where their objects happen to lie
in memory, and by more than what is measured.) The same requests go to it in turns, and each pair of
turns gives a ratio of CPU per request. Goal: at least 0.98x of the requests per second of CPU, by
the mean of the pairs; the interval that is printed holds that mean with 95 %. Scrapes are rare, so
a scrape is measured by itself.

    python -m benchmarks broker_metrics
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from benchmarks.broker_access import PAIRS, cpu_per_request, interval
from benchmarks.broker_setting import (
    Target,
    cpu_seconds,
    create_topic,
    fetch_frame,
    produce_frame,
    start,
    stop,
)
from benchmarks.measuring import Report, Row, json_argument

BATCH_BYTES = 16 << 10
SMALL_BYTES = 200
SCRAPES = 50
REQUESTS = 5_000
WITH, WITHOUT = "with metrics", "without metrics"


def serve() -> None:
    """``shoal serve`` that takes its measure of requests away, or back, on SIGUSR2."""
    from shoal.broker import metrics_port
    from shoal.broker.timings import RequestTimings
    from shoal.cli.main import main as shoal

    class SwitchedPort(metrics_port.MetricsPort):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            server = given[0].server
            both: list[RequestTimings | None] = [None, server.timings]

            def switch(*_: object) -> None:
                server.timings = both[server.timings is None]

            signal.signal(signal.SIGUSR2, switch)

    metrics_port.MetricsPort = SwitchedPort  # type: ignore[misc]
    shoal()


@contextmanager
def broker(durability: str) -> Iterator[tuple[Target, str]]:
    """A broker, and where its metrics are."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        process, address, _ = start(
            directory,
            *("--durability", durability, "--metrics", "0", "--metrics-jmx-names"),
            module="benchmarks.broker_metrics",
        )
        try:
            create_topic(address, "t")
            assert process.stdout is not None
            url = process.stdout.readline().split()[1]
            yield Target("Shoal", address, process.pid), url
        finally:
            stop(process)


def scrape_ms(target: Target, url: str) -> float:
    """Milliseconds of the broker's CPU for one scrape."""
    urllib.request.urlopen(url, timeout=30).read()
    before = cpu_seconds(target.pid)
    for _ in range(SCRAPES):
        urllib.request.urlopen(url, timeout=30).read()
    return (cpu_seconds(target.pid) - before) / SCRAPES * 1e3


def in_turns(target: Target, frame: bytes) -> dict[str, list[float]]:
    """Microseconds of CPU per request, turn by turn; in the end it has metrics again."""
    spent: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    now = WITH
    for number in range(PAIRS + 1):
        for wanted in (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT):
            if wanted != now:
                switch(target)
                now = wanted
            found = cpu_per_request(target, frame, REQUESTS) * 1e6
            if number:  # the first pair is for warming up
                spent[wanted].append(found)
    if now == WITHOUT:
        switch(target)
    return spent


def switch(target: Target) -> None:
    os.kill(target.pid, signal.SIGUSR2)
    time.sleep(0.05)  # two signals on their way would be one


def compared(report: Report, durability: str, frames: Sequence[tuple[str, bytes]]) -> None:
    with broker(durability) as (target, url):
        for name, frame in frames:
            spent = in_turns(target, frame)
            ratios = [a / b for a, b in zip(spent[WITHOUT], spent[WITH], strict=True)]
            mean, low, high = interval(ratios)
            report.add(
                Row(
                    f"{name}, {WITH} ({mean:.3f}x, {low:.3f} to {high:.3f})",
                    "us of CPU",
                    statistics.mean(spent[WITH]),
                    statistics.mean(spent[WITHOUT]),
                    WITHOUT,
                    ">= 0.98x",
                    higher_is_better=False,
                )
            )
        report.add(
            Row(
                "a scrape of an almost empty broker",
                "ms of CPU",
                scrape_ms(target, url),
                goal="<= 10",
                higher_is_better=False,
            )
        )


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_metrics")
    large = produce_frame("t", 0, BATCH_BYTES, acks=1)
    small = produce_frame("t", 0, SMALL_BYTES, acks=-1)
    fetch = fetch_frame("t", 0, 0, 64 << 10)
    compared(report, "os", [("produce of 16 KiB", large), ("fetch of 64 KiB", fetch)])
    compared(report, "group", [("durable produce of 200 B", small)])
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve()
    else:
        main(sys.argv[1:])
