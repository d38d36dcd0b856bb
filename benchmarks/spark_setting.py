"""What the Spark benchmarks share: a broker process, filled topics, one warm session."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from tests.peers.cache import PeerMissingError
from tests.peers.jars import spark_connector_jars

from shoal.client.admin import Admin
from shoal.client.producer import Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONNECTOR = "Spark's connector"
PACKAGES = ("pyspark", "pyarrow")
KEYS = 1000
"""Distinct keys: a groupBy has something to group."""


@contextmanager
def broker() -> Iterator[tuple[str, str]]:
    """A broker in a process of its own: its address and its data directory."""
    with tempfile.TemporaryDirectory(prefix="shoal-bench-", dir=_memory()) as directory:
        command = [sys.executable, "-m", "shoal.broker", "--listen", "127.0.0.1:0"]
        command += ["--data-dir", directory, "--durability", "os"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1], directory
        finally:
            process.terminate()
            process.wait(20)


def _memory() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def fill(servers: str, topic: str, *, partitions: int, rows: int) -> None:
    """``rows`` records of a 10-byte key and a 100-byte value, spread evenly."""
    with Admin(bootstrap_servers=servers) as admin:
        if topic not in admin.list_topics():
            admin.create_topic(topic, partitions=partitions)
    add(servers, topic, partitions=partitions, rows=rows)


def add(servers: str, topic: str, *, partitions: int, rows: int) -> None:
    """So many more."""
    each = rows // partitions
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for partition in range(partitions):
            for start in range(0, each, 100_000):
                count = min(100_000, each - start)
                keys = [b"key-%06d" % (number % KEYS) for number in range(start, start + count)]
                values = [b"v" * 100] * count
                data = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())}
                producer.send_arrow(topic, pa.RecordBatch.from_pydict(data), partition=partition)
            producer.flush()


def session() -> tuple[SparkSession, bool]:
    """The session, and whether Spark's own connector is in it."""
    from shoal.spark.local import session as local

    settings = {
        "spark.driver.memory": "2g",
        "spark.sql.streaming.numRecentProgressUpdates": "100000",
    }
    try:
        settings["spark.jars"] = ",".join(map(str, spark_connector_jars()))
        has_connector = True
    except PeerMissingError as missing:
        print(f"  without the connector: {missing}")
        has_connector = False
    return local("shoal-bench", quiet=True, settings=settings), has_connector


def forms(has_connector: bool) -> Sequence[str]:
    return ("shoal", "kafka") if has_connector else ("shoal",)


def read(spark: SparkSession, form: str, servers: str, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", servers)
    return reader.option("subscribe", topic).options(**options).load()


def cpu_seconds() -> float:
    """CPU this process and its children used so far: Spark, its Python workers and the broker.

    On a busy machine the clock on the wall measures the neighbours; this does not. The broker is
    in it because it competes for the same cores; a source that asks it less leaves more.
    """
    stats: dict[int, tuple[int, float]] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):
                text = Path(f"/proc/{name}/stat").read_text()
                fields = text.rpartition(")")[2].split()
                stats[int(name)] = (int(fields[1]), sum(map(int, fields[11:15])) / tick)
    total, left = 0.0, [os.getpid()]
    while left:
        pid = left.pop()
        if pid in stats:
            total += stats[pid][1]
            left += [child for child, (parent, _) in stats.items() if parent == pid]
    return total


class Spent(NamedTuple):
    """What a run took."""

    wall_s: float
    cpu_s: float


def spent(run: Callable[[], Any]) -> Spent:
    before, cpu_before = time.perf_counter(), cpu_seconds()
    run()
    return Spent(time.perf_counter() - before, cpu_seconds() - cpu_before)


def in_turns(
    runs: Mapping[str, Callable[[], Any]], rounds: int, *, warm_ups: int = 1
) -> dict[str, Spent]:
    """The median of each, in turns after warm-ups, so that noise hits all alike."""
    taken: dict[str, list[Spent]] = {name: [] for name in runs}
    for number in range(rounds + warm_ups):
        for name, run in runs.items():
            one = spent(run)
            if number >= warm_ups:
                taken[name].append(one)
    return {
        name: Spent(*(statistics.median(column) for column in zip(*times, strict=True)))
        for name, times in taken.items()
    }
