"""Kills: the driver at every step of a micro-batch, an executor, tasks; and whole clusters.

Each test ends with the same sentence: every record of the input is in the output exactly once, and
the group stands at the end of the input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from shoal.client.consumer import Consumer
from shoal.types import TopicPartition
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import ApacheKafka, free_ports
from tests.spark.topics import Row, Topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = Path(__file__).with_name("driver.py")
SPECULATING = Path(__file__).with_name("speculating.py")
PATIENCE_S = 500.0  # for long tests on a busy machine; what hangs, hangs longer


class Job:
    """The driver program with its topics and its checkpoint; may be run again and again."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        self.topics = topics
        self.checkpoint = directory / "checkpoint"
        self._elsewhere = directory / "elsewhere"
        self._elsewhere.mkdir()
        self.topic = topics.create(partitions=3)
        self.out = topics.create("out", partitions=2)
        self.group = topics.name("group")

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start it in another working directory; it is gone when the block ends."""
        command = [sys.executable, str(DRIVER), self.topics.bootstrap_servers, self.topic]
        command += [self.out, str(self.checkpoint), self.group, *arguments]
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        process = subprocess.Popen(
            command,
            cwd=self._elsewhere,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def finish(self, *arguments: str) -> str:
        """Run it to its end; what it printed."""
        with self.running(*arguments) as process:
            shown, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, shown[-3000:]
        return shown

    def kill_when(self, condition: Callable[[], bool], *arguments: str) -> None:
        """Run it and kill everything of it (SIGKILL) the moment the condition holds."""
        with self.running(*arguments) as process:
            self.await_in(process, condition)

    def await_in(self, process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert process.poll() is None, "the driver ended before it could be killed"
            assert time.monotonic() < deadline, "the moment did not come"
            time.sleep(0.001)

    def log_has(self, log: str, batch: int) -> bool:
        return (self.checkpoint / log / str(batch)).exists()

    def written(self) -> int:
        return sum(self.topics.ends(self.out).values())

    def check(self, rows: list[Row]) -> None:
        """The sentence above."""
        tps = [TopicPartition(self.out, number) for number in range(2)]
        found: Counter[bytes | None] = Counter()
        with Consumer(bootstrap_servers=self.topics.bootstrap_servers) as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning(*tps)
            ends = consumer.end_offsets(tps)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found.update(record.value for record in consumer.poll(1.0))
        assert found == Counter(row.value for row in rows)
        assert self.topics.committed(self.group) == self.topics.ends(self.topic)


@pytest.fixture
def job(topics: Topics, tmp_path: Path) -> Job:
    need(java)
    pytest.importorskip("pyspark")
    return Job(topics, tmp_path)


@pytest.mark.long
def test_a_driver_killed_at_each_step_leaves_every_record_once(job: Job) -> None:
    rows = job.topics.write_numbers(job.topic, range(600))
    steps: list[Callable[[], bool]] = [
        lambda: job.log_has("offsets", 0),  # planned, nothing read
        lambda: job.written() > 100,  # in the middle of a write
        lambda: job.written() >= 300,  # written; Spark's commit may be missing
        lambda: job.log_has("commits", 3),  # committed; the group is not told yet
    ]
    for step in steps:
        job.kill_when(step)
        done = job.topics.committed(job.group)
        ends = job.topics.ends(job.topic)
        assert all(offset <= ends[tp] for tp, offset in done.items())
    job.finish()
    job.check(rows)
    more = job.topics.write_numbers(job.topic, range(600, 700))
    job.finish()
    job.check([*rows, *more])


@pytest.mark.long
def test_an_executor_killed_in_its_task_is_replaced(job: Job) -> None:
    rows = job.topics.write_numbers(job.topic, range(400))
    with job.running(
        "--master", "local-cluster[2,1,1024]", "--slowly", "1.5", "--rows", "200"
    ) as process:
        job.await_in(process, lambda: job.log_has("offsets", 0) and bool(_executors(process.pid)))
        os.kill(_executors(process.pid)[0], signal.SIGKILL)
        shown, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, shown[-3000:]
    job.check(rows)


def _executors(driver: int) -> list[int]:
    """The executor processes of a driver's session."""
    found = []
    for directory in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if b"CoarseGrainedExecutorBackend" in (directory / "cmdline").read_bytes():
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == os.getsid(driver):
                    found.append(int(directory.name))
    return sorted(found)


def test_a_small_cluster_runs_the_installed_package_from_anywhere(job: Job) -> None:
    rows = job.topics.write_numbers(job.topic, range(250))
    job.finish("--master", "local-cluster[2,1,1024]", "--rows", "1000")
    job.check(rows)


@contextmanager
def standalone(directory: Path) -> Iterator[str]:
    """A master and two workers, from the installed package.

    The workers have a loopback address each: Spark never runs two copies of a task on one host.
    """
    import pyspark

    launcher = Path(pyspark.__file__).parent / "bin" / "spark-class"
    port, *ui = free_ports(4)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(launcher.parents[1]),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "PYSPARK_PYTHON": sys.executable,
    }
    master = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [
        [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)],
        *(
            [f"{deploy}.worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", master]
            for host in ("127.0.0.2", "127.0.0.3")
        ),
    ]
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            log = stack.enter_context((directory / f"daemon-{number}.log").open("w"))
            process = subprocess.Popen(
                [str(launcher), *command, "--webui-port", str(ui[number])],
                env=environment,
                cwd=directory,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
        yield master


@pytest.mark.long
def test_a_standalone_cluster_reads_and_writes_our_broker(job: Job, tmp_path: Path) -> None:
    rows = job.topics.write_numbers(job.topic, range(300))
    with standalone(tmp_path) as master:
        job.finish("--master", master)
    job.check(rows)


@pytest.mark.long
@pytest.mark.kafka
def test_a_standalone_cluster_reads_and_writes_apache_kafka(tmp_path: Path) -> None:
    need(kafka_jars)
    with ApacheKafka() as kafka, Topics(kafka.bootstrap_servers, "standalone") as topics:
        job = Job(topics, tmp_path)
        rows = topics.write_numbers(job.topic, range(300))
        with standalone(tmp_path) as master:
            job.finish("--master", master)
        job.check(rows)


@pytest.mark.long
def test_a_speculative_copy_of_a_read_task_changes_nothing(topics: Topics, tmp_path: Path) -> None:
    """S1 for reads; the sink's own promise excludes speculation (docs/spark.md)."""
    need(java)
    pytest.importorskip("pyspark")
    topic = topics.create(partitions=2)
    rows = topics.write_numbers(topic, range(500))
    with standalone(tmp_path) as master:
        shown = subprocess.run(
            [sys.executable, SPECULATING, topics.bootstrap_servers, topic, tmp_path, master],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert shown.returncode == 0, shown.stderr[-3000:]
    read = json.loads(shown.stdout.splitlines()[-1])
    assert sorted(map(tuple, read)) == sorted((row.partition, row.offset) for row in rows)
    assert (tmp_path / "0-1").exists(), "no second copy was started: nothing was tried"
