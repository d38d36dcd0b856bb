"""What one Python process of Spark keeps between calls: connections, and a frozen heap.

Executor workers are reused between tasks and micro-batches; a connection kept here is opened once
per worker, not once per task. Keys are the client properties, so two queries against two clusters
in one worker do not meet.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from shoal.spark.options import SourceOptions
from shoal.types import Header

if TYPE_CHECKING:
    from shoal.client.producer import Producer
    from shoal.spark.cluster import Connection
    from shoal.spark.ledger import Ledger
    from shoal.spark.stock import GroupOffsets, Stock

TASKS_VARIABLE = "SHOAL_SPARK_TASKS"
"""Set by ``shoal.spark.local``: the cores of the local session, for tasks by default."""

_connections: dict[tuple[tuple[str, str], ...], Connection] = {}
_producers: dict[tuple[tuple[str, str], ...], Producer] = {}
_ledgers: dict[tuple[tuple[str, str], ...], Ledger] = {}
_frozen = False


def connection(properties: Mapping[str, str]) -> Connection:
    """The process's connection to one cluster, for reading."""
    from shoal.spark.cluster import Connection, source_config

    key = tuple(sorted(properties.items()))
    if key not in _connections:
        _connections[key] = Connection(source_config(properties))
    return _connections[key]


def stock(options: SourceOptions) -> Stock:
    """Where the options say the records are."""
    if options.log_dir is not None:
        from shoal.spark.files import log_files

        return log_files(options)
    from shoal.spark.cluster import ClusterStock

    return ClusterStock(connection(options.properties), options)


def group(options: SourceOptions) -> GroupOffsets | None:
    """The group the options name, if they do."""
    if options.group_id is None:
        return None
    from shoal.spark.cluster import ClusterGroup

    return ClusterGroup(connection(options.properties), options.group_id)


def produce(
    options: SourceOptions,
    topic: str,
    records: Sequence[tuple[bytes | None, bytes | None, Sequence[Header]]],
) -> None:
    """Write records and wait until they are acknowledged."""
    connection(options.properties).produce(topic, records)


def sink_ledger(properties: Mapping[str, str]) -> Ledger:
    """The process's view of the sinks' ledger."""
    from shoal.spark.cluster import Connection, sink_config
    from shoal.spark.ledger import Ledger

    key = tuple(sorted(properties.items()))
    if key not in _ledgers:
        _ledgers[key] = Ledger(Connection(sink_config(properties)))
    return _ledgers[key]


def drop_producer(properties: Mapping[str, str]) -> None:
    """After a failure: what this producer wrote must not be mixed up with what comes next."""
    producer = _producers.pop(tuple(sorted(properties.items())), None)
    if producer is not None:
        producer.close(timeout=0)


def sink_producer(properties: Mapping[str, str]) -> Producer:
    """The process's producer for a sink: idempotent, every record acknowledged by all."""
    from shoal.client.config import ProducerConfig
    from shoal.client.producer import Producer

    key = tuple(sorted(properties.items()))
    if key not in _producers:
        _producers[key] = Producer(ProducerConfig.from_properties({"acks": "all", **properties}))
    return _producers[key]


def cores() -> int:
    """How many tasks run at once, as far as this process can tell."""
    return int(os.environ.get(TASKS_VARIABLE) or os.cpu_count() or 2)


def freeze_once(freeze: Callable[[], None]) -> None:
    """Move everything imported so far out of the garbage collector's sight.

    Spark's worker runs a full collection after every task and every planning; with the imports
    frozen it costs one millisecond instead of twenty.
    """
    global _frozen
    if not _frozen:
        freeze()
        _frozen = True


def close() -> None:
    """Close every connection of this process."""
    while _connections:
        _connections.popitem()[1].close()
    while _producers:
        _producers.popitem()[1].close()
    while _ledgers:
        _ledgers.popitem()[1].close()
