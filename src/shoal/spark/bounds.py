"""Where a read starts and ends: from options to offsets. Pure but for the stock it asks."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from shoal.errors import ConfigError
from shoal.spark.options import EARLIEST, LATEST, Bound, SourceOptions
from shoal.spark.ranges import OffsetRange, Offsets, between
from shoal.spark.record_store import DataLossError, GroupOffsets, Stock
from shoal.types import TopicPartition

logger = logging.getLogger(__name__)

WHOLE_TOPIC_ROWS: Final = 10_000_000
"""A batch that reads so much from the start gets a hint that less can be read."""


def resolve(
    bound: Bound,
    tps: Sequence[TopicPartition],
    stock: Stock,
    *,
    missing_timestamp: str = "latest",
    group: GroupOffsets | None = None,
) -> dict[TopicPartition, int]:
    """The offsets a bound means at this moment, one per partition."""
    if bound.kind == "earliest":
        return stock.earliest(tps)
    if bound.kind == "latest":
        return stock.latest(tps)
    if bound.kind == "group":
        assert group is not None, "options.parse_source demands a groupId"
        # A partition the group has not committed yet is read from its first record: nothing
        # that the group has not seen is passed over.
        return {**stock.earliest(tps), **group.committed(tps)}
    if bound.kind == "timestamp":
        return _at_times(bound, tps, stock, missing_timestamp)
    _check_named(bound, tps)
    wanted = {tp: bound.offsets[tp] for tp in tps}
    ends = {
        EARLIEST: stock.earliest([tp for tp in tps if wanted[tp] == EARLIEST]),
        LATEST: stock.latest([tp for tp in tps if wanted[tp] == LATEST]),
    }
    return {tp: ends[offset][tp] if offset < 0 else offset for tp, offset in wanted.items()}


def _check_named(bound: Bound, tps: Sequence[TopicPartition]) -> None:
    missing = [str(tp) for tp in tps if tp not in bound.offsets]
    if missing:
        raise ConfigError(f"the offsets given leave out {', '.join(missing[:5])}; name every one")
    unknown = sorted(str(tp) for tp in set(bound.offsets) - set(tps))
    if unknown:
        raise ConfigError(f"the offsets given name {', '.join(unknown[:5])}, which is not read")


def _at_times(
    bound: Bound, tps: Sequence[TopicPartition], stock: Stock, missing: str
) -> dict[TopicPartition, int]:
    if bound.timestamp_ms is None:
        _check_named(bound, tps)
        times = dict(bound.offsets)
    else:
        times = dict.fromkeys(tps, bound.timestamp_ms)
    found = stock.at_times(times)
    late = [tp for tp in tps if found.get(tp) is None]
    if late and missing == "error":
        raise ConfigError(
            f"no record at or after {times[late[0]]} ms in {late[0]}; "
            "set option startingOffsetsByTimestampStrategy=latest to start at the end there"
        )
    ends = stock.latest(late)
    return {tp: ends[tp] if (offset := found.get(tp)) is None else offset for tp in tps}


def batch_ranges(
    options: SourceOptions, stock: Stock, group: GroupOffsets | None = None
) -> list[OffsetRange]:
    """What a batch read covers."""
    tps = stock.partitions()
    start = resolve(
        options.starting,
        tps,
        stock,
        missing_timestamp=options.missing_timestamp,
        group=group,
    )
    end = resolve(options.ending, tps, stock)
    contradictions = [
        f"{tp} from {start[tp]} to {end[tp]}"
        for tp in tps
        if start[tp] > end[tp] and options.starting.kind == options.ending.kind == "offsets"
    ]
    if contradictions:
        raise ConfigError(f"startingOffsets lie behind endingOffsets: {contradictions[0]}")
    log_ends = stock.log_ends(tps)
    _check_starts(start, log_ends, fail_on_data_loss=options.fail_on_data_loss)
    ranges = check_present(
        between(start, end),
        stock.earliest(tps),
        log_ends,
        fail_on_data_loss=options.fail_on_data_loss,
    )
    rows = sum(one.rows for one in ranges)
    if rows >= WHOLE_TOPIC_ROWS and options.starting.kind == "earliest":
        logger.warning(
            "this batch reads all of the %d records there are; shoal.spark.between reads those of "
            "a time, and the options startingOffsets and startingTimestamp say where to begin",
            rows,
        )
    return ranges


def _check_starts(start: Offsets, log_ends: Offsets, *, fail_on_data_loss: bool) -> None:
    """A read that begins behind the end of a log would be empty, and nobody would know.

    Raises:
        DataLossError: one does and ``fail_on_data_loss`` is set.
    """
    losses = [
        f"{tp} ends at {log_ends[tp]}, before the start {offset}: shorter or recreated"
        for tp, offset in sorted(start.items())
        if offset > log_ends[tp]
    ]
    if losses and fail_on_data_loss:
        raise DataLossError(losses)
    if losses:
        logger.warning("left out, for failOnDataLoss=false: %s", "; ".join(losses))


def check_present(
    ranges: Sequence[OffsetRange],
    earliest: Offsets,
    log_ends: Offsets,
    *,
    fail_on_data_loss: bool,
) -> list[OffsetRange]:
    """The ranges as far as the records are still there.

    Raises:
        DataLossError: part of a range is gone and ``fail_on_data_loss`` is set.
    """
    losses: list[str] = []
    present: list[OffsetRange] = []
    for one in ranges:
        tp = one.topic_partition
        if tp not in earliest:
            losses.append(f"{tp} does not exist any more (wanted {one.start} to {one.end - 1})")
            continue
        start = max(one.start, earliest[tp])
        end = min(one.end, log_ends[tp])
        if start > one.start:
            losses.append(f"{tp} offsets {one.start} to {min(start, one.end) - 1} were deleted")
        if end < one.end:
            losses.append(f"{tp} ends at {log_ends[tp]}, before {one.end}: shorter or recreated")
        if start < end:
            present.append(one._replace(start=start, end=end))
    if losses and fail_on_data_loss:
        raise DataLossError(losses)
    return present
