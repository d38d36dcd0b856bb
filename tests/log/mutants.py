"""Planted bugs: one-line changes of the log which the suite must catch.

Each names the tests that should; ``run`` applies it to a copy of the package and runs them there. A
mutant that survives means a promise nobody checks. A bug found in use becomes a mutant first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

STATES = "tests/crash/test_states.py"
FAILURES = "tests/crash/test_failures.py"
FLIPS = "tests/crash/test_flips.py"
MODEL = "tests/log/test_model.py"
PARTITION = "tests/log/test_partition.py"
CLEANING = "tests/log/test_cleaning.py"
DIRECTORY = "tests/log/test_directory.py"
DURABILITY = "tests/log/test_durability.py"
RUNS = "tests/log/test_runs.py"


class Mutant(NamedTuple):
    """``old`` stands exactly once in ``file``; ``tests`` are pytest arguments."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # The four that cost other systems data.
    Mutant(
        "acknowledged before the sync",
        "partition.py",
        "        if not self.durability.waits:\n            self._advance",
        "        if True:\n            self._advance",
        (STATES, "-k", "appending_and_rolling"),
    ),
    Mutant(
        "directories are not synced",
        "syncwork.py",
        "                    self._disk.sync_directory(directory)\n",
        "                    pass\n",
        (STATES, "-k", "appending_and_rolling"),
    ),
    Mutant(
        "a failed sync is tried again and believed",
        "partition.py",
        '            self.fence(f"syncing {self.directory} failed: {error}")',
        "            self.unsynced.failed = False",
        (FAILURES, "-k", "L8"),
    ),
    Mutant(
        "cut at the first bad batch",
        "recovery.py",
        "        resumed = segment.find_good(position, next_offset)",
        "        resumed = None",
        (FLIPS, "-k", "L4"),
    ),
    # Recovery
    Mutant(
        "bad bytes that were synced are cut",
        "loading.py",
        "        if following is None and taken_until == end_offset:",
        "        if following is None:",
        (FLIPS, "-k", "lost_synced_tail"),
    ),
    Mutant(
        "what is cut is not kept",
        "loading.py",
        "        if not is_blank(segment.file.read_at, position, segment.size):",
        "        if False:",
        (DIRECTORY, "-k", "reported_loudly"),
    ),
    Mutant(
        "offsets may jump",
        "recovery.py",
        "header.base_offset != offset if self._dense else header.base_offset < offset",
        "header.base_offset < offset",
        (FLIPS, "-k", "2_KiB"),
    ),
    Mutant(
        "leader epochs are not checked",
        "loading.py",
        "epoch_at=self.epochs.epoch_at if self.epochs_known else None",
        "epoch_at=None",
        (FLIPS, "-k", "served_around"),
    ),
    Mutant(
        "a batch inside a record is believed",
        "recovery.py",
        "                if self._runs_to(claimed_end, start, header):",
        "                if True:",
        (FLIPS, "-k", "whole_batch_inside"),
    ),
    Mutant(
        "the leader epoch stays after an unclean start",
        "loading.py",
        "        if self.epochs.latest is None or not self.report.clean:",
        "        if self.epochs.latest is None:",
        (DIRECTORY, "-k", "unclean_starts"),
    ),
    Mutant(
        "recovered bytes are not synced",
        "loading.py",
        "        segment.file.sync()\n",
        "",
        (STATES, "-k", "restart_shows"),
    ),
    Mutant(
        "recovered bytes are synced without being written again",
        "loading.py",
        "        if self.durability is not Durability.OS:",
        "        if False:",
        (FAILURES, "-k", "L8_after"),
    ),
    Mutant(
        "a snapshot may count what is lost",
        "loading.py",
        "            limit = min(limit, max(self.known.recovery_point, segments[0].base_offset))",
        "            pass",
        (STATES, "-k", "L9"),
    ),
    Mutant(
        "snapshots of other offsets are believed",
        "producers.py",
        "magic != _TAIL_MAGIC or described != offset",
        "magic != _TAIL_MAGIC",
        (FLIPS, "-k", "lying_index"),
    ),
    Mutant(
        "indexes are believed without a checksum",
        "segment.py",
        "return data if crc32c(data) == crc else None",
        "return data",
        (FLIPS, "-k", "lying_index"),
    ),
    Mutant(
        "corrupt ranges are forgotten",
        "loading.py",
        "            log.files.state_writer(log.state)()",
        "            pass",
        (FLIPS, "-k", "served_around"),
    ),
    Mutant(
        "the state file is replaced without a sync",
        "smallfiles.py",
        "return self._writer(STATE, encode_state(state), sync=True)",
        "return self._writer(STATE, encode_state(state), sync=False)",
        (STATES, "-k", "L10_compaction"),
    ),
    Mutant(
        "the clean-stop marker stays while the log is used",
        "directory.py",
        "            self.disk.remove(CLEAN_SHUTDOWN)\n            self.disk.sync_directory()",
        "            self.disk.remove(CLEAN_SHUTDOWN)",
        (STATES, "-k", "clean_stops"),
    ),
    Mutant(
        "a new topic inherits the checkpoints of a deleted one",
        "directory.py",
        "        if topic_partition in self._on_disk:",
        "        if False:",
        (DIRECTORY, "-k", "inherits_nothing"),
    ),
    Mutant(
        "checkpoints count as written before they are",
        "directory.py",
        "            self._on_disk |= contents.partitions  # should it end half-way\n",
        "            self._on_disk = contents.partitions\n            return\n",
        (DIRECTORY, "-k", "inherits_nothing or checkpoint"),
    ),
    Mutant(
        "the directory is not locked",
        "disk.py",
        "            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            return _OsLock(fd)",
        (DIRECTORY, "-k", "L13"),
    ),
    # Appending and syncing
    Mutant(
        "more becomes visible than was synced",
        "partition.py",
        "            self._advance(work.end_offset, work.segment, work.position)",
        "            self._advance(self.end_offset, work.segment, work.segment.size)",
        (PARTITION, "-k", "L5"),
    ),
    Mutant(
        "a new segment's name is not synced",
        "partition.py",
        "        self.unsynced.add(files=index_files, directories=[self.directory])\n",
        "        self.unsynced.add(files=index_files)\n",
        (STATES, "-k", "appending_and_rolling"),
    ),
    Mutant(
        "a sync vouches for what another one took on",
        "syncwork.py",
        "            list(self._files),\n            list(self._names),\n",
        "            [self._files.pop() for _ in list(self._files)],\n"
        "            [self._names.pop() for _ in list(self._names)],\n",
        (DURABILITY, "-k", "two_syncs"),
    ),
    Mutant(
        "a sync succeeds after another one has failed",
        "syncwork.py",
        "            if self._unsynced.failed:",
        "            if False:",
        (DURABILITY, "-k", "two_syncs"),
    ),
    Mutant(
        "a short write is taken for a whole one",
        "disk.py",
        "    if taken != len(data):\n        _write_rest(file, position, data, taken)",
        "    return",
        (FAILURES, "-k", "L7"),
    ),
    Mutant(
        "a short write of several batches is taken for a whole one",
        "disk.py",
        "    if taken != size:",
        "    if False:",
        (RUNS,),
    ),
    Mutant(
        "batches written together have one entry in the index",
        "segment.py",
        "            if self._unindexed > self.index_interval_bytes:",
        "            if data is parts[0][0] and self._unindexed > self.index_interval_bytes:",
        (RUNS,),
    ),
    Mutant(
        "batches written together all get the first offset",
        "partition.py",
        "            base_offset = last + 1",
        "            pass",
        (RUNS,),
    ),
    Mutant(
        "a failed append is left in the file",
        "partition.py",
        "            segment.cut_back()\n",
        "            pass\n",
        (FAILURES, "-k", "L7"),
    ),
    Mutant(
        "a failed append that cannot be undone is ignored",
        "partition.py",
        'self.fence(f"a failed append to {segment.path()} could not be undone: {error}")',
        "del error",
        (FAILURES, "-k", "L7"),
    ),
    Mutant(
        "committed offsets are synced with the data",
        "durability.py",
        "self._run(first, lambda: self._run(last, self._finish_round))",
        "self._run(last + first, self._finish_round)",
        (STATES, "-k", "committed_offsets"),
    ),
    Mutant(
        "the reserve is not kept",
        "reserve.py",
        "        if left < size:",
        "        if False:",
        (FAILURES, "-k", "reserve"),
    ),
    Mutant(
        "duplicates are stored again",
        "producers.py",
        "                    return batch\n",
        "                    return None\n",
        (MODEL, "-m", "not long"),
    ),
    Mutant(
        "files are closed before they are synced",
        "partition.py",
        "            if segment not in self.unsynced:",
        "            if True:",
        (PARTITION, "-k", "not_closed"),
    ),
    # Reading
    Mutant(
        "readers see past the high watermark",
        "reading.py",
        "        if segment is view.last:\n            return view.end",
        "        if segment is view.last:\n            return segment.size",
        (PARTITION, "-k", "L5"),
    ),
    Mutant(
        "a read may end inside a batch",
        "segment.py",
        "            if position + _LENGTH_FROM + length > limit:\n"
        "                return position, base_offset",
        "            if position + _LENGTH_FROM + length > limit:\n"
        "                return limit, base_offset",
        (PARTITION, "-k", "L5"),
    ),
    Mutant(
        "an equal timestamp is not found",
        "walking.py",
        "        if header.base_timestamp_ms + delta_ms >= timestamp_ms:",
        "        if header.base_timestamp_ms + delta_ms > timestamp_ms:",
        (PARTITION, "-k", "L11"),
    ),
    # Retention and compaction
    Mutant(
        "retention takes what nobody has seen",
        "cleaning.py",
        "    while count and _end_of(log, count - 1) > log.high_watermark:",
        "    while False:",
        (CLEANING, "-k", "nothing_unsynced"),
    ),
    Mutant(
        "files go before the log start is durable",
        "directory.py",
        "        if self._expired and (yield from self._save_checkpoints()):",
        "        if self._expired:",
        (STATES, "-k", "L10_retention"),
    ),
    Mutant(
        "old segments are removed from under a topic made again",
        "cleaning.py",
        "            if in_place(log) is log:",
        "            if True:",
        (CLEANING, "-k", "made_again"),
    ),
    Mutant(
        "a compacted file takes its place although its sync failed",
        "jobs.py",
        "    one.check()\n",
        "",
        (FAILURES, "-k", "background"),
    ),
    Mutant(
        "the last record of a key is dropped",
        "cleaning.py",
        "            and offset >= last_offsets.get(key, offset)",
        "            and offset > last_offsets.get(key, offset - 1)",
        (CLEANING, "-k", "last_record_of_every_key"),
    ),
    Mutant(
        "tombstones go at once",
        "cleaning.py",
        "expired = horizon_ms is not None and self.now_ms > horizon_ms",
        "expired = True",
        (CLEANING, "-k", "tombstones"),
    ),
    Mutant(
        "a compacted file takes its place unsynced",
        "cleaning.py",
        "        yield from attempt(file.sync)\n",
        "",
        (STATES, "-k", "L10_compaction"),
    ),
    Mutant(
        "the old segments go before the new one has a name",
        "cleaning.py",
        "        yield from attempt(lambda: log.disk.sync_directory(log.directory))\n"
        "        for segment in group[1:]:",
        "        for segment in group[1:]:",
        (STATES, "-k", "L10_compaction"),
    ),
    Mutant(
        "the end of a compacted segment is forgotten",
        "cleaning.py",
        "            if is_last or (header.producer_id",
        "            if (header.producer_id",
        (CLEANING, "-k", "last_batch_of_a_segment"),
    ),
    Mutant(
        "a producer's last sequence is compacted away",
        "cleaning.py",
        "frozenset(entry.last_offset for entry in log.active_producers)",
        "frozenset()",
        (CLEANING, "-k", "producers_last_batch"),
    ),
    Mutant(
        "compaction reads what is not synced",
        "cleaning.py",
        "            _end_of(log, at) > limit\n",
        "            False\n",
        (CLEANING, "-k", "unsynced"),
    ),
)

#: Known from other systems' post-mortems; ``make test`` runs these four.
NOTORIOUS = MUTANTS[:4]


def run(mutant: Mutant, directory: Path) -> str | None:
    """None if the tests caught it, else what they said."""
    package = directory / "shoal"
    shutil.copytree(
        ROOT / "src" / "shoal", package, ignore=shutil.ignore_patterns("__pycache__", "static")
    )
    path = package / "log" / mutant.file
    source = path.read_text()
    assert source.count(mutant.old) == 1, f"{mutant.name}: the line to change has moved"
    path.write_text(source.replace(mutant.old, mutant.new))
    where = [
        sys.executable,
        "-c",
        "import shoal.log; print(shoal.log.__file__)",
    ]
    environment = {**os.environ, "PYTHONPATH": str(directory), "PYTHONDONTWRITEBYTECODE": "1"}
    shown = subprocess.run(where, env=environment, capture_output=True, text=True, check=True)
    assert str(directory) in shown.stdout, "the changed copy is the one that is imported"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *mutant.tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    # 1: tests failed. Anything else (0 passed, 2 interrupted, 5 nothing ran) is no catch.
    return None if done.returncode == 1 else done.stdout[-2000:] + done.stderr[-2000:]
