"""Memory for large answers and batches, used again and again.

Fresh memory costs a page fault per 4 KiB, which is more than reading into it. So what was read to
the end serves the next answer. Who may still look at a piece of memory is never guessed: it is on
*lease*, everybody who keeps a part of it holds the lease, and the last to release it gives the
memory back.

Rule: forgetting to release costs fresh memory, never wrong bytes. A way out of a call that is not
the usual one (an error, a closed connection, a loop that was left) may simply forget.
"""

from __future__ import annotations

import threading
from typing import Final

_SIZE_STEP: Final = 256 * 1024


class Buffers:
    """Memory nobody uses, up to a limit. Any thread may lease and release."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._free: list[bytearray] = []
        self._free_bytes = 0
        self._lock = threading.Lock()

    def lease(self) -> Lease:
        """For one who will need memory, if it turns out to be large."""
        return Lease(self, self._lock)

    def take(self, size: int) -> bytearray:
        """At least ``size`` bytes; what is in them is old."""
        with self._lock:
            fitting = [buffer for buffer in self._free if len(buffer) >= size]
            if fitting:
                least = min(fitting, key=len)
                self._free = [buffer for buffer in self._free if buffer is not least]
                self._free_bytes -= len(least)
                return least
        return bytearray(-(-size // _SIZE_STEP) * _SIZE_STEP)

    def give_back(self, buffer: bytearray) -> None:
        """Nobody looks at ``buffer`` any more."""
        with self._lock:
            if len(buffer) > self._limit_bytes:
                return
            self._free.append(buffer)
            self._free_bytes += len(buffer)
            while self._free_bytes > self._limit_bytes:
                self._free_bytes -= len(self._free.pop(0))


class Lease:
    """One piece of memory, and how many hold it: at first, whoever asked for the lease."""

    __slots__ = ("_buffers", "_holders", "_lock", "_memory")

    def __init__(self, buffers: Buffers, lock: threading.Lock) -> None:
        self._buffers = buffers
        self._lock = lock
        self._holders = 1
        self._memory: bytearray | None = None

    def fill(self, size: int) -> memoryview:
        """Memory of exactly ``size`` bytes, once; whoever fills it holds the lease as well."""
        assert self._memory is None, "one lease is for one answer"
        self._memory = self._buffers.take(size)
        self.hold()
        return memoryview(self._memory)[:size]

    def hold(self) -> None:
        """One more looks at the memory, and will release it."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Whoever calls this looks at the memory no more."""
        with self._lock:
            self._holders -= 1
            assert self._holders >= 0, "released more often than held"
            if self._holders:
                return
            memory, self._memory = self._memory, None
        if memory is not None:
            self._buffers.give_back(memory)


class Pieces:
    """Memory for one who fills it piece by piece: several hold parts of each, or one all of it."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._lease: Lease | None = None

    def take(self, size: int) -> memoryview:
        """The next piece, of exactly ``size`` bytes; the one before is full."""
        self.done()
        self._lease = self._buffers.lease()
        memory = self._lease.fill(size)
        self._lease.release()  # who asked for it fills it, and counts once
        return memory

    def hold(self) -> Lease:
        """The lease of the last piece, for one more who looks at a part of it."""
        assert self._lease is not None, "a piece was taken"
        self._lease.hold()
        return self._lease

    def done(self) -> None:
        """Nothing more is put into the last piece."""
        if self._lease is not None:
            self._lease.release()
            self._lease = None
