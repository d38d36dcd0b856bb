"""Few large files in place of many small ones, in a recording that goes on and is being read.

A recorder writes a file per round: thousands a day. Once a day has ``FILES_MAX`` small ones, they
become one:

1. ``_merging.json`` names the old files and the new one, which nobody is to read yet;
2. the new file is written;
3. ``_merging.json`` is replaced: from now on the new file is read, and none of the old ones;
4. the old files are removed as soon as nobody reads them, and then ``_merging.json``.

Rule: whoever reads leaves out what ``hidden`` names. As that changes in one step, every record is
seen once at any moment, also if the recorder is killed in between and never started again.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from shoal.fleet import durable_files
from shoal.fleet.tables import names, schema

MERGING: Final = "_merging.json"
_READERS: Final = "_readers"
FILES_MAX: Final = 64
"""So many small files of a day become one."""
SMALL_BYTES: Final = 16 * 1024 * 1024
"""A file of this size is left as it is."""
MERGED_BYTES: Final = 4 * SMALL_BYTES
"""No more than this is merged at a time, for it is held in memory."""


class Merge(NamedTuple):
    """One merge under way. Paths are relative to the recording."""

    into: str
    replaced: tuple[str, ...]
    is_done: bool = False

    @property
    def hidden(self) -> frozenset[str]:
        return frozenset(self.replaced if self.is_done else (self.into,))


def under_way(directory: Path) -> Merge | None:
    """The merge that somebody has begun and not ended, perhaps because it was killed."""
    try:
        found = json.loads((directory / MERGING).read_bytes())
    except FileNotFoundError:
        return None
    return Merge(found["into"], tuple(found["replaced"]), found["is_done"])


def hidden(directory: Path) -> frozenset[str]:
    """Files of a recording that must not be read: what they hold is in others."""
    merge = under_way(directory)
    return frozenset() if merge is None else merge.hidden


def files(directory: Path, part: str, day: str = "*") -> list[Path]:
    """The files of a part of a recording, oldest first, hidden ones too."""
    found = (directory / part).glob(f"day={day}/**/*.parquet")
    return sorted((one for one in found if not one.name.startswith((".", "_"))), key=_age)


def _age(path: Path) -> tuple[str, int, str]:
    """Sorts oldest first; Spark writes the numbers of batches without zeros in front."""
    batch = path.parent.name.removeprefix("batch=")
    return (path.parts[-3], int(batch), path.name) if batch.isdigit() else ("", 0, str(path))


@contextmanager
def kept(directory: Path) -> Iterator[None]:
    """No file of the recording goes away within the block."""
    try:
        lock = (directory / _READERS).open("a")
    except OSError:  # a copy that nobody may write to, and nobody merges
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield


@contextmanager
def reading(directory: Path, part: str) -> Iterator[list[Path]]:
    """The files to read; none of them goes away before the end of the block."""
    with kept(directory):
        left_out = {directory / one for one in hidden(directory)}
        yield [one for one in files(directory, part) if one not in left_out]


def merge_day(directory: Path, part: str, day: str, *, last_batch: int | None = None) -> bool:
    """Merge the small files of a day if there are many; only one process may do so at a time.

    Args:
        part: ``records`` or ``ends``, which is also the name of their table.
        last_batch: leave batches after this one alone; they may be written again.
    """
    if not finish(directory):
        return False
    small = _small(files(directory, part, day), last_batch)
    if len(small) < FILES_MAX:
        return False
    into = small[-1].with_name(f"{small[-1].stem}-merged.parquet")
    paths = (str(one.relative_to(directory)) for one in small)
    merge = Merge(str(into.relative_to(directory)), tuple(paths))
    _note(directory, merge)
    durable_files.write_parquet(_together(small, part), into)
    _note(directory, merge._replace(is_done=True))
    finish(directory)
    return True


def finish(directory: Path) -> bool:
    """Clear up after the last merge, wherever it stopped; whether there is nothing left of it."""
    merge = under_way(directory)
    if merge is None:
        return True
    with (directory / _READERS).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False  # somebody reads the old files: next time
        for path in sorted(merge.hidden):
            if (directory / path).exists():
                durable_files.remove(directory / path)
        (directory / MERGING).unlink()
    return True


def _note(directory: Path, merge: Merge) -> None:
    durable_files.replace(directory / MERGING, json.dumps(merge._asdict()).encode())


def _small(found: list[Path], last_batch: int | None) -> list[Path]:
    """Those to merge, as many as fit into memory."""
    chosen: list[Path] = []
    total = 0
    for one in found:
        size = one.stat().st_size
        is_settled = last_batch is None or _age(one)[1] <= last_batch
        if size < SMALL_BYTES and is_settled and (total := total + size) <= MERGED_BYTES:
            chosen.append(one)
    return chosen


def _together(paths: list[Path], table: str) -> pa.Table:
    columns = names(table)
    parts = [pq.read_table(one, columns=columns, partitioning=None) for one in paths]
    return pa.concat_tables([one.cast(schema(table)) for one in parts])
