"""Listeners and the limits on who may connect, how much may be in flight, and how long.

Rule: every limit is on from the start and is checked here or in ``connection.py``, never in a
handler. What a frame *means* is ``dispatch.py``'s business, reached through one callable.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Final

from shoal.broker.config import Limits, Listener
from shoal.broker.connection import Connection
from shoal.broker.counters import Counters
from shoal.errors import InvalidFrameError, ShoalError

logger = logging.getLogger("shoal.broker.server")

_SCRATCH_BYTES: Final = 256 << 10
_TICK_SECONDS: Final = 1.0
# Replies to different clients are sent together, but none waits longer than this for others.
_GATHERING_SECONDS: Final = 0.001
# After a turn with replies to one client, so many go out at once before it is tried again.
_LONELY_TURNS: Final = 16
# Log lines about strangers per second: a port scan must not fill the disk.
_STRANGER_LINES_PER_SECOND: Final = 5


class BoundListener:
    """A listening socket with what its clients must do to be served."""

    def __init__(self, listener: Listener, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        self.config = listener
        self.sock = sock
        self.tls = tls
        self.host, self.port = sock.getsockname()[:2]

    @property
    def advertised(self) -> tuple[str, int]:
        """What Metadata tells the clients of this listener."""
        host, port = self.config.advertised or (self.config.host, 0)
        return host, port or self.port


def bind(listener: Listener, tls: ssl.SSLContext | None) -> BoundListener:
    """Open the listening socket. Raises ShoalError with advice if the address is taken."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((listener.host, listener.port))
        sock.listen(1024)
    except OSError as error:
        sock.close()
        raise ShoalError(
            f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}; "
            "choose another address with --listen, or port 0 for any free one"
        ) from error
    return BoundListener(listener, sock, tls)


