"""What a poll returns, and the steps of one, shared by the blocking and the awaiting face.

Rule: ``poll_steps`` is the poll. It yields what must run on the engine and takes records where it
is called, so that a face only has to say how to wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from shoal.client.config import ConsumerConfig
from shoal.client.consumer_core import ConsumerCore
from shoal.client.listeners import intercepted
from shoal.types import K, Record, TopicPartition, V

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
Steps = Generator[Coroutine[Any, Any, None], None, T | None]


class Records(list[Record[K, V]], Generic[K, V]):
    """The records of one poll; empty (and false) when none came."""

    __slots__ = ()

    def by_partition(self) -> dict[TopicPartition, list[Record[K, V]]]:
        """The same, grouped; within a partition by offset."""
        groups: dict[TopicPartition, list[Record[K, V]]] = {}
        for record in self:
            groups.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return groups


def take_records(session: ConsumerCore, limit: int) -> Records[Any, Any]:
    """What is there, without waiting; raises as ``RecordReader.take``."""
    records: Records[Any, Any] = Records()
    session.reader.fill(records, limit)
    return records


def polled(interceptors: Sequence[Any], taken: Records[Any, Any] | None) -> Records[Any, Any]:
    """What a poll returns of what was taken."""
    if taken and not interceptors:
        return taken
    return Records(intercepted(interceptors, taken or []))


def most(given: int | None, default: int) -> int:
    """How many records a poll may return."""
    if given is None:
        return default
    if given < 1:
        raise ValueError(f"max_records={given} is less than one record")
    return given


def poll_steps(
    session: ConsumerCore,
    timeout: float,
    take: Callable[[], T | None],
    wait: Callable[[float], object] | None = None,
) -> Steps[T]:
    """Take what is there; attend to the group, and wait, when that is due or nothing is there.

    ``wait`` blocks this thread until something arrives: a blocking face may wait right here, and
    only asks the engine when there is more to do than waiting.
    """
    began = time.monotonic()
    until = began + timeout
    while True:
        session.arrived.clear()
        calm_s = session.calm_s
        if not calm_s:
            yield session.prepare(max(0.0, until - time.monotonic()))
        taken = take()
        now = time.monotonic()
        left_s = until - now
        if taken or left_s <= 0:
            session.polls.polled(began, now)
            return taken
        if calm_s and wait is not None:
            wait(min(left_s, calm_s))
        elif calm_s:
            yield session.prepare(left_s)


async def start_session(config: ConsumerConfig) -> ConsumerCore:
    """On the engine's loop: everything a session holds belongs to it."""
    return ConsumerCore(config)


def empty_arrow() -> pa.RecordBatch:
    """What ``poll_arrow`` returns when nothing came: the columns, no rows."""
    from shoal.records.columns import decode_columns

    return decode_columns([])
