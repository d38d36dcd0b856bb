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
from tests.spark.kill_run import KillPlan, kill_run
from tests.spark.test_exactly_once import nothing_is_open, until
from tests.spark.topics import Row, Topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

DRIVER = Path(__file__).with_name("driver.py")
SPECULATING = Path(__file__).with_name("speculating.py")
PATIENCE_S = 500.0  # for long tests on a busy machine; what hangs, hangs longer


class Job:
    """The driver program with its topics and its checkpoint; may be run again and again."""

    def __init__(self, topics: Topics, directory: Path, driver: Path = DRIVER) -> None:
        self.topics = topics
        self._driver = driver
        self.checkpoint = directory / "checkpoint"
        self._elsewhere = directory / "elsewhere"
        self._elsewhere.mkdir()
        self.topic = topics.create(partitions=3)
        self.out = topics.create("out", partitions=2)
        self.group = topics.name("group")

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start it in another working directory; it is gone when the block ends."""
        command = [sys.executable, str(self._driver), self.topics.bootstrap_servers, self.topic]
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

    def read(self, isolation_level: str = "read_uncommitted") -> Counter[bytes | None]:
        """All of the output."""
        tps = [TopicPartition(self.out, number) for number in range(2)]
        found: Counter[bytes | None] = Counter()
        with Consumer(
            bootstrap_servers=self.topics.bootstrap_servers, isolation_level=isolation_level
        ) as consumer:
            consumer.assign(tps)
            consumer.seek_to_beginning(*tps)
            ends = consumer.end_offsets(tps)
            while any(consumer.position(tp) < ends[tp] for tp in tps):
                found.update(record.value for record in consumer.poll(1.0))
        return found

    def check(self, rows: list[Row], isolation_level: str = "read_uncommitted") -> None:
        """The sentence above."""
        assert self.read(isolation_level) == Counter(row.value for row in rows)
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


KILLING = Path(__file__).with_name("killing_driver.py")
STEPS = ("task", "claim", "decision", "end", "done", "spark")


def killed_at_each_step(job: Job) -> None:
    """Written exactly once, with another number of tasks after each kill."""
    rows: list[Row] = []
    for number, step in enumerate(STEPS):
        rows += job.topics.write_numbers(job.topic, range(100 * number, 100 * number + 100))
        with job.running("--kill", step, "--tasks", str(2 + number % 2)) as process:
            process.wait(PATIENCE_S)
        assert process.returncode == -signal.SIGKILL, f"not killed at {step}"
        # A reader of committed records sees whole micro-batches of 60 rows at most, each row once;
        # only between the decision and its last end a part of one.
        seen = job.read("read_committed")
        assert all(times == 1 for times in seen.values())
        assert seen.keys() <= {row.value for row in rows}
    job.finish("--tasks", "3")
    job.check(rows, "read_committed")


def test_a_driver_killed_at_each_step_of_the_exactly_once_sink(
    topics: Topics, tmp_path: Path
) -> None:
    need(java)
    pytest.importorskip("pyspark")
    killed_at_each_step(Job(topics, tmp_path, KILLING))


@pytest.mark.long
@pytest.mark.kafka
def test_a_driver_killed_at_each_step_of_the_exactly_once_sink_to_apache_kafka(
    tmp_path: Path,
) -> None:
    need(kafka_jars)
    with ApacheKafka() as kafka, Topics(kafka.bootstrap_servers, "exactly-once") as topics:
        killed_at_each_step(Job(topics, tmp_path, KILLING))


def test_a_driver_killed_at_random_moments_and_once_with_its_broker(tmp_path: Path) -> None:
    """``python -m tests.spark.kill_run`` does it as often as one likes."""
    need(java)
    pytest.importorskip("pyspark")
    tally = kill_run(KillPlan(kills=4, broker_kills=1, latest_s=1.5, seed=3), tmp_path)
    assert (tally.kills, tally.broker_kills) == (4, 1)
    assert tally.rows > 0


SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.quantile=0.5",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.efficiency.enabled=false",  # elapsed time alone decides
)


def with_first_attempt(job: Job, master: str, fate: str, notes: Path) -> tuple[str, ...]:
    settings = [one for setting in SPECULATION for one in ("--set", setting)]
    if fate == "executor":
        settings = []
    return ("--master", master, "--first", fate, "--notes", str(notes), *settings)


@pytest.fixture
def exact(topics: Topics, tmp_path: Path) -> Job:
    need(java)
    pytest.importorskip("pyspark")
    return Job(topics, tmp_path, KILLING)


@pytest.mark.long
@pytest.mark.parametrize("fate", ["executor", "slow"])
def test_an_attempt_that_does_not_count_is_not_seen(exact: Job, tmp_path: Path, fate: str) -> None:
    """Its executor is killed when it has prepared its rows, or a copy of it is faster."""
    rows = exact.topics.write_numbers(exact.topic, range(150))
    with standalone(tmp_path) as master:
        exact.finish(*with_first_attempt(exact, master, fate, tmp_path))
    assert (tmp_path / "first").exists(), "nothing was tried"
    until(lambda: nothing_is_open(exact.topics, exact.out))
    exact.check(rows, "read_committed")
    assert exact.read().total() > len(rows), "the other attempt wrote nothing: nothing was tried"


@pytest.mark.long
def test_a_task_that_wakes_up_after_the_decision_changes_nothing(
    exact: Job, tmp_path: Path
) -> None:
    rows = exact.topics.write_numbers(exact.topic, range(150))
    first = tmp_path / "first"
    with standalone(tmp_path) as master:
        arguments = with_first_attempt(exact, master, "stopped", tmp_path)
        with exact.running(*arguments) as process:
            exact.await_in(process, first.exists)
            worker, executor = map(int, first.read_text().split())
            try:
                exact.await_in(process, lambda: exact.log_has("commits", 2))
                os.kill(worker, signal.SIGCONT)
                until(lambda: not is_there(worker) or says_too_late(tmp_path / "work"))
            finally:
                for one in (worker, executor):
                    with suppress(ProcessLookupError):
                        os.kill(one, signal.SIGKILL)
    until(lambda: nothing_is_open(exact.topics, exact.out))
    exact.finish()
    exact.check(rows, "read_committed")
    assert exact.read().total() > len(rows), "the other attempt wrote nothing: nothing was tried"


def is_there(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


def says_too_late(work: Path) -> bool:
    return any("came too late" in one.read_text() for one in work.glob("*/*/stderr"))
