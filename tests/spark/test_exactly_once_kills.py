"""The sink's protocol on real brokers, killed at every step. No Spark runs here.

A query is what Spark makes of one: micro-batches in order, each repeated until its commit returned.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.client.producer import Producer
from shoal.client.producer_batch import SendFuture
from shoal.errors import ConfigError, ShoalError
from shoal.spark import exactly_once
from shoal.spark.cluster import ClusterClient, sink_config
from shoal.spark.exactly_once import PreparedTask, SinkDriver, TaskOrigin
from shoal.spark.ledger import LedgerEntry, SinkLedger, TaskAttempt, TaskKey
from shoal.spark.options import parse_sink
from shoal.spark.sink_decisions import AttemptReport, SinkConflictError
from shoal.types import TopicPartition
from tests.spark.test_exactly_once import apache_kafka, committed, made, nothing_is_open, until
from tests.spark.topics import Topics

if TYPE_CHECKING:
    from shoal.spark.writer import BatchWriter

__all__ = ["apache_kafka", "made"]


class Killed(Exception):  # noqa: N818 - it is what happens, not what went wrong
    """Here the process died."""


class Query:
    """A streaming query with one micro-batch of numbers after the other, and no Spark."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.out = topics.name("out")
        if self.out not in topics.admin.list_topics():
            topics.create("out", partitions=2)
        self.query_id = str(uuid.uuid4())
        self.properties = {"bootstrap.servers": topics.bootstrap_servers, "linger.ms": "0"}
        self._runs = itertools.count()
        self.steps = 0
        self.kill_at: int | None = None
        self.ledger = self._open()

    def _open(self) -> SinkLedger:
        query = self

        class Watched(SinkLedger):
            def append(self, query_id: str, batch: bytes) -> int | None:
                query.step()
                return super().append(query_id, batch)

        return Watched(ClusterClient(sink_config(self.properties)))

    def step(self) -> None:
        """Something is about to happen: the last moment to die before it."""
        self.steps += 1
        if self.steps == self.kill_at:
            raise Killed

    def new_run(self) -> str:
        """Another process, that knows only what brokers know."""
        self.ledger.close()
        self.ledger = self._open()
        return f"run-{next(self._runs)}"

    def write(
        self, batch_id: int, rows: Sequence[str], tasks: int, run: str
    ) -> list[AttemptReport]:
        return [self.write_task(batch_id, task, rows[task::tasks], run) for task in range(tasks)]

    def write_task(
        self, batch_id: int, task: int, rows: Sequence[str], run: str, attempt: int = 0
    ) -> AttemptReport:
        self.step()
        origin = TaskOrigin(self.query_id, run, batch_id, task, attempt)
        parts = []
        if rows:
            parts = [(self.out, pa.record_batch({"value": pa.array(rows)}))]
        return PreparedTask(self.ledger, self.properties, origin, send).write(parts)

    def commit(self, batch_id: int, reports: Sequence[AttemptReport]) -> None:
        self.step()
        SinkDriver(self.ledger, self.query_id).commit(batch_id, reports)

    def run(self, batch_id: int, rows: Sequence[str], tasks: int, run: str | None = None) -> None:
        run = run or self.new_run()
        self.commit(batch_id, self.write(batch_id, rows, tasks, run))

    def seen(self) -> Counter[bytes | None]:
        return committed(self.topics, self.out)

    def close(self) -> None:
        self.ledger.close()


@pytest.fixture
def query(made: Topics, monkeypatch: pytest.MonkeyPatch) -> Iterator[Query]:
    one = Query(made)
    watch_ends(one, monkeypatch)
    yield one
    one.close()


