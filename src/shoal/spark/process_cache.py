"""What one Python process of Spark keeps between calls: connections, and a frozen heap.

Executor workers are reused between tasks and micro-batches; a connection kept here is opened once
per worker, not once per task. Keys are the client properties, so two queries against two clusters
in one worker do not meet.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from shoal.spark.options import SourceOptions

if TYPE_CHECKING:
    from shoal.client.producer import Producer
    from shoal.spark.cluster import ClusterClient
    from shoal.spark.dead_letters import DeadLetters
    from shoal.spark.ledger import SinkLedger
    from shoal.spark.record_store import GroupOffsets, Stock

logger = logging.getLogger(__name__)

TASKS_VARIABLE = "SHOAL_SPARK_TASKS"
"""Set by ``shoal.spark.local``: the cores of the local session, for tasks by default."""

_connections: dict[tuple[tuple[str, str], ...], ClusterClient] = {}
_producers: dict[tuple[tuple[str, str], ...], Producer] = {}
_ledgers: dict[tuple[tuple[str, str], ...], SinkLedger] = {}
_dead_letters: dict[tuple[tuple[tuple[str, str], ...], str], DeadLetters] = {}
_sink_clients: dict[tuple[tuple[str, str], ...], ClusterClient] = {}
_told_of_tasks: list[int] = []
_frozen = False


def connection(properties: Mapping[str, str]) -> ClusterClient:
    """The process's connection to one cluster, for reading."""
    from shoal.spark.cluster import ClusterClient, source_config

    key = tuple(sorted(properties.items()))
    if key not in _connections:
        _connections[key] = ClusterClient(source_config(properties))
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


def dead_letters(options: SourceOptions) -> DeadLetters:
    """The process's view of the dead-letter topic that the options name."""
    from shoal.spark.dead_letters import DeadLetters

    assert options.dead_letter_topic is not None
    key = (tuple(sorted(options.properties.items())), options.dead_letter_topic)
    if key not in _dead_letters:
        where = connection(options.properties)
        _dead_letters[key] = DeadLetters(where, options.dead_letter_topic)
    return _dead_letters[key]


def session_zone(options: SourceOptions) -> str:
    """The time zone of the session whose task this process runs; the machine's, as for Java."""
    if options.time_zone is not None:
        return options.time_zone
    from pyspark import TaskContext

    context = TaskContext.get()
    named = None if context is None else context.getLocalProperty("spark.sql.session.timeZone")
    return named or machine_zone()


def machine_zone() -> str:
    """The zone Java takes if nobody names one."""
    named = os.environ.get("TZ", "").removeprefix(":")
    if not named:
        named = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    return named or "UTC"


def sink_ledger(properties: Mapping[str, str]) -> SinkLedger:
    """The process's view of the sinks' ledger."""
    from shoal.spark.ledger import SinkLedger

    key = tuple(sorted(properties.items()))
    if key not in _ledgers:
        _ledgers[key] = SinkLedger(sink_client(properties))
    return _ledgers[key]


def sink_client(properties: Mapping[str, str]) -> ClusterClient:
    """The process's connection to the cluster it writes to, beside the producer's."""
    from shoal.spark.cluster import ClusterClient, sink_config

    key = tuple(sorted(properties.items()))
    if key not in _sink_clients:
        _sink_clients[key] = ClusterClient(sink_config(properties))
    return _sink_clients[key]


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


def default_tasks(partitions: int) -> int:
    """How many tasks a read is divided into if nobody says so.

    In a session of ``shoal.spark.session`` that is as many as run at once. In another one the
    executors may be elsewhere, and Spark tells a Python source nothing of them: then as many
    as Spark's own source makes, a task for each partition.
    """
    told = os.environ.get(TASKS_VARIABLE)
    if told:
        return int(told)
    tasks = max(partitions, os.cpu_count() or 1)
    if not _told_of_tasks:
        _told_of_tasks.append(tasks)
        logger.warning(
            "%d partitions are read in up to %d tasks; set option maxTasks to the cores of the "
            "cluster to read many small partitions in fewer",
            partitions,
            tasks,
        )
    return tasks


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
    _dead_letters.clear()
    while _connections:
        _connections.popitem()[1].close()
    while _producers:
        _producers.popitem()[1].close()
    _ledgers.clear()
    while _sink_clients:
        _sink_clients.popitem()[1].close()
