"""Metrics of a whole cluster, for Prometheus: swept in the background, handed out from memory.

Rule: a scrape never asks the cluster. However many scrape and however often, the cluster sees one
sweep at a time. And nothing old is passed off as new: when sweeps have failed for a while, the
cluster's metrics are gone from the scrape, so that an alert on their absence fires.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from shoal.client.admin import Admin
from shoal.errors import ConfigError, ShoalError
from shoal.fleet.collector import ClusterCollector, ClusterFacts
from shoal.fleet.exported import families_of
from shoal.metrics.cluster import SERIES_MAX
from shoal.metrics.exposition import Buckets, Family, gauge, render, render_both
from shoal.records.arrow import need_arrow

LOG: Final = logging.getLogger(__name__)
STALE_SWEEPS: Final = 5
"""After this many intervals without a sweep that succeeded, what was known is not told any more."""


class Exporter:
    """Sweeps one cluster every ``every_s`` seconds. ``run`` until ``stop``; others may scrape."""

    def __init__(
        self,
        admin: Admin,
        settings: Mapping[str, Any],
        *,
        every_s: float = 60.0,
        groups: Collection[str] = ("*",),
        isolation_level: str = "read_uncommitted",
        series_max: int = SERIES_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._collector = ClusterCollector(
            admin, groups=groups, isolation_level=isolation_level, clock=clock
        )
        self._watch = _watch(admin, settings)
        self._every_s = every_s
        self._series_max = series_max
        self._clock = clock
        self._stop = threading.Event()
        # When the last look that succeeded was, and how long it took: not what it saw.
        self._last: tuple[float, float] | None = None
        self._texts: dict[bool, list[bytes]] = {}
        self._failures = 0
        self._problem = "the first sweep is under way"

    def run(self) -> None:
        """Sweep until ``stop``. A sweep that takes longer than the interval is followed at once
        by the next."""
        while not self._stop.is_set():
            began_s = self._clock()
            self.sweep()
            self._stop.wait(max(0.0, self._every_s - (self._clock() - began_s)))

    def stop(self) -> None:
        self._stop.set()

    def sweep(self) -> None:
        """Look at the cluster once; what goes wrong is logged, counted, and tried again."""
        try:
            facts = self._collector.sweep()
            rebalances = self._look(facts)
        except ShoalError as error:
            self._failures += 1
            self._problem = f"the last sweep failed: {error}"
            LOG.warning("this sweep failed, the next follows: %s", error)
            return
        families = families_of(facts, *rebalances, series_max=self._series_max)
        self._texts = render_both(families)
        self._last, self._problem = (facts.at_s, facts.took_s), ""

    def _look(
        self, facts: ClusterFacts
    ) -> tuple[Mapping[tuple[str, str], int], Mapping[str, Buckets]]:
        if self._watch is None:
            return {}, {}
        try:
            self._watch.look(facts.survey.ends)
        except ShoalError as error:
            LOG.warning("rebalances are not counted: %s", error)
            self._watch = None
            return {}, {}
        return dict(self._watch.by_group), self._watch.durations()

    def scrape(self, openmetrics: bool) -> list[bytes]:
        """What there is to tell now, in pieces."""
        known = [] if self._is_stale else self._texts.get(openmetrics, [])
        return [*known, render(self._own_families(), openmetrics=openmetrics)]

    def not_ready(self) -> str:
        """Why nothing can be told; nothing if it can."""
        return self._problem or "no sweep has succeeded" if self._is_stale else ""

    @property
    def _is_stale(self) -> bool:
        last = self._last
        return last is None or self._clock() - last[0] > STALE_SWEEPS * self._every_s

    def _own_families(self) -> list[Family]:
        families = [
            Family(
                "shoal_exporter_sweep_failures",
                "counter",
                "Sweeps over the cluster that failed.",
                (),
                {(): self._failures},
            ),
            gauge(
                "shoal_exporter_counts_rebalances",
                "1 if rebalances are counted; 0 without pyarrow or without the right to read "
                "__consumer_offsets.",
                int(self._watch is not None),
            ),
        ]
        if self._last is not None:
            at_s, took_s = self._last
            age_s, took_s = round(self._clock() - at_s, 3), round(took_s, 3)
            families += [
                gauge("shoal_exporter_sweep_age_seconds", "How old what is told is.", age_s),
                gauge(
                    "shoal_exporter_sweep_seconds",
                    "How long the last sweep took.",
                    round(took_s, 3),
                ),
            ]
        return families


def _watch(admin: Admin, settings: Mapping[str, Any]) -> Any:
    try:
        need_arrow()
    except ConfigError as error:
        LOG.warning("rebalances are not counted: %s", error)
        return None
    from shoal.fleet.rebalance_watch import RebalanceWatch

    return RebalanceWatch(admin, settings)
