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
from typing import TYPE_CHECKING, Final

from shoal.broker.config import BrokerLimits, Listener
from shoal.broker.connection import ClientConnection
from shoal.broker.counters import Counters
from shoal.broker.memory import MemoryBudget
from shoal.errors import InvalidFrameError, ShoalError

if TYPE_CHECKING:
    from shoal.broker.timings import RequestTimings

logger = logging.getLogger("shoal.broker.server")

_SCRATCH_BYTES: Final = 256 << 10
_TICK_SECONDS: Final = 1.0
# Replies to different clients are sent together, but none waits longer than this for others.
_GATHERING_SECONDS: Final = 0.001
# After a turn with replies to one client, so many go out at once before it is tried again.
_LONELY_TURNS: Final = 16
# Log lines about strangers per second: a port scan must not fill the disk.
_STRANGER_LINES_PER_SECOND: Final = 5
# Connections over their address's quota that are kept open for a while; each is a descriptor.
_HELD_OFF_MAX: Final = 100
# While clients wait for memory, those that hold it get a tenth of their time.
_HURRY: Final = 0.1


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
        limits: BrokerLimits,
        counters: Counters,
        memory: MemoryBudget,
        *,
        handle: Callable[[ClientConnection, memoryview], None],
        audit: Callable[..., None],
        closed: Callable[[ClientConnection], None] = lambda _: None,
        charge: Callable[[str], float] = lambda _: 0.0,
    ) -> None:
        """``closed`` is told of each connection that has ended.

        ``charge`` counts a new connection of an address against its quota; it says for how many
        milliseconds that is one too many.
        """
        self.loop = loop
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.spare_buffers: list[bytearray] = []
        self.in_flight_requests_max = limits.in_flight_requests_per_connection
        self.out_pending_max_bytes = limits.out_pending_bytes_per_connection
        self.connections: set[ClientConnection] = set()
        self.listeners: list[BoundListener] = []
        self._limits = limits
        # In all, from one address, new ones per second: these may change while running.
        self.connection_limits = (
            limits.connections,
            limits.connections_per_address,
            limits.connections_per_second,
        )
        self.counters = counters
        self.timings: RequestTimings | None = None
        self._audit = audit
        self._closed = closed
        self._charge = charge
        # Connections over the quota of their address, until they are closed.
        self._held_off: set[socket.socket] = set()
        self._per_address: Counter[str] = Counter()
        # Who has not logged in, or not finished the TLS handshake; the oldest first.
        self._unauthenticated: dict[ClientConnection, None] = {}
        self.memory = memory
        # In the order in which they began to wait for memory.
        self._starved: dict[ClientConnection, None] = {}
        # Whose frame may be finished although there is no room: else nobody's ever would.
        self._favoured: ClientConnection | None = None
        self._dirty: list[ClientConnection] = []
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
        for sock in list(self._held_off):
            self._let_go(sock)
        # In an order, so that a simulation is the same each time.
        for connection in sorted(self.connections, key=lambda each: each.peer_port):
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
            self.admit(listener, sock, address[0], address[1])

    def _listen_again(self, listener: BoundListener) -> None:
        if listener.sock.fileno() >= 0:
            self.loop.add_reader(listener.sock.fileno(), self._on_connect, listener)

    def admit(
        self, listener: BoundListener, sock: socket.socket, host: str, port: int
    ) -> ClientConnection | None:
        """Somebody has connected; ``None`` if that is one too many."""
        must_log_in = bool(listener.config.sasl)
        must_prove = must_log_in or listener.tls is not None
        reason = self._refusal(host, must_prove=must_prove)
        if reason is not None:
            self.counters.refused[reason] += 1
            self._audit("connection refused", peer=host, reason=reason)
            sock.close()
            return None
        if (wait_ms := self._charge(host)) > 0:
            self._hold_off(sock, host, wait_ms)
            return None
        try:
            channel = _channel(listener, sock)
        except OSError:
            # Gone again before it was accepted.
            self.counters.refused["gone before it was accepted"] += 1
            sock.close()
            return None
        limits = self._limits
        connection = ClientConnection(
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
        if must_prove:
            self._unauthenticated[connection] = None
        connection.start()
        return connection

    def _hold_off(self, sock: socket.socket, host: str, wait_ms: float) -> None:
        """Closed when there would have been room for it, so that nobody tries again at once."""
        reason = "connection quota of the address"
        self.counters.refused[reason] += 1
        self._audit("connection refused", peer=host, reason=reason)
        if len(self._held_off) >= _HELD_OFF_MAX:
            sock.close()
            return
        self._held_off.add(sock)
        self.loop.call_later(wait_ms / 1000, self._let_go, sock)

    def _let_go(self, sock: socket.socket) -> None:
        self._held_off.discard(sock)
        sock.close()

    def _refusal(self, host: str, *, must_prove: bool) -> str | None:
        open_max, per_address_max, rate = self.connection_limits
        now = monotonic()
        self._accept_tokens = min(
            # A burst of two seconds' worth: a consumer group that starts together is no attack.
            2.0 * rate,
            self._accept_tokens + (now - self._accept_refilled) * rate,
        )
        self._accept_refilled = now
        if len(self.connections) >= open_max:
            return "too many connections"
        if self._per_address[host] >= per_address_max:
            return "too many connections from one address"
        if self._accept_tokens < 1.0:
            return "too many new connections per second"
        self._accept_tokens -= 1.0
        if must_prove and not self._has_room_for_a_stranger():
            return "too many unauthenticated connections"
        return None

    def _has_room_for_a_stranger(self) -> bool:
        """Whether one more may log in. If too many try, one gives way: of the address with the
        most of them, who has said nothing before who has, and the oldest first.
        """
        limit = self._limits.unauthenticated_connections
        if len(self._unauthenticated) >= limit:
            for connection in list(self._unauthenticated):
                self._see_handshake(connection)
        if len(self._unauthenticated) < limit:
            return True
        if not limit:
            return False
        addresses = Counter(each.peer_host for each in self._unauthenticated)
        ((busiest, _),) = addresses.most_common(1)
        theirs = [each for each in self._unauthenticated if each.peer_host == busiest]
        doomed = next((each for each in theirs if each.session is None), theirs[0])
        reason = "gave way to a newer connection"
        self.counters.refused[reason] += 1
        self._audit("connection closed", peer=doomed.peer_host, reason=reason)
        doomed.close()
        return True

    def _see_handshake(self, connection: ClientConnection) -> None:
        """Without SASL, whoever has finished the TLS handshake need not prove any more."""
        listener, sock = connection.listener, connection.sock
        assert isinstance(listener, BoundListener)
        if not listener.config.sasl and isinstance(sock, ssl.SSLSocket) and sock.version():
            self.authenticated(connection)

    # --- what connections ask of their host -----------------------------------------------------

    def authenticated(self, connection: ClientConnection) -> None:
        self._unauthenticated.pop(connection, None)
        connection.frame_limit = self._limits.frame_bytes

    def take(self, connection: ClientConnection, size_bytes: int) -> bool:
        """Reserve room for a request; False asks the connection to wait."""
        memory = self.memory
        requests = memory.requests + size_bytes
        if memory.requests and requests + memory.others > memory.limit:
            self._starved[connection] = None
            return False
        memory.requests = requests
        return True

    def give_back(self, size_bytes: int) -> None:
        self.memory.requests -= size_bytes
        assert self.memory.requests >= 0
        if self._starved:
            self._feed()

    def hold_built(self, change_bytes: int) -> None:
        """More or less of replies that are being made, or wait for those before them."""
        self.memory.hold_built(change_bytes)
        if change_bytes < 0 and self._starved:
            self._feed()

    def may_buffer(self, connection: ClientConnection, more_bytes: int) -> bool:
        """Whether an unfinished frame may take more memory; False asks its connection to wait."""
        memory = self.memory
        if memory.frames + more_bytes <= memory.frames_max:
            return True
        if self._favoured is None:
            self._favoured = connection
        if self._favoured is connection:
            return True
        self._starved[connection] = None
        return False

    def hold_frame(self, connection: ClientConnection, change_bytes: int) -> None:
        """A connection's buffer has grown or shrunk by so much."""
        self.memory.hold_frames(change_bytes)
        if change_bytes < 0:
            if self._favoured is connection:
                self._favoured = None
            if self._starved:
                self._feed()

    def hold_replies(self, change_bytes: int) -> None:
        """More or less waits for a client that does not take it."""
        memory = self.memory
        memory.hold_replies(change_bytes)
        # With too much of it, nobody is read from who has not taken the replies there are.
        is_too_much = memory.replies > memory.replies_max
        self.out_pending_max_bytes = (
            0 if is_too_much else self._limits.out_pending_bytes_per_connection
        )

    def _feed(self) -> None:
        starved, self._starved = self._starved, {}
        for connection in starved:
            self.loop.call_soon(connection.feed)

    @property
    def in_flight_bytes(self) -> int:
        """Of requests, whole and unfinished."""
        return self.memory.requests + self.memory.frames

    def mark_dirty(self, connection: ClientConnection) -> None:
        if not self._dirty:
            self._dirty_since = self.loop.time()
            if not self._flush_is_due:
                self._flush_is_due = True
                self.loop.call_soon(self._flush_soon)
        connection.is_dirty = True
        self._dirty.append(connection)

    def end_turn(self, connection: ClientConnection) -> None:
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

    def on_closed(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        self._unauthenticated.pop(connection, None)
        self._starved.pop(connection, None)
        if self._favoured is connection:
            self._favoured = None
        self._closed(connection)
        self.counters.connections_open -= 1
        self._per_address[connection.peer_host] -= 1
        if not self._per_address[connection.peer_host]:
            del self._per_address[connection.peer_host]

    def on_foreign_bytes(self, connection: ClientConnection, error: InvalidFrameError) -> None:
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

    def _overdue(self, connection: ClientConnection, now: float) -> str | None:
        limits = self._limits
        if connection in self._unauthenticated:
            self._see_handshake(connection)
        waits_for_name = connection in self._unauthenticated
        if waits_for_name and now - connection.accepted_at > limits.authentication_seconds:
            return "authentication took too long"
        memory = self.memory
        hurry = _HURRY if memory.replies > memory.replies_max else 1.0
        if connection.stalled_for(now) > hurry * limits.slow_reader_seconds:
            return "client does not read its replies"
        hurry = _HURRY if self._starved and memory.frames > memory.frames_max // 2 else 1.0
        if connection.frame_open_for(now) > hurry * limits.frame_seconds:
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
