"""A walk through an internal topic's log, from its start to its end, past damaged places.

Rule: what stands behind a damaged place is newer, and without it groups and transactions would go
back; so the damage is told and skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from shoal.broker.partitions import Partition
from shoal.errors import ErrorCode
from shoal.records.batch import HEADER_SIZE, read_header

logger = logging.getLogger("shoal.broker.internal_log")

# As much as is decoded in one go, without a look at each batch.
_LOAD_BYTES: Final = 256 << 10


def walk(partition: Partition, feed: Callable[[bytes], int]) -> None:
    """Call ``feed`` with whole batches, some at a time; it returns the offset behind them."""
    log = partition.log
    offset = log.start_offset
    while offset < log.high_watermark:
        found = log.read(offset, _LOAD_BYTES)
        if found.error is ErrorCode.NONE and found.size:
            offset = feed(found.read_bytes())
            continue
        logger.error("%s cannot be read at offset %d", partition.topic_partition, offset)
        behind = [bad.end_offset for bad in log.state.corrupt if bad.start_offset <= offset]
        if max(behind, default=0) <= offset:
            break
        offset = max(behind)


def end_offset(data: bytes) -> int:
    """The offset behind whole batches."""
    position = last = 0
    while position + HEADER_SIZE <= len(data):
        last = position
        position += 12 + int.from_bytes(data[position + 8 : position + 12])
    return read_header(data, last).next_offset
