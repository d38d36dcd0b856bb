"""What a broker stands on: its files, its clock, its threads.

Rule: the broker reaches these through here and nowhere else, so that a simulation can put a disk
in memory, virtual time and workers of its own under the same broker.
"""

from __future__ import annotations

from concurrent.futures import Executor
from pathlib import Path
from time import time_ns
from typing import Final, Protocol
from uuid import uuid4

from shoal.broker.audit import Audit
from shoal.broker.journal import FILE_NAME as JOURNAL_FILE
from shoal.broker.journal import Journal
from shoal.errors import StorageError
from shoal.log.disk import Disk, OsDisk

_LOADERS: Final = 8


class Platform(Protocol):
    """One life of a broker; ``disk`` is asked for first, and once."""

    @property
    def loaders(self) -> int:
        """How many threads may recover partitions; 0 for none."""
        ...

    def disk(self) -> Disk:
        """Where the log directory is.

        Raises:
            StorageError: It cannot be used; the text says what to do.
        """
        ...

    def journal(self) -> Journal:
        """Where the broker's own decisions survive."""
        ...

    def has_journal(self) -> bool:
        """Whether this broker has decided anything there before."""
        ...

    def audit(self) -> Audit: ...

    def now_ms(self) -> int:
        """The wall clock."""
        ...

    def new_id(self) -> str:
        """Something unique, for members of groups."""
        ...

    def sync_workers(self) -> Executor | None:
        """Who syncs files; ``None`` for threads of the log's own."""
        ...


class OsPlatform:
    """This machine: files below one directory, the real time."""

    loaders = _LOADERS

    def __init__(self, path: Path) -> None:
        self._path = path

    def disk(self) -> Disk:
        try:
            self._path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise StorageError(
                f"cannot use {self._path} as a data directory: {error.strerror}; choose another"
            ) from None
        return OsDisk(str(self._path))

    def journal(self) -> Journal:
        return Journal(self._path / JOURNAL_FILE)

    def has_journal(self) -> bool:
        return (self._path / JOURNAL_FILE).exists()

    def audit(self) -> Audit:
        return Audit(self._path)

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def new_id(self) -> str:
        return str(uuid4())

    def sync_workers(self) -> Executor | None:
        return None
