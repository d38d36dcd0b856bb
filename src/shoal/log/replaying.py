"""Producers and transactions of a log, from a snapshot and the batches behind it.

Rule: what a replay finds is what an honest run over the same bytes has in memory. A snapshot is
believed as far as the log is known to be there, and with it so much of the segment's transaction
index as the snapshot vouches for; everything behind is read from the batches themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from shoal.errors import CorruptDataError
from shoal.log.disk import Disk, read_file, remove_if_there
from shoal.log.partition_files import base_of, readable
from shoal.log.producers import Producers
from shoal.log.segment import Segment, file_name
from shoal.log.transaction_index import AbortedTransaction, IndexSize, TransactionIndex
from shoal.records.batch import BatchHeader
from shoal.records.markers import EndMarker, read_marker

_Snapshot = tuple[int, Producers, IndexSize | None]


def load_producers(
    disk: Disk,
    directory: str,
    segments: Sequence[Segment],
    end_offset: int,
    *,
    limit: int,
    clean: bool,
) -> tuple[Producers, list[int]]:
    """The producers, and which snapshots stay; the segments get their transaction indexes.

    Args:
        limit: the last offset whose snapshot can be believed; later ones are removed.
        clean: whether the log was closed, so that files without a checksum can be believed.
    """
    names = {entry.name for entry in disk.list(directory)}
    found = [base for name in names if (base := base_of(name, ".snapshot")) is not None]
    for base in found:
        if base > limit:
            remove_if_there(disk, _path(directory, base))
    kept = sorted(base for base in found if base <= limit)
    at, producers = 0, Producers()
    for base in reversed(kept):
        snapshot = _read_snapshot(disk, directory, base)
        if snapshot is None:
            kept.remove(base)
        elif _index_fits(segments, snapshot, clean=clean):
            at, producers = base, snapshot[1]
            break
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is not None and following.base_offset <= at:
            continue
        if at <= segment.base_offset:
            segment.adopt_aborted(TransactionIndex())
        if following is None and at >= end_offset:
            continue
        _replay_segment(segment, producers, at, segment.note_aborted)
        producers.first_unstable(end_offset)  # what ended is visible: forget it
        if segment.has_aborted:
            segment.seal = None
        elif file_name(segment.base_offset, ".txnindex") in names:
            remove_if_there(disk, segment.path(".txnindex"))
    producers.changed = producers.changed or at != end_offset
    return producers, kept


def derive_aborted(
    disk: Disk, directory: str, segments: Sequence[Segment], wanted: Segment
) -> TransactionIndex:
    """What was aborted in one segment whose index file cannot be believed."""
    snapshots = [
        base
        for entry in disk.list(directory)
        if (base := base_of(entry.name, ".snapshot")) is not None and base <= wanted.base_offset
    ]
    at, producers = 0, Producers()
    for base in sorted(snapshots, reverse=True):
        snapshot = _read_snapshot(disk, directory, base)
        if snapshot is not None:
            at, producers = base, snapshot[1]
            break
    index = TransactionIndex()
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None or following.base_offset > at:
            note = index.append if segment is wanted else _ignore
            _replay_segment(segment, producers, at, note)
        if segment is wanted:
            break
    return index


def _ignore(_: AbortedTransaction) -> None:
    pass


def _read_snapshot(disk: Disk, directory: str, base: int) -> _Snapshot | None:
    data = read_file(disk, _path(directory, base))
    loaded = Producers.decode(data, base) if data is not None else None
    return None if loaded is None else (base, *loaded)


def _index_fits(segments: Sequence[Segment], snapshot: _Snapshot, *, clean: bool) -> bool:
    """Take over what the transaction index held at the snapshot; False if that is not known."""
    base, _, size = snapshot
    holder = next((one for one in reversed(segments) if one.base_offset <= base), None)
    if holder is None or holder.base_offset == base:
        return True  # nothing of the segment lies before it
    if size is None and not clean:
        return False
    if not holder.load_aborted(size) or holder.aborted is None:
        return False
    holder.aborted.cut(base)
    return True


def _replay_segment(
    segment: Segment,
    producers: Producers,
    at: int,
    note_aborted: Callable[[AbortedTransaction], None],
) -> None:
    """Everything of a segment from offset ``at`` on."""
    start = 0
    if at > segment.base_offset:
        start = segment.index.floor(at - segment.base_offset)
    for position, header in readable(segment, start):
        if header.base_offset < at or header.producer_id < 0:
            continue
        if not header.is_control:
            producers.note(header, header.last_offset)
            continue
        marker = _marker(segment, position, header)
        if marker is not None:
            aborted = producers.note_marker(header, marker, header.last_offset)
            if aborted is not None:
                note_aborted(aborted)
        elif header.record_count == 0:
            producers.note_epoch(header)


def _marker(segment: Segment, position: int, header: BatchHeader) -> EndMarker | None:
    with suppress(CorruptDataError):
        return read_marker(segment.file.read_at(position, header.size_bytes), check_crc=False)
    return None


def _path(directory: str, offset: int) -> str:
    return f"{directory}/{file_name(offset, '.snapshot')}"
