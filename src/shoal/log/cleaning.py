"""Retention: which old segments may go. Compaction: the last record of every key stays.

What is committed counts, and nothing else: a pass ends at the last stable offset, data of aborted
transactions is dropped and hides no other record (``cleaned_transactions.py``).

Retention drops whole segments from the front. Compaction reads sealed segments and writes new ones
with the same offsets, in slices, so that a broker can serve between them; the new file is complete
and synced before it takes the old ones' place, and open reads keep the old file.

How a group of segments is replaced, so that a crash at any point loses nothing:
    write ``<base>.log.cleaned`` and sync it → rename it to ``<base>.log.swap`` and sync the
    directory → remove the old files and all their indexes, and sync again → rename it to
    ``<base>.log``. What a crash leaves is completed (``.swap``) or removed (``.cleaned``) when the
    log is opened.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from shoal.errors import CorruptDataError
from shoal.log.cleaned_transactions import CleanedTransactions
from shoal.log.disk import Buffer, Disk, remove_files, remove_if_there, write_fully
from shoal.log.jobs import Attempt, Job, attempt
from shoal.log.partition import PartitionLog
from shoal.log.segment import INDEX_SUFFIXES, OFFSETS_MAX, Segment
from shoal.log.transaction_index import TransactionIndex
from shoal.log.walking import read_varint
from shoal.records import compression
from shoal.records.batch import (
    BatchHeader,
    parse_records,
    read_body,
    read_header,
    seal,
)
from shoal.records.record import Fields, varint
from shoal.types import TimestampType

logger = logging.getLogger(__name__)

#: Work between two chances for others to run.
SLICE_BYTES: Final = 256 << 10
#: Memory for one pass's keys; a pass that has more stops early and the next one goes on.
KEYS_MAX_BYTES: Final = 64 << 20
_KEY_OVERHEAD: Final = 120
_DELETE_HORIZON: Final = 0x40
_CODEC: Final = 0x07


# Retention ----------------------------------------------------------------------------------


def retain(log: PartitionLog, now_ms: int) -> list[str]:
    """Drop segments past their time, size or log start; returns the files to remove."""
    if log.fenced is not None or log.compacting:
        return []
    segments = log.segments
    count = _past_retention(log, now_ms)
    # Nothing that readers may not have seen yet, and always one segment to append to.
    while count and _end_of(log, count - 1) > log.high_watermark:
        count -= 1
    if count == len(segments):
        if segments[-1].size == 0:
            count -= 1
        else:
            log.roll(now_ms=now_ms)
    return log.drop_segments(count) if count else []


class Expired:
    """The files of dropped segments, until where their logs start is durable and they may go."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: dict[PartitionLog, list[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._paths)

    def add(self, log: PartitionLog, paths: list[str]) -> None:
        self._paths.setdefault(log, []).extend(paths)

    def remove(self, in_place: Callable[[PartitionLog], PartitionLog | None]) -> Job:
        """Remove them; ``in_place`` gives the log that is where a log was.

        By the time a worker comes to them a topic may have been deleted and made again, with
        files of the same names. So they get names first that no log looks for.
        """
        doomed: list[str] = []
        while self._paths:
            log, paths = self._paths.popitem()
            if in_place(log) is log:
                doomed += self._set_aside(paths)
                yield None
        removed = Attempt(lambda: remove_files(self._disk, doomed))
        yield removed
        if removed.error is not None:
            logger.error("old segments of %s: %s", self._disk.root, removed.error)

    def _set_aside(self, paths: list[str]) -> Iterator[str]:
        for path in paths:
            try:
                self._disk.rename(path, path + ".deleted")
            except FileNotFoundError:
                continue
            except OSError as error:
                logger.error("%s cannot be removed: %s", path, error)
                continue
            yield path + ".deleted"


def _past_retention(log: PartitionLog, now_ms: int) -> int:
    config, segments = log.config, log.segments
    count = 0
    if config.deletes and config.retention_ms is not None:
        while count < len(segments) and now_ms - _newest_ms(segments[count]) > config.retention_ms:
            count += 1
    if config.deletes and config.retention_bytes is not None:
        excess = sum(segment.size for segment in segments[count:]) - config.retention_bytes
        while count < len(segments) and segments[count].size and excess >= segments[count].size:
            excess -= segments[count].size
            count += 1
    while count < len(segments) - 1 and segments[count + 1].base_offset <= log.start_offset:
        count += 1
    return count


