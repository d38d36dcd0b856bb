"""When the records were written at which a reset would take a group away, and to which.

Rule: a time is that of the record that would be read next, at the offset or, where compaction or a
transaction left none there, shortly behind it. Where none can be read the answer is ``None``; who
shows it tells whether the offset is the end, or before the beginning, by the offsets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from shoal.client.ranges import RangeReader
from shoal.errors import ShoalError, counted
from shoal.fleet.offset_reset import PlannedReset
from shoal.types import TopicPartition

PARTITIONS_MAX: Final = 500
AHEAD: Final = 100
"""How far behind an offset a record is looked for."""
SECONDS_MAX: Final = 8.0
PROBE_BYTES: Final = 64 * 1024

Times = dict[tuple[TopicPartition, int], int]


def reset_times(settings: Mapping[str, Any], rows: Sequence[PlannedReset]) -> tuple[Times, str]:
    """Milliseconds by partition and offset, and what kept some from being looked at."""
    looked = rows[:PARTITIONS_MAX]
    ways = (
        {one.tp: one for one in looked if one.before is not None and _is_there(one, one.before)},
        {one.tp: one for one in looked if one.after != one.before and _is_there(one, one.after)},
    )
    found: Times = {}
    try:
        with RangeReader(**settings) as reader:
            for way, offsets in zip(ways, ("before", "after"), strict=True):
                wanted = {tp: getattr(one, offsets) for tp, one in way.items()}
                ends = {tp: one.end for tp, one in way.items()}
                found |= _written_ms(reader, wanted, ends)
    except ShoalError as error:
        return found, " ".join(str(error).split())
    left = len(rows) - len(looked)
    return found, f"not looked at: {counted(left, 'more partition')}" if left else ""


def _is_there(one: PlannedReset, offset: int) -> bool:
    return one.start <= offset < one.end


def _written_ms(
    reader: RangeReader, wanted: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Times:
    ranges = {tp: (at, min(at + AHEAD, ends[tp])) for tp, at in wanted.items()}
    first: dict[TopicPartition, tuple[int, datetime]] = {}
    for batch in reader.read(
        ranges,
        columns=("topic", "partition", "offset", "timestamp"),
        max_partition_fetch_bytes=PROBE_BYTES,
        timeout=SECONDS_MAX,
    ):
        for row in batch.to_pylist():
            tp = TopicPartition(row["topic"], row["partition"])
            one = (row["offset"], row["timestamp"])
            first[tp] = min(first.get(tp, one), one)
    return {(tp, wanted[tp]): int(at.timestamp() * 1000) for tp, (_, at) in first.items()}
