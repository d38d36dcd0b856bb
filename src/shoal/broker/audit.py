"""The audit log: who came and was refused, and what administrators changed. JSON, one per line.

Rule: it names peers, users, reasons and resources, never a password, a token or a payload; and
an attacker cannot fill the disk with it: lines per second and bytes per file are limited. Strangers
have a file and a budget of their own (``access``), so that no flood of refusals hides or pushes
out a line about what was changed.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from time import gmtime, monotonic, strftime, time
from typing import Any, Final, TextIO

logger = logging.getLogger("shoal.audit")

FILE_NAME: Final = "audit.log"
ACCESS_FILE_NAME: Final = "access.log"
_LINES_PER_SECOND: Final = 100
# Each stands for a change that was stored: there are no more than the disk takes.
_CHANGES_PER_SECOND: Final = 2_000
_FILE_MAX_BYTES: Final = 10 << 20
_TEXT_MAX: Final = 200


class Audit:
    """What was changed goes to ``audit.log``, who came to ``access.log`` in the data directory.

    Both go to the logger ``shoal.audit``, too.
    """

    def __init__(self, directory: Path | None) -> None:
        self._changes = _AuditFile(directory, FILE_NAME, _CHANGES_PER_SECOND)
        self._access = _AuditFile(directory, ACCESS_FILE_NAME, _LINES_PER_SECOND)

    def __call__(self, event: str, **fields: object) -> None:
        """Somebody with the right to do so has changed something."""
        self._changes.note(event, fields)

    def access(self, event: str, **fields: object) -> None:
        """Somebody was let in, refused or cut off."""
        self._access.note(event, fields)

    def close(self) -> None:
        self._changes.close()
        self._access.close()


class _AuditFile:
    """A file with a budget of lines per second."""

    def __init__(self, directory: Path | None, name: str, lines_per_second: int) -> None:
        self._path = directory / name if directory is not None else None
        self._file: TextIO | None = None
        self._lines_max = lines_per_second
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def note(self, event: str, fields: dict[str, object]) -> None:
        second = int(monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._suppressed:
                suppressed, self._suppressed = self._suppressed, 0
                self._write("lines suppressed", {"count": suppressed})
        if self._lines >= self._lines_max:
            self._suppressed += 1
            return
        self._lines += 1
        self._write(event, {key: _plain(value) for key, value in fields.items()})

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        now = time()
        when = f"{strftime('%Y-%m-%dT%H:%M:%S', gmtime(now))}.{int(now * 1000) % 1000:03d}Z"
        line = json.dumps({"time": when, "event": event, **fields})
        logger.info("%s", line)
        if self._path is None:
            return
        if self._file is None:
            self._file = open(self._path, "a", encoding="utf-8")  # noqa: SIM115  (kept open)
            self._path.chmod(0o600)
        self._file.write(line + "\n")
        self._file.flush()
        if self._file.tell() > _FILE_MAX_BYTES:
            self._file.close()
            self._file = None
            self._path.replace(self._path.with_suffix(".log.1"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _plain(value: object) -> object:
    """Numbers as they are, anything else as printable text of bounded length."""
    if isinstance(value, int | float | bool) or value is None:
        return value
    text = str(value)
    return text if len(text) <= _TEXT_MAX else text[:_TEXT_MAX] + "…"
