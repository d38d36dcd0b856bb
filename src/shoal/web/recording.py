"""Yesterday, after a restart: what a recorder kept comes back, and recording goes on.

Rule: the files are the recorder's (``shoal.fleet.recorder``), so ``shoal fleet report`` reads them
too; a dashboard adds no format of its own.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Any, Final

from shoal.errors import ShoalError
from shoal.fleet.analysis import analyse
from shoal.fleet.lag import lag_table, last_of_series
from shoal.fleet.recorder import Recorder
from shoal.fleet.report import gather_history
from shoal.fleet.sources import RecordedSource
from shoal.web.cluster_watch import ClusterWatch

LOG: Final = logging.getLogger(__name__)
EVERY_S: Final = 30.0
BACK_S: Final = 2 * 86_400.0
"""How much of a recording a dashboard shows."""


class RecordingKeeper:
    """Records a cluster while it is watched. A job of the server's."""

    def __init__(self, watch: ClusterWatch, directory: Path, *, every_s: float = EVERY_S) -> None:
        self._watch = watch
        self._directory = directory
        self._every_s = every_s
        self._stop = threading.Event()
        self._recorder = Recorder(watch.admin, watch.settings, directory)

    def load(self) -> int:
        """Give the watch what was recorded; how many rebalances that were."""
        since_s = time.time() - BACK_S
        gathered = gather_history(RecordedSource(self._directory), lambda _: True)
        found = analyse(gathered.events, topics=self._topics()).rebalances
        recent = [one for one in found if one.now.at_us >= since_s * 1e6]
        self._watch.remember(recent)
        commits = last_of_series(gathered.commits, int(since_s * 1e6))
        self._load_lags(lag_table(commits, gathered.ends), since_s)
        return len(recent)

    def _topics(self) -> dict[bytes, str]:
        """Names by id, as far as the cluster can be asked now."""
        admin = self._watch.admin
        try:
            described = admin.describe_topics(*admin.list_topics()).values()
        except ShoalError:
            return {}
        return {one.topic_id: one.name for one in described if one.topic_id is not None}

    def _load_lags(self, lags: Any, since_s: float) -> None:
        wanted = [("lag", "sum"), ("seconds", "max")]
        table = lags.group_by(["group", "at", "topic"]).aggregate(wanted)
        looks: dict[tuple[str, float], list[tuple[str, int, float]]] = {}
        for row in table.sort_by([("at", "ascending")]).to_pylist():
            at_s = row["at"].timestamp()
            if at_s >= since_s:
                one = (row["topic"], row["lag_sum"], row["seconds_max"])
                looks.setdefault((row["group"], at_s), []).append(one)
        for (group, at_s), rows in looks.items():
            self._watch.remember_lag(group, at_s, rows)

    def run(self) -> None:
        """Round after round until ``stop``."""
        with self._recorder:
            while not self._stop.is_set():
                try:
                    self._recorder.round()
                except ShoalError as error:
                    LOG.warning("nothing is recorded this time: %s", error)
                self._stop.wait(self._every_s)

    def stop(self) -> None:
        self._stop.set()
