"""What the broker's other parts ask of a transaction coordinator, and what it orders of them.

Clients' requests are those of ``shoal.wire.apis``. These are the rest: what a produce request or a
group's commit asks on its way into a log, and the markers that end a transaction there.

Tuples: a transaction takes four of them, and a frozen dataclass is made three times as slowly.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.types import TopicPartition

TV0 = 0
"""Of clients that announce their partitions (KIP-98), as ``__transaction_state`` notes them."""
TV2 = 2
"""Of clients whose partitions are added by what they send, and whose epoch grows (KIP-890)."""


class AddPartitions(NamedTuple):
    """Let partitions become part of a transaction. The answer is an ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]
    client_version: int = TV0


class VerifyPartitions(NamedTuple):
    """Are they part of the transaction? The answer is an ``ErrorCode``."""

    transactional_id: str
    producer_id: int
    epoch: int
    partitions: frozenset[TopicPartition]


class AbortByAdmin(NamedTuple):
    """End a transaction whose producer does not. The answer is an ``ErrorCode``."""

    transactional_id: str
    producer_id: int


class WriteMarkers(NamedTuple):
    """An order: end this transaction in these partitions, durably, then say ``MarkersWritten``.

    It may come twice for the same transaction, after a restart: a second marker is harmless.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    commit: bool
    partitions: frozenset[TopicPartition]
    client_version: int


class MarkersWritten(NamedTuple):
    """Every marker of an order is durable, or its partition is gone."""

    transactional_id: str
    producer_id: int
    epoch: int
