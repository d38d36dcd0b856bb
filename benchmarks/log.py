"""The log: appends, reads, durable acknowledgements, lookups, starts.

Peers are the bare system calls from Python (``os.pwrite``, ``os.pread``): what the log adds to them
is its own cost. Appends, reads and lookups are counted per second of CPU on one core, because
neighbours on the machine and the disk behind the page cache change the wall clock; acknowledgements
and starts wait for the disk, so they are wall-clock, the best of three.

Goals: appends of 16 KiB batches under policy ``os`` 500 MB/s on one core; sequential reads from the
page cache 2 GB/s to bytes and 1 GB/s to Arrow; 100 producers of 1 KiB each, synced before they are
acknowledged, 20,000/s at p99 under 10 ms; 1,000 partitions opened cleanly in 3 s; a start after a
crash reads only what was not synced; lookups by offset and by time in 50 µs.

    python -m benchmarks log [--gigabytes N]
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measuring import Report, Row, json_argument
from shoal.errors import ErrorCode
from shoal.log.columns import iter_columns
from shoal.log.config import Durability, LogConfig
from shoal.log.directory import LogDirectory, run_job
from shoal.log.durability import Syncer
from shoal.log.partition import PartitionLog
from shoal.records.batch import encode_batch
from shoal.types import TopicPartition

NOW_MS = 1_700_000_000_000
TP = TopicPartition("t", 0)
ROUNDS = 5


def batch_of(size: int, records: int = 16) -> bytearray:
    value = bytes(range(256)) * (size // records // 256 + 1)
    rows = [(None, value[: size // records], (), NOW_MS + index) for index in range(records)]
    return bytearray(encode_batch(rows))


@contextmanager
def a_directory() -> Iterator[Path]:
    """On the disk the project lies on: a temporary file system would hide the syncs."""
    path = Path(tempfile.mkdtemp(prefix="shoal-bench-", dir=os.environ.get("SHOAL_BENCH_DIR")))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def opened(path: Path, durability: Durability = Durability.OS) -> LogDirectory:
    return LogDirectory.open(str(path), now_ms=NOW_MS, durability=durability)


def median_of(run: Callable[[], float], rounds: int = ROUNDS) -> float:
    return statistics.median(run() for _ in range(rounds))


def filled(log: PartitionLog, data: bytearray, count: int) -> None:
    blank = bytes(8)
    for _ in range(count):
        data[0:8] = blank
        result = log.append(data, now_ms=NOW_MS)
        assert result.error is ErrorCode.NONE, result


# Appending and reading


def append(report: Report) -> None:
    data, count = batch_of(16 << 10), 4000
    blank = bytes(8)
    with a_directory() as path:
        directory = opened(path)
        log = directory.create(TP, now_ms=NOW_MS)

        def ours() -> float:
            started = time.thread_time()
            for _ in range(count):
                data[0:8] = blank
                log.append(data, now_ms=NOW_MS)
            return len(data) * count / (time.thread_time() - started) / 1e6

        file = os.open(path / "bare", os.O_RDWR | os.O_CREAT)
        position = 0

        def bare() -> float:
            nonlocal position
            started = time.thread_time()
            for _ in range(count):
                position += os.pwrite(file, data, position)
            return len(data) * count / (time.thread_time() - started) / 1e6

        mine, peer = median_of(ours), median_of(bare)
        os.close(file)
        report.add(
            Row(
                "append 16 KiB batches, policy os",
                "MB/CPU-s",
                mine,
                peer,
                "os.pwrite",
                ">= 500",
            )
        )
        small = batch_of(100, records=1)
        started = time.thread_time()
        filled(log, small, 20_000)
        each = (time.thread_time() - started) / 20_000 * 1e6
        report.add(Row("append one 100 B record", "µs CPU", each, higher_is_better=False))
        directory.close()


def read(report: Report) -> None:
    data, count = batch_of(16 << 10), 30_000
    with a_directory() as path:
        directory = opened(path)
        log = directory.create(TP, now_ms=NOW_MS, config=LogConfig(segment_bytes=64 << 20))
        filled(log, data, count)
        total = log.size_bytes

        def to_bytes() -> float:
            started, offset = time.thread_time(), 0
            while offset < log.end_offset:
                result = log.read(offset, 1 << 20)
                result.read_bytes()
                offset = result.next_offset
            return total / (time.thread_time() - started) / 1e9

        def bare() -> float:
            started = time.thread_time()
            for segment in log.segments:
                fd = segment.file.fd
                for position in range(0, segment.size, 1 << 20):
                    os.pread(fd, 1 << 20, position)
            return total / (time.thread_time() - started) / 1e9

        def to_arrow() -> float:
            started, rows = time.thread_time(), 0
            for part in iter_columns(log, 0, columns=["key", "value", "offset", "timestamp"]):
                rows += part.num_rows
            assert rows == log.end_offset
            return total / (time.thread_time() - started) / 1e9

        mine, peer = median_of(to_bytes), median_of(bare)
        report.add(
            Row("read to bytes, 1 MiB at a time", "GB/CPU-s", mine, peer, "os.pread", ">= 2")
        )
        report.add(
            Row("read to Arrow, checksums verified", "GB/CPU-s", median_of(to_arrow), goal=">= 1")
        )
        directory.close()


def lookups(report: Report) -> None:
    chance = random.Random(3)
    with a_directory() as path:
        directory = opened(path)
        config = LogConfig(segment_bytes=32 << 20, message_timestamp_after_max_ms=None)
        log = directory.create(TP, now_ms=NOW_MS, config=config)
        for index in range(40_000):
            rows = [(None, b"x" * 250, (), NOW_MS + index * 10 + n) for n in range(16)]
            log.append(encode_batch(rows), now_ms=NOW_MS)
        offsets = [chance.randrange(log.end_offset) for _ in range(5000)]
        times = [NOW_MS + chance.randrange(400_000) for _ in range(2000)]
        for segment in log.segments:
            segment.forget_hints()

        def by_offset() -> float:
            started = time.thread_time()
            for offset in offsets:
                log.read(offset, 1)
            return (time.thread_time() - started) / len(offsets) * 1e6

        def by_time() -> float:
            started = time.thread_time()
            for at in times:
                log.offset_for_time(at)
            return (time.thread_time() - started) / len(times) * 1e6

        for what, run in (("offset", by_offset), ("time", by_time)):
            report.add(
                Row(
                    f"look up by {what}",
                    "µs CPU",
                    median_of(run),
                    goal="<= 50",
                    higher_is_better=False,
                )
            )
        directory.close()


# Durability


async def acknowledgements(
    path: Path, partitions: int, producers: int, seconds: float
) -> tuple[float, float, float]:
    """Per second, and the latency at p50 and p99 in ms."""
    loop = asyncio.get_running_loop()
    directory = opened(path, Durability.GROUP)
    syncer = Syncer(Durability.GROUP, post=loop.call_soon_threadsafe)
    logs = [directory.create(TopicPartition("t", n), now_ms=NOW_MS) for n in range(partitions)]
    waits: list[float] = []
    finish = time.perf_counter() + seconds

    async def producer(log: PartitionLog) -> None:
        data, blank = batch_of(1024, records=1), bytes(8)
        while (started := time.perf_counter()) < finish:
            data[0:8] = blank
            result = log.append(data, now_ms=NOW_MS)
            done = loop.create_future()
            syncer.register(log, result.end_offset, done.set_result)
            assert await done is ErrorCode.NONE
            waits.append(time.perf_counter() - started)

    started = time.perf_counter()
    await asyncio.gather(*[producer(logs[n % partitions]) for n in range(producers)])
    taken = time.perf_counter() - started
    syncer.close()
    directory.close()
    waits.sort()
    return len(waits) / taken, waits[len(waits) // 2] * 1e3, waits[len(waits) * 99 // 100] * 1e3


def durable(report: Report) -> None:
    for partitions in (1, 12, 100):
        runs = []
        for _ in range(3):
            with a_directory() as path:
                runs.append(asyncio.run(acknowledgements(path, partitions, 100, 2.0)))
        rate, p50, p99 = sorted(runs)[1]
        who = f"100 producers, {partitions} partition{'s' if partitions > 1 else ''}"
        report.add(Row(f"durable acks of 1 KiB, {who}", "/s", rate, goal=">= 20,000"))
        report.add(Row(f"  latency, median, {who}", "ms", p50, higher_is_better=False))
        what = f"  latency, 99th percentile, {who}"
        report.add(Row(what, "ms", p99, goal="<= 10", higher_is_better=False))


# Starting


def starts(report: Report, gigabytes: float) -> None:
    with a_directory() as path:
        directory = opened(path)
        for number in range(1000):
            log = directory.create(TopicPartition("t", number), now_ms=NOW_MS)
            filled(log, batch_of(2000), 3)
        directory.close()
        started = time.perf_counter()
        directory = opened(path)
        taken = time.perf_counter() - started
        assert directory.clean_start
        directory.abandon()
        report.add(
            Row("open 1,000 partitions cleanly", "s", taken, goal="<= 3", higher_is_better=False)
        )
        started = time.perf_counter()
        directory = opened(path)
        taken = time.perf_counter() - started
        assert not directory.clean_start
        directory.close()
        report.add(Row("open 1,000 partitions after a kill", "s", taken, higher_is_better=False))
    with a_directory() as path:
        data = batch_of(64 << 10)
        directory = opened(path, Durability.INTERVAL)
        log = directory.create(TP, now_ms=NOW_MS)
        filled(log, data, int(gigabytes * 1e9 / len(data)))
        log.sync()
        run_job(directory.checkpoint(NOW_MS))
        filled(log, data, int(64e6 / len(data)))
        size = log.size_bytes
        directory.abandon()
        started = time.perf_counter()
        directory = opened(path)
        taken = time.perf_counter() - started
        scanned = directory.reports[0].scanned_bytes
        assert scanned < 70e6, "only the unsynced part is read"
        directory.close()
        what = f"open {size / 1e9:.1f} GB after a kill, {scanned / 1e6:.0f} MB of it unsynced"
        report.add(Row(what, "s", taken, higher_is_better=False))


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("log", packages=("pyarrow",))
    gigabytes = 2.0
    if "--gigabytes" in arguments:
        gigabytes = float(arguments[list(arguments).index("--gigabytes") + 1])
    append(report)
    read(report)
    lookups(report)
    durable(report)
    starts(report, gigabytes)
    report.finish(json_argument(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
