"""What an append and a read of a partition answer: values, also when the answer is no."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from shoal.errors import ErrorCode
from shoal.log.disk import File


class Origin(Enum):
    """Who appends. Clients are checked; the broker itself may write several batches at once."""

    CLIENT = "client"
    BROKER = "broker"


class AppendResult(NamedTuple):
    """What became of an append. Offsets are -1 after an error."""

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    append_time_ms: int | None = None
    log_start_offset: int = -1
    duplicate: bool = False
    detail: str = ""

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
