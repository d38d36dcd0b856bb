"""Group commit: one sync for everyone who waits.

Appends are quick and run on the caller's thread (the broker's event loop); a sync takes
milliseconds and runs in worker threads. While a round of syncs is under way, whoever appends
joins the next one, so its cost is shared by all of them: the busier, the cheaper.

Rule: ``Syncer`` touches logs only on the caller's thread. Workers run ``SyncWork`` and hand the
result back through ``post`` (``loop.call_soon_threadsafe``).

Logs which name data of others (committed offsets) are synced after the others of their round, so
a committed offset is never durable before the records it counts.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from shoal.errors import ErrorCode
from shoal.log.config import Durability
from shoal.log.partition import PartitionLog
from shoal.log.syncwork import SyncWork

Callback = Callable[[ErrorCode], None]
_STORED: Final = ErrorCode.NONE
#: Files of one file system share its journal: this many at a time saturate it.
WORKERS = 8


class Syncer:
    """Calls back when what was appended is stored, as the durability demands.

    Args:
        post: runs a function soon on the thread that owns the logs; called from any thread.
        workers: how many syncs at a time; 0 runs them on the owning thread (simulations).
        pool: who runs them; threads that are made when first needed, unless given.
    """

    def __init__(
        self,
        durability: Durability,
        *,
        post: Callable[[Callable[[], None]], object],
        workers: int = WORKERS,
        pool: Executor | None = None,
    ) -> None:
        self.durability = durability
        self._syncs_each = durability is Durability.EACH
        self._syncs_in_intervals = durability is Durability.INTERVAL
        self.rounds = 0
        self._post = post
        self._workers = workers
        self._pool = pool
        self._waiting: dict[PartitionLog, list[tuple[int, Callback | None]]] = {}
        self._dirty: dict[PartitionLog, None] = {}
        self._done: deque[Callable[[], None]] = deque()
        self._running = False
        self._scheduled = False
        self._closed = False

    def register(self, log: PartitionLog, end_offset: int, callback: Callback | None) -> None:
        """After an append: call ``callback`` once everything below ``end_offset`` is stored.

        Without a wait in the durability, or if it is stored already, that is now.
        """
        if self._syncs_each and log.high_watermark < end_offset:
            log.sync()
        if log.high_watermark >= end_offset:
            if self._syncs_in_intervals:
                self._dirty[log] = None
            if callback is not None:
                callback(_STORED)
            return
        if log.fenced is not None or self._closed:
            if callback is not None:
                callback(ErrorCode.KAFKA_STORAGE_ERROR)
            return
        self._waiting.setdefault(log, []).append((end_offset, callback))
        self._schedule()

    def sync_dirty(self) -> None:
        """Under ``interval``: start a round for all that was appended since the last one."""
        self._schedule()

    def _schedule(self) -> None:
        # Not at once: appends of the same turn of the loop belong to the same round.
        if not self._running and not self._scheduled and not self._closed:
            self._scheduled = True
            self._post(self._start_round)

    def _start_round(self) -> None:
        self._scheduled = False
        if self._running or self._closed:
            return
        works = []
        for log in dict.fromkeys([*self._waiting, *self._dirty]):
            work = log.begin_sync()
            if work is not None:
                works.append(work)
            else:
                self._answer(log)  # fenced, or synced by somebody else
        self._dirty.clear()
        if not works:
            return
        self._running = True
        self.rounds += 1
        first = [work for work in works if not work.log.sync_last]
        last = [work for work in works if work.log.sync_last]
        self._run(first, lambda: self._run(last, self._finish_round))

    def _run(self, works: list[SyncWork], then: Callable[[], None]) -> None:
        """Run works in the pool, take their results here, then go on."""
        if not works:
            then()
            return
        if not self._workers or self._closed:
            self._take([(work, work.run()) for work in works], then)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="shoal-sync")
        shares = [works[start :: self._workers] for start in range(min(self._workers, len(works)))]
        left = len(shares)
        lock = threading.Lock()
        results: list[tuple[SyncWork, OSError | None]] = []

        def work_through(share: list[SyncWork]) -> None:
            nonlocal left
            done = [(work, work.run()) for work in share]
            with lock:
                results.extend(done)
                left -= 1
                finished = left == 0
            if finished:
                self._done.append(lambda: self._take(results, then))
                with suppress(RuntimeError):  # the loop is gone; ``close`` looks here itself
                    self._post(self._take_done)

        for share in shares:
            self._pool.submit(work_through, share)

    def _take_done(self) -> None:
        while self._done:
            self._done.popleft()()

    def _take(
        self, results: list[tuple[SyncWork, OSError | None]], then: Callable[[], None]
    ) -> None:
        for work, error in results:
            work.log.finish_sync(work, error)
        for work, _ in results:
            self._answer(work.log)
        then()

    def _answer(self, log: PartitionLog) -> None:
        waiting = self._waiting.pop(log, None)
        if not waiting:
            return
        stored = log.high_watermark
        later = []
        for end_offset, callback in waiting:
            if end_offset <= stored:
                if callback is not None:
                    callback(ErrorCode.NONE)
            elif log.fenced is not None:
                if callback is not None:
                    callback(ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                later.append((end_offset, callback))
        if later:
            # A callback may have appended and registered meanwhile.
            self._waiting[log] = later + self._waiting.get(log, [])

    def _finish_round(self) -> None:
        self._running = False
        if self._waiting:
            self._schedule()

    def forget(self, log: PartitionLog) -> None:
        """The log is being deleted: answer who waits for it."""
        self._dirty.pop(log, None)
        for _, callback in self._waiting.pop(log, ()):
            if callback is not None:
                callback(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def close(self) -> None:
        """Take no more work, let a running sync end, sync what is left, answer everybody."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self._take_done()
        for log in list(self._waiting):
            log.sync()
            self._answer(log)
        for log in self._dirty:
            log.sync()
