"""What ``__transaction_state`` holds: one record per id, the last one counts, in Kafka's bytes.

A record is the whole durable state of an id, so replaying is keeping the last one. What Kafka
forgot to persist until 2026 (the producer id before and the one after, KAFKA-20310) is in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition
from shoal.wire.transaction_topic import (
    TransactionLogValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)

EPOCH_MAX: Final = 32_767
"""Never given to a client: the epoch that fences the last one."""

NO_TIMEOUT_MS: Final = 2**31 - 1
"""How Kafka's records say that a transaction is a part of somebody else's (KIP-939)."""

_NEVER: Final = -1


class TransactionRecord(NamedTuple):
    """All there is to know of a transactional id.

    A tuple: a transaction takes four changed copies, and a dataclass copies three times as slowly.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    update_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int | None = None
    """Of the transaction: when its first partition was added."""
    previous_producer_id: int | None = None
    next_producer_id: int | None = None
    """Set while a transaction is being completed whose producer id has no epoch left."""
    last_epoch: int | None = None
    """The epoch before the last bump: who still has it may be retrying. In memory only, as in
    Kafka's log; after a restart such a retry is fenced."""
    client_version: int = 0
    """``transaction.version`` as the client of the last request spoke it."""

    @property
    def is_two_phase(self) -> bool:
        """Its transactions have no timeout."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_exhausted(self) -> bool:
        """No client may get a higher epoch of this producer id."""
        return self.epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True)
class TransactionTombstone:
    """The id has expired."""

    transactional_id: str


TransactionLogRecord: TypeAlias = TransactionRecord | TransactionTombstone


def encode(record: TransactionLogRecord) -> tuple[bytes, bytes | None]:
    """Key and value."""
    key = encode_key(record.transactional_id)
    if isinstance(record, TransactionTombstone):
        return key, None
    start_ms, following = record.start_ms, record.next_producer_id
    before = record.previous_producer_id
    return key, encode_value(
        producer_id=record.producer_id,
        # Kafka names the id itself where there was no other before it.
        previous_producer_id=record.producer_id if before is None else before,
        next_producer_id=_NEVER if following is None else following,
        producer_epoch=record.epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=(
            None if record.state is TransactionState.EMPTY else record.partitions
        ),
        transaction_last_update_timestamp_ms=record.update_ms,
        transaction_start_timestamp_ms=_NEVER if start_ms is None else start_ms,
        client_transaction_version=record.client_version,
    )


def decode(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> TransactionLogRecord | None:
    """The record in a key and a value; ``None`` if it is of a type we do not use.

    Raises:
        InvalidMessageError: The bytes are not what their type says.
    """
    transactional_id = decode_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return TransactionTombstone(transactional_id)
    return _record(transactional_id, decode_value(value))


def _record(transactional_id: str, value: TransactionLogValue) -> TransactionRecord:
    partitions = frozenset(
        TopicPartition(each.topic, partition)
        for each in value.transaction_partitions or ()
        for partition in each.partition_ids
    )
    previous = value.previous_producer_id
    return TransactionRecord(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=partitions,
        update_ms=value.transaction_last_update_timestamp_ms,
        start_ms=_optional(value.transaction_start_timestamp_ms),
        previous_producer_id=None if previous == value.producer_id else _optional(previous),
        next_producer_id=_optional(value.next_producer_id),
        client_version=value.client_transaction_version,
    )


def _optional(value: int) -> int | None:
    return None if value == _NEVER else value
