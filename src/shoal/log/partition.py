"""One partition: segments in order, what may be appended, what may be seen.

Rule: every method is quick and synchronous; it touches the page cache, never waits for the disk.
Making data durable is separate work: ``begin_sync`` says what has to be synced, any thread may run
it, ``finish_sync`` takes the result. Under a durability that waits, the high watermark moves only
there, so nobody reads what a power cut could take back.

An outcome of the protocol is a value (``.error``); only our own bugs raise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from shoal.errors import CorruptDataError, ErrorCode
from shoal.log.checkpoints import PartitionState
from shoal.log.config import Durability, LogConfig
from shoal.log.disk import Disk
from shoal.log.epochs import LeaderEpochs
from shoal.log.producers import ProducerEntry, Producers, StoredBatch
from shoal.log.reading import View, first_at, newest_ms, slice_of
from shoal.log.reserve import Reserve
from shoal.log.results import AppendResult, Origin, ReadResult
from shoal.log.saved import Saved
from shoal.log.segment import Part, Segment
from shoal.log.smallfiles import SmallFiles
from shoal.log.syncwork import SyncWork, Unsynced
from shoal.log.validation import Checked, check, stores_as_sent, usual_batch
from shoal.records.batch import assign_offsets
from shoal.types import OffsetAndTimestamp, TimestampType, TopicPartition


class PartitionLog:
    """The log of one partition. Made by ``loading.create_partition`` and ``load_partition``."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        durability: Durability,
        *,
        segments: list[Segment],
        start_offset: int,
        end_offset: int,
        epochs: LeaderEpochs,
        producers: Producers,
        state: PartitionState,
        reserve: Reserve,
        snapshots: Iterable[int] = (),
        topic_id: UUID | None = None,
    ) -> None:
        assert segments
        self.disk = disk
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self.durability = durability
        self.topic_id = topic_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.high_watermark = end_offset
        self.synced_offset = end_offset
        self.epochs = epochs
        self.producers = producers
        self.state = state
        self.cleaned_offset = start_offset
        self.fenced: str | None = None
        self.closed = False
        self.compacting = False
        #: Called when the high watermark moved or the log was fenced: wake who waits for data.
        self.on_advance: Callable[[PartitionLog], None] | None = None
        #: Offsets name data: their log is synced after the others.
        self.sync_last = False
        self._reserve = reserve
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._visible = segments[-1], segments[-1].size
        self.unsynced = Unsynced(disk)
        self.files = SmallFiles(disk, directory, snapshots)
        self.saved = Saved(start_offset, end_offset)

    # Facts

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._stores_as_sent = stores_as_sent(config)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def leader_epoch(self) -> int:
        latest = self.epochs.latest
        return 0 if latest is None else latest

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """Up to here no transaction is open. There are none yet."""
        return self.high_watermark

    @property
    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers.entries.values())

    # Appending

    def append(
        self, data: bytes | bytearray | memoryview, *, now_ms: int, origin: Origin = Origin.CLIENT
    ) -> AppendResult:
        """Put batches at the end.

        The buffer is changed in place (offsets, leader epoch, maybe the append time), unless it
        is ``bytes``, which are copied first.
        """
        if self.fenced is not None:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, self.fenced)
        assert not self.closed, "appended to a closed log"
        if self._stores_as_sent and origin is Origin.CLIENT and not isinstance(data, bytes):
            usual = usual_batch(data, self._config, now_ms)
            if usual is not None:
                return self._append_usual([(data, *usual)], now_ms)[0]
        checked = check(data, self._config, now_ms=now_ms, from_client=origin is Origin.CLIENT)
        if not isinstance(checked, Checked):
            return self._refusal(*checked)
        if checked.headers[0].producer_id >= 0 and origin is Origin.CLIENT:
            verdict = self.producers.check(checked.headers[0])
            if isinstance(verdict, StoredBatch):
                return self._duplicate(verdict)
            if verdict is not None:
                return self._refusal(verdict)
        return self._append_checked(checked, now_ms)

    def append_run(self, run: Sequence[bytearray | memoryview], now_ms: int) -> list[AppendResult]:
        """As ``append`` of each, sent by clients, but written in one step where that is possible.

        If that fails, none of them is stored.
        """
        if self.fenced is None and self._stores_as_sent:
            usual = [
                (data, *found)
                for data in run
                if (found := usual_batch(data, self._config, now_ms)) is not None
            ]
            size = sum(map(len, run))
            if len(usual) == len(run) and self.active.size + size <= self._config.segment_bytes:
                return self._append_usual(usual, now_ms)
        return [self.append(data, now_ms=now_ms) for data in run]

    def _append_usual(
        self, run: Sequence[tuple[bytearray | memoryview, int, int]], now_ms: int
    ) -> list[AppendResult]:
        """Batches with the last offset delta and largest timestamp of each."""
        base_offset = self.end_offset
        epochs = self.epochs.entries
        epoch, start = epochs[-1][0] if epochs else 0, self.start_offset
        parts: list[Part] = []
        results = []
        for data, last_offset_delta, max_timestamp_ms in run:
            assign_offsets(data, base_offset=base_offset, leader_epoch=epoch)
            last = base_offset + last_offset_delta
            parts.append((data, last, max_timestamp_ms, last))
            results.append(AppendResult(ErrorCode.NONE, base_offset, last, None, start))
            base_offset = last + 1
        problem = self._store(parts, now_ms)
        if problem is not None:
            return [self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, problem)] * len(run)
        return results

    def _append_checked(self, checked: Checked, now_ms: int) -> AppendResult:
        base_offset = offset = self.end_offset
        epoch = self.leader_epoch
        append_time_ms = None
        if self._config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time_ms = now_ms
        headers, data = checked.headers, checked.data
        latest_ms, latest_offset = -1, offset
        position = 0
        for header in headers:
            assign_offsets(
                data,
                position,
                base_offset=offset,
                leader_epoch=epoch,
                log_append_time_ms=append_time_ms,
            )
            offset += header.last_offset_delta + 1
            position += header.size_bytes
            timestamp_ms = header.max_timestamp_ms if append_time_ms is None else append_time_ms
            if timestamp_ms > latest_ms:
                latest_ms, latest_offset = timestamp_ms, offset - 1
        problem = self._store([(data, offset - 1, latest_ms, latest_offset)], now_ms)
        if problem is not None:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, problem)
        offset = base_offset
        for header in headers:
            offset += header.last_offset_delta + 1
            if header.producer_id >= 0:
                self.producers.note(header, offset - 1, append_time_ms)
        return AppendResult(
            ErrorCode.NONE, base_offset, offset - 1, append_time_ms, self.start_offset
        )

    def _store(self, parts: Sequence[Part], now_ms: int) -> str | None:
        """Write what has its offsets, and count it; or say why that cannot be."""
        data, last_offset, latest_ms, _ = parts[-1]
        size, end_offset = len(data), last_offset + 1
        if len(parts) > 1:
            size = sum(len(part[0]) for part in parts)
            latest_ms = max(part[2] for part in parts)
        if not self._reserve.admits(size):
            return f"the disk of {self.disk.root} is almost full"
        segment = self._segments[-1]
        try:
            if segment.must_roll(self._config, size, end_offset, latest_ms, now_ms, len(parts)):
                self.roll(now_ms=now_ms)
                segment = self._segments[-1]
            try:
                segment.append(parts)
            except OSError:
                self._cut_back(segment)
                raise
        except OSError as error:
            return str(error)
        segment.modified_ms = now_ms
        self.end_offset = end_offset
        self.unsynced.note(segment)
        if not self.durability.waits:
            self._advance(end_offset, segment, segment.size)
        return None

    def _cut_back(self, segment: Segment) -> None:
        """A failed append must not leave bytes behind; if it cannot be undone, stop here."""
        try:
            segment.cut_back()
        except OSError as error:
            self.fence(f"a failed append to {segment.path()} could not be undone: {error}")

    def _duplicate(self, stored: StoredBatch) -> AppendResult:
        append_time_ms = None
        if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            append_time_ms = stored.timestamp_ms
        return AppendResult(
            ErrorCode.NONE,
            stored.base_offset,
            stored.last_offset,
            append_time_ms,
            self.start_offset,
            duplicate=True,
        )

    def _refusal(self, error: ErrorCode, detail: str = "") -> AppendResult:
        return AppendResult(error, log_start_offset=self.start_offset, detail=detail)

    def roll(self, *, now_ms: int) -> None:
        """Seal the active segment and start a new one at the end offset."""
        old = self._segments[-1]
        assert old.size > 0 or old.base_offset < self.end_offset, "an empty segment is not rolled"
        segment = Segment.create(
            self.disk,
            self.directory,
            self.end_offset,
            now_ms=now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
        )
        index_files = old.save_indexes(finished=True)()
        self.files.snapshot_writer(self.producers, self.end_offset)()
        self.files.seals_writer(self._segments)()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        # The name of the new file must be durable before anything in it is acknowledged.
        self.unsynced.add(files=index_files, directories=[self.directory])
        if self._visible[0] is old and self._visible[1] == old.size:
            self._visible = segment, 0

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool = True,
        max_offset: int | None = None,
    ) -> ReadResult:
        """Whole batches from the one that holds ``offset``, of one segment.

        Args:
            max_bytes: the slice is not larger, but for a first batch under ``min_one_batch``.
            max_offset: read no batch that reaches past it; the high watermark if None or larger.
        """
        visible = self.high_watermark
        if max_offset is not None and max_offset < visible:
            visible = max_offset
        if not self.start_offset <= offset <= self.end_offset:
            return self._answer(ErrorCode.OFFSET_OUT_OF_RANGE)
        if offset >= visible:
            return self._answer(ErrorCode.NONE)
        if self.state.corrupt and any(
            bad.start_offset <= offset < bad.end_offset for bad in self.state.corrupt
        ):
            return self._answer(ErrorCode.CORRUPT_MESSAGE)
        try:
            found = slice_of(self._view(), offset, max_bytes, visible, min_one_batch)
        except CorruptDataError:
            return self._answer(ErrorCode.CORRUPT_MESSAGE)
        except OSError:
            return self._answer(ErrorCode.KAFKA_STORAGE_ERROR)
        if found is None:
            return self._answer(ErrorCode.NONE)
        return ReadResult(ErrorCode.NONE, self.high_watermark, self.start_offset, *found)

    def _view(self) -> View:
        return View(
            self._segments, self._bases, self.state.corrupt, *self._visible, self.high_watermark
        )

    def _answer(self, error: ErrorCode) -> ReadResult:
        return ReadResult(error, self.high_watermark, self.start_offset)

    # Durability

    def begin_sync(self, *, sealed_only: bool = False) -> SyncWork | None:
        """What must be synced so that all appended so far is durable; None if it is.

        ``sealed_only`` leaves the active segment to the operating system.
        """
        if self.fenced is not None:
            return None
        return self.unsynced.begin(self, sealed_only=sealed_only)

    def finish_sync(self, work: SyncWork, error: OSError | None) -> None:
        """Take the result of ``work.run()``.

        After an error the pages may be marked clean without having been written, so a second
        try would succeed and mean nothing: the log is fenced until it is opened anew.
        """
        if error is not None:
            self.fence(f"syncing {self.directory} failed: {error}")
            return
        if self.fenced is not None or work.end_offset < self.synced_offset:
            return
        self.synced_offset = work.end_offset
        self.unsynced.done(work)
        if self.durability.waits:
            self._advance(work.end_offset, work.segment, work.position)

    def sync(self, synced: set[str] | None = None) -> OSError | None:
        """Begin, run and finish in this thread."""
        work = self.begin_sync()
        if work is None:
            return None
        error = work.run(synced)
        self.finish_sync(work, error)
        return error

    def _advance(self, offset: int, segment: Segment, position: int) -> None:
        if position == segment.size and segment is not self._segments[-1]:
            # Everything in it is visible, and the next one has begun.
            following = self._segments.index(segment) + 1
            segment, position = self._segments[following], 0
        self.high_watermark = offset
        self._visible = segment, position
        if self.on_advance is not None:
            self.on_advance(self)

    def fence(self, reason: str) -> None:
        """Take no more appends; reading up to the high watermark goes on."""
        if self.fenced is None:
            self.fenced = reason
            if self.on_advance is not None:
                self.on_advance(self)

    # Looking up

    def offset_for_time(self, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first visible record at or after a time."""
        found = first_at(self._view(), timestamp_ms, self.start_offset)
        if found is None:
            return None
        return OffsetAndTimestamp(*found, leader_epoch=self.epochs.epoch_at(found[0]))

    def latest_by_time(self) -> OffsetAndTimestamp | None:
        """The record with the largest timestamp (ListOffsets -3): the first of several."""
        newest = newest_ms(self._view(), self.start_offset)
        return self.offset_for_time(newest) if newest >= 0 else None

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        """``(epoch, end offset)`` of the largest epoch up to ``leader_epoch``; None if unknown."""
        return self.epochs.end_offset_for(leader_epoch, self.end_offset)

    # Shortening

    def delete_records(self, offset: int | None) -> ErrorCode:
        """Raise the log start; ``None`` means the high watermark. Files follow with retention."""
        if offset is None:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        self.raise_start(offset)
        return ErrorCode.NONE

    def raise_start(self, offset: int) -> None:
        """Nothing below ``offset`` is shown any more."""
        if offset > self.start_offset:
            self.start_offset = offset
            if self.epochs.cut_start(offset):
                self.saved.epochs_changed = True

    def drop_segments(self, count: int) -> list[str]:
        """Take the oldest segments out of the log; returns the paths whose files may go.

        Open reads are not disturbed: they hold the file, and a file without a name stays readable.
        """
        gone, self._segments = self._segments[:count], self._segments[count:]
        assert self._segments, "the active segment always stays"
        self._bases = [segment.base_offset for segment in self._segments]
        self.raise_start(self._bases[0])
        self._forget_segments(gone)
        return [
            segment.path(suffix)
            for segment in gone
            for suffix in (".log", ".index", ".timeindex", ".txnindex")
        ] + self.files.forget_snapshots(below=self._bases[0])

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Put compacted segments in the place of those they were made from."""
        at = self._segments.index(old[0])
        assert self._segments[at : at + len(old)] == old
        assert old[-1] is not self.active
        self._segments[at : at + len(old)] = new
        self._bases = [segment.base_offset for segment in self._segments]
        self._forget_segments(old)

    def _forget_segments(self, segments: list[Segment]) -> None:
        self.unsynced.forget(segments)
        bases = {segment.base_offset for segment in segments}
        self.state.corrupt = [bad for bad in self.state.corrupt if bad.segment_base not in bases]

    # Small files

    @property
    def needs_checkpoint(self) -> bool:
        return self.saved.is_stale(self)

    def checkpoint(self, *, finished: bool = False) -> Callable[[], None]:
        """Work that saves what makes the next start quick: indexes, producers, epochs.

        The content is fixed now; the work may run in any thread. ``finished`` is for closing.
        """
        return self.saved.renew(self, finished=finished)

    def release_files(self) -> None:
        """Close what is not in use; it is opened again on demand.

        Not what is unsynced: a write-back error is reported to the files that were open.
        """
        for segment in self._segments:
            if segment not in self.unsynced:
                segment.let_go(indexes=segment.seal is not None and segment is not self.active)

    def close(self, synced: set[str] | None = None) -> None:
        """Sync, save what is derived and not saved yet, take no more appends.

        ``synced`` are directories that need no sync, for whoever closes many logs.
        """
        if self.closed:
            return
        if self.fenced is None:
            self.sync(synced)
        if self.fenced is None and self.saved.lacks_anything(self):
            self.checkpoint(finished=True)()
        self.unsynced = Unsynced(self.disk)
        self.release_files()
        self.closed = True
