"""Where the broker's own decisions survive a restart: topics, configurations, producer ids.

Rule: a decision is one JSON line with a checksum, appended and synced before it is answered;
state is whatever replaying the lines gives. A torn last line was never acknowledged and is cut.
On start the file is rewritten from the state it gave, so it does not grow forever.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from shoal.errors import CorruptDataError

FILE_NAME: Final = "catalogue.journal"
Entry = dict[str, Any]


class Journal:
    """Entries in a file, or (without a path) nowhere: an in-memory broker forgets on purpose."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._fd = -1
        self._failure = ""
        self.written = 0

    def load(self) -> list[Entry]:
        """Every whole entry. Raises CorruptDataError if a line before the last is damaged."""
        if self._path is None or not self._path.exists():
            return []
        data = self._path.read_bytes()
        entries: list[Entry] = []
        position = 0
        while position < len(data):
            end = data.find(b"\n", position)
            entry = _decode(data[position:end]) if end >= 0 else None
            if entry is None:
                if end >= 0 and data.find(b"\n", end + 1) >= 0:
                    raise CorruptDataError(
                        "a journal line fails its checksum", path=str(self._path), position=position
                    )
                break
            entries.append(entry)
            position = end + 1
        return entries

    def rewrite(self, entries: Iterable[Entry]) -> None:
        """Start over with these entries (write, sync, rename) and open for appending."""
        if self._path is None:
            return
        self._failure = f"{self._path} could not be written; make room and restart the broker"
        self.abandon()
        temporary = self._path.with_suffix(".tmp")
        with open(temporary, "wb") as file:
            file.writelines(_encode(entry) for entry in entries)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._failure = ""

    def append(self, entries: Sequence[Entry]) -> None:
        """Write entries, all of them or none. They are durable after the next ``sync``."""
        self._write(b"".join(map(_encode, entries)))
        self.written += len(entries)

    def _write(self, data: bytes) -> None:
        if self._failure:
            raise OSError(self._failure)
        if self._fd < 0:
            return
        written = os.write(self._fd, data)
        if written != len(data):
            os.ftruncate(self._fd, os.fstat(self._fd).st_size - written)
            raise OSError(f"the disk is full: {self._path}")

    def sync(self) -> None:
        """Make what was appended durable. Called off the loop."""
        if self._fd >= 0:
            os.fdatasync(self._fd)

    def abandon(self) -> None:
        """Close without a sync, as a crash would."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        if self._fd >= 0:
            os.fdatasync(self._fd)
            os.close(self._fd)
            self._fd = -1


def _encode(entry: Entry) -> bytes:
    body = json.dumps(entry, separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (crc32(body), body)


def _decode(line: bytes) -> Entry | None:
    checksum, _, body = line.partition(b" ")
    try:
        if int(checksum, 16) != crc32(body):
            return None
        entry = json.loads(body)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