def _newest_ms(segment: Segment) -> int:
    newest = segment.newest_ms()
    return newest if newest >= 0 else segment.modified_ms


def _end_of(log: PartitionLog, at: int) -> int:
    """The offset behind a segment."""
    following = at + 1
    return log.segments[following].base_offset if following < len(log.segments) else log.end_offset


# Compaction: what is due --------------------------------------------------------------------


def cleanable(log: PartitionLog, now_ms: int) -> list[Segment]:
    """The segments a pass may read: sealed, synced, decided, old, without corruption before."""
    found = []
    limit = min(log.last_stable_offset, log.synced_offset)
    for at, segment in enumerate(log.segments[:-1]):
        lag_ms = log.config.min_compaction_lag_ms
        if (
            _end_of(log, at) > limit
            or segment.bad
            or (lag_ms and now_ms - _newest_ms(segment) < lag_ms)
        ):
            break
        found.append(segment)
    return found


def dirty_ratio(log: PartitionLog, now_ms: int) -> float:
    """The share of what is not compacted yet; 0 if there is too little to start."""
    if log.fenced is not None:
        return 0.0
    segments = cleanable(log, now_ms)
    dirty = [segment for segment in segments if segment.base_offset >= log.cleaned_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    if not dirty_bytes:
        return 0.0
    ratio = dirty_bytes / sum(segment.size for segment in segments)
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms is not None and now_ms - _newest_ms(dirty[0]) > lag_ms:
        return 1.0
    return ratio if ratio >= log.config.min_cleanable_dirty_ratio else 0.0


# Compaction: which records stay -------------------------------------------------------------


class Keys:
    """The last offset of every key in the dirty part of a log."""

    __slots__ = ("end_offset", "last_offsets", "size_bytes")

    def __init__(self) -> None:
        self.last_offsets: dict[bytes, int] = {}
        self.size_bytes = 0
        self.end_offset = 0

    @property
    def full(self) -> bool:
        return self.size_bytes > KEYS_MAX_BYTES

    def note(self, records: list[Fields]) -> None:
        last_offsets = self.last_offsets
        for offset, _, key, _, _ in records:
            if key is not None:
                if key not in last_offsets:
                    self.size_bytes += len(key) + _KEY_OVERHEAD
                last_offsets[key] = offset


class LastOfProducer(NamedTuple):
    """What must be left of a live producer."""

    last_offset: int
    """Of its last batch of data, -1 if its last word is a marker."""
    epoch: int

    def is_in(self, header: BatchHeader) -> bool:
        """Its last sequence, or the marker that shuts its older epochs out."""
        if self.last_offset >= 0:
            return header.last_offset == self.last_offset
        return header.is_control and header.producer_epoch == self.epoch


class Filter(NamedTuple):
    """Which records of a batch stay."""

    keys: Keys
    now_ms: int
    delete_retention_ms: int
    producers: Mapping[int, LastOfProducer]
    transactions: CleanedTransactions

    def apply(self, data: Buffer, header: BatchHeader, *, is_last: bool) -> Buffer | None:
        """The batch with fewer records, the same bytes if all stay, None if it may go.

        ``is_last`` keeps the last batch at least as an empty one: it says where the offsets end.
        """
        producer = self.producers.get(header.producer_id) if header.producer_id >= 0 else None
        must_stay = is_last or (producer is not None and producer.is_in(header))
        if header.is_control:
            return self._apply_to_marker(data, header, must_stay)
        if self.transactions.drops(header):
            if not must_stay:
                return None
            return data if header.record_count == 0 else _empty(header)
        body = read_body(data, 0, header)
        records = parse_records(body, header)
        horizon_ms = header.delete_horizon_ms
        expired = horizon_ms is not None and self.now_ms > horizon_ms
        last_offsets = self.keys.last_offsets
        stay = [
            key is not None
            and offset >= last_offsets.get(key, offset)
            and (value is not None or not expired)
            for offset, _, key, value, _ in records
        ]
        kept = [record for record, stays in zip(records, stay, strict=True) if stays]
        new_horizon_ms = None
        if horizon_ms is None and any(record[3] is None for record in kept):
            new_horizon_ms = self.now_ms + self.delete_retention_ms
        if len(kept) == len(records) and new_horizon_ms is None and records:
            return data
        if not kept:
            return _empty(header) if must_stay else None
        return _rebuild(body, header, kept, stay, new_horizon_ms)

    def _apply_to_marker(self, data: Buffer, header: BatchHeader, must_stay: bool) -> Buffer | None:
        """A marker that nothing needs gets a time from which on it may go (KIP-534)."""
        if not self.transactions.drops_marker(data, header):
            return data
        if header.record_count == 0:
            return data if must_stay else None
        horizon_ms = header.delete_horizon_ms
        if horizon_ms is None:
            body = read_body(data, 0, header)
            records = parse_records(body, header)
            new_horizon_ms = self.now_ms + self.delete_retention_ms
            return _rebuild(body, header, records, [True] * len(records), new_horizon_ms)
        if self.now_ms < horizon_ms:
            return data
        return _empty(header) if must_stay else None


def _rebuild(
    body: bytes,
    header: BatchHeader,
    kept: list[Fields],
    stay: list[bool],
    new_horizon_ms: int | None,
) -> bytes:
    """The batch with the records that stay, byte for byte but for the base timestamp."""
    raw = [one for one, stays in zip(split_records(body), stay, strict=True) if stays]
    attributes, base_timestamp_ms = header.attributes, header.base_timestamp_ms
    if new_horizon_ms is not None:
        # The horizon takes the place of the base timestamp, so the deltas change (KIP-534).
        raw = [shift_timestamp(one, base_timestamp_ms - new_horizon_ms) for one in raw]
        attributes, base_timestamp_ms = attributes | _DELETE_HORIZON, new_horizon_ms
    max_timestamp_ms = header.max_timestamp_ms
    if header.timestamp_type is TimestampType.CREATE_TIME:
        max_timestamp_ms = max(record[1] for record in kept)
    packed = b"".join(raw)
    if header.codec:
        packed = compression.compress(header.codec, packed)
    return seal(
        packed,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=len(raw),
    )


def _empty(header: BatchHeader) -> bytes:
    """A batch without records which still holds its offsets and its producer's sequence."""
    return seal(
        b"",
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        attributes=header.attributes & ~(_CODEC | _DELETE_HORIZON),
        last_offset_delta=header.last_offset_delta,
        base_timestamp_ms=-1,
        max_timestamp_ms=header.max_timestamp_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=0,
    )


def split_records(body: bytes) -> list[bytes]:
    """The records of an inflated batch as they stand, lengths included."""
    found, position = [], 0
    while position < len(body):
        length, start = read_varint(body, position)
        found.append(body[position : start + length])
        position = start + length
    return found


def shift_timestamp(record: bytes, shift_ms: int) -> bytes:
    """A record whose timestamp counts from a base that moved by ``-shift_ms``."""
    _, start = read_varint(record, 0)
    delta, rest = read_varint(record, start + 1)
    content = record[start : start + 1] + varint(delta + shift_ms) + record[rest:]
    return varint(len(content)) + content


# Compaction: doing it -----------------------------------------------------------------------


def compact(log: PartitionLog, now_ms: int) -> Job:
    """One pass over a log. A corrupt batch or a full disk ends it without a change."""
    if log.compacting:
        return
    log.compacting = True
    try:
        yield from _compact(log, now_ms)
    except (CorruptDataError, OSError) as error:
        if not log.closed:
            logger.error("compacting %s stopped: %s", log.topic_partition, error)
    finally:
        log.compacting = False


def _compact(log: PartitionLog, now_ms: int) -> Job:
    segments = cleanable(log, now_ms)
    keys = Keys()
    yield from _collect_keys(log, segments, keys)
    segments = [segment for segment in segments if segment.base_offset < keys.end_offset]
    if not segments:
        return
    filter_ = Filter(
        keys,
        now_ms,
        log.config.delete_retention_ms,
        {
            entry.producer_id: LastOfProducer(entry.last_offset, entry.epoch)
            for entry in log.producer_states()
        },
        CleanedTransactions(log.aborted_entries(0, keys.end_offset)),
    )
    if log.state.cleaned_until < keys.end_offset:
        # From now on holes in the offsets below are no damage; recovery must know first.
        log.state.cleaned_until = keys.end_offset
        yield from attempt(log.files.state_writer(log.state))
    for group in _groups(log, segments):
        if log.closed or log.fenced is not None:
            return
        yield from _compact_group(log, group, filter_)
    log.cleaned_offset = max(log.cleaned_offset, keys.end_offset)


def _collect_keys(log: PartitionLog, segments: list[Segment], keys: Keys) -> Job:
    keys.end_offset = log.cleaned_offset
    if not segments:
        return
    limit = _end_of(log, log.segments.index(segments[-1]))
    transactions = CleanedTransactions(log.aborted_entries(log.cleaned_offset, limit))
    for segment in segments:
        end_offset = _end_of(log, log.segments.index(segment))
        if end_offset <= log.cleaned_offset:
            continue
        if keys.full:
            break
        size = 0
        for data, header in _batches([segment]):
            if header.last_offset < log.cleaned_offset:
                pass
            elif header.is_control:
                transactions.drops_marker(data, header)
            elif not transactions.drops(header):
                keys.note(parse_records(read_body(data, 0, header), header))
            size += len(data)
            if size > SLICE_BYTES:
                size = 0
                yield None
        keys.end_offset = end_offset


def _batches(segments: Iterable[Segment]) -> Iterator[tuple[bytes, BatchHeader]]:
    for segment in segments:
        file = segment.file
        for position, header in segment.headers():
            yield file.read_at(position, header.size_bytes), header


def _with_last(
    batches: Iterator[tuple[bytes, BatchHeader]],
) -> Iterator[tuple[bytes, BatchHeader, bool]]:
    """Every batch, and whether it is the last one."""
    previous = next(batches, None)
    for following in batches:
        assert previous is not None
        yield *previous, False
        previous = following
    if previous is not None:
        yield *previous, True


def _groups(log: PartitionLog, segments: list[Segment]) -> list[list[Segment]]:
    """Neighbours that fit into one segment together."""
    groups: list[list[Segment]] = []
    size = 0
    for segment in segments:
        end_offset = _end_of(log, log.segments.index(segment))
        if (
            groups
            and size + segment.size <= log.config.segment_bytes
            and end_offset - groups[-1][0].base_offset <= OFFSETS_MAX
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = 0
        size += segment.size
    return groups


def _compact_group(log: PartitionLog, group: list[Segment], filter_: Filter) -> Job:
    first = group[0]
    path = first.path()
    file = log.disk.open(path + ".cleaned", create=True)
    file.truncate(0)
    new = Segment(
        log.disk,
        log.directory,
        first.base_offset,
        index_interval_bytes=log.config.index_interval_bytes,
    )
    new.adopt(file)
    new.adopt_aborted(TransactionIndex())
    try:
        changed = yield from _write_kept(group, new, filter_)
        if len(group) == 1 and not changed:
            remove_if_there(log.disk, path + ".cleaned")
            return  # nothing to drop, and no tombstone's time begins
        yield from attempt(file.sync)
    except BaseException:
        remove_if_there(log.disk, path + ".cleaned")
        raise
    if not log.closed:
        yield from _swap(log, group, new)


def _write_kept(
    group: list[Segment], new: Segment, filter_: Filter
) -> Generator[Callable[[], object] | None, None, bool]:
    """True in the end if anything differs from what was there."""
    size, changed = 0, False
    for data, header, is_last in _with_last(_batches(group)):
        kept = filter_.apply(data, header, is_last=is_last)
        changed = changed or kept != data
        if kept is not None:
            write_fully(new.file, new.size, kept)
            new.note(new.size, read_header(kept))
            new.size += len(kept)
        size += len(data)
        if size > SLICE_BYTES:
            size = 0
            yield None
    for entry in filter_.transactions.kept:
        new.note_aborted(entry)
    filter_.transactions.kept.clear()
    new.modified_ms = group[-1].modified_ms
    return changed


def _swap(log: PartitionLog, group: list[Segment], new: Segment) -> Job:
    path = group[0].path()
    # Readers go on with the files as they are open now, whatever their names become; and
    # removing a file that is held is quick, however large it is.
    for segment in (*group, new):
        segment.hold()
    log.disk.rename(path + ".cleaned", path + ".swap")
    try:
        yield from attempt(lambda: log.disk.sync_directory(log.directory))
        for segment in group[1:]:
            log.disk.remove(segment.path())
        # Before the new segment takes the name: its seal vouches for the old one's indexes.
        for segment in group:
            remove_files(log.disk, map(segment.path, INDEX_SUFFIXES))
        yield from attempt(lambda: log.disk.sync_directory(log.directory))
        log.disk.rename(path + ".swap", path)
    except OSError as error:
        log.fence(f"a compacted segment of {log.directory} could not take its place: {error}")
        raise
    write = new.save_indexes(finished=True)
    log.replace_segments(group, [new])
    new.unhold()
    yield from attempt(write)
    yield from attempt(log.files.seals_writer(log.segments))
    yield group.clear
