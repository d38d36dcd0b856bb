"""``metrics()`` of the clients: what is told, under Kafka's names.

Rule: nothing is computed before somebody asks. What is asked for often is a plain number, or a
``Sensor``, that the part of the client that does the work keeps up to date (``tallies.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from shoal.client.sensors import HourlySensor, Sensor

_UNKNOWN: Final = -1.0


class MetricName(NamedTuple):
    """What a value is of; names, groups and tags are those of Kafka's Java clients."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()

    def tag(self, name: str) -> str | None:
        """The value of one tag: ``client-id``, ``topic`` or ``partition``."""
        return dict(self.tags).get(name)


class ClientMetrics(dict[MetricName, float]):
    """What a client tells of itself at one moment: a value for each name.

    Averages, maxima and rates are of the last half minute to minute and a half; what ends in
    ``-total`` counts since the client was made. What has no value yet is not a number (``nan``),
    and seconds since something that never happened are -1, as in Kafka's clients.
    """

    __slots__ = ()

    def value(self, name: str, group: str | None = None, /, **tags: str | int) -> float:
        """One value by its name; by tags too, if there is one for each topic or partition::

            consumer.metrics().value("records-lag-max")
            consumer.metrics().value("records-lag", topic="orders", partition=3)

        Raises:
            KeyError: there is no such value.
        """
        wanted = {tag: str(value) for tag, value in tags.items()}
        for one, value in self.items():
            if one.name != name or group not in (None, one.group):
                continue
            if {tag: text for tag, text in one.tags if tag != "client-id"} == wanted:
                return value
        told = "".join(f", {tag}={value!r}" for tag, value in tags.items())
        raise KeyError(f"no metric {name!r}{told}")


class MetricListing:
    """Where the parts of a client write what they have counted."""

    def __init__(self, client_id: str, now: float) -> None:
        self.now = now
        self.metrics = ClientMetrics()
        self._tags = (("client-id", client_id),)
        self._known: dict[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]] = {}

    def put(
        self, group: str, name: str, value: float, tags: Mapping[str, str] | None = None
    ) -> None:
        every = self._tags if tags is None else (*self._tags, *tags.items())
        every = self._known.setdefault(every, every)
        self.metrics[MetricName(name, group, every)] = float(value)

    def average(
        self, group: str, name: str, sensor: Sensor, tags: Mapping[str, str] | None = None
    ) -> None:
        self.put(group, f"{name}-avg", sensor.average(self.now), tags)

    def extent(
        self, group: str, name: str, sensor: Sensor, tags: Mapping[str, str] | None = None
    ) -> None:
        """The average and the largest."""
        self.average(group, name, sensor, tags)
        self.put(group, f"{name}-max", sensor.largest(self.now), tags)

    def amount(
        self, group: str, name: str, sensor: Sensor, tags: Mapping[str, str] | None = None
    ) -> None:
        """What the values come to: per second, and in all."""
        self.put(group, f"{name}-rate", sensor.rate(self.now), tags)
        self.put(group, f"{name}-total", sensor.total, tags)

    def events(self, group: str, name: str, sensor: Sensor) -> None:
        """How many values there were: per second, and in all."""
        self.put(group, f"{name}-rate", sensor.count_rate(self.now))
        self.put(group, f"{name}-total", sensor.count)

    def events_per_hour(self, group: str, name: str, sensor: HourlySensor) -> None:
        self.put(group, f"{name}-rate-per-hour", sensor.rate_per_hour(self.now))
        self.put(group, f"{name}-total", sensor.count)

    def seconds_ago(self, group: str, name: str, moment: float | None) -> None:
        """Whole seconds since then; -1 if it never was."""
        ago = _UNKNOWN if moment is None else math.floor(max(0.0, self.now - moment))
        self.put(group, f"{name}-seconds-ago", ago)
