"""Mending a log directory that nobody uses: only what was asked for, and nothing is thrown away.

A plan is made first, from the same verdicts that ``verify`` gives; ``apply`` carries it out. Bytes
that leave a segment are kept beside it in a ``.quarantine`` file.

    torn tail        cut: what a start does by itself
    wrong index      removed: it is built again from the log
    corrupt bytes    only if asked: taken out, so that readers pass over the offsets they stood for
                     instead of being told CORRUPT_MESSAGE
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from shoal.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LOCK,
    RECOVERY_POINTS,
    SEALS,
    STATE,
    PartitionCheckpoint,
    decode_state,
    encode_state,
)
from shoal.log.disk import Disk, File, read_file, remove_if_there, replace_file, write_fully
from shoal.log.inspection import Damage, InspectionTarget, Status, Verdict, verify

_WINDOW: Final = 1 << 20
_DERIVED: Final = (".index", ".timeindex", ".txnindex", ".snapshot")


class RepairStep(NamedTuple):
    """One change of one file."""

    path: str
    action: str
    """``cut``, ``remove`` or ``take out``."""
    damages: tuple[Damage, ...]
    text: str


class RepairPlan(NamedTuple):
    """What would be done, and what would be left as it is."""

    steps: list[RepairStep]
    left: list[Verdict]


def plan(target: InspectionTarget, *, drop_corrupt: bool) -> RepairPlan:
    """What a repair would do."""
    steps, left = [], []
    for verdict in verify(target):
        if verdict.status is Status.OK:
            continue
        step = _step(verdict, drop_corrupt=drop_corrupt)
        if step is None:
            left.append(verdict)
        else:
            steps.append(step)
    return RepairPlan(steps, left)


def _step(verdict: Verdict, *, drop_corrupt: bool) -> RepairStep | None:
    path, damages = verdict.path, verdict.damages
    if verdict.status is Status.TORN:
        size = damages[0].end_position - damages[0].position
        return RepairStep(path, "cut", damages, f"cut {size} bytes at {damages[0].position}")
    if verdict.status is Status.UNSUPPORTED:
        return None
    if path.endswith(_DERIVED):
        return RepairStep(path, "remove", (), "remove, it is built again from the log")
    if damages and drop_corrupt:
        size = sum(one.end_position - one.position for one in damages)
        offsets = ", ".join(f"{one.start_offset}..{one.end_offset}" for one in damages)
        text = f"take out {size} corrupt bytes (offsets {offsets})"
        return RepairStep(path, "take out", damages, text)
    return None


def apply(disk: Disk, todo: RepairPlan) -> Iterator[str]:
    """Carry out a plan on a writable disk; yields what was done.

    Raises:
        DataDirectoryInUseError: a broker is running on the directory.
        OSError: the disk refuses; what was done so far stays done, each step whole or not at all.
    """
    lock = disk.lock(LOCK)
    try:
        # Whatever comes next, the next start reads everything.
        remove_if_there(disk, CLEAN_SHUTDOWN)
        remove_if_there(disk, RECOVERY_POINTS)
        disk.sync_directory()
        for step in todo.steps:
            if step.action == "remove":
                remove_if_there(disk, step.path)
            else:
                _take_out(disk, step)
            yield f"{step.path}: {step.text}"
    finally:
        lock.release()


def _take_out(disk: Disk, step: RepairStep) -> None:
    directory = step.path.rpartition("/")[0]
    file = disk.open(step.path)
    for damage in step.damages:
        quarantine = disk.open(f"{step.path}.{damage.position}.quarantine", create=True)
        quarantine.truncate(0)
        _copy(file, quarantine, damage.position, damage.end_position, 0)
        quarantine.sync()
    _forget(disk, directory, step)
    new = disk.open(step.path + ".tmp", create=True)
    new.truncate(0)
    position = written = 0
    bad = [(damage.position, damage.end_position) for damage in step.damages]
    for end, resume in [*bad, (file.size(), file.size())]:
        _copy(file, new, position, end, written)
        written += max(0, end - position)
        position = resume
    new.sync()
    disk.rename(step.path + ".tmp", step.path)
    disk.sync_directory(directory)


def _copy(source: File, target: File, start: int, end: int, at: int) -> None:
    for position in range(start, end, _WINDOW):
        data = source.read_at(position, min(_WINDOW, end - position))
        write_fully(target, at + position - start, data)


def _forget(disk: Disk, directory: str, step: RepairStep) -> None:
    """Positions change, so what knows positions must go first; holes are not damage any more."""
    for suffix in (".index", ".timeindex"):
        remove_if_there(disk, step.path.removesuffix(".log") + suffix)
    prefix = f"{directory}/" if directory else ""
    remove_if_there(disk, prefix + SEALS)
    state = decode_state(read_file(disk, prefix + STATE)) or PartitionCheckpoint()
    base = int(step.path.rpartition("/")[2].partition(".")[0])
    state.corrupt = [bad for bad in state.corrupt if bad.segment_base != base]
    state.cleaned_until = max(state.cleaned_until, *(one.end_offset for one in step.damages))
    replace_file(disk, prefix + STATE, encode_state(state))
