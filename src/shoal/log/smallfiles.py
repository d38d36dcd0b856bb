"""The files beside the segments of one partition: written whole, from any thread.

Every ``…_writer`` fixes the content now and returns the work that writes it, so that the thread
which owns the log never waits for the disk. What can be derived from the log is written without a
sync; what cannot (``state``, ``epochs``) is durable when the work returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from shoal.log.checkpoints import (
    LEADER_EPOCHS,
    SEALS,
    STATE,
    PartitionState,
    encode_epochs,
    encode_seals,
    encode_state,
)
from shoal.log.disk import Disk, overwrite_file, remove_if_there, replace_file
from shoal.log.epochs import LeaderEpochs
from shoal.log.producers import Producers
from shoal.log.segment import Segment, file_name

Work = Callable[[], object]

_SNAPSHOTS_KEPT: Final = 4


class SmallFiles:
    """Writers for the small files of a partition; knows which snapshots there are."""

    def __init__(self, disk: Disk, directory: str, snapshots: Iterable[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._snapshots = set(snapshots)

    def state_writer(self, state: PartitionState) -> Work:
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

    def snapshot_writer(self, producers: Producers, offset: int) -> Work:
        """Saves the producers as they are at ``offset``."""
        if offset in self._snapshots and not producers.changed:
            return _nothing
        producers.changed = False
        self._snapshots.add(offset)
        return self._writer(file_name(offset, ".snapshot"), producers.encode(offset), sync=False)

    def writers(
        self, segments: Iterable[Segment], producers: Producers, end_offset: int
    ) -> list[Work]:
        """All that makes the next start quick, and what it replaces."""
        return [
            self.seals_writer(segments),
            self.snapshot_writer(producers, end_offset),
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
