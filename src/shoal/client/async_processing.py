"""``AsyncConsumer.process``: records to a coroutine function in several tasks.

Rule: as ``processing.py``, with tasks for threads; what may be worked on and committed is decided
by ``processing_progress.py`` for both.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from shoal.client.async_producer import AsyncProducer
from shoal.client.commits import Offsets
from shoal.client.config import ConsumerConfig
from shoal.client.processing import (
    COMMIT_ERRORS,
    POLL_S,
    Handler,
    dead_letter,
    deserialized,
    letters_config,
    need_own_commits,
)
from shoal.client.processing_progress import ProcessOptions, Progress, RecordJob
from shoal.errors import ProcessingError, RecordDeserializationError, WakeupError
from shoal.types import Record, TopicPartition

logger = logging.getLogger(__name__)


class AwaitedConsumer(Protocol):
    """What is used of an ``AsyncConsumer``."""

    config: ConsumerConfig

    async def _poll_raw(self, timeout: float, limit: int) -> Sequence[Record[Any, Any]]: ...
    async def commit(
        self, offsets: Offsets | None = None, timeout: float | None = None
    ) -> None: ...


class AsyncProcessing:
    """One call of ``process``; also the first to hear of rebalances while it lasts."""

    def __init__(
        self, consumer: AwaitedConsumer, handler: Handler, options: ProcessOptions
    ) -> None:
        need_own_commits(consumer.config)
        self._consumer = consumer
        self._handler = handler
        self._options = options
        self._progress = Progress(options)
        self._waiting: set[asyncio.Future[None]] = set()
        self._letters: AsyncProducer | None = None
        self._loop = asyncio.get_running_loop()
        self._commit_at = 0.0

    async def run(self) -> None:
        """Until ``wakeup``, until something fails, or cancelled: then handlers are, too."""
        workers = [asyncio.create_task(self._work()) for _ in range(self._options.workers)]
        try:
            try:
                await self._poll_on()
            except WakeupError:
                logger.debug("process() was woken: it ends")
            finally:
                await self._drain()
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            if self._letters is not None:
                await self._letters.close()
        if self._progress.failures:
            raise ProcessingError(self._progress.failures)

    # --- the task that called ---

    async def _poll_on(self) -> None:
        progress = self._progress
        while not progress.is_stopping:
            room = self._options.most_pending - progress.pending
            if room <= 0:
                await self._change(POLL_S)
            records = await self._consumer._poll_raw(POLL_S if room > 0 else 0.0, max(0, room))
            if records:
                progress.add(records)
                self._changed()
            if self._loop.time() >= self._commit_at:
                await self._commit()

    async def _commit(self, tps: Collection[TopicPartition] | None = None) -> None:
        interval_s = self._consumer.config.auto_commit_interval_ms / 1000
        self._commit_at = self._loop.time() + interval_s
        offsets = self._progress.positions(tps)
        if not offsets:
            return
        try:
            await self._consumer.commit(offsets)
        except COMMIT_ERRORS as error:
            logger.warning("process: a commit failed, records may come again: %s", error)
        else:
            self._progress.committed(offsets)

    async def _drain(self) -> None:
        """Wait for what is being worked on, within limits, and commit."""
        until = self._loop.time() + self._options.drain_timeout_s
        task = asyncio.current_task()
        self._progress.is_stopping = True
        self._changed()
        # Whoever cancelled wants no handler to go on; what is done is committed all the same.
        while self._progress.running() and not (task is not None and task.cancelling()):
            await self._change(POLL_S)
            if self._loop.time() >= until:
                logger.warning("process: handlers did not end in time; their records come again")
                break
            try:
                await self._consumer._poll_raw(0.0, 0)  # it is still a member
            except Exception as error:  # noqa: BLE001 - it ends already, by this or by another
                logger.debug("process: while it ends: %s", error)
        try:
            await self._commit()
        except WakeupError:
            await self._commit()  # once more: who wakes twice does not wake a third time

    # --- rebalances, inside a poll of the task that called ---

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Let what is being worked on end, commit, and forget the rest."""
        until = self._loop.time() + self._options.drain_timeout_s
        self._progress.close(partitions)
        while self._progress.is_open(partitions) and self._loop.time() < until:
            await self._change(until - self._loop.time())
        if left := self._progress.running(partitions):
            logger.warning(
                "process: %d handlers go on with records of partitions that are revoked; "
                "others will do them again",
                left,
            )
        await self._commit(partitions)
        self._progress.forget(partitions)

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Others have them already."""
        self._progress.forget(partitions)

    # --- workers ---

    async def _work(self) -> None:
        while (job := await self._next()) is not None:
            try:
                result = self._handler(deserialized(job.record, self._consumer.config))
                if inspect.isawaitable(result):
                    await result
            except Exception as error:  # noqa: BLE001 - the user's; it is told, or tried again
                await self._failed(job, error)
            else:
                self._settle(self._progress.done, job)

    async def _next(self) -> RecordJob | None:
        progress = self._progress
        while (job := progress.take(self._loop.time())) is None:
            if progress.is_stopping:
                return None
            due = progress.next_due()
            await self._change(None if due is None else due - self._loop.time())
        return job

    async def _failed(self, job: RecordJob, error: Exception) -> None:
        is_final = isinstance(error, RecordDeserializationError)
        is_dead = self._progress.failed(job, error, self._loop.time(), is_final=is_final)
        self._changed()
        if not is_dead:
            return
        try:
            await self._bury(job, error)
        except Exception as failure:  # noqa: BLE001 - told by process(); the record is not done
            self._settle(self._progress.fail, job, failure)
        else:
            self._settle(self._progress.done, job)

    async def _bury(self, job: RecordJob, error: Exception) -> None:
        assert self._options.dead_letter_topic is not None
        config = self._consumer.config
        if self._letters is None:
            self._letters = AsyncProducer(letters_config(config))
        letter = dead_letter(job, error, config.group_id)
        await self._letters.send(self._options.dead_letter_topic, **letter)

    # --- who waits for whom ---

    def _settle(self, how: Callable[..., None], *arguments: Any) -> None:
        how(*arguments)
        self._changed()

    def _changed(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    async def _change(self, timeout_s: float | None) -> None:
        """Until something changes, or time is up."""
        told = self._loop.create_future()
        self._waiting.add(told)
        try:
            await asyncio.wait(
                [told], timeout=timeout_s if timeout_s is None else max(0.0, timeout_s)
            )
        finally:
            self._waiting.discard(told)
            told.cancel()
