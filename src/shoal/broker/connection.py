"""One client's socket: bytes in, frames out, replies back in the order of the requests.

Rule: a connection knows bytes and order and nothing of Kafka's messages. It owns a non-blocking
socket directly (no asyncio transport), because three things must not be left to chance:

* *Reading.* All connections share one scratch buffer; frames that arrived whole are handled in
  place, without a copy. Only an unfinished frame gets memory of its own, and that memory grows
  with the bytes received, never with the length a client announced, and only while the budget
  of all clients together has room for it.
* *Order.* Requests of one connection may finish in any order; replies leave in the order in
  which the requests came.
* *Writing.* Nothing is handed to the kernel that it does not take at once. A file range waits as
  a file range and goes out by ``sendfile``; a client that stops reading costs no memory.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

from shoal.broker.counters import Counters
from shoal.broker.outbox import FileRange, Outbox, Part, release
from shoal.errors import InvalidFrameError
from shoal.wire.frames import recognise

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from shoal.broker.timings import RequestTimings

logger = logging.getLogger("shoal.broker.connection")

_LENGTH: Final = Struct(">i")
# Frames handled before the other connections get their turn.
_FRAMES_PER_TURN: Final = 64
_TURN_SECONDS: Final = 0.005
# Replies put together before what the client does not take of them is counted.
_REPLY_BYTES_PER_TURN: Final = 1 << 20
_NOT_KAFKA: Final = "the frame is larger than allowed or not Kafka"
_STANDARD_BUFFER_BYTES: Final = (1 << 20) + (64 << 10)
_SMALL_BUFFER_BYTES: Final = 512
# An unfinished frame gets room for so many times what has arrived of it.
_GROWTH: Final = 8
# Replies that wait are counted anew when they are so many bytes more or less.
_REPLIES_COUNTED_BYTES: Final = 64 << 10
# Replies up to this size that wait for those before them are not counted.
_SMALL_REPLY_BYTES: Final = 4 << 10


class Exchange:
    """One request that waits for its reply. Also the ticket that the group coordinator keeps."""

    __slots__ = (
        "api_key",
        "api_version",
        "built_bytes",
        "client_id",
        "connection",
        "correlation_id",
        "is_stored",
        "parts",
        "size_bytes",
        "started",
        "wake",
    )

    def __init__(self, connection: ClientConnection, size_bytes: int, started: float) -> None:
        self.connection = connection
        self.size_bytes = size_bytes
        # What the reply takes while it is being made, or waits for those before it.
        self.built_bytes = 0
        self.started = started
        self.api_key = -1
        self.api_version = 0
        self.correlation_id = 0
        self.client_id: str | None = None
        # Its records are on the disk, as far as the durability demands.
        self.is_stored = False
        self.parts: Sequence[Part | FileRange] | None = None
        # A long poll puts here what ends its wait early (another request queues behind it).
        self.wake: Callable[[], None] | None = None

    def send(self, parts: Sequence[Part | FileRange]) -> None:
        """Give the encoded reply; an empty list means that no reply is due (acks=0)."""
        assert self.parts is None, "one reply per request"
        self.parts = parts
        self.wake = None
        waiting = self.connection._waiting
        if waiting and waiting[0] is not self:
            # It cannot leave yet, because one before it is not there.
            size_bytes = sum(len(part) for part in parts if isinstance(part, Part))
            if size_bytes > _SMALL_REPLY_BYTES:
                self.build(size_bytes)
        self.connection._deliver()

    def build(self, more_bytes: int) -> None:
        """Charge the budget for a part of the reply, until the reply leaves."""
        if more_bytes and self.is_open:
            self.built_bytes += more_bytes
            self.connection._host.hold_built(more_bytes)

    @property
    def is_open(self) -> bool:
        """False once the client has gone: whatever is computed now is for nobody."""
        return not self.connection.is_closed


class ConnectionHost(Protocol):
    """What a connection needs from the server it belongs to."""

    loop: AbstractEventLoop
    scratch: memoryview
    spare_buffers: list[bytearray]
    counters: Counters
    timings: RequestTimings | None
    in_flight_requests_max: int
    out_pending_max_bytes: int

    def take(self, connection: ClientConnection, size_bytes: int) -> bool: ...
    def give_back(self, size_bytes: int) -> None: ...
    def hold_built(self, change_bytes: int) -> None: ...
    def may_buffer(self, connection: ClientConnection, more_bytes: int) -> bool: ...
    def hold_frame(self, connection: ClientConnection, change_bytes: int) -> None: ...
    def hold_replies(self, change_bytes: int) -> None: ...
    def on_frame(self, connection: ClientConnection, frame: memoryview, /) -> None: ...
    def on_closed(self, connection: ClientConnection) -> None: ...
    def on_foreign_bytes(self, connection: ClientConnection, error: InvalidFrameError) -> None: ...
    def mark_dirty(self, connection: ClientConnection) -> None: ...
    def end_turn(self, connection: ClientConnection) -> None: ...


class ClientConnection:
    """A client's socket and the requests it has in flight."""

    __slots__ = (
        "__weakref__",
        "_buffer_bytes",
        "_closing",
        "_filled",
        "_frame_started",
        "_held",
        "_host",
        "_muted",
        "_out",
        "_parked",
        "_partial",
        "_pending_bytes",
        "_pending_seen",
        "_read_wants_write",
        "_reading",
        "_starves",
        "_tls",
        "_turning",
        "_waiting",
        "_writing",
        "accepted_at",
        "at_once",
        "client_software",
        "decoded",
        "fd",
        "frame_limit",
        "is_closed",
        "is_dirty",
        "last_active",
        "last_write_progress",
        "listener",
        "peer_host",
        "peer_port",
        "produces",
        "session",
        "sock",
    )

    def __init__(
        self,
        host: ConnectionHost,
        sock: socket.socket | ssl.SSLSocket,
        *,
        listener: object,
        peer_host: str,
        peer_port: int,
        frame_limit: int,
    ) -> None:
        self._host = host
        # Grows when the client has proved who it is.
        self.frame_limit = frame_limit
        self.sock = sock
        self.fd = sock.fileno()
        self.listener = listener
        self.peer_host = peer_host
        self.peer_port = peer_port
        self.session: object = None
        # How dispatch recognises the next produce request, and what may answer it here and now.
        self.produces: Any = None
        # What dispatch has decoded of it, by API and version, where clients repeat themselves.
        self.decoded: dict[bytes, Any] = {}
        self.at_once: Callable[[memoryview, int, int], tuple[int, list[bytes]]] | None = None
        self.client_software: tuple[str, str] = ("", "")
        self.is_closed = False
        self.accepted_at = self.last_active = self.last_write_progress = monotonic()
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._waiting: deque[Exchange] = deque()
        self._out = Outbox(sock)
        self._partial: bytearray | None = None
        self._filled = 0
        # What the budget was told: of the unfinished frame, and of replies that wait.
        self._buffer_bytes = 0
        self._pending_bytes = self._pending_seen = 0
        self._frame_started = 0.0
        self._reading = False
        self._writing = False
        self._parked = False
        # No memory for more of a frame: nothing is read until the host feeds it.
        self._starves = False
        self._held = False
        # Over its quota: nothing is read until its time is over.
        self._muted = False
        self._closing = False
        self._read_wants_write = False
        # Among those that are flushed at the end of this turn of the loop.
        self.is_dirty = False
        self._turning = False

    def __repr__(self) -> str:
        return f"<ClientConnection {self.peer_host}:{self.peer_port}>"

    # --- life -----------------------------------------------------------------------------

    def start(self) -> None:
        self.resume_reading()

    def close(self) -> None:
        """Close at once; replies not yet taken by the kernel are lost, as with any cut."""
        if self.is_closed:
            return
        self.is_closed = True
        self._pause_reading()
        self._stop_writing()
        self._out.clear()
        waiting, self._waiting = self._waiting, deque()
        for exchange in waiting:
            self._drop(exchange)
        self._partial = None
        self._charge_buffer(0)
        self._charge_replies(0)
        self.sock.close()
        self._host.on_closed(self)

    def _give_back(self, exchange: Exchange) -> None:
        if exchange.built_bytes:
            self._host.hold_built(-exchange.built_bytes)
            exchange.built_bytes = 0
        self._host.give_back(exchange.size_bytes)

    def _drop(self, exchange: Exchange) -> None:
        self._give_back(exchange)
        for part in exchange.parts or ():
            release(part)
        if exchange.wake is not None:
            exchange.wake()

    def cut(self) -> None:
        """Close because of a bug of ours: who is cut off asks again, who is forgotten waits."""
        self._host.counters.errors["not answered"] += 1
        self.close()

    def close_when_flushed(self) -> None:
        """Read no more; close as soon as everything that was asked is answered and out."""
        if self.is_closed:
            return
        self._pause_reading()
        self._closing = True
        if not self._out and not self._waiting:
            self.close()

    def refuse(self, exchange: Exchange) -> None:
        """Give no answer to this and what came after it; close behind the answers before it."""
        refused = None
        while refused is not exchange and self._waiting:
            refused = self._waiting.pop()
            self._drop(refused)
        self.close_when_flushed()

    # --- deadlines, looked at once a second by the server ------------------------------------

    def stalled_for(self, now: float) -> float:
        """Seconds since the peer last took a byte of what waits for it."""
        return now - self.last_write_progress if self._out and self._writing else 0.0

    def frame_open_for(self, now: float) -> float:
        """Seconds since the first byte of a frame that is still unfinished."""
        return now - self._frame_started if self._partial is not None and self._reading else 0.0

    def idle_for(self, now: float) -> float:
        return 0.0 if self._waiting or self._out or self._muted else now - self.last_active

    @property
    def loop(self) -> AbstractEventLoop:
        return self._host.loop

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def waits_only_for(self, api_keys: frozenset[int]) -> bool:
        """Nothing to send, and nothing in flight but requests of these APIs."""
        return not self._out and all(each.api_key in api_keys for each in self._waiting)

    # --- reading ----------------------------------------------------------------------------

    def resume_reading(self) -> None:
        if not (self._reading or self.is_closed or self._parked or self._closing):
            self._reading = True
            self._host.loop.add_reader(self.fd, self.on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._host.loop.remove_reader(self.fd)

    def on_readable(self) -> None:
        self._turning = True
        try:
            self._read_turn()
        except InvalidFrameError as error:
            self._host.on_foreign_bytes(self, error)
            self.close_when_flushed()
        except (ConnectionError, ssl.SSLError, OSError):
            self.close()
        except Exception:
            logger.exception("closed %s: a request cannot be served", self.peer_host)
            self.cut()
        self._turning = False
        if not self.is_closed:
            self._host.end_turn(self)

    def _read_turn(self) -> None:
        host = self._host
        while True:
            partial = self._partial
            try:
                if partial is None:
                    room = len(host.scratch)
                    received = self.sock.recv_into(host.scratch)
                else:
                    if self._filled == len(partial):
                        larger = self._grow(partial)
                        if larger is None:
                            self._starves = True
                            self._park(only_for_this_turn=False)
                            break
                        partial = larger
                    room = len(partial) - self._filled
                    received = self.sock.recv_into(memoryview(partial)[self._filled :])
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
                break
            except ssl.SSLWantWriteError:
                self._read_wants_write = True
                self._start_writing()
                break
            if received == 0:
                self.close()
                return
            host.counters.received_bytes += received
            self.last_active = monotonic()
            if partial is None:
                self._scan(host.scratch, received)
            else:
                self._filled += received
                self._scan_partial()
            # A TLS socket may hold decrypted bytes that no readiness event will announce.
            if self.is_closed or not self._reading or (received < room and not self._tls):
                break
            if not self._tls and self._partial is None:
                break

    def _grow(self, partial: bytearray) -> bytearray | None:
        """More room for the unfinished frame; None if there is no memory for it now."""
        filled = self._filled
        size = _buffer_size(filled, _LENGTH.unpack_from(partial)[0] if filled >= 4 else 0)
        if not self._host.may_buffer(self, size - len(partial)):
            return None
        larger = self._buffer(size)
        larger[:filled] = memoryview(partial)[:filled]
        self._partial = larger
        self._charge_buffer(len(larger))
        return larger

    def _buffer(self, size_bytes: int) -> bytearray:
        spare = self._host.spare_buffers
        if size_bytes == _STANDARD_BUFFER_BYTES and spare:
            return spare.pop()
        return bytearray(size_bytes)

    def _charge_buffer(self, size_bytes: int) -> None:
        if size_bytes != self._buffer_bytes:
            self._host.hold_frame(self, size_bytes - self._buffer_bytes)
            self._buffer_bytes = size_bytes

    def _scan_partial(self) -> None:
        partial = self._partial
        assert partial is not None
        self._partial = None
        self._scan(memoryview(partial), self._filled)
        left: bytearray | None = self._partial
        if left is None:
            self._charge_buffer(0)
        spare = self._host.spare_buffers
        is_standard = len(partial) == _STANDARD_BUFFER_BYTES
        if is_standard and left is not partial and len(spare) < 8:
            spare.append(partial)

    def _scan(self, data: memoryview, end: int) -> None:
        """Handle every whole frame in ``data[:end]`` and keep the rest."""
        host, out, waiting = self._host, self._out, self._waiting
        at_once = self.at_once
        position = frames = 0
        began = 0.0
        full = min(host.out_pending_max_bytes, out.size_bytes + _REPLY_BYTES_PER_TURN)
        while end - position >= 4:
            size = _LENGTH.unpack_from(data, position)[0]
            if not 0 < size <= self.frame_limit:
                hint = recognise(bytes(data[position : min(end, position + 16)])) or _NOT_KAFKA
                raise InvalidFrameError(f"a frame announces {size} bytes", hint=hint)
            start = position + 4
            if end - start < size:
                break
            frames += 1
            if (
                frames > _FRAMES_PER_TURN
                or self._held
                or self._muted
                or len(waiting) >= host.in_flight_requests_max
                or out.size_bytes > full
            ):
                self._park(frames > _FRAMES_PER_TURN or out.size_bytes > full)
                break
            # What is answered at once is never in flight.
            if at_once is not None and not waiting:
                position, replies = at_once(data, position, end)
                out.put(replies)
                if self.is_closed:
                    return
                if replies:
                    frames += len(replies) - 1
                    continue
                at_once = None  # different requests come next: look no further for this time
            if host.take(self, size):
                if began == 0.0:
                    began = monotonic()
                host.on_frame(self, data[start : start + size])
                if monotonic() - began > _TURN_SECONDS:
                    frames = _FRAMES_PER_TURN  # it was a long one: the others are next
            else:
                self._park(only_for_this_turn=False)
                break
            position = start + size
            if self.is_closed or self._closing:
                return
        if position < end:
            self._keep(data, position, end)

    def _keep(self, data: memoryview, position: int, end: int) -> None:
        left = end - position
        whole = data.obj
        if position == 0 and whole is not self._host.scratch.obj:
            assert isinstance(whole, bytearray)
            self._partial = whole
            return
        self._frame_started = monotonic()
        size = _buffer_size(left, _LENGTH.unpack_from(data, position)[0] if left >= 4 else 0)
        if size > left and not self._host.may_buffer(self, size - self._buffer_bytes):
            size = left  # it has arrived, and so it is kept; for more it waits
        buffer = self._buffer(size)
        buffer[:left] = data[position:end]
        self._partial = buffer
        self._filled = left
        self._charge_buffer(size)

    def _park(self, only_for_this_turn: bool) -> None:
        """Whole frames wait in ``_partial``: come back when there is room for them."""
        self._pause_reading()
        self._parked = True
        if only_for_this_turn:
            self._host.loop.call_soon(self.unpark)

    def unpark(self) -> None:
        """Go on with the frames that were left, if what stopped them is over."""
        if self.is_closed or self._closing or not self._parked:
            return
        if (
            self._held
            or self._muted
            or self._starves
            or len(self._waiting) >= self._host.in_flight_requests_max
            or self._out.size_bytes > self._host.out_pending_max_bytes
        ):
            return
        self._parked = False
        # While it was not read from, it could not go on with its frame.
        self._frame_started = monotonic()
        self.resume_reading()
        try:
            if self._partial is not None:
                self._scan_partial()
        except InvalidFrameError as error:
            self._host.on_foreign_bytes(self, error)
            self.close_when_flushed()
        except Exception:
            logger.exception("closed %s: a request cannot be served", self.peer_host)
            self.cut()
        if isinstance(self.sock, ssl.SSLSocket) and self._reading and self.sock.pending():
            self._host.loop.call_soon(self._read_on)  # no event announces what is decrypted
        if self._out and not self._writing:
            self.flush()

    def feed(self) -> None:
        """Memory was given back: try again what there was none for."""
        self._starves = False
        self.unpark()

    def _read_on(self) -> None:
        if self._reading:
            self.on_readable()

    def hold(self) -> None:
        """Begin no further request: one of this client goes on later, and it comes first."""
        self._held = True

    def release(self) -> None:
        self._held = False
        if self._parked:
            self._host.loop.call_soon(self.unpark)

    def mute(self, seconds: float) -> None:
        """Read nothing for so long; what was asked before is still answered."""
        if self.is_closed or self._muted:
            return
        self._muted = True
        self._park(only_for_this_turn=False)
        self._host.loop.call_later(seconds, self._unmute)

    def _unmute(self) -> None:
        self._muted = False
        if not self.is_closed:
            self.last_active = monotonic()
            self.unpark()

    # --- replies ------------------------------------------------------------------------------

    def expect(self, exchange: Exchange) -> None:
        """Queue a request; whoever waits for data in front of it waits no longer."""
        waiting = self._waiting
        if waiting:
            head = waiting[0]
            if head.wake is not None and exchange.api_key != head.api_key:
                head.wake()
        waiting.append(exchange)

    def _deliver(self) -> None:
        if self.is_closed:
            return
        waiting, timings = self._waiting, self._host.timings
        moved = False
        while waiting and (parts := waiting[0].parts) is not None:
            exchange = waiting.popleft()
            self._give_back(exchange)
            if timings is not None:
                timings.answered(exchange)
            if parts:
                self._out.put(parts)
                moved = True
        # Within its own turn a connection flushes at the end of it anyway.
        if not self.is_dirty and not self._turning and (moved or self._parked or self._closing):
            self._host.mark_dirty(self)

    def after_batch(self) -> None:
        """After a turn in which replies may have come: send them, and go on reading."""
        self.is_dirty = False
        if self.is_closed:
            return
        if self._writing:
            self._count_replies()
        elif self._out.size_bytes:
            self.flush()
        if self._parked and not self.is_closed:
            self.unpark()
        if self._closing and not (self.is_closed or self._out or self._waiting):
            self.close()

    # --- writing ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Give the kernel what it takes; ask to be called again for the rest."""
        try:
            sent, done = self._out.write()
        except (ConnectionError, ssl.SSLError, OSError):
            self.close()
            return
        if sent:
            self.last_write_progress = self.last_active = monotonic()
            self._host.counters.sent_bytes += sent
        if done:
            if self._writing:
                self._stop_writing()
            if self._pending_seen:
                self._charge_replies(0)
            if self._read_wants_write:
                self._read_wants_write = False
                self.on_readable()
            elif self._closing and not self._waiting:
                self.close()
            elif self._parked and not self.is_dirty:
                self.unpark()
        else:
            self._start_writing()
            self._count_replies()

    def _count_replies(self) -> None:
        """Tell the budget what waits for a client that does not take it."""
        if abs(self._out.size_bytes - self._pending_seen) > _REPLIES_COUNTED_BYTES:
            self._charge_replies(self._out.memory_bytes)

    def _charge_replies(self, size_bytes: int) -> None:
        self._pending_seen = self._out.size_bytes
        if size_bytes != self._pending_bytes:
            self._host.hold_replies(size_bytes - self._pending_bytes)
            self._pending_bytes = size_bytes

    def _start_writing(self) -> None:
        if not self._writing and not self.is_closed:
            self._writing = True
            self.last_write_progress = monotonic()
            self._host.loop.add_writer(self.fd, self.flush)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._host.loop.remove_writer(self.fd)


def _buffer_size(arrived: int, announced: int) -> int:
    """For a frame of which so many bytes are there; of ``announced`` 0 nothing is known yet."""
    wanted = max(4 + announced, _SMALL_BUFFER_BYTES)
    size = max(arrived, min(wanted, _GROWTH * arrived))
    # Most large frames are below a mebibyte: they take turns with a few buffers.
    if 64 << 10 < size <= _STANDARD_BUFFER_BYTES and arrived < wanted <= _GROWTH * arrived:
        return _STANDARD_BUFFER_BYTES
    return max(size, _SMALL_BUFFER_BYTES)
