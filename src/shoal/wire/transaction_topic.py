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
_KEY_TYPE: Final = 0
_IDS_KNOWN: Final = 4096
"""Whose keys need not be encoded again: an id writes three records for each transaction."""


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


def encode_value(value: TransactionLogValue) -> bytes:
    """In version 1, which Kafka writes since ``transaction.version`` 1."""
    return _VERSION.pack(1) + value.encode(1)


def decode_value(data: bytes | memoryview) -> TransactionLogValue:
    version = _version(data, "a value")
    return TransactionLogValue.decode(data[_VERSION.size :], version)


def _version(data: bytes | memoryview, what: str) -> int:
    if len(data) < _VERSION.size:
        raise InvalidMessageError(f"{what} of __transaction_state has {len(data)} bytes")
    version: int = _VERSION.unpack_from(data)[0]
    return version
