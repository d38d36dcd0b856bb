"""``Consumer.process``: records to a handler in several threads, commits of what is done.

The thread that called goes on polling, so that the group hears of its member however long a
handler takes; it commits, and when partitions are taken away it waits for their records that are
being worked on. Workers take what ``processing_progress.py`` gives them.

Rule: the progress is touched under the lock only; handlers, commits and dead letters outside it.
"""

from __future__ import annotations

import inspect
import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from typing import Any, Final, Protocol

from shoal.client.commits import Offsets
from shoal.client.config import ConnectionConfig, ConsumerConfig, ProducerConfig
from shoal.client.engine import Worker
from shoal.client.processing_progress import ProcessOptions, Progress, RecordJob
from shoal.client.producer import Producer
from shoal.errors import (
    CommitFailedError,
    ConfigError,
    ConnectionFailedError,
    ProcessingError,
    RebalanceInProgressError,
    RecordDeserializationError,
    RequestTimeoutError,
    RetriableError,
    WakeupError,
)
from shoal.types import Record, TopicPartition

logger = logging.getLogger(__name__)

Handler = Callable[[Record[Any, Any]], Any]

POLL_S: Final = 0.1
#: What a commit may fail with while the group goes on: it is tried again, or others do the work.
COMMIT_ERRORS: Final = (
    CommitFailedError,
    ConnectionFailedError,
    RebalanceInProgressError,
    RequestTimeoutError,
    RetriableError,
)


class PolledConsumer(Protocol):
    """What is used of a ``Consumer``."""

    config: ConsumerConfig

    def _poll_raw(self, timeout: float, limit: int) -> Sequence[Record[Any, Any]]: ...
    def commit_sync(self, offsets: Offsets | None = None, timeout: float | None = None) -> None: ...


class Processing:
    """One call of ``process``; also the first to hear of rebalances while it lasts."""

    def __init__(self, consumer: PolledConsumer, handler: Handler, options: ProcessOptions) -> None:
        need_own_commits(consumer.config)
        self._consumer = consumer
        self._handler = handler
        self._options = options
        self._progress = Progress(options)
        self._changed = threading.Condition()
        self._letters: Producer | None = None
        self._commit_at = 0.0

    def run(self) -> None:
        """Until ``wakeup``, or until something fails."""
        workers = [Worker(f"shoal-process-{n}") for n in range(self._options.workers)]
        for worker in workers:
            worker.post(self._work)
        try:
            self._poll_on()
        except WakeupError:
            logger.debug("process() was woken: it ends")
        finally:
            is_stuck = not self._drain()
            for worker in workers:
                worker.close(wait=not is_stuck)
            if self._letters is not None:
                self._letters.close()
        if self._progress.failures:
            raise ProcessingError(self._progress.failures)

    # --- the thread that called ---

    def _poll_on(self) -> None:
        progress = self._progress
        while not progress.is_stopping:
            with self._changed:
                room = self._options.most_pending - progress.pending
                if room <= 0:
                    self._changed.wait(POLL_S)
            records = self._consumer._poll_raw(POLL_S if room > 0 else 0.0, max(0, room))
            if records:
                with self._changed:
                    progress.add(records)
                    self._changed.notify_all()
            if time.monotonic() >= self._commit_at:
                self._commit()

    def _commit(self, tps: Collection[TopicPartition] | None = None) -> None:
        interval_s = self._consumer.config.auto_commit_interval_ms / 1000
        self._commit_at = time.monotonic() + interval_s
        with self._changed:
            offsets = self._progress.positions(tps)
        if not offsets:
            return
        try:
            self._consumer.commit_sync(offsets)
        except COMMIT_ERRORS as error:
            logger.warning("process: a commit failed, records may come again: %s", error)
        else:
            with self._changed:
                self._progress.committed(offsets)

    def _drain(self) -> bool:
        """Wait for what is being worked on, within limits, and commit; whether all of it ended."""
        until = time.monotonic() + self._options.drain_timeout_s
        with self._changed:
            self._progress.is_stopping = True
            self._changed.notify_all()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._progress.running(), POLL_S)
                left = self._progress.running()
            if not left or time.monotonic() >= until:
                break
            try:
                self._consumer._poll_raw(0.0, 0)  # it is still a member
            except Exception as error:  # noqa: BLE001 - it ends already, by this or by another
                logger.debug("process: while it ends: %s", error)
        if left:
            logger.warning(
                "process: %d handlers did not end in time; their records come again", left
            )
        try:
            self._commit()
        except WakeupError:
            self._commit()  # once more: who wakes twice does not wake a third time
        return not left

    # --- rebalances, inside a poll of the thread that called ---

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Let what is being worked on end, commit, and forget the rest."""
        with self._changed:
            self._progress.close(partitions)
            self._changed.wait_for(
                lambda: not self._progress.is_open(partitions), self._options.drain_timeout_s
            )
            if left := self._progress.running(partitions):
                logger.warning(
                    "process: %d handlers go on with records of partitions that are revoked; "
                    "others will do them again",
                    left,
                )
        self._commit(partitions)
        with self._changed:
            self._progress.forget(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others have them already."""
        with self._changed:
            self._progress.forget(partitions)

    # --- workers ---

    def _work(self) -> None:
        while (job := self._next()) is not None:
            try:
                self._handle(job)
            except Exception as error:  # noqa: BLE001 - the user's; it is told, or tried again
                self._failed(job, error)
            except BaseException as error:  # noqa: BLE001 - a thread that ends silently helps nobody
                self._settle(
                    self._progress.fail, job, RuntimeError(f"the handler raised {error!r}")
                )
            else:
                self._settle(self._progress.done, job)

    def _next(self) -> RecordJob | None:
        progress = self._progress
        with self._changed:
            while (job := progress.take(time.monotonic())) is None:
                if progress.is_stopping:
                    return None
                due = progress.next_due()
                self._changed.wait(None if due is None else max(0.0, due - time.monotonic()))
            return job

    def _handle(self, job: RecordJob) -> None:
        result = self._handler(deserialized(job.record, self._consumer.config))
        if inspect.iscoroutine(result):
            result.close()
            raise TypeError(
                "the handler is a coroutine function; use it with AsyncConsumer.process"
            )

    def _failed(self, job: RecordJob, error: Exception) -> None:
        with self._changed:
            is_dead = self._progress.failed(
                job, error, time.monotonic(), is_final=isinstance(error, RecordDeserializationError)
            )
            self._changed.notify_all()
        if not is_dead:
            return
        try:
            self._bury(job, error)
        except Exception as failure:  # noqa: BLE001 - told by process(); the record is not done
            self._settle(self._progress.fail, job, failure)
        else:
            self._settle(self._progress.done, job)

    def _settle(self, how: Callable[..., None], *arguments: Any) -> None:
        with self._changed:
            how(*arguments)
            self._changed.notify_all()

    def _bury(self, job: RecordJob, error: Exception) -> None:
        assert self._options.dead_letter_topic is not None
        config = self._consumer.config
        with self._changed:
            if self._letters is None:
                self._letters = Producer(letters_config(config))
        letter = dead_letter(job, error, config.group_id)
        self._letters.send(self._options.dead_letter_topic, **letter).result()


