"""Keys and values of ``__transaction_state``: what a transaction coordinator stores.

In Kafka's bytes. A key is an int16 (0) and the transactional id, never flexible: compaction
compares its bytes. A value is an int16 version and its fields; no value is a tombstone. Version 1
(KIP-890) is flexible and carries in tags what a producer id was before and will be next.

Rule: a key of a type we do not know is skipped, never an error (KIP-915).
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct as Layout
from typing import Final

from shoal.errors import InvalidMessageError
from shoal.wire.schema import (
    Array,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    String,
    Struct,
    tagged,
)

_VERSION: Final = Layout(">h")
# A value's version and the fields from its producer id to its status; both times and how many tags.
_BEFORE_PARTITIONS: Final = Layout(">hqhib")
_BEHIND_PARTITIONS: Final = Layout(">qqb")
_TAGGED_ID: Final = Layout(">bbq")
_TAGGED_VERSION: Final = Layout(">bbh")
_KEY_TYPE: Final = 0
_IDS_KNOWN: Final = 4096
"""Whose keys need not be encoded again: an id writes three records for each transaction."""
_PARTITIONS_KNOWN: Final = 1024
"""The same of what is in their transactions."""


class TransactionLogKey(Message, versions=(0, 0), flexible=None):
    transactional_id: String


class TransactionLogValue(Message, versions=(0, 1), flexible=1):
    class PartitionsSchema(Struct):
        topic: String
        partition_ids: Array[Int32]

    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, since=1, default=-1, ignorable=True)  # KIP-890
    next_producer_id: Int64 = tagged(1, since=1, default=-1, ignorable=True)
    producer_epoch: Int16
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Array[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, since=1, default=0, ignorable=True)


@lru_cache(maxsize=_IDS_KNOWN)
def encode_key(transactional_id: str) -> bytes:
    return _VERSION.pack(_KEY_TYPE) + TransactionLogKey(transactional_id=transactional_id).encode(0)


def decode_key(data: bytes | memoryview) -> str | None:
    """The transactional id; ``None`` for a key of another type."""
    if _version(data, "a key") != _KEY_TYPE:
        return None
    return TransactionLogKey.decode(data[_VERSION.size :], 0).transactional_id


def encode_value(
    *,
    producer_id: int,
    previous_producer_id: int,
    next_producer_id: int,
    producer_epoch: int,
    transaction_timeout_ms: int,
    transaction_status: int,
    transaction_partitions: frozenset[tuple[str, int]] | None,
    transaction_last_update_timestamp_ms: int,
    transaction_start_timestamp_ms: int,
    client_transaction_version: int,
) -> bytes:
    """A ``TransactionLogValue`` in version 1, which Kafka writes since ``transaction.version`` 1.

    Written without one, for a transaction takes three of them, and its partitions stay the same.
    """
    tags = 0
    tagged = b""
    if previous_producer_id != -1:
        tags, tagged = 1, _TAGGED_ID.pack(0, 8, previous_producer_id)
    if next_producer_id != -1:
        tags, tagged = tags + 1, tagged + _TAGGED_ID.pack(1, 8, next_producer_id)
    if client_transaction_version:
        tags, tagged = tags + 1, tagged + _TAGGED_VERSION.pack(2, 2, client_transaction_version)
    return b"".join(
        (
            _BEFORE_PARTITIONS.pack(
                1, producer_id, producer_epoch, transaction_timeout_ms, transaction_status
            ),
            b"\0" if transaction_partitions is None else _partitions(transaction_partitions),
            _BEHIND_PARTITIONS.pack(
                transaction_last_update_timestamp_ms, transaction_start_timestamp_ms, tags
            ),
            tagged,
        )
    )


@lru_cache(maxsize=_PARTITIONS_KNOWN)
def _partitions(partitions: frozenset[tuple[str, int]]) -> bytes:
    """That field alone, as it stands in a value of version 1."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=0,
        producer_epoch=0,
        transaction_timeout_ms=0,
        transaction_status=0,
        transaction_partitions=[
            TransactionLogValue.PartitionsSchema(topic=topic, partition_ids=numbers)
            for topic, numbers in topics.items()
        ],
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=0,
    ).encode(1)
    return value[_BEFORE_PARTITIONS.size - _VERSION.size : -_BEHIND_PARTITIONS.size]


def decode_value(data: bytes | memoryview) -> TransactionLogValue:
    version = _version(data, "a value")
    return TransactionLogValue.decode(data[_VERSION.size :], version)


def _version(data: bytes | memoryview, what: str) -> int:
    if len(data) < _VERSION.size:
        raise InvalidMessageError(f"{what} of __transaction_state has {len(data)} bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version
