"""Shoal: Kafka's consumer-group system for Python and Spark.

The public names are below. They are imported when first used: ``import shoal`` alone loads
neither NumPy nor Arrow nor Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal._version import __version__

if TYPE_CHECKING:
    from shoal.assign.model import Assignor
    from shoal.assign.server_spec import GroupSpec, ServerAssignor
    from shoal.client.admin import Admin
    from shoal.client.async_admin import AsyncAdmin
    from shoal.client.async_consumer import AsyncConsumer
    from shoal.client.async_producer import AsyncProducer
    from shoal.client.config import ConsumerConfig, ProducerConfig
    from shoal.client.consumer import Consumer
    from shoal.client.listeners import RebalanceListener
    from shoal.client.polling import Records
    from shoal.client.producer import Producer
    from shoal.client.ranges import RangeReader
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
    "Admin": "shoal.client.admin",
    "Assignor": "shoal.assign.model",
    "AsyncAdmin": "shoal.client.async_admin",
    "AsyncConsumer": "shoal.client.async_consumer",
    "AsyncProducer": "shoal.client.async_producer",
    "BrokerError": "shoal.errors",
    "Consumer": "shoal.client.consumer",
    "ConsumerConfig": "shoal.client.config",
    "ConsumerGroupMetadata": "shoal.types",
    "ErrorCode": "shoal.errors",
    "GroupSpec": "shoal.assign.server_spec",
    "Node": "shoal.types",
    "OffsetAndMetadata": "shoal.types",
    "OffsetAndTimestamp": "shoal.types",
    "PartitionInfo": "shoal.types",
    "Producer": "shoal.client.producer",
    "ProducerConfig": "shoal.client.config",
    "RangeReader": "shoal.client.ranges",
    "RebalanceListener": "shoal.client.listeners",
    "Record": "shoal.types",
    "RecordMetadata": "shoal.types",
    "Records": "shoal.client.polling",
    "ServerAssignor": "shoal.assign.server_spec",
    "ShoalError": "shoal.errors",
    "TimestampType": "shoal.types",
    "TopicPartition": "shoal.types",
}

__all__ = [
    "Admin",
    "Assignor",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BrokerError",
    "Consumer",
    "ConsumerConfig",
    "ConsumerGroupMetadata",
    "ErrorCode",
    "GroupSpec",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionInfo",
    "Producer",
    "ProducerConfig",
    "RangeReader",
    "RebalanceListener",
    "Record",
    "RecordMetadata",
    "Records",
    "ServerAssignor",
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
