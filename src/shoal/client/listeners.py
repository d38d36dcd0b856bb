"""Rebalance listeners and consumer interceptors: what users may plug into a consumer.

Rule: both are plain objects; a method that is not there is not called. Listeners' errors reach
the user, interceptors' are logged and never do.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from typing import Any

from shoal.client.engine import in_caller
from shoal.types import Record, TopicPartition

logger = logging.getLogger(__name__)


class RebalanceListener:
    """What a consumer tells about its partitions; inherit, or give any object with these methods.

    All run inside ``poll``, ``unsubscribe`` or ``close``, in the thread that called, and may use
    the consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``. The
    partitions are sorted by topic and number.
    """

    def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
        """After every rebalance: what came new, perhaps nothing. The consumer owns them now."""

    def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> Any:
        """These are about to be given up; they are still ours to commit."""

    def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> Any:
        """Others may own these already; committing them would be refused.

        As in Kafka's client, what happens by default is ``on_partitions_revoked``.
        """
        return self.on_partitions_revoked(partitions)


class ListenerCaller:
    """Calls a user's listener, if there is one, where the user is."""

    def __init__(self, listener: Any | None) -> None:
        self._listener = listener

    @property
    def is_given(self) -> bool:
        return self._listener is not None

    async def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        await self._call("on_partitions_assigned", partitions)

    async def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        await self._call("on_partitions_revoked", partitions)

    async def lost(self, partitions: Sequence[TopicPartition]) -> None:
        if hasattr(self._listener, "on_partitions_lost"):
            await self._call("on_partitions_lost", partitions)
        else:
            await self._call("on_partitions_revoked", partitions)

    async def _call(self, name: str, partitions: Sequence[TopicPartition]) -> None:
        method = getattr(self._listener, name, None)
        if method is not None:
            await in_caller(method, list(partitions))


def plain(result: Any) -> Any:
    """What an interceptor returned; it is never awaited, for records do not wait for it."""
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError(
            "the methods of an interceptor are plain functions, not coroutine functions"
        )
    return result


def intercepted(
    interceptors: Sequence[Any], records: list[Record[Any, Any]]
) -> list[Record[Any, Any]]:
    """What is left of ``records`` after every ``on_consume``; one that raises changes nothing.

    A poll that brought nothing is none of their business.
    """
    if not records:
        return records
    for interceptor in interceptors:
        on_consume = getattr(interceptor, "on_consume", None)
        if on_consume is None:
            continue
        try:
            records = list(plain(on_consume(records)))
        except Exception:
            logger.exception("an interceptor raised")
    return records