def watch_ends(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    real = vars(exactly_once)["end_transaction"]

    async def watched(*arguments: Any, commit: bool) -> None:
        query.step()
        await real(*arguments, commit=commit)

    monkeypatch.setattr(exactly_once, "end_transaction", watched)


def send(producer: Producer, topic: str, rows: pa.RecordBatch) -> list[SendFuture]:
    return producer.send_arrow(topic, rows)


def numbers(batch_id: int, count: int = 6) -> list[str]:
    return [f"{batch_id}-{number}" for number in range(count)]


def once(*batches: Sequence[str]) -> Counter[bytes | None]:
    return Counter(one.encode() for batch in batches for one in batch)


def test_nothing_is_seen_before_the_commit_and_all_of_it_after(query: Query) -> None:
    reports = query.write(0, numbers(0), 3, "run")
    assert query.seen() == Counter()
    query.commit(0, reports)
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0))


@pytest.mark.slow
def test_a_kill_at_every_step_leaves_every_row_once(query: Query) -> None:
    """With another number of tasks after each restart: a decision is a decision."""
    query.run(0, numbers(0), 2)
    whole = query.steps
    assert whole >= 8  # two tasks, the commit, claim, decision, two ends, done
    written = [numbers(0)]
    for batch_id, kill_at in enumerate(range(1, whole + 1), 1):
        query.steps, query.kill_at = 0, kill_at
        with pytest.raises(Killed):
            query.run(batch_id, numbers(batch_id), 2)
        query.kill_at = None
        query.run(batch_id, numbers(batch_id), 2 + batch_id % 2)
        written.append(numbers(batch_id))
        until(lambda: nothing_is_open(query.topics, query.out))
        assert query.seen() == once(*written), f"killed before step {kill_at}"


def test_a_repetition_of_what_is_done_adds_nothing_whatever_rows_it_has(query: Query) -> None:
    query.run(0, numbers(0), 2)
    query.run(0, [*numbers(0), "more"], 3)
    query.commit(0, query.write(0, numbers(0), 1, query.new_run()))
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0))


def killed_after_the_decision(query: Query, rows: Sequence[str]) -> list[AttemptReport]:
    """One of its transactions is committed, and no other."""
    reports = query.write(0, rows, 2, query.new_run())
    query.steps, query.kill_at = 0, 5  # commit, claim, decision, the first end, here
    with pytest.raises(Killed):
        query.commit(0, reports)
    query.kill_at = None
    return reports


def lose(query: Query) -> None:
    """The time of what is open is over."""
    prefix = f"shoal-sink.{query.query_id}."
    listed = query.topics.admin.list_transactions(states=["Ongoing"])
    names = [one.transactional_id for one in listed if one.transactional_id.startswith(prefix)]
    query.topics.admin.fence_producers(*names)


def test_what_was_lost_after_the_decision_is_written_again_and_nothing_else(
    query: Query,
) -> None:
    killed_after_the_decision(query, numbers(0))
    lose(query)
    until(lambda: sum(query.seen().values()) == 3)
    query.run(0, numbers(0), 2)
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0))


def test_a_half_committed_micro_batch_with_other_rows_is_an_error_and_nothing_is_doubled(
    query: Query,
) -> None:
    killed_after_the_decision(query, numbers(0))
    lose(query)
    half = query.seen()
    for tasks in (3, 1):
        with pytest.raises(SinkConflictError, match=r"has 2 tasks|with 2 tasks"):
            query.run(0, numbers(0), tasks)
        until(lambda: nothing_is_open(query.topics, query.out))
        assert query.seen() == half
    query.run(0, numbers(0), 2)
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0))


def test_of_two_attempts_of_a_task_the_one_that_spark_counts_is_seen(query: Query) -> None:
    rows = numbers(0)
    first = query.write_task(0, 0, rows, "run", attempt=0)
    second = query.write_task(0, 0, rows, "run", attempt=1)
    assert first.has.transaction != second.has.transaction
    query.commit(0, [first])
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(rows)


