"""What is known of producers when a log is opened: a snapshot, and what was appended behind it.

Rule: a snapshot is a shortcut. What it says is believed only as far as the log is known to be
there; everything behind is read from the batches themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from shoal.errors import CorruptDataError
from shoal.log.disk import Disk, read_file, remove_if_there
from shoal.log.producers import Producers
from shoal.log.segment import Segment, file_name
from shoal.records.batch import BatchHeader


def load_producers(
    disk: Disk, directory: str, segments: list[Segment], end_offset: int, *, limit: int
) -> tuple[Producers, list[int]]:
    """From the newest snapshot that fits, and the batches behind it; also which ones stay.

    ``limit`` is the last offset whose snapshot can be believed; later ones are removed.
    """
    found = [
        base
        for entry in disk.list(directory)
        if (base := base_of(entry.name, ".snapshot")) is not None
    ]
    for base in found:
        if base > limit:
            remove_if_there(disk, _path(directory, base))
    kept = sorted(base for base in found if base <= limit)
    producers, at = Producers(), 0
    for base in reversed(kept):
        data = read_file(disk, _path(directory, base))
        loaded = Producers.decode(data, base) if data is not None else None
        if loaded is not None:
            producers, at = loaded, base
            break
        kept.remove(base)
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if following is not None and following <= at:
            continue
        if segment is segments[-1] and at >= end_offset:
            continue
        position = 0 if at <= segment.base_offset else segment.index.floor(at - segment.base_offset)
        for _, header in readable(segment, position):
            if header.base_offset >= at and header.producer_id >= 0:
                producers.note(header, header.last_offset)
    producers.changed = producers.changed or at != end_offset
    return producers, kept


def _path(directory: str, offset: int) -> str:
    return f"{directory}/{file_name(offset, '.snapshot')}"


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
