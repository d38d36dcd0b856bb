"""The audit log: who was refused, and what administrators changed. One JSON object per line.

Rule: it names peers, users, reasons and resources, never a password, a token or a payload; and
an attacker cannot fill the disk with it: lines per second and bytes per file are limited.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from time import gmtime, monotonic, strftime, time
from typing import Any, Final, TextIO

logger = logging.getLogger("shoal.audit")

FILE_NAME: Final = "audit.log"
_LINES_PER_SECOND: Final = 100
_FILE_MAX_BYTES: Final = 10 << 20
_TEXT_MAX: Final = 200


class Audit:
    """Writes events to ``audit.log`` in the data directory and to the logger ``shoal.audit``."""

    def __init__(self, directory: Path | None) -> None:
        self._path = directory / FILE_NAME if directory is not None else None
        self._file: TextIO | None = None
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def __call__(self, event: str, **fields: object) -> None:
        second = int(monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
            if self._suppressed:
                suppressed, self._suppressed = self._suppressed, 0
                self._write("lines suppressed", {"count": suppressed})
        if self._lines >= _LINES_PER_SECOND:
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