def test_a_driver_that_wakes_up_late_changes_nothing(query: Query) -> None:
    zombie = query.write(0, numbers(0), 2, "zombie")
    query.run(0, numbers(0), 2)
    query.commit(0, zombie)  # a decision is there: it may be carried out again, and no other made
    query.run(1, numbers(1), 2)
    with pytest.raises(SinkConflictError, match="the output is at 1"):
        query.commit(0, zombie)
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0), numbers(1))


def test_a_driver_whose_query_was_claimed_by_another_cannot_decide(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = query.write(0, numbers(0), 2, "one")
    real = SinkDriver._claim

    def overtaken(driver: SinkDriver) -> Any:
        journal = real(driver)
        monkeypatch.setattr(SinkDriver, "_claim", real)
        real(SinkDriver(query.ledger, query.query_id))
        return journal

    monkeypatch.setattr(SinkDriver, "_claim", overtaken)
    with pytest.raises(SinkConflictError, match="another driver has taken over"):
        query.commit(0, reports)
    assert query.seen() == Counter()
    query.run(0, numbers(0), 2)
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0))


def test_a_driver_of_an_older_producer_id_is_shut_out_too(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its epochs are used up, a transactional id gets a new producer id."""
    old = SinkDriver(query.ledger, query.query_id)
    old._claim()
    real = vars(exactly_once)["init_producer_id"]

    async def another(cluster: Any, name: str, *more: Any) -> tuple[int, int]:
        return await real(cluster, f"{name}-other", *more)

    monkeypatch.setattr(exactly_once, "init_producer_id", another)
    query.run(0, numbers(0), 2, run="run")
    with pytest.raises(SinkConflictError, match="another driver has taken over"):
        old._append("decision", b"{}")


def test_abort_ends_what_is_open_but_not_what_was_decided(query: Query) -> None:
    reports = query.write(0, numbers(0), 2, "run")
    SinkDriver(query.ledger, query.query_id).abort(0, reports)
    until(lambda: nothing_is_open(query.topics, query.out))
    reports = killed_after_the_decision(query, numbers(0))
    SinkDriver(query.ledger, query.query_id).abort(0, reports)
    query.commit(0, reports)
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == once(numbers(0))


def late_task(query: Query, *happens: Callable[[], object]) -> None:
    """A task during which its driver does something before each of its parts, and at the end."""
    sent: list[SendFuture] = []

    def parts() -> Iterator[tuple[str, pa.RecordBatch]]:
        for number, happen in enumerate(happens):
            if number:
                yield query.out, pa.record_batch({"value": pa.array(numbers(0))})
                sent[-1].result(30)  # it is there
            happen()

    def send_and_keep(producer: Producer, topic: str, rows: pa.RecordBatch) -> list[SendFuture]:
        sent.extend(send(producer, topic, rows))
        producer.flush(30)
        return []

    origin = TaskOrigin(query.query_id, "run", 0, 0, 0)
    PreparedTask(query.ledger, query.properties, origin, send_and_keep).write(parts())


def nothing() -> None:
    """Happens."""


def test_a_task_that_begins_to_write_after_its_micro_batch_was_given_up_does_not(
    query: Query,
) -> None:
    before = query.topics.ends(query.out)
    driver = SinkDriver(query.ledger, query.query_id)
    with pytest.raises(SinkConflictError, match="came too late"):
        late_task(query, lambda: driver.abort(0, ()), nothing)
    assert query.topics.ends(query.out) == before


def test_a_task_that_ends_after_its_micro_batch_was_given_up_leaves_nothing_open(
    query: Query,
) -> None:
    """Whether the driver found what it had open or not."""
    driver = SinkDriver(query.ledger, query.query_id)
    with pytest.raises(SinkConflictError, match="came too late"):
        late_task(query, nothing, driver._claim)  # and was killed before it looked for more
    until(lambda: nothing_is_open(query.topics, query.out))
    with pytest.raises(ShoalError):
        late_task(query, nothing, lambda: driver.abort(0, ()))
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == Counter()


def batch_writer(query: Query, **options: str) -> BatchWriter:
    pytest.importorskip("pyspark")
    from shoal.spark.writer import BatchWriter

    given = {"kafka.bootstrap.servers": query.topics.bootstrap_servers, "exactlyOnce": "true"}
    return BatchWriter(parse_sink({**given, "topic": query.out, **options}))


def test_a_batch_write_that_failed_before_any_task_ended_leaves_nothing_open(
    query: Query,
) -> None:
    writer = batch_writer(query)
    query.query_id = writer._job_id
    query.write_task(0, 0, numbers(0), "0")  # its message never arrived
    assert not nothing_is_open(query.topics, query.out)
    writer.abort([None, None])
    journal = query.ledger.journal(writer._job_id)
    assert journal.claims == 2, "it was claimed, and that is forgotten"
    assert journal.claim is None
    until(lambda: nothing_is_open(query.topics, query.out))
    assert query.seen() == Counter()


def test_a_batch_write_that_cannot_be_taken_back_says_so_and_hides_no_error(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    nobody = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "200"}
    batch_writer(query, **nobody).abort([None])
    assert "stay open for now" in caplog.text


def test_a_micro_batch_without_rows_writes_nothing_anywhere(query: Query) -> None:
    before = query.topics.ends("__shoal_sink")
    query.run(0, (), 2)
    assert query.topics.ends("__shoal_sink") == before


def test_a_micro_batch_that_was_begun_without_transactions_is_not_taken_over(
    query: Query,
) -> None:
    span: dict[TopicPartition, tuple[int, int | None]]
    span = {TopicPartition(query.out, 0): (0, None)}
    entry = LedgerEntry(7, [TaskAttempt(None, span)])
    with Producer(bootstrap_servers=query.topics.bootstrap_servers) as producer:
        query.ledger.write(producer, TaskKey(query.query_id, 1), entry)
    with pytest.raises(ConfigError, match="begun without option exactlyOnce"):
        query.run(7, numbers(7), 2)
    query.run(8, numbers(8), 2)
    assert query.seen() == once(numbers(8))


def test_a_timeout_that_the_broker_does_not_allow_is_explained(query: Query) -> None:
    query.properties["transaction.timeout.ms"] = "2000000000"
    with pytest.raises(ConfigError, match=r"set option kafka.transaction.timeout.ms to its"):
        query.run(0, numbers(0), 1)


@pytest.mark.slow
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(1, 10), st.integers(1, 3), st.booleans()), max_size=3),
            st.integers(0, 7),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_whatever_is_killed_when_every_row_is_there_once(broker, schedule) -> None:  # type: ignore[no-untyped-def]
    """Kills, restarts with other numbers of tasks, and transactions whose time was over."""
    with Topics(broker.bootstrap_servers, f"kills-{uuid.uuid4()}") as topics:
        query = Query(topics)
        with pytest.MonkeyPatch.context() as patch:
            watch_ends(query, patch)
            written = [
                run_with_kills(query, batch_id, kills, count)
                for batch_id, (kills, count) in enumerate(schedule)
            ]
        until(lambda: nothing_is_open(topics, query.out))
        assert query.seen() == once(*written)
        query.close()


def run_with_kills(
    query: Query, batch_id: int, kills: list[tuple[int, int, bool]], count: int
) -> list[str]:
    rows = numbers(batch_id, count)
    first_tasks = kills[0][1] if kills else 2
    for kill_at, tasks, is_lost in kills:
        query.steps, query.kill_at = 0, kill_at
        with suppress(Killed, SinkConflictError):
            query.run(batch_id, rows, tasks)
        query.kill_at = None
        if is_lost:
            lose(query)
    for tasks in (2, first_tasks, 1, 2, 3):  # a half committed one wants the number it had
        try:
            query.run(batch_id, rows, tasks)
        except SinkConflictError:
            continue
        return rows
    raise AssertionError("the micro-batch cannot be finished")