class Server:
    """Accepts connections and keeps them within the limits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        counters: Counters,
        *,
        handle: Callable[[Connection, memoryview], None],
        audit: Callable[..., None],
    ) -> None:
        self.loop = loop
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.spare_buffers: list[bytearray] = []
        self.in_flight_requests_max = limits.in_flight_requests_per_connection
        self.out_pending_max_bytes = limits.out_pending_bytes_per_connection
        self.connections: set[Connection] = set()
        self.listeners: list[BoundListener] = []
        self._limits = limits
        self.counters = counters
        self._audit = audit
        self._per_address: Counter[str] = Counter()
        self._unauthenticated: set[Connection] = set()
        self._in_flight_bytes = 0
        self._starved: set[Connection] = set()
        self._dirty: list[Connection] = []
        self._dirty_since = 0.0
        self._flush_is_due = False
        self._lonely_turns = 0
        self._accept_tokens = float(limits.connections_per_second)
        self._accept_refilled = monotonic()
        self._stranger_lines = 0
        self._tick_handle: asyncio.TimerHandle | None = None
        # Bound to an attribute: called for every frame.
        self.on_frame = handle

    # --- life -----------------------------------------------------------------------------

    def start(self, listeners: list[BoundListener]) -> None:
        self.listeners = listeners
        for listener in listeners:
            self.loop.add_reader(listener.sock.fileno(), self._on_connect, listener)
        self._tick_handle = self.loop.call_later(_TICK_SECONDS, self._tick)

    def stop_accepting(self) -> None:
        for listener in self.listeners:
            if listener.sock.fileno() >= 0:
                self.loop.remove_reader(listener.sock.fileno())
                listener.sock.close()

    def stop_reading(self) -> None:
        """Take no more requests; every connection ends when what it is owed is sent."""
        for connection in list(self.connections):
            connection.close_when_flushed()

    def close(self) -> None:
        self.stop_accepting()
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        for connection in list(self.connections):
            connection.close()

    # --- accepting --------------------------------------------------------------------------

    def _on_connect(self, listener: BoundListener) -> None:
        for _ in range(64):
            try:
                sock, address = listener.sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                # Out of file descriptors: let others finish before the next attempt.
                logger.error("cannot accept a connection: %s", error.strerror)
                self.counters.refused["accept"] += 1
                self.loop.remove_reader(listener.sock.fileno())
                self.loop.call_later(0.5, self._listen_again, listener)
                return
            self._admit(listener, sock, address[0], address[1])

    def _listen_again(self, listener: BoundListener) -> None:
        if listener.sock.fileno() >= 0:
            self.loop.add_reader(listener.sock.fileno(), self._on_connect, listener)

    def _admit(self, listener: BoundListener, sock: socket.socket, host: str, port: int) -> None:
        reason = self._refusal(host)
        if reason is not None:
            self.counters.refused[reason] += 1
            self._audit("connection refused", peer=host, reason=reason)
            sock.close()
            return
        try:
            channel = _channel(listener, sock)
        except OSError:
            # Gone again before it was accepted.
            self.counters.refused["gone before it was accepted"] += 1
            sock.close()
            return
        limits = self._limits
        must_log_in = bool(listener.config.sasl)
        connection = Connection(
            self,
            channel,
            listener=listener,
            peer_host=host,
            peer_port=port,
            frame_limit=limits.frame_bytes_before_authentication
            if must_log_in
            else limits.frame_bytes,
        )
        self.connections.add(connection)
        self._per_address[host] += 1
        self.counters.connections_accepted += 1
        self.counters.connections_open += 1
        if must_log_in:
            self._unauthenticated.add(connection)
        connection.start()

    def _refusal(self, host: str) -> str | None:
        limits = self._limits
        now = monotonic()
        rate = limits.connections_per_second
        self._accept_tokens = min(
            # A burst of two seconds' worth: a consumer group that starts together is no attack.
            2.0 * rate,
            self._accept_tokens + (now - self._accept_refilled) * rate,
        )
        self._accept_refilled = now
        if len(self.connections) >= limits.connections:
            return "too many connections"
        if self._per_address[host] >= limits.connections_per_address:
            return "too many connections from one address"
        if len(self._unauthenticated) >= limits.unauthenticated_connections:
            return "too many unauthenticated connections"
        if self._accept_tokens < 1.0:
            return "too many new connections per second"
        self._accept_tokens -= 1.0
        return None

    # --- what connections ask of their host -----------------------------------------------------

    def authenticated(self, connection: Connection) -> None:
        self._unauthenticated.discard(connection)
        connection.frame_limit = self._limits.frame_bytes

    def take(self, connection: Connection, size_bytes: int) -> bool:
        """Reserve room for a request; False asks the connection to wait."""
        if (
            self._in_flight_bytes
            and self._in_flight_bytes + size_bytes > self._limits.in_flight_bytes
        ):
            self._starved.add(connection)
            return False
        self._in_flight_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self._in_flight_bytes -= size_bytes
        assert self._in_flight_bytes >= 0
        if self._starved:
            starved, self._starved = self._starved, set()
            for connection in starved:
                self.loop.call_soon(connection.unpark)

    @property
    def in_flight_bytes(self) -> int:
        return self._in_flight_bytes

    def mark_dirty(self, connection: Connection) -> None:
        if not self._dirty:
            self._dirty_since = self.loop.time()
            if not self._flush_is_due:
                self._flush_is_due = True
                self.loop.call_soon(self._flush_soon)
        connection.is_dirty = True
        self._dirty.append(connection)

    def end_turn(self, connection: Connection) -> None:
        """A connection was read from: send its replies, with those of others if there are any.

        Every reply wakes its client, and a client that serves many connections (a load balancer, a
        test) would be woken for each, to find one reply. Whoever is alone need not wait, though.
        """
        if self._lonely_turns:
            self._lonely_turns -= 1
            connection.after_batch()
            return
        if not connection.is_dirty:
            self.mark_dirty(connection)
        if self.loop.time() - self._dirty_since > _GATHERING_SECONDS:
            self._flush_dirty()

    def _flush_soon(self) -> None:
        self._flush_is_due = False
        if len(self._dirty) == 1:
            self._lonely_turns = _LONELY_TURNS
        self._flush_dirty()

    def _flush_dirty(self) -> None:
        dirty, self._dirty = self._dirty, []
        for connection in dirty:
            connection.after_batch()

    def on_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._unauthenticated.discard(connection)
        self._starved.discard(connection)
        self.counters.connections_open -= 1
        self._per_address[connection.peer_host] -= 1
        if not self._per_address[connection.peer_host]:
            del self._per_address[connection.peer_host]

    def on_foreign_bytes(self, connection: Connection, error: InvalidFrameError) -> None:
        self.counters.refused["not Kafka"] += 1
        self._audit("frame refused", peer=connection.peer_host, reason=str(error))
        if self._stranger_lines < _STRANGER_LINES_PER_SECOND:
            self._stranger_lines += 1
            logger.warning("closed %s: %s", connection.peer_host, error)

    # --- deadlines --------------------------------------------------------------------------

    def _tick(self) -> None:
        self._tick_handle = self.loop.call_later(_TICK_SECONDS, self._tick)
        self._stranger_lines = 0
        self.check_deadlines()

    def check_deadlines(self) -> None:
        now = monotonic()
        for connection in list(self.connections):
            reason = self._overdue(connection, now)
            if reason is not None:
                self.counters.refused[reason] += 1
                if reason != "idle":
                    self._audit("connection closed", peer=connection.peer_host, reason=reason)
                connection.close()

    def _overdue(self, connection: Connection, now: float) -> str | None:
        limits = self._limits
        waits_for_name = connection in self._unauthenticated
        if waits_for_name and now - connection.accepted_at > limits.authentication_seconds:
            return "authentication took too long"
        if connection.stalled_for(now) > limits.slow_reader_seconds:
            return "client does not read its replies"
        if connection.frame_open_for(now) > limits.frame_seconds:
            return "a frame was not finished in time"
        if connection.idle_for(now) > limits.idle_seconds:
            return "idle"
        return None


def _channel(listener: BoundListener, sock: socket.socket) -> socket.socket | ssl.SSLSocket:
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if listener.tls is None:
        return sock
    sock.getpeername()  # Raises for a client that is gone; below, that would leave it unclosed.
    return listener.tls.wrap_socket(
        sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=True
    )
