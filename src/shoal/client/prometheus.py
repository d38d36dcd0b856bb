"""Clients' metrics for a program that has a Prometheus endpoint (extra: prometheus).

    from prometheus_client import REGISTRY
    from shoal.client.prometheus import ClientCollector

    clients = ClientCollector(registry=REGISTRY)
    clients.add(consumer)
    clients.add(producer, name="orders-producer")

A name is Kafka's with underscores: ``kafka_``, the group without ``-metrics``, the metric, so
``records-lag-max`` of ``consumer-fetch-manager-metrics`` is
``kafka_consumer_fetch_manager_records_lag_max``. What is told of each topic or partition has
``_topic_`` or ``_partition_`` before the metric, because a sum over both would count twice. What
Kafka's clients do not have (Spark's queries) begins with ``shoal_``.

Rule: a scrape asks the clients then and there; nothing runs in between. A client that is closed or
gone is told of no more, and nothing here keeps one alive.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, Protocol

from shoal.errors import missing_extra

try:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import Collector, CollectorRegistry
except ImportError as error:  # pragma: no cover - where the extra is not installed
    raise ImportError(str(missing_extra("Prometheus' client", "prometheus"))) from error

from shoal.client.metrics import ClientMetrics, MetricName

logger = logging.getLogger(__name__)

_KINDS: Final = {"admin-client": "admin"}
_OF_KAFKA: Final = ("admin", "consumer", "producer")


class MeasuredClient(Protocol):
    """A consumer, producer or admin, blocking or not; or what else has such metrics."""

    def metrics(self) -> ClientMetrics: ...


class ClientCollector(Collector):
    """Tells a registry of clients.

    Args:
        registry: where to register; ``None``: the caller does it.
        partitions: whether to tell of each partition. Off, a client with many partitions has few
            series.
    """

    def __init__(
        self, registry: CollectorRegistry | None = None, *, partitions: bool = True
    ) -> None:
        self._partitions = partitions
        self._clients: dict[str, weakref.ref[Any]] = {}
        self._numbers = count(1)
        self._lock = threading.Lock()
        if registry is not None:
            registry.register(self)

    def add(self, client: MeasuredClient, *, name: str | None = None) -> str:
        """Tell of ``client`` from now on, until it is closed; returns its label ``client``.

        Args:
            name: the label; by default its class and a number, such as ``consumer-1``.

        Raises:
            ValueError: another client that is alive has this name.
        """
        if not callable(getattr(client, "metrics", None)):
            raise TypeError(f"add(): {type(client).__name__} has no metrics()")
        with self._lock:
            self._forget_gone()
            if name is None:
                kind = type(client).__name__.lower()
                names = (f"{kind}-{number}" for number in self._numbers)
                name = next(one for one in names if one not in self._clients)
            elif name in self._clients:
                raise ValueError(f"add(): a client named {name!r} is there already")
            self._clients[name] = weakref.ref(client)
        return name

    def remove(self, client: MeasuredClient) -> None:
        """Tell of ``client`` no more; nothing happens if it is not there."""
        with self._lock:
            self._clients = {n: one for n, one in self._clients.items() if one() is not client}

    def describe(self) -> list[Any]:
        """Nothing: which metrics there are is known when clients are, and not before."""
        return []

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        with self._lock:
            self._forget_gone()
            clients = [(name, client) for name, ref in self._clients.items() if (client := ref())]
        for name, client in clients:
            try:
                metrics = client.metrics()
            except Exception:  # of a process that was forked from, say; the others go on
                logger.exception("the metrics of %s cannot be had", name)
                continue
            for metric, value in metrics.items():
                if self._partitions or metric.tag("partition") is None:
                    _add(families, metric, value, name)
        yield from families.values()

    def _forget_gone(self) -> None:
        """Under the lock."""
        self._clients = {name: one for name, one in self._clients.items() if _is_alive(one())}


def _is_alive(client: Any) -> bool:
    """A client's engine runs until it is closed, and not in a process that was forked off."""
    if client is None:
        return False
    engine = getattr(client, "_engine", None)
    return not getattr(client, "is_closed", False) if engine is None else bool(engine.is_running)


def family_name(metric: MetricName) -> str:
    """What Prometheus calls it; of a counter, without ``_total``."""
    group = metric.group.removesuffix("-metrics")
    group = _KINDS.get(group, group)
    level = "partition" if metric.tag("partition") is not None else None
    if level is None and metric.tag("topic") is not None and not group.endswith("topic"):
        level = "topic"
    whose = "kafka" if group.startswith(_OF_KAFKA) else "shoal"
    parts = (whose, group, *([level] if level else ()), metric.name)
    return "_".join(parts).replace("-", "_").removesuffix("_total")


def _add(
    families: dict[str, CounterMetricFamily | GaugeMetricFamily],
    metric: MetricName,
    value: float,
    client: str,
) -> None:
    name = family_name(metric)
    family = families.get(name)
    labels = ["client", *(tag.replace("-", "_") for tag, _ in metric.tags)]
    if family is None:
        make = CounterMetricFamily if metric.name.endswith("-total") else GaugeMetricFamily
        text = f"{metric.name} of {metric.group}"
        family = families[name] = make(name, text, labels=labels)
    family.add_metric([client, *(text for _, text in metric.tags)], value)
