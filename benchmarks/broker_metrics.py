"""What metrics cost: produce and fetch with a port for Prometheus and without, and a scrape.

Two brokers run at once, one without metrics and one that has a port; the same requests go to one
and the other in turns, and each pair of turns gives a ratio of CPU per request. The peer of a row
is the broker without. Goal: at least 0.98x of its requests per second of CPU, by the mean of the
pairs; the interval that is printed holds that mean with 95 %. Scrapes are rare, so a scrape is
measured by itself.

    python -m benchmarks broker_metrics
"""

from __future__ import annotations

import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.broker_access import cpu_seconds, interval, pairs
from benchmarks.broker_setting import (
    Target,
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


@contextmanager
def broker(durability: str, *flags: str) -> Iterator[tuple[Target, str]]:
    """A broker, and where its metrics are, if it has some."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as directory:
        process, address, _ = start(directory, "--durability", durability, *flags)
        try:
            create_topic(address, "t")
            name, url = "without metrics", ""
            if flags:
                assert process.stdout is not None
                name, url = "with metrics", process.stdout.readline().split()[1]
            yield Target(name, address, process.pid), url
        finally:
            stop(process)


def scrape_ms(target: Target, url: str) -> float:
    """Milliseconds of the broker's CPU for one scrape."""
    urllib.request.urlopen(url, timeout=30).read()
    before = cpu_seconds(target.pid)
    for _ in range(SCRAPES):
        urllib.request.urlopen(url, timeout=30).read()
    return (cpu_seconds(target.pid) - before) / SCRAPES * 1e3


def compared(report: Report, durability: str, frames: Sequence[tuple[str, bytes, int]]) -> None:
    with (
        broker(durability) as (off, _),
        broker(durability, "--metrics", "0", "--metrics-jmx-names") as (on, url),
    ):
        for name, frame, total in frames:
            before, after, ratios = pairs(off, on, frame, total)
            mean, low, high = interval(ratios)
            report.add(
                Row(
                    f"{name}, with metrics ({mean:.3f}x, {low:.3f} to {high:.3f})",
                    "us of CPU",
                    after,
                    before,
                    "without metrics",
                    ">= 0.98x",
                    higher_is_better=False,
                )
            )
        report.add(
            Row(
                "a scrape of an almost empty broker",
                "ms of CPU",
                scrape_ms(on, url),
                goal="<= 10",
                higher_is_better=False,
            )
        )


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("broker_metrics")
    large = produce_frame("t", 0, BATCH_BYTES, acks=1)
    small = produce_frame("t", 0, SMALL_BYTES, acks=-1)
    compared(
        report,
        "os",
        [
            ("produce of 16 KiB", large, 5_000),
            ("fetch of 64 KiB", fetch_frame("t", 0, 0, 64 << 10), 5_000),
        ],
    )
    compared(report, "group", [("durable produce of 200 B", small, 5_000)])
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main()
