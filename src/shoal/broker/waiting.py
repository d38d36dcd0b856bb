"""Requests that wait for data: long polls, woken by appends or by their deadline.

Rule: a waiter counts the bytes that became readable since it began to wait and is called once.
It holds no data; whoever it calls reads the logs afresh.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from shoal.broker.counters import Counters
from shoal.types import TopicPartition


class Waiter:
    """One parked request."""

    __slots__ = ("_keys", "_missing_bytes", "_timer", "_waiting", "_wake")

    def __init__(
        self,
        waiting: WaitingRoom,
        keys: list[TopicPartition],
        missing_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self._waiting = waiting
        self._keys = keys
        self._missing_bytes = missing_bytes
        self._wake: Callable[[], None] | None = wake
        self._timer: asyncio.TimerHandle | None = None

    def arrived(self, size_bytes: int) -> bool:
        """Count; True if that is enough."""
        self._missing_bytes -= size_bytes
        return self._missing_bytes <= 0

    def finish(self) -> None:
        """Leave and call back, unless that has happened already."""
        wake, self._wake = self._wake, None
        if wake is None:
            return
        self._waiting._leave(self)
        wake()


class WaitingRoom:
    """All parked requests by the partitions they watch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters, *, limit: int) -> None:
        self._loop = loop
        self._counters = counters
        self._limit = limit
        self._by_partition: dict[TopicPartition, set[Waiter]] = {}
        self._all: set[Waiter] = set()
        self._ready: list[Waiter] = []
        self._notes: list[set[TopicPartition]] = []

    def __len__(self) -> int:
        return len(self._all)

    @property
    def is_full(self) -> bool:
        return len(self._all) >= self._limit

    def wait(
        self,
        keys: Iterable[TopicPartition],
        *,
        missing_bytes: int,
        timeout_ms: int,
        wake: Callable[[], None],
    ) -> Waiter:
        """Call ``wake`` once: when enough bytes arrived, in time, or when told to finish."""
        waiter = Waiter(self, list(keys), missing_bytes, wake)
        for key in waiter._keys:
            self._by_partition.setdefault(key, set()).add(waiter)
        self._all.add(waiter)
        self._counters.fetches_waiting = len(self._all)
        waiter._timer = self._loop.call_later(timeout_ms / 1000.0, waiter.finish)
        return waiter

    @contextmanager
    def noting(self) -> Iterator[set[TopicPartition]]:
        """For who looks at many partitions, with pauses: where something happened meanwhile."""
        notes: set[TopicPartition] = set()
        self._notes.append(notes)
        try:
            yield notes
        finally:
            self._notes = [each for each in self._notes if each is not notes]

    def arrived(self, topic_partition: TopicPartition, size_bytes: int) -> None:
        """Bytes of this partition became readable.

        Whoever has enough is called after this turn of the loop: a request that writes to many
        partitions then wakes a reader once, with all of it.
        """
        for notes in self._notes:
            notes.add(topic_partition)
        for waiter in self._by_partition.get(topic_partition, ()):
            if waiter.arrived(size_bytes):
                if not self._ready:
                    self._loop.call_soon(self._wake_ready)
                self._ready.append(waiter)

    def _wake_ready(self) -> None:
        ready, self._ready = self._ready, []
        for waiter in ready:
            waiter.finish()

    def disturb(self, topic_partition: TopicPartition) -> None:
        """Something other than data happened (deleted, log start moved): look again."""
        for notes in self._notes:
            notes.add(topic_partition)
        for waiter in list(self._by_partition.get(topic_partition, ())):
            waiter.finish()

    def finish_all(self) -> None:
        for waiter in list(self._all):
            waiter.finish()

    def _leave(self, waiter: Waiter) -> None:
        self._all.discard(waiter)
        self._counters.fetches_waiting = len(self._all)
        if waiter._timer is not None:
            waiter._timer.cancel()
        for key in waiter._keys:
            waiters = self._by_partition.get(key)
            if waiters is not None:
                waiters.discard(waiter)
                if not waiters:
                    del self._by_partition[key]
