"""From an offset to a run of whole batches: which slice of which segment a reader may see.

Rule: nothing here changes the log but the segments' own hints; what is visible is given as a
``View``, so that a read and a lookup by time obey the same end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from shoal.errors import CorruptDataError
from shoal.log.checkpoints import CorruptRange
from shoal.log.disk import File
from shoal.log.segment import Segment


class View(NamedTuple):
    """The part of a log that readers see: up to ``end`` in ``last``, at the high watermark."""

    segments: Sequence[Segment]
    bases: Sequence[int]
    corrupt: Sequence[CorruptRange]
    last: Segment
    end: int
    high_watermark: int


class Slice(NamedTuple):
    """Whole batches in a file, and the offset behind them."""

    file: File
    position: int
    size: int
    next_offset: int


def slice_of(
    view: View, offset: int, max_bytes: int, visible: int, min_one_batch: bool
) -> Slice | None:
    """Whole batches from the one that holds ``offset``, of one segment; ``None`` if none fits."""
    at = max(bisect_right(view.bases, offset) - 1, 0)
    while at < len(view.segments):
        segment = view.segments[at]
        end = end_in(view, segment, visible)
        found = segment.seek(offset, end)
        if found is not None:
            break
        if segment is view.last:
            return None
        at += 1
    else:
        return None
    for bad_position, _ in segment.bad:
        if found.position < bad_position < end:
            end = bad_position
            break
    if found.size >= max_bytes:
        if found.size > max_bytes and not min_one_batch:
            return None
        stop, next_offset = found.end, found.next_offset
    else:
        stop, seen = segment.boundary(found.position, found.position + max_bytes, end)
        next_offset = _offset_behind(view, segment, stop, visible) if seen is None else seen
    segment.remember(next_offset, stop)
    return Slice(segment.file, found.position, stop - found.position, next_offset)


def _offset_behind(view: View, segment: Segment, position: int, visible: int) -> int:
    """What follows the batches of a segment: the next segment, bad bytes, or the end."""
    for bad in view.corrupt:
        if bad.segment_base == segment.base_offset and bad.position == position:
            return bad.start_offset
    following = bisect_right(view.bases, segment.base_offset)
    if segment is view.last or following == len(view.bases):
        return visible
    return min(visible, view.bases[following])


def end_in(view: View, segment: Segment, visible: int) -> int:
    """Where the batches below ``visible`` end in a segment."""
    if visible == view.high_watermark:
        if segment is view.last:
            return view.end
        return segment.size if segment.base_offset < view.last.base_offset else 0
    found = segment.seek(visible, segment.size)
    return segment.size if found is None else found.position


def size_between(view: View, start: int, end: int) -> int:
    """How many bytes the batches from one offset up to another take."""
    first = max(bisect_right(view.bases, start) - 1, 0)
    return sum(
        end_in(view, segment, end) - end_in(view, segment, start)
        for segment in view.segments[first:]
        if segment.base_offset < end
    )


def first_at(view: View, timestamp_ms: int, start_offset: int) -> tuple[int, int] | None:
    """Offset and time of the first visible record at or after a time."""
    for segment in view.segments:
        if segment.newest_ms() < timestamp_ms:
            continue
        end = end_in(view, segment, view.high_watermark)
        try:
            found = segment.first_at(timestamp_ms, start_offset, end)
        except CorruptDataError:
            continue  # whoever reads the range is told; later records still count
        if found is not None:
            return found
    return None


def newest_ms(view: View, start_offset: int) -> int:
    """The largest timestamp of all visible records, -1 if there is none."""
    return max(_newest_in(view, segment, start_offset) for segment in view.segments)


def _newest_in(view: View, segment: Segment, start_offset: int) -> int:
    newest = segment.newest_ms()
    if segment.base_offset >= start_offset and (
        segment.offset_of_max_timestamp < view.high_watermark
    ):
        return newest
    return segment.newest_between(start_offset, end_in(view, segment, view.high_watermark))
