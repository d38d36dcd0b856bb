"""Shoal: Kafka's consumer-group system for Python and Spark.

The public names are below. They are imported when first used: ``import shoal`` alone loads
neither NumPy nor Arrow nor Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._version import __version__

if TYPE_CHECKING:
    from shoal.errors import BrokerError, ErrorCode, ShoalError
    from shoal.types import (
        ConsumerGroupMetadata,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        PartitionInfo,
        Record,
        RecordMetadata,
        TimestampType,
        TopicPartition,
    )

_HOMES = {
    "BrokerError": "shoal.errors",
    "ConsumerGroupMetadata": "shoal.types",
    "ErrorCode": "shoal.errors",
    "Node": "shoal.types",
    "OffsetAndMetadata": "shoal.types",
    "OffsetAndTimestamp": "shoal.types",
    "PartitionInfo": "shoal.types",
    "Record": "shoal.types",
    "RecordMetadata": "shoal.types",
    "ShoalError": "shoal.errors",
    "TimestampType": "shoal.types",
    "TopicPartition": "shoal.types",
}

__all__ = [
    "BrokerError",
    "ConsumerGroupMetadata",
    "ErrorCode",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "Record",
    "RecordMetadata",
    "ShoalError",
    "TimestampType",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
