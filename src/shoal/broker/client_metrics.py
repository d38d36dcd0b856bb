"""What clients pushed, as families of metrics: one series for all instances of a client id.

A name is ``kafka_client_`` and the client's own without ``org.apache.kafka.``, so that nothing a
client sends can pass for something of the broker's. Counters of all instances are added up; of a
value of the moment (a lag, a latency) the largest counts.

Rule: bounded, because names and labels are the clients' to choose. At most ``CLIENT_SERIES_MAX``
series; what is beyond is counted and not kept. Labels are the client id, its group, and of what it
names only topic, partition and node. What a client id had goes with its last instance.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final

from shoal.metrics.exposition import Family, Labels
from shoal.wire.otlp import OtlpPoint, OtlpResource

CLIENT_SERIES_MAX: Final = 5_000
LABELS: Final = ("client_id", "consumergroup", "topic", "partition", "node_id")
_PREFIX: Final = "kafka_client_"
_KAFKA: Final = "org.apache.kafka."
_NAME_MAX: Final = 150
_UNFIT: Final = re.compile(r"[^a-zA-Z0-9_]+")
_HELP: Final = "Pushed by clients (KIP-714)."
# A counter's own ending is added when it is shown.
_ENDINGS: Final = ("_total", "_created", "_bucket", "_count", "_sum", "_info")


class ReceivedMetrics:
    """By metric and labels."""

    def __init__(self, series_max: int = CLIENT_SERIES_MAX) -> None:
        self._series_max = series_max
        self._series = 0
        self._counters: dict[str, dict[Labels, float]] = {}
        # Metric → labels → instance → value.
        self._gauges: dict[str, dict[Labels, dict[bytes, float]]] = {}
        # Of counters that are told from their beginning: what was told last.
        self._told: dict[tuple[bytes, str, Labels], float] = {}
        self._instances: dict[str, set[bytes]] = {}
        self._client_ids: dict[bytes, str] = {}
        self.pushes = 0
        self.refused = 0
        """Numbers that were not kept: too many series, or not fit to be shown."""

    def take(self, instance_id: bytes, client_id: str, pushed: Iterable[OtlpResource]) -> None:
        """One push of one client."""
        self.pushes += 1
        self._client_ids[instance_id] = client_id
        self._instances.setdefault(client_id, set()).add(instance_id)
        for resource in pushed:
            for point in resource.points:
                labels = _labels(client_id, resource.attributes, point.attributes)
                if not (math.isfinite(point.value) and self._put(instance_id, point, labels)):
                    self.refused += 1

    def _put(self, instance_id: bytes, point: OtlpPoint, labels: Labels) -> bool:
        name = metric_name(point.name, is_counter=point.is_counter)
        if point.is_counter:
            if point.value < 0 or name in self._gauges:
                return False
            counts = self._counters.setdefault(name, {})
            if labels not in counts and not self._has_room():
                return False
            growth = self._growth(instance_id, name, point, labels)
            counts[labels] = counts.get(labels, 0.0) + growth
            return True
        if name in self._counters:
            return False
        values = self._gauges.setdefault(name, {})
        if labels not in values:
            if not self._has_room():
                return False
            values[labels] = {}
        values[labels][instance_id] = point.value
        return True

    def _growth(self, instance_id: bytes, name: str, point: OtlpPoint, labels: Labels) -> float:
        if point.is_delta:
            return point.value
        key = (instance_id, name, labels)
        before = self._told.get(key, 0.0)
        if key in self._told or len(self._told) < self._series_max:
            self._told[key] = point.value
        return point.value - before if point.value >= before else point.value

    def _has_room(self) -> bool:
        if self._series >= self._series_max:
            return False
        self._series += 1
        return True

    def forget(self, instance_id: bytes) -> None:
        """A client has ended, or is silent."""
        client_id = self._client_ids.pop(instance_id, None)
        if client_id is None:
            return
        left = self._instances[client_id]
        left.discard(instance_id)
        for name, values in list(self._gauges.items()):
            for labels, by_instance in list(values.items()):
                by_instance.pop(instance_id, None)
                if not by_instance:
                    del values[labels]
                    self._series -= 1
            if not values:
                del self._gauges[name]
        for key in [key for key in self._told if key[0] == instance_id]:
            del self._told[key]
        if left:
            return
        del self._instances[client_id]
        for name, counts in list(self._counters.items()):
            for labels in [labels for labels in counts if labels[0] == client_id]:
                del counts[labels]
                self._series -= 1
            if not counts:
                del self._counters[name]

    def families(self) -> list[Family]:
        """A copy to show."""
        found = [
            Family("shoal_client_pushes", "counter", "Pushes of clients.", (), {(): self.pushes}),
            Family(
                "shoal_client_points_refused",
                "counter",
                "Numbers clients pushed that are not shown: there are too many series, or the "
                "same name is something else.",
                (),
                {(): self.refused},
            ),
        ]
        for name, counts in self._counters.items():
            found.append(Family(name, "counter", _HELP, LABELS, dict(counts)))
        for name, values in self._gauges.items():
            largest = {labels: max(by.values()) for labels, by in values.items()}
            found.append(Family(name, "gauge", _HELP, LABELS, largest))
        return found


def metric_name(name: str, *, is_counter: bool) -> str:
    """The name to show: ours in front, and nothing in it that a name may not have."""
    shown = _PREFIX + _UNFIT.sub("_", name.removeprefix(_KAFKA))[:_NAME_MAX].strip("_").lower()
    if is_counter:
        return shown.removesuffix("_total")
    # A value of the moment with a counter's ending could be taken for a part of one.
    return f"{shown}_value" if shown.endswith(_ENDINGS) else shown


def _labels(client_id: str, source: Mapping[str, str], point: Mapping[str, str]) -> Labels:
    both = {**source, **point}
    group = both.get("group_id", both.get("group.id", ""))
    node = both.get("node_id", both.get("node.id", ""))
    return (client_id, group, both.get("topic", ""), both.get("partition", ""), node)