def need_own_commits(config: ConsumerConfig) -> None:
    """Raises ConfigError if a consumer cannot commit what is done, and nothing else."""
    if config.group_id is None:
        raise ConfigError("process() commits what is done and needs a group_id")
    if config.enable_auto_commit:
        raise ConfigError(
            "process() commits what is done by itself; set enable_auto_commit=False, or records "
            "would be committed when they are read"
        )


def deserialized(record: Record[Any, Any], config: ConsumerConfig) -> Record[Any, Any]:
    """What the handler gets of a record whose key and value are bytes.

    Raises:
        RecordDeserializationError: a deserializer failed.
    """
    key, value, part = record.key, record.value, "key"
    try:
        if key is not None and config.key_deserializer is not None:
            key = config.key_deserializer(key)
        part = "value"
        if value is not None and config.value_deserializer is not None:
            value = config.value_deserializer(value)
    except Exception as error:
        raise RecordDeserializationError(record.topic_partition, record.offset, part) from error
    return replace(record, key=key, value=value)


def letters_config(config: ConsumerConfig) -> ProducerConfig:
    """A producer's settings for the cluster a consumer reads from."""
    shared = {field.name: getattr(config, field.name) for field in fields(ConnectionConfig)}
    return ProducerConfig(**shared, linger_ms=0)


def dead_letter(job: RecordJob, error: Exception, group_id: str | None) -> dict[str, Any]:
    """The record as it came, and in headers where it was and why it is here."""
    record, cause = job.record, error.__cause__
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, RecordDeserializationError) and cause is not None:
        reason += f" ({type(cause).__name__}: {cause})"
    told = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "error": reason,
        "attempts": job.attempts,
        "group": group_id,
    }
    headers = [(f"shoal.{name}", str(value).encode()) for name, value in told.items()]
    return {
        "key": record.key,
        "value": record.value,
        "timestamp_ms": max(0, record.timestamp_ms),
        "headers": [*record.headers, *headers],
    }
