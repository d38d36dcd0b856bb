"""One partition: segments in order, what may be appended, what may be seen.

Rule: every method is quick and synchronous; it touches the page cache, never waits for the disk.
Making data durable is separate work: ``begin_sync`` says what has to be synced, any thread may run
it, ``finish_sync`` takes the result. Under a durability that waits, the high watermark moves only
there, so nobody reads what a power cut could take back. The last stable offset follows it, up to
the oldest transaction that is open or whose end nobody may see yet.

An outcome of the protocol is a value (``.error``); only our own bugs raise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from shoal.errors import CorruptDataError, ErrorCode
from shoal.log.checkpoints import PartitionCheckpoint
from shoal.log.config import Durability, LogConfig
from shoal.log.disk import Disk, File
from shoal.log.epochs import LeaderEpochs
from shoal.log.partition_files import PartitionFiles, Saved
from shoal.log.producers import OpenTransaction, ProducerEntry, Producers, StoredBatch
from shoal.log.reading import View, first_at, newest_ms, size_between, slice_of
from shoal.log.replaying import derive_aborted
from shoal.log.reserve import Reserve
from shoal.log.segment import INDEX_SUFFIXES, Part, Segment
from shoal.log.syncwork import SyncWork, Unsynced
from shoal.log.transaction_index import AbortedTransaction, TransactionIndex
from shoal.log.validation import (
    Checked,
    RecordErrors,
    Refusal,
    check,
    own_batch,
    recompresses,
    stores_as_sent,
    usual_batch,
)
from shoal.records.batch import BatchHeader, assign_offsets, read_header
from shoal.records.markers import EndMarker, encode_marker, read_marker
from shoal.records.vetting import Facts, quick_vetter
from shoal.types import OffsetAndTimestamp, TimestampType, TopicPartition


class Origin(Enum):
    """Who appends. Clients are checked; the broker itself may write several batches at once."""

    CLIENT = "client"
    BROKER = "broker"


# In Python 3.11 to look a member up takes longer than what is done with it.
_CLIENT: Final = Origin.CLIENT
_NONE: Final = ErrorCode.NONE


class AppendResult(NamedTuple):
    """What became of an append. Offsets are -1 after an error."""

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    append_time_ms: int | None = None
    log_start_offset: int = -1
    duplicate: bool = False
    detail: str = ""
    record_errors: RecordErrors = ()

    @property
    def end_offset(self) -> int:
        """What must be synced before this append counts as stored."""
        return self.last_offset + 1


class ReadResult(NamedTuple):
    """A run of whole batches as a slice of a file, for ``sendfile`` or ``read_bytes``.

    The result holds the file: it stays readable whatever happens to the segment.
    """

    error: ErrorCode
    high_watermark: int
    log_start_offset: int
    file: File | None = None
    position: int = 0
    size: int = 0
    next_offset: int = -1
    """Where to go on reading; -1 if nothing was read."""

    def read_bytes(self) -> bytes:
        return self.file.read_at(self.position, self.size) if self.file is not None else b""


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
        state: PartitionCheckpoint,
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
        #: Called when the high watermark moved or the log was fenced: wake who waits for data. The
        #: last stable offset moves only then, too.
        self.on_advance: Callable[[PartitionLog], None] | None = None
        #: Offsets name data: their log is synced after the others.
        self.sync_last = False
        self._reserve = reserve
        self._latest_of = quick_vetter()
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self._visible = segments[-1], segments[-1].size
        # The segments in which a transaction was aborted.
        self._aborted_in = [each.base_offset for each in segments if each.has_aborted]
        self.unsynced = Unsynced(disk)
        self.files = PartitionFiles(disk, directory, snapshots)
        self.saved = Saved(start_offset, end_offset)

    # Facts

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._stores_as_sent = stores_as_sent(config)
        self._sets_times = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
        #: Batches of clients may have to be packed anew: they are prepared in a thread.
        self.recompresses = recompresses(config)

    @property
    def segments(self) -> list[Segment]:
        return self._segments

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def leader_epoch(self) -> int:
        epochs = self.epochs.entries
        return epochs[-1][0] if epochs else 0

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided, and the decision is visible."""
        high_watermark, producers = self.high_watermark, self.producers
        if not producers.has_undecided:
            return high_watermark
        unstable = producers.first_unstable(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.start_offset)

    # Producers and their transactions

    def producer_states(self) -> list[ProducerEntry]:
        """Every producer with an id that wrote here lately, or has a transaction open."""
        return list(self.producers.entries.values())

    def open_transactions(self) -> list[OpenTransaction]:
        """What no marker has ended yet here, the oldest first."""
        return self.producers.open_transactions()

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer has written in a transaction here, in this epoch, without an end.

        If not, whoever appends for it asks the transaction coordinator first.
        """
        return self.producers.has_open(producer_id, producer_epoch)

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of what was aborted with data in these offsets.

        A reader of the batches in ``from_offset..to_offset`` needs all of them, also those whose
        marker comes later.
        """
        return [
            index.producer_and_first_offset(at)
            for index, entries in self._find_aborted(from_offset, to_offset)
            for at in entries
        ]

    def aborted_entries(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """As ``aborted_transactions``, with all that the index says of them."""
        return [
            index[at]
            for index, entries in self._find_aborted(from_offset, to_offset)
            for at in entries
        ]

    def _find_aborted(
        self, from_offset: int, to_offset: int
    ) -> Iterator[tuple[TransactionIndex, list[int]]]:
        """Segment by segment, which entries of its index matter to a read."""
        if not self._aborted_in:
            return
        at = max(bisect_right(self._bases, from_offset) - 1, 0)
        for base in self._aborted_in[bisect_left(self._aborted_in, self._bases[at]) :]:
            segment = self._segments[bisect_left(self._bases, base)]
            index = segment.aborted
            if index is None:
                index = derive_aborted(self.disk, self.directory, self._segments, segment)
                segment.adopt_aborted(index)
                segment.seal = None
            entries: list[int] = []
            is_last = index.collect(from_offset, to_offset, entries)
            yield index, entries
            if is_last:
                return

    # Appending

    def append(
        self,
        data: bytes | bytearray | memoryview,
        *,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        facts: Facts | Refusal | Checked | None = None,
        transaction_version: int | None = None,
    ) -> AppendResult:
        """Put batches at the end.

        The buffer is changed in place (offsets, leader epoch, maybe the append time), unless it
        is ``bytes``, which are copied first.

        Args:
            facts: what ``validation.look_inside`` or ``prepare`` says of the batch, if it was
                asked before.
            transaction_version: the coordinator knows that this producer has a transaction in
                this partition, of this version (``transaction.version``). Without it a client's
                batch goes on with a transaction that is open here, and begins none.
        """
        if self.fenced is not None:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, self.fenced)
        assert not self.closed, "appended to a closed log"
        from_client = origin is _CLIENT
        usual: tuple[int, int, int] | None = None
        if from_client:
            if self._stores_as_sent and facts is None and not isinstance(data, bytes):
                usual = usual_batch(data, self._config, now_ms, self._latest_of)
        elif isinstance(data, bytearray) and not self._sets_times:
            usual = own_batch(data, self._config)
        if usual is not None:
            assert not isinstance(data, bytes)
            delta, latest_ms, producer_id = usual
            if producer_id < 0:
                return self._append_usual(data, delta, latest_ms, now_ms)
            checked: Checked | Refusal = Checked(data, [read_header(data)])
        else:
            checked = check(data, self._config, now_ms=now_ms, from_client=from_client, facts=facts)
        if not isinstance(checked, Checked):
            return self._refusal(*checked)
        header = checked.headers[0]
        if header.producer_id >= 0:
            verdict = None
            if from_client:
                verdict = self.producers.check(header, transaction_version=transaction_version)
            elif header.is_transactional and not header.is_control:
                verdict = self.producers.check_epoch(header)
            if isinstance(verdict, StoredBatch):
                return self._duplicate(verdict)
            if verdict is not None:
                return self._refusal(verdict)
        if usual is not None:
            result = self._append_usual(checked.data, delta, latest_ms, now_ms, header)
        else:
            result = self._append_checked(checked, now_ms)
        if result.error and from_client and header.producer_id >= 0:
            self.producers.note_refused(header)
        return result

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """End a producer's transaction here, as the transaction coordinator decided.

        Without an open transaction the marker is written all the same: it may be sent twice, and
        it shuts the producer's older epochs out.
        """
        if self.fenced is not None:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, self.fenced)
        assert not self.closed, "appended to a closed log"
        verdict = self.producers.check_marker(
            producer_id, producer_epoch, coordinator_epoch, transaction_version
        )
        if verdict is not None:
            return self._refusal(verdict)
        offset = self.end_offset
        data = encode_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
            base_offset=offset,
            leader_epoch=self.leader_epoch,
        )
        if self._sets_times:
            return self.append(data, now_ms=now_ms, origin=Origin.BROKER)
        problem = self._store([(data, offset, now_ms, offset)], now_ms)
        if problem is not None:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, problem)
        self._note_marker(read_header(data), EndMarker(commit, coordinator_epoch), offset, None)
        self._show()
        return AppendResult(_NONE, offset, offset, None, self.start_offset)

    def append_run(self, run: Sequence[bytearray | memoryview], now_ms: int) -> list[AppendResult]:
        """As ``append`` of each, sent by clients, but written in one step where that is possible.

        If that fails, none of them is stored.
        """
        if self.fenced is None and self._stores_as_sent:
            usual = [
                (data, found[0], found[1])
                for data in run
                if (found := usual_batch(data, self._config, now_ms, self._latest_of)) is not None
                and found[2] < 0
            ]
            size = sum(map(len, run))
            if len(usual) == len(run) and self.active.size + size <= self._config.segment_bytes:
                return self._append_together(usual, now_ms)
        return [self.append(data, now_ms=now_ms) for data in run]

    def _append_usual(
        self,
        data: bytearray | memoryview,
        last_offset_delta: int,
        max_timestamp_ms: int,
        now_ms: int,
        header: BatchHeader | None = None,
    ) -> AppendResult:
        """One batch that needs nothing but its place; with its header if a producer is known."""
        base_offset = self.end_offset
        last = base_offset + last_offset_delta
        assign_offsets(data, base_offset=base_offset, leader_epoch=self.leader_epoch)
        problem = self._store([(data, last, max_timestamp_ms, last)], now_ms)
        if problem is not None:
            return self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, problem)
        if header is not None:
            self.producers.note(header, last)
        self._show()
        return AppendResult(_NONE, base_offset, last, None, self.start_offset)

    def _append_together(
        self, run: Sequence[tuple[bytearray | memoryview, int, int]], now_ms: int
    ) -> list[AppendResult]:
        """Batches with the last offset delta and largest timestamp of each."""
        base_offset = self.end_offset
        epoch, start = self.leader_epoch, self.start_offset
        parts: list[Part] = []
        results = []
        for data, last_offset_delta, max_timestamp_ms in run:
            assign_offsets(data, base_offset=base_offset, leader_epoch=epoch)
            last = base_offset + last_offset_delta
            parts.append((data, last, max_timestamp_ms, last))
            results.append(AppendResult(_NONE, base_offset, last, None, start))
            base_offset = last + 1
        problem = self._store(parts, now_ms)
        if problem is not None:
            return [self._refusal(ErrorCode.KAFKA_STORAGE_ERROR, problem)] * len(run)
        self._show()
        return results

    def _append_checked(self, checked: Checked, now_ms: int) -> AppendResult:
        base_offset = offset = self.end_offset
        epoch = self.leader_epoch
        append_time_ms = None
        if self._sets_times:
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
        offset, position = base_offset, 0
        for header in headers:
            offset += header.last_offset_delta + 1
            if header.producer_id >= 0:
                if header.is_control:
                    marker = read_marker(data, position, check_crc=False)
                    if marker is not None:
                        self._note_marker(header, marker, offset - 1, append_time_ms)
                else:
                    self.producers.note(header, offset - 1, append_time_ms)
            position += header.size_bytes
        self._show()
        return AppendResult(_NONE, base_offset, offset - 1, append_time_ms, self.start_offset)

    def _note_marker(
        self, header: BatchHeader, marker: EndMarker, offset: int, append_time_ms: int | None
    ) -> None:
        aborted = self.producers.note_marker(header, marker, offset, append_time_ms)
        if aborted is not None:
            segment = self._segments[-1]
            segment.note_aborted(aborted)
            if segment.base_offset not in self._aborted_in[-1:]:
                self._aborted_in.append(segment.base_offset)

    def _store(self, parts: Sequence[Part], now_ms: int) -> str | None:
        """Write what has its offsets, and count it; or say why that cannot be.

        Readers see it when the caller has noted whose it is.
        """
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
        return None

    def _show(self) -> None:
        """Let readers see what was appended, unless the durability has them wait for a sync."""
        if not self.durability.waits:
            segment = self._segments[-1]
            self.high_watermark = self.end_offset
            self._visible = segment, segment.size
            if self.on_advance is not None:
                self.on_advance(self)

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

    def _refusal(
        self, error: ErrorCode, detail: str = "", record_errors: RecordErrors = ()
    ) -> AppendResult:
        return AppendResult(
            error,
            log_start_offset=self.start_offset,
            detail=detail,
            record_errors=record_errors,
        )

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
        self.files.snapshot_writer(self.producers, self.end_offset, old)()
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

    def size_between(self, start: int, end: int) -> int:
        """How many bytes a reader finds between two visible offsets where batches begin."""
        try:
            return size_between(self._view(), start, end)
        except (CorruptDataError, OSError):
            return self.size_bytes  # whoever reads there is told

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
        try would succeed and mean nothing: the log is fenced until it is opened again.
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
        self._forget_segments(gone)
        self.raise_start(self._bases[0])
        return [
            segment.path(suffix) for segment in gone for suffix in (".log", *INDEX_SUFFIXES)
        ] + self.files.forget_snapshots(below=self._bases[0])

    def replace_segments(self, old: list[Segment], new: list[Segment]) -> None:
        """Put compacted segments in the place of those they were made from."""
        at = self._segments.index(old[0])
        assert self._segments[at : at + len(old)] == old
        assert old[-1] is not self.active
        self._segments[at : at + len(old)] = new
        self._forget_segments(old)

    def _forget_segments(self, segments: list[Segment]) -> None:
        self._bases = [segment.base_offset for segment in self._segments]
        self._aborted_in = [each.base_offset for each in self._segments if each.has_aborted]
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
