"""What waits to be written to one socket: bytes, and ranges of files.

Rule: nothing is handed to the kernel that it does not take at once. A range stays a range until
its turn and goes out by ``sendfile``; it is read into memory only where it is short, or where TLS
must encrypt it, and then in pieces.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

# Bytes given to the kernel before the other connections get their turn.
_BYTES_PER_TURN: Final = 8 << 20
# A short range costs less as one copy within a gathered write than as a system call of its own.
_SENDFILE_FROM_BYTES: Final = 32 << 10
_GATHERED_PARTS: Final = 512
_TLS_PIECE_BYTES: Final = 64 << 10
# What one TLS record holds.
_TLS_RECORD_BYTES: Final = 16 << 10
_CUT: Final = "a file range ended before its announced size"
_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)

Part = bytes | bytearray | memoryview
# A tuple: isinstance() with a union type costs five times as much.
_PART: Final = (bytes, bytearray, memoryview)
_NOT_NOW: Final = (
    BlockingIOError,
    InterruptedError,
    ssl.SSLWantWriteError,
    ssl.SSLWantReadError,
)


class FileRange(Protocol):
    """Bytes of a file that a reply includes without reading them."""

    @property
    def fd(self) -> int: ...
    @property
    def position(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def release(self) -> None: ...


class _Rest:
    """What remains of a file range after a partial write."""

    __slots__ = ("_whole", "fd", "position", "size_bytes")

    def __init__(self, whole: FileRange, position: int, size_bytes: int) -> None:
        self._whole = whole
        self.fd = whole.fd
        self.position = position
        self.size_bytes = size_bytes

    def release(self) -> None:
        self._whole.release()


def release(part: Part | FileRange) -> None:
    """A part is not needed any more: let go of its file."""
    if not isinstance(part, _PART):
        part.release()


def _read(part: FileRange, size_bytes: int) -> bytes:
    """The beginning of a range; all of it, or what follows would stand in the wrong place."""
    data = os.pread(part.fd, size_bytes, part.position)
    if len(data) != size_bytes:
        raise ConnectionError(_CUT)
    return data


class Outbox:
    """A queue of parts in front of one socket."""

    __slots__ = ("_parts", "_sock", "_tls", "size_bytes")

    def __init__(self, sock: socket.socket | ssl.SSLSocket) -> None:
        self._sock = sock
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._parts: deque[Part | FileRange] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def memory_bytes(self) -> int:
        """What of it is in memory; the rest is in files."""
        return sum(len(part) for part in self._parts if isinstance(part, _PART))

    def put(self, parts: Sequence[Part | FileRange]) -> None:
        for part in parts:
            self.size_bytes += len(part) if isinstance(part, _PART) else part.size_bytes
            self._parts.append(part)

    def clear(self) -> None:
        for part in self._parts:
            release(part)
        self._parts.clear()
        self.size_bytes = 0

    def write(self) -> tuple[int, bool]:
        """Give the kernel what it takes: (bytes taken, whether that was all)."""
        parts = self._parts
        if len(parts) == 1 and type(parts[0]) is bytes and not self._tls:
            # One short reply, as after most requests.
            try:
                sent = self._sock.send(parts[0])
            except _NOT_NOW:
                return 0, False
            if sent == self.size_bytes:
                parts.clear()
                self.size_bytes = 0
                return sent, True
            self._drop(sent)
            return sent, False
        turn = 0
        while parts:
            if turn > _BYTES_PER_TURN:
                return turn, False
            try:
                sent = self._send_tls() if self._tls else self._send()
            except _NOT_NOW:
                return turn, False
            self._drop(sent)
            turn += sent
        return turn, True

    def _send(self) -> int:
        head = self._parts[0]
        if isinstance(head, _PART):
            return self._sock.send(head) if len(self._parts) == 1 else self._send_gathered()
        if head.size_bytes < _SENDFILE_FROM_BYTES:
            return self._sock.send(_read(head, head.size_bytes))
        sent = os.sendfile(self._sock.fileno(), head.fd, head.position, head.size_bytes)
        if sent == 0:
            raise ConnectionError(_CUT)
        return sent

    def _send_gathered(self) -> int:
        parts: list[Part] = []
        more = False
        for part in self._parts:
            if not isinstance(part, _PART):
                if part.size_bytes >= _SENDFILE_FROM_BYTES:
                    more = True
                    break
                part = _read(part, part.size_bytes)
            parts.append(part)
            if len(parts) == _GATHERED_PARTS:
                break
        # MSG_MORE keeps a reply's head and the file range behind it in one segment.
        flags = _MSG_MORE if more else 0
        return self._sock.sendmsg(parts, (), flags)  # type: ignore[arg-type]  # TLS goes another way

    def _send_tls(self) -> int:
        head = self._parts[0]
        if not isinstance(head, _PART):
            return self._sock.send(_read(head, min(head.size_bytes, _TLS_PIECE_BYTES)))
        if len(self._parts) == 1 or len(head) >= _TLS_RECORD_BYTES // 2:
            return self._sock.send(head)
        # One TLS record for a head and what follows it.
        joined = bytearray()
        for part in self._parts:
            if not isinstance(part, _PART) or len(joined) + len(part) > _TLS_RECORD_BYTES:
                break
            joined += part
        return self._sock.send(joined or head)

    def _drop(self, sent: int) -> None:
        """Take ``sent`` bytes off the front of the queue."""
        self.size_bytes -= sent
        parts = self._parts
        while parts:
            part = parts[0]
            size = len(part) if isinstance(part, _PART) else part.size_bytes
            if sent < size:
                if sent:
                    parts[0] = (
                        memoryview(part)[sent:]
                        if isinstance(part, _PART)
                        else _Rest(part, part.position + sent, size - sent)
                    )
                return
            sent -= size
            parts.popleft()
            release(part)
