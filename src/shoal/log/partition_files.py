"""The files beside the segments of one partition: written whole, from any thread, and read back.

Every ``…_writer`` fixes the content now and returns the work that writes it, so that the thread
which owns the log never waits for the disk. What can be derived from the log is written without a
sync; what cannot (``state``, ``epochs``) is durable when the work returns.

Rule: nothing here is needed to read the log. A snapshot is a shortcut: what it says is believed
only as far as the log is known to be there; everything behind is read from the batches
themselves. What is missing or stale costs a start time, and what is not worth its files is not
written at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from shoal.errors import CorruptDataError
from shoal.log.checkpoints import (
    LEADER_EPOCHS,
    SEALS,
    STATE,
    PartitionCheckpoint,
    encode_epochs,
    encode_seals,
    encode_state,
)
from shoal.log.disk import Disk, overwrite_file, remove_if_there, replace_file
from shoal.log.epochs import LeaderEpochs
from shoal.log.producers import Producers
from shoal.log.segment import Segment, file_name
from shoal.log.transaction_index import IndexSize
from shoal.records.batch import BatchHeader

if TYPE_CHECKING:
    from shoal.log.partition import PartitionLog


Work = Callable[[], object]

_SNAPSHOTS_KEPT: Final = 4


class PartitionFiles:
    """Writers for the small files of a partition; knows which snapshots there are."""

    def __init__(self, disk: Disk, directory: str, snapshots: Iterable[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._snapshots = set(snapshots)

    def state_writer(self, state: PartitionCheckpoint) -> Work:
        """Saves, durably, what the log itself does not tell."""
        return self._writer(STATE, encode_state(state), sync=True)

    def epochs_writer(self, epochs: LeaderEpochs) -> Work:
        """Durably: an epoch must be known before anything is written under it."""
        return self._writer(LEADER_EPOCHS, encode_epochs(epochs.entries), sync=True)

    def seals_writer(self, segments: Iterable[Segment]) -> Work:
        """Saves how the index files must look to be believed."""
        seals = {one.base_offset: one.seal for one in segments if one.seal is not None}
        path, content = f"{self._directory}/{SEALS}", encode_seals(seals)
        # In place: a file that is half of one and half of the other fails its checksum.
        return lambda: overwrite_file(self._disk, path, content)

    def snapshot_writer(self, producers: Producers, offset: int, active: Segment) -> Work:
        """Saves the producers as they are at ``offset``, before or in the active segment."""
        if offset in self._snapshots and not producers.changed:
            return _nothing
        producers.changed = False
        self._snapshots.add(offset)
        aborted = active.aborted if offset > active.base_offset else None
        size = IndexSize(0, 0) if aborted is None else aborted.size
        content = producers.encode(offset, size)
        return self._writer(file_name(offset, ".snapshot"), content, sync=False)

    def writers(
        self, segments: Sequence[Segment], producers: Producers, end_offset: int
    ) -> list[Work]:
        """All that makes the next start quick, and what it replaces."""
        return [
            self.seals_writer(segments),
            self.snapshot_writer(producers, end_offset, segments[-1]),
            self.remover(self.forget_snapshots()),
        ]

    def forget_snapshots(self, *, below: int | None = None) -> list[str]:
        """Old snapshots, but never the newest, as paths to remove."""
        ordered = sorted(self._snapshots)
        if below is None:
            gone = ordered[:-_SNAPSHOTS_KEPT]
        else:
            gone = [offset for offset in ordered[:-1] if offset < below]
        self._snapshots.difference_update(gone)
        return [f"{self._directory}/{file_name(offset, '.snapshot')}" for offset in gone]

    def remover(self, paths: Iterable[str]) -> Work:
        def run() -> None:
            for path in paths:
                remove_if_there(self._disk, path)

        return run

    def _writer(self, name: str, content: bytes, *, sync: bool) -> Work:
        path = f"{self._directory}/{name}"
        return lambda: replace_file(self._disk, path, content, sync=sync)


def _nothing() -> None:
    pass


# A log up to this size has no index entry, and a start reads it at once.
_SHORT_BYTES: Final = 4096


class Saved:
    """How far what was saved of one partition describes it."""

    __slots__ = ("_offsets", "epochs_changed", "is_whole")

    def __init__(self, start_offset: int, end_offset: int) -> None:
        self._offsets = start_offset, end_offset
        self.epochs_changed = False
        #: Whether a start finds all indexes finished and sealed, if nothing is appended.
        self.is_whole = False

    def is_stale(self, log: PartitionLog) -> bool:
        """Whether something changed that is worth saving."""
        if self.epochs_changed:
            return True
        moved = self._offsets != (log.start_offset, log.end_offset)
        return (moved or log.producers.changed) and not _is_read_quickly(log)

    def lacks_anything(self, log: PartitionLog) -> bool:
        """Whether the next start would have to derive what is worth saving."""
        return self.is_stale(log) or not (self.is_whole or _is_read_quickly(log))

    def renew(self, log: PartitionLog, *, finished: bool) -> Callable[[], None]:
        """The work that writes it; its content is fixed now."""
        self._offsets = log.start_offset, log.end_offset
        self.is_whole = finished
        writes: list[Callable[[], object]] = [
            segment.save_indexes(finished=finished or segment is not log.active)
            for segment in log.segments
            if segment is log.active or segment.seal is None
        ]
        writes += log.files.writers(log.segments, log.producers, log.end_offset)
        if self.epochs_changed:
            writes.append(log.files.epochs_writer(log.epochs))
            self.epochs_changed = False

        def run() -> None:
            for write in writes:
                write()

        return run


def _is_read_quickly(log: PartitionLog) -> bool:
    """Whether nothing was ever saved of the log and reading it is as quick."""
    active = log.active
    is_short = active is log.segments[0] and active.size <= _SHORT_BYTES
    return is_short and active.seal is None and not log.producers.entries


def readable(segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Headers up to where the bytes stop making sense."""
    with suppress(CorruptDataError):
        yield from segment.headers(position)


def base_of(name: str, suffix: str) -> int | None:
    """The offset a file is named after, if it is one of that kind."""
    stem = name.removesuffix(suffix)
    if stem == name or len(stem) != 20 or not stem.isascii() or not stem.isdigit():
        return None
    return int(stem)
