"""Requests that wait for data: long polls, woken by appends or by their deadline.

Rule: a waiter counts the bytes that became readable since it began to wait and is called once.
It holds no data; whoever it calls reads the logs afresh. For a reader of committed records they
become readable when they are stable, not when they are visible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from shoal.broker.counters import Counters
from shoal.types import TopicPartition


class Waiter:
    """One parked request."""

    __slots__ = ("_keys", "_missing_bytes", "_places", "_timer", "_waiting", "_wake")

    def __init__(
        self,
        waiting: WaitingRoom,
        keys: list[TopicPartition],
        missing_bytes: int,
        wake: Callable[[], None],
        places: _Places,
    ) -> None:
        self._waiting = waiting
        self._keys = keys
        self._places = places
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


_Places = dict[TopicPartition, dict[Waiter, None]]
"""Who waits for each partition, in the order they came: that is the order they are woken in."""


class WaitingRoom:
    """All parked requests by the partitions they watch."""

    def __init__(self, loop: asyncio.AbstractEventLoop, counters: Counters, *, limit: int) -> None:
        self._loop = loop
        self._counters = counters
        self._limit = limit
        self._by_partition: _Places = {}
        self._for_stable: _Places = {}  # who reads committed records only
        self._all: dict[Waiter, None] = {}
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
        stable_only: bool = False,
    ) -> Waiter:
        """Call ``wake`` once: when enough bytes arrived, in time, or when told to finish."""
        places = self._for_stable if stable_only else self._by_partition
        waiter = Waiter(self, list(keys), missing_bytes, wake, places)
        for key in waiter._keys:
            places.setdefault(key, {})[waiter] = None
        self._all[waiter] = None
        self._counters.fetches_waiting = len(self._all)
        waiter._timer = self._loop.call_later(timeout_ms / 1000.0, waiter.finish)
        return waiter

    @contextmanager
    def noting(self) -> Iterator[set[TopicPartition]]:
        """Where something happened meanwhile, for callers that go over many partitions slowly."""
        notes: set[TopicPartition] = set()
        self._notes.append(notes)
        try:
            yield notes
        finally:
            self._notes = [each for each in self._notes if each is not notes]

    def awaits_stable(self, topic_partition: TopicPartition) -> bool:
        """Whether somebody waits for committed records of this partition."""
        return topic_partition in self._for_stable

    def arrived(self, topic_partition: TopicPartition, size_bytes: int, stable_bytes: int) -> None:
        """Bytes of this partition became visible, and so many of all that are became stable.

        Whoever has enough is called after this turn of the loop: a request that writes to many
        partitions then wakes a reader once, with all of it.
        """
        for notes in self._notes:
            notes.add(topic_partition)
        waiters = self._by_partition.get(topic_partition)
        if waiters:
            self._count(waiters, size_bytes)
        if self._for_stable and stable_bytes:
            self._count(self._for_stable.get(topic_partition, ()), stable_bytes)

    def _count(self, waiters: Iterable[Waiter], size_bytes: int) -> None:
        for waiter in waiters:
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
        for places in (self._by_partition, self._for_stable):
            for waiter in list(places.get(topic_partition, ())):
                waiter.finish()

    def finish_all(self) -> None:
        for waiter in list(self._all):
            waiter.finish()

    def _leave(self, waiter: Waiter) -> None:
        self._all.pop(waiter, None)
        self._counters.fetches_waiting = len(self._all)
        if waiter._timer is not None:
            waiter._timer.cancel()
        places = waiter._places
        for key in waiter._keys:
            waiters = places.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del places[key]
