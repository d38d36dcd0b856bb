"""How far a stream goes in one micro-batch. Pure: offsets and ``now_ms`` in, offsets out.

Spark's own source knows ``maxOffsetsPerTrigger``, ``minOffsetsPerTrigger`` with
``maxTriggerDelay``; we add ``maxBytesPerTrigger``. With Trigger.AvailableNow everything up to the
end at the start of the query is read, in portions of the same limits, and no minimum holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shoal.spark.ranges import Offsets, available, limit_bytes, limit_rows
from shoal.types import TopicPartition


@dataclass(slots=True)
class BatchAdmission:
    """The limits of one query, and when its last batch began."""

    rows_max: int | None = None
    rows_min: int | None = None
    delay_ms: int = 900_000
    bytes_max: int | None = None
    _last_batch_ms: int | None = field(default=None)

    def end(
        self,
        start: Offsets,
        latest: Offsets,
        now_ms: int,
        *,
        row_bytes: Callable[[], Mapping[TopicPartition, float]] = dict,
        finishing: bool = False,
    ) -> dict[TopicPartition, int]:
        """The end of the next batch; ``start`` itself where nothing is admitted now."""
        rows = available(start, latest)
        if rows and self._must_wait(rows, now_ms, finishing):
            return {tp: start.get(tp, end) for tp, end in latest.items()}
        if rows:
            self._last_batch_ms = now_ms
        if self.rows_max is not None:
            return limit_rows(start, latest, self.rows_max)
        if self.bytes_max is not None and rows:
            return limit_bytes(start, latest, row_bytes(), self.bytes_max)
        return dict(latest)

    def _must_wait(self, rows: int, now_ms: int, finishing: bool) -> bool:
        if self.rows_min is None or rows >= self.rows_min or finishing:
            return False
        if self._last_batch_ms is None:
            # The delay counts from the first look, not from a batch before the query began.
            self._last_batch_ms = now_ms
        return now_ms - self._last_batch_ms < self.delay_ms
