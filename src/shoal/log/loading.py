"""Opening the log of a partition: from the files of its directory to a ``PartitionLog``.

After a clean stop nothing is scanned: sizes, the last few batches and the saved state are enough.
After anything else the part that was not known to be synced is read and checked in full
(``recovery.py`` judges), a torn tail moves into a quarantine file, and the leader epoch grows.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from shoal.errors import CorruptDataError
from shoal.log.checkpoints import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    SEALS,
    STATE,
    CorruptRange,
    PartitionCheckpoint,
    decode_epochs,
    decode_partition_metadata,
    decode_seals,
    decode_state,
    encode_epochs,
    encode_partition_metadata,
)
from shoal.log.config import Durability, LogConfig
from shoal.log.disk import Disk, read_file, remove_files, remove_if_there, write_fully
from shoal.log.epochs import LeaderEpochs
from shoal.log.partition import PartitionLog
from shoal.log.partition_files import base_of, readable
from shoal.log.producers import Producers
from shoal.log.recovery import Scan, is_blank, scan
from shoal.log.replaying import load_producers
from shoal.log.reserve import Reserve
from shoal.log.segment import INDEX_SUFFIXES, Segment, file_name
from shoal.log.walking import walk
from shoal.types import TopicPartition

_COPY_WINDOW: Final = 1 << 20


class Cut(NamedTuple):
    """A torn tail that was removed. ``quarantine`` is None if it was only zeros."""

    path: str
    position: int
    size_bytes: int
    reason: str
    quarantine: str | None


@dataclass(slots=True)
class RecoveryReport:
    """What opening a partition found and did. Empty lists are good news."""

    topic_partition: TopicPartition
    clean: bool
    scanned_bytes: int = 0
    cuts: list[Cut] = field(default_factory=list)
    corrupt: list[CorruptRange] = field(default_factory=list)
    end_offset: int = 0
    leader_epoch: int = 0

    @property
    def is_good_news(self) -> bool:
        return not self.cuts and not self.corrupt


class Known(NamedTuple):
    """What the data directory knows of a partition before it is opened."""

    clean: bool = False
    recovery_point: int = 0
    start_offset: int = 0
    cleaned_offset: int = 0


def create_partition(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    durability: Durability,
    *,
    reserve: Reserve,
    now_ms: int,
    topic_id: UUID | None = None,
) -> PartitionLog:
    """A new, empty log. Its names become durable with its first sync."""
    disk.make_directory(directory)
    contents = {LEADER_EPOCHS: encode_epochs([(0, 0)])}
    if topic_id is not None:
        contents[PARTITION_METADATA] = encode_partition_metadata(topic_id)
    files, paths = [], []
    for name, content in contents.items():
        file = disk.open(f"{directory}/{name}", create=True)
        write_fully(file, 0, content)
        files.append(file)
    if durability is Durability.OS:
        # It may be days before they are synced, and nobody is promised that they are.
        files, paths = [], [f"{directory}/{name}" for name in contents]
    segment = Segment.create(
        disk, directory, 0, now_ms=now_ms, index_interval_bytes=config.index_interval_bytes
    )
    log = PartitionLog(
        disk,
        directory,
        topic_partition,
        config,
        durability,
        segments=[segment],
        start_offset=0,
        end_offset=0,
        epochs=LeaderEpochs([(0, 0)]),
        producers=Producers(),
        state=PartitionCheckpoint(),
        reserve=reserve,
        topic_id=topic_id,
    )
    log.unsynced.add(files=files, paths=paths, directories=[directory, ""])
    return log


def load_partition(
    disk: Disk,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    durability: Durability,
    *,
    known: Known,
    reserve: Reserve,
    now_ms: int,
) -> tuple[PartitionLog, RecoveryReport]:
    """Open what is there.

    Raises:
        OSError: the files cannot be read or mended.
    """
    return _Loader(disk, directory, topic_partition, config, durability, known).load(
        reserve, now_ms
    )


class _Loader:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        durability: Durability,
        known: Known,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.durability = durability
        self.known = known
        self.report = RecoveryReport(topic_partition, clean=known.clean)

    def load(self, reserve: Reserve, now_ms: int) -> tuple[PartitionLog, RecoveryReport]:
        self._finish_swaps()
        state = decode_state(read_file(self.disk, f"{self.directory}/{STATE}"))
        self.state = state or PartitionCheckpoint()
        # A real Kafka's directory tells it only there.
        self.state.cleaned_until = max(self.state.cleaned_until, self.known.cleaned_offset)
        self.seals = decode_seals(read_file(self.disk, f"{self.directory}/{SEALS}"))
        self._read_epochs()
        segments = self._find_segments(now_ms)
        end_offset = self._end_if_clean(segments) if self.known.clean else None
        is_whole = end_offset is not None and all(one.seal is not None for one in segments)
        if end_offset is None:
            end_offset = self._recover(segments, now_ms)
        start_offset = max(self.known.start_offset, segments[0].base_offset)
        if start_offset > end_offset:
            end_offset = start_offset
            segments.append(self._new_segment(end_offset, now_ms))
        limit = end_offset
        if not self.report.clean:
            # Another may count batches that are lost, and a producer that sends them again must
            # not be told they are stored. What lies before the first segment was stored and then
            # deleted, so it counts as synced.
            limit = min(limit, max(self.known.recovery_point, segments[0].base_offset))
        producers, snapshots = load_producers(
            self.disk,
            self.directory,
            segments,
            end_offset,
            limit=limit,
            clean=self.report.clean,
        )
        epoch_changed = self._settle_epochs(segments, start_offset, end_offset)
        topic_id = decode_partition_metadata(
            read_file(self.disk, f"{self.directory}/{PARTITION_METADATA}")
        )
        log = PartitionLog(
            self.disk,
            self.directory,
            self.topic_partition,
            self.config,
            self.durability,
            segments=segments,
            start_offset=start_offset,
            end_offset=end_offset,
            epochs=self.epochs,
            producers=producers,
            state=self.state,
            reserve=reserve,
            snapshots=snapshots,
            topic_id=topic_id,
        )
        log.saved.is_whole = is_whole and segments[-1].seal is not None
        log.cleaned_offset = max(start_offset, min(self.known.cleaned_offset, end_offset))
        if epoch_changed:
            log.files.epochs_writer(log.epochs)()
        if self.report.corrupt:
            log.files.state_writer(log.state)()
        log.release_files()  # thousands of idle partitions must not hold a descriptor each
        self.report.end_offset, self.report.leader_epoch = end_offset, log.leader_epoch
        return log, self.report

    # Files

    def _finish_swaps(self) -> None:
        """Complete or undo a compaction that a crash interrupted, as Kafka's loader does."""
        names = [entry.name for entry in self.disk.list(self.directory) if entry.kind == "file"]
        for name in names:
            if name.endswith((".deleted", ".cleaned", ".tmp")):
                remove_if_there(self.disk, f"{self.directory}/{name}")
        for name in names:
            base = base_of(name, ".log.swap")
            if base is not None:
                self._finish_swap(base, names)

    def _finish_swap(self, base: int, names: list[str]) -> None:
        """A swap file is complete and synced; what it replaces may or may not be gone."""
        path = f"{self.directory}/{file_name(base)}"
        file = self.disk.open(path + ".swap", write=False)
        end_offset = base
        for _, header in walk(file, path, 0, file.size()):
            end_offset = header.next_offset
        for name in names:
            old = base_of(name, ".log")
            if old is not None and base < old < end_offset:
                remove_if_there(self.disk, f"{self.directory}/{name}")
        # What they say is of the segment that is replaced.
        remove_files(self.disk, [path.removesuffix(".log") + one for one in INDEX_SUFFIXES])
        self.disk.sync_directory(self.directory)
        self.disk.rename(path + ".swap", path)
        self.disk.sync_directory(self.directory)

    def _find_segments(self, now_ms: int) -> list[Segment]:
        entries = self.disk.list(self.directory)
        bases = set()
        segments = []
        aborted_bytes = {
            base: entry.size_bytes
            for entry in entries
            if (base := base_of(entry.name, ".txnindex")) is not None
        }
        for entry in entries:
            base = base_of(entry.name, ".log")
            if base is None or entry.kind != "file":
                continue
            bases.add(base)
            segment = Segment.existing(
                self.disk,
                self.directory,
                base,
                size=entry.size_bytes,
                modified_ms=entry.modified_ms,
                seal=self.seals.get(base),
                index_interval_bytes=self.config.index_interval_bytes,
                txnindex_bytes=aborted_bytes.get(base, 0),
            )
            segment.bad = sorted(
                (bad.position, bad.end_position)
                for bad in self.state.corrupt
                if bad.segment_base == base and bad.position < bad.end_position
            )
            segments.append(segment)
        for entry in entries:
            for suffix in INDEX_SUFFIXES:
                base = base_of(entry.name, suffix)
                if base is not None and base not in bases:
                    remove_if_there(self.disk, f"{self.directory}/{entry.name}")
        self.state.corrupt = [bad for bad in self.state.corrupt if bad.segment_base in bases]
        return segments or [self._new_segment(self.known.start_offset, now_ms)]

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment.create(
            self.disk,
            self.directory,
            base_offset,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )

    # Where the log ends

    def _end_if_clean(self, segments: list[Segment]) -> int | None:
        """The end by the last batches alone; None if they are not as a clean stop left them."""
        active = segments[-1]
        try:
            end_offset = active.base_offset
            for position, header in active.headers(active.resume(active.size)):
                active.note(position, header)
                end_offset = header.next_offset
        except (CorruptDataError, StopIteration):
            self.report.clean = False
            return None
        return end_offset

    def _recover(self, segments: list[Segment], now_ms: int) -> int:
        """Check everything that may not have been synced; returns the end offset."""
        self.report.clean = False
        point = self.known.recovery_point
        first = max(0, bisect_right([segment.base_offset for segment in segments], point) - 1)
        end_offset = segments[first].base_offset
        spare = self._take_spare(segments, first, point)
        for at in range(first, len(segments)):
            segment = segments[at]
            if at > first and segment.base_offset > end_offset:
                self._note_bad(segments[at - 1], None, end_offset, segment.base_offset, "missing")
            following = segments[at + 1].base_offset if at + 1 < len(segments) else None
            end_offset = self._recover_segment(segment, point if at == first else 0, following)
        if end_offset < point:
            # Synced data is missing or bad: that is no torn tail, and its offsets stay taken.
            # The next segment starts behind them, for within one the offsets are dense.
            self._note_bad(segments[-1], None, end_offset, point, "missing")
            end_offset = point
        for segment in spare:
            if segment.base_offset == end_offset:
                segments.append(segment)
            else:
                remove_files(self.disk, map(segment.path, (".log", *INDEX_SUFFIXES)))
        if segments[-1].base_offset < end_offset and self._has_gap_at_end(segments[-1]):
            segments.append(self._new_segment(end_offset, now_ms))
        return end_offset

    def _take_spare(self, segments: list[Segment], first: int, point: int) -> list[Segment]:
        """Take off the segments at the end in which nothing is.

        Between a roll and its first sync a power cut may leave the new file without the end of
        the old one. Nothing good follows that end then, so it is a torn tail like any other.
        """
        spare: list[Segment] = []
        while len(segments) > first + 1 and segments[-1].base_offset > point:
            segment = segments[-1]
            found = self._scan(segment, 0)
            if found.end_position or found.bad:
                break
            if found.tail is not None:
                self._cut(segment, 0, found.tail)
            spare.insert(0, segments.pop())
        return spare

    def _has_gap_at_end(self, segment: Segment) -> bool:
        return any(
            bad.segment_base == segment.base_offset and bad.end_position == segment.size
            for bad in self.state.corrupt
        )

    def _recover_segment(self, segment: Segment, point: int, following: int | None) -> int:
        """Scan one segment from the recovery point on; ``following`` is the next one's base."""
        base = segment.base_offset
        start = segment.resume(segment.index.floor(point - base)) if point > base else 0
        result = self._scan(segment, start)
        if start and (result.end_position == start or (result.bad and result.bad[0][0] == start)):
            # The index or the batch it names is wrong: nothing here can be believed.
            start = 0
            result = self._scan(segment, start)
        self.report.scanned_bytes += segment.size - start
        for bad in result.bad:
            where = bad.position, bad.end_position
            self._note_bad(segment, where, bad.start_offset, bad.end_offset, bad.reason)
        end_offset = result.next_offset if result.end_position else base
        if result.tail is not None:
            end_offset = self._judge_tail(segment, result, end_offset, point, following)
        segment.seal = None
        self._make_durable(segment, start)
        return end_offset

    def _scan(self, segment: Segment, start: int) -> Scan:
        if start == 0:
            segment.forget_entries()
        return scan(
            segment.file.read_at,
            start=start,
            size=segment.size,
            next_offset=None if start else segment.base_offset,
            dense=segment.base_offset >= self.state.cleaned_until,
            visit=segment.note,
            epoch_at=self.epochs.epoch_at if self.epochs_known else None,
        )

    def _judge_tail(
        self, segment: Segment, result: Scan, end_offset: int, point: int, following: int | None
    ) -> int:
        """Cut a torn tail; keep bad bytes that were synced once, or that others follow."""
        assert result.tail is not None
        taken_until = max(end_offset, following if following is not None else point)
        if following is None and taken_until == end_offset:
            self._cut(segment, result.end_position, result.tail)
        else:
            where = result.end_position, segment.size
            self._note_bad(segment, where, end_offset, taken_until, result.tail)
        return taken_until

    def _cut(self, segment: Segment, position: int, reason: str) -> None:
        size = segment.size - position
        quarantine = None
        if not is_blank(segment.file.read_at, position, segment.size):
            quarantine = f"{segment.path()}.{position}.quarantine"
            copy = self.disk.open(quarantine, create=True)
            copy.truncate(0)
            for at in range(0, size, _COPY_WINDOW):
                write_fully(
                    copy, at, segment.file.read_at(position + at, min(_COPY_WINDOW, size - at))
                )
            copy.sync()
            self.disk.sync_directory(self.directory)
        segment.file.truncate(position)
        segment.size = position
        self.report.cuts.append(Cut(segment.path(), position, size, reason, quarantine))

    def _note_bad(
        self, segment: Segment, where: tuple[int, int] | None, start: int, end: int, reason: str
    ) -> None:
        position, end_position = where or (segment.size, segment.size)
        bad = CorruptRange(segment.base_offset, position, end_position, start, end, reason)
        if bad not in self.state.corrupt:
            self.state.corrupt.append(bad)
        if position < end_position and (position, end_position) not in segment.bad:
            segment.bad = sorted([*segment.bad, (position, end_position)])
        self.report.corrupt.append(bad)

    def _make_durable(self, segment: Segment, start: int) -> None:
        """What was scanned may be only in memory, even marked clean after a sync that failed.

        Writing the same bytes again makes the next sync tell the truth.
        """
        if self.durability is not Durability.OS:
            for at in range(start, segment.size, _COPY_WINDOW):
                size = min(_COPY_WINDOW, segment.size - at)
                write_fully(segment.file, at, segment.file.read_at(at, size))
        segment.file.sync()

    # Epochs and producers

    def _read_epochs(self) -> None:
        entries = decode_epochs(read_file(self.disk, f"{self.directory}/{LEADER_EPOCHS}"))
        self.epochs_known = entries is not None
        self.epochs = LeaderEpochs(entries or ())

    def _settle_epochs(self, segments: list[Segment], start_offset: int, end_offset: int) -> bool:
        """Fit the epochs to the log, and begin a new one after an unclean start."""
        changed = not self.epochs_known
        if not self.epochs_known:
            for segment in segments:
                for _, header in readable(segment):
                    if header.leader_epoch > (
                        -1 if self.epochs.latest is None else self.epochs.latest
                    ):
                        self.epochs.assign(header.leader_epoch, header.base_offset)
        latest = -1 if self.epochs.latest is None else self.epochs.latest
        changed |= self.epochs.cut_end(end_offset)
        changed |= self.epochs.cut_start(start_offset)
        if self.epochs.latest is None or not self.report.clean:
            self.epochs.assign(latest + 1, end_offset)
            changed = True
        return changed
