"""One socket to one broker: requests pipelined out, answers matched in order.

Rule: a connection never retries and never reconnects. It is opened, used, and once closed it
stays closed; every request it still owes an answer fails then. ``cluster.py`` opens the next one.

Reading: small frames are cut out of a scratch buffer; a frame larger than what is left of it gets
memory of exactly its size, which the socket fills directly: of the lease the request was sent
with, or fresh. So a fetched megabyte is copied once, by the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import random
import re
import socket
import sys
from collections import deque
from collections.abc import Callable
from ssl import SSLContext, SSLError
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple

from shoal._version import __version__
from shoal.client.config import ConnectionConfig
from shoal.client.leases import Buffers, Lease
from shoal.client.security import exchange_for
from shoal.client.tallies import Traffic
from shoal.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionFailedError,
    ErrorCode,
    InvalidFrameError,
    RequestTimeoutError,
    ShoalError,
    error_for,
)
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.apis.sasl_authenticate import SaslAuthenticateRequest
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.frames import decode_correlation_id, decode_response, encode_request, recognise
from shoal.wire.schema import Request, ResponseT

if TYPE_CHECKING:
    from shoal.client.oauth import BearerToken, TokenSource

logger = logging.getLogger(__name__)

_SCRATCH_BYTES: Final = 64 * 1024
# Larger pieces are handed to the socket one after the other: what it does not take at once is
# copied by asyncio, so little must be left over.
_PIECE_BYTES: Final = 256 * 1024
# In the middle of a large answer the socket wakes us for so much, not for every packet: a broker
# that sends in small pieces would else cost a round of the event loop for each. Much more would
# be fewer rounds still, but the sender's kernel judges the path by how steadily it is read:
# with BBR, answers of 2 MiB that were read in one piece took 5 ms instead of 1.
_WAKE_BYTES: Final = 256 * 1024


class Versioned(NamedTuple, Generic[ResponseT]):
    """A request whose content depends on the version the broker speaks."""

    api_key: int
    build: Callable[[int], Request[ResponseT]]
    up_to: int | None = None
    """The newest version this content is meant for."""


class _Pending:
    """A request waiting for its answer."""

    __slots__ = ("api_key", "correlation_id", "due", "future", "lease", "timeout_s", "version")

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.future: asyncio.Future[Any] | None = None
        self.lease: Lease | None = None
        self.timeout_s = self.due = 0.0


class BrokerConnection(asyncio.BufferedProtocol):
    """See the module. Made by ``open_connection``."""

    def __init__(
        self,
        config: ConnectionConfig,
        name: str,
        buffers: Buffers,
        tokens: TokenSource | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.name = name
        self._traffic = traffic or Traffic()
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        """Levels of the cluster's features, as of ``features_epoch`` (KIP-584)."""
        self.features_epoch = -1
        self.on_close: Callable[[], None] | None = None
        self._config = config
        self._tokens = tokens
        self._renewal: asyncio.TimerHandle | asyncio.Task[None] | None = None
        """The next time we prove who we are on this connection, or that being done (KIP-368)."""
        self._withheld: list[tuple[_Pending, list[memoryview]]] | None = None
        """Requests that come while we prove it; they follow when that is done."""
        self._loop = asyncio.get_running_loop()
        self._buffers = buffers
        self._incoming = _Frames(config.receive_message_max_bytes, self._memory)
        self._filling: Lease | None = None
        self._pending: deque[_Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None
        """Goes off when the first answer is due, or before: it is not set back when one comes."""
        self._outgoing: deque[memoryview] = deque()
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._next_id = 0
        self._is_paused = False
        self._drained: asyncio.Future[None] | None = None
        self._unanswered: asyncio.Future[None] | None = None
        """Done when no answer is due any more."""
        self._raw: Any = None
        self._wakes_at = 1
        self.last_used = self._loop.time()

    # --- requests ---

    @property
    def is_open(self) -> bool:
        return self._error is None and self._transport is not None

    @property
    def in_flight(self) -> int:
        return len(self._pending) + len(self._withheld or ())

    def version_of(self, api_key: int, *, up_to: int | None = None) -> int:
        """The newest version both sides speak.

        Raises:
            BrokerError: UNSUPPORTED_VERSION, there is none.
        """
        spec = API[api_key]
        least, most = self.versions.get(api_key, (0, -1))
        version = min(spec.max_version, most, spec.max_version if up_to is None else up_to)
        if version < max(spec.min_version, least):
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{self.name} offers {spec.name} {least}-{most}, we speak "
                f"{spec.min_version}-{spec.max_version}",
            )
        return version

    def send(
        self,
        request: Request[ResponseT] | Versioned[ResponseT],
        *,
        timeout_s: float | None = None,
        version: int | None = None,
        lease: Lease | None = None,
    ) -> asyncio.Future[ResponseT]:
        """Write a request now; the future holds the decoded answer.

        A large answer lies in memory of ``lease``: release it when nothing of it is looked at any
        more. Without one the answer owns its memory.

        No answer within ``timeout_s`` (``request_timeout_ms`` if not given) closes the
        connection: answers come in order, so the ones behind it would be late as well.
        """
        if timeout_s is None:
            timeout_s = self._config.request_timeout_ms / 1000
        pending, parts = self._encoded(request, version)
        pending.lease = lease
        pending.future = self._loop.create_future()
        pending.timeout_s = timeout_s
        if self._withheld is None:
            self._put(pending, parts)
        else:
            self._withheld.append((pending, parts))
        return pending.future

    def lease(self) -> Lease:
        """To send a request with, if its answer may be large and will be let go of soon."""
        return self._buffers.lease()

    def send_only(self, request: Request[ResponseT] | Versioned[ResponseT]) -> None:
        """Write a request to which there is no answer (Produce with acks=0)."""
        pending, parts = self._encoded(request, None)
        if self._withheld is None:
            self._put(pending, parts)
        else:
            self._withheld.append((pending, parts))

    async def drain(self) -> None:
        """Until the socket has taken all that was written, or the connection is closed."""
        while self._error is None and (self._outgoing or self._is_paused or self._withheld):
            if self._drained is None:
                self._drained = self._loop.create_future()
            await asyncio.shield(self._drained)

    def close(self, error: Exception | None = None) -> None:
        """Close now; requests without an answer fail with ``error``."""
        if self._error is not None:
            return
        self._error = error or ConnectionFailedError(f"the connection to {self.name} was closed")
        logger.debug("%s, %d requests under way", self._error, len(self._pending))
        if self._transport is not None:
            self._transport.abort()
            self._traffic.closed.record(1, self._loop.time())
        pending, self._pending = self._pending, deque()
        if self._timer is not None:
            self._timer.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
        withheld, self._withheld = self._withheld or (), None
        for request in (*pending, *(one for one, _ in withheld)):
            if request.future is not None and not request.future.done():
                request.future.set_exception(self._error)
                # Nobody may be waiting any more (a cancelled call); that is no news.
                request.future.exception()
        self._outgoing.clear()
        self._wake_drainers()
        if self.on_close is not None:
            self.on_close()

    def _encoded(
        self, request: Request[ResponseT] | Versioned[ResponseT], version: int | None
    ) -> tuple[_Pending, list[memoryview]]:
        if self._error is not None:
            raise ConnectionFailedError(str(self._error)) from self._error
        if isinstance(request, Versioned):
            api_key = request.api_key
            version = self.version_of(api_key, up_to=request.up_to)
            message = request.build(version)
        else:
            assert request.API_KEY is not None
            api_key, message = request.API_KEY, request
            version = self.version_of(api_key) if version is None else version
        correlation_id = self._next_id
        self._next_id = (self._next_id + 1) & 0x7FFFFFFF
        client_id = self._config.client_id
        parts = encode_request(api_key, version, correlation_id, client_id, message)
        return _Pending(api_key, version, correlation_id), [memoryview(part) for part in parts]

    def _put(self, pending: _Pending, parts: list[memoryview]) -> None:
        """Hand a request to the socket, and expect its answer if there will be one."""
        self.last_used = self._loop.time()
        self._traffic.asked.record(sum(map(len, parts)), self.last_used)
        for view in parts:
            for start in range(0, len(view), _PIECE_BYTES):
                self._outgoing.append(view[start : start + _PIECE_BYTES])
        self._pump()
        if pending.future is None:
            return
        pending.due = self.last_used + pending.timeout_s
        self._pending.append(pending)
        if self._timer is None or self._timer.when() > pending.due:
            self._look_at(pending.due)

    def _pump(self) -> None:
        assert self._transport is not None
        outgoing = self._outgoing
        while outgoing and not self._is_paused:
            piece = outgoing.popleft()
            if len(piece) < 4096 and outgoing:
                small: list[memoryview] = [piece]
                while outgoing and len(outgoing[0]) < 4096 and len(small) < 64:
                    small.append(outgoing.popleft())
                self._transport.write(b"".join(small))
            else:
                self._transport.write(piece)

    def _look_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """Close if an answer is overdue, else come back when the next one is due."""
        self._timer = None
        if not self._pending:
            return
        first = min(self._pending, key=lambda pending: pending.due)
        if first.due > self._loop.time():
            self._look_at(first.due)
            return
        name, limit = API[first.api_key].name, f"{first.timeout_s:g} s"
        self.close(RequestTimeoutError(f"{self.name} did not answer {name} within {limit}"))

    # --- who we are ---

    async def authenticate(self) -> None:
        """Prove it, and again before the broker stops believing it (KIP-368).

        Raises:
            AuthenticationError: it is not believed.
        """
        token = None if self._tokens is None else await self._tokens.token()
        traffic, is_again = self._traffic, self._withheld is not None
        try:
            lifetime_ms = await self._exchange(token)
        except AuthenticationError:
            refused = traffic.refused_again if is_again else traffic.refused
            refused.record(1, self._loop.time())
            if self._tokens is not None:
                self._tokens.forget()
            raise
        proven = traffic.proven_again if is_again else traffic.proven
        proven.record(1, self._loop.time())
        if lifetime_ms > 0:
            # As Java does: at different times, or all clients would come at once.
            delay_s = lifetime_ms / 1000 * random.uniform(0.85, 0.95)
            self._renewal = self._loop.call_later(delay_s, self._start_renewal)

    async def _exchange(self, token: BearerToken | None) -> int:
        """Returns how long we are believed, in milliseconds; 0 forever."""
        handshake = await self._ask(SaslHandshakeRequest(mechanism=self._config.sasl_mechanism))
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms) or "none"
            raise error_for(handshake.error_code, f"{self.name} offers {offered}")
        exchange = exchange_for(self._config, token)
        said = next(exchange)
        while True:
            answer = await self._ask(SaslAuthenticateRequest(auth_bytes=said))
            if answer.error_code:
                raise error_for(answer.error_code, answer.error_message or "")
            try:
                said = exchange.send(bytes(answer.auth_bytes))
            except StopIteration:
                return answer.session_lifetime_ms

    def _ask(self, request: Request[ResponseT]) -> asyncio.Future[ResponseT]:
        """``send``, also while other requests are withheld."""
        pending, parts = self._encoded(request, None)
        pending.future = self._loop.create_future()
        pending.timeout_s = self._config.request_timeout_ms / 1000
        self._put(pending, parts)
        return pending.future

    def _start_renewal(self) -> None:
        self._renewal = self._loop.create_task(self._renew())

    async def _renew(self) -> None:
        """Between what was asked before and what is asked from now on.

        A request that waits at the broker (a fetch, a join) is not overtaken: its answer comes
        first, and the broker believes us until it has read the next request.
        """
        self._withheld = []
        try:
            if self._pending:
                self._unanswered = self._loop.create_future()
                await self._unanswered
            await self.authenticate()
        except (ShoalError, OSError) as error:
            logger.warning("%s: authentication could not be renewed: %s", self.name, error)
            self.close(ConnectionFailedError(f"{self.name}: not authenticated again: {error}"))
            return
        logger.debug("authenticated again at %s", self.name)
        withheld, self._withheld = self._withheld, None
        for pending, parts in withheld or ():
            self._put(pending, parts)
        if not self._outgoing and not self._is_paused:
            self._wake_drainers()

    # --- asyncio.BufferedProtocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._traffic.opened.record(1, self._loop.time())
        # Not 0: asyncio's TLS transport takes that for always being full.
        transport.set_write_buffer_limits(high=1, low=0)
        raw = transport.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Elsewhere the option does nothing for polling, and TLS has records of its own.
            if sys.platform == "linux" and transport.get_extra_info("ssl_object") is None:
                self._raw = raw

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc is not None else "the broker closed the connection"
        self.close(ConnectionFailedError(f"{self.name}: {reason}"))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._pump()
        if not self._is_paused:
            self._wake_drainers()

    def _wake_drainers(self) -> None:
        if self._drained is not None:
            self._drained.set_result(None)
            self._drained = None

    def _memory(self, size: int, ahead: int) -> memoryview:
        """For a large answer that begins, with ``ahead`` others whole before it."""
        lease = self._pending[ahead].lease if ahead < len(self._pending) else None
        if lease is None:
            return memoryview(bytearray(size))
        self._filling = lease
        return lease.fill(size)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the interface names it
        return self._incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._incoming.filled(nbytes):
                self._answer(frame)
            if self._filling is not None and not self._incoming.missing_bytes:
                self._filling.release()  # whoever asked holds it too
                self._filling = None
            self._wake_at(self._incoming.missing_bytes)
        except InvalidFrameError as error:
            reason = f"{self.name}: {error.reason}"
            if self.versions:
                # It has spoken Kafka before: a broken connection, and the next may be better.
                self.close(ConnectionFailedError(reason))
            else:
                self.close(InvalidFrameError(reason, hint=error.hint))

    def _wake_at(self, missing_bytes: int) -> None:
        """Never more than is sure to come, or the end of an answer would wait for the next."""
        wanted = max(1, min(missing_bytes, _WAKE_BYTES))
        if wanted != self._wakes_at and self._raw is not None:
            self._wakes_at = wanted
            try:
                self._raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            except OSError:
                self._raw = None  # it is being closed

    def _answer(self, frame: memoryview) -> None:
        if self._error is not None:
            return
        if not self._pending:
            raise InvalidFrameError("an answer came to no request")
        self._traffic.answers.record(len(frame) + 4, self._loop.time())
        pending = self._pending.popleft()
        assert pending.future is not None
        if decode_correlation_id(frame) != pending.correlation_id:
            self._fail(pending, InvalidFrameError("an answer came out of order"))
        try:
            _, message = decode_response(frame, pending.api_key, pending.version)
        except InvalidFrameError as error:
            self._fail(pending, error)
        if not pending.future.done():
            pending.future.set_result(message)
        if self._unanswered is not None and not self._pending:
            self._unanswered.set_result(None)
            self._unanswered = None

    def _fail(self, pending: _Pending, error: InvalidFrameError) -> None:
        self._pending.appendleft(pending)  # close() fails it together with the others
        raise error


class _Frames:
    """Length-prefixed frames out of a stream, without copying the large ones."""

    def __init__(self, max_bytes: int, memory: Callable[[int, int], memoryview]) -> None:
        """``memory(size, ahead)`` gives room for a large frame with ``ahead`` others before it."""
        self._max_bytes = max_bytes
        self._memory = memory
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0

    @property
    def missing_bytes(self) -> int:
        """What is still to come of a large frame that has begun; 0 if there is none."""
        return 0 if self._large is None else len(self._large) - self._large_filled

    def room(self) -> memoryview:
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._scratch[self._filled :]

    def filled(self, count: int) -> list[memoryview]:
        """``count`` bytes were put where ``room`` pointed to: the frames that are whole now."""
        if self._large is not None:
            self._large_filled += count
            if self._large_filled < len(self._large):
                return []
            frame, self._large = self._large, None
            return [frame]
        self._filled += count
        return self._cut()

    def _cut(self) -> list[memoryview]:
        frames: list[memoryview] = []
        position = 0
        scratch = self._scratch
        while self._filled - position >= 4:
            size = int.from_bytes(scratch[position : position + 4], "big", signed=True)
            if not 4 <= size <= self._max_bytes:
                raise InvalidFrameError(
                    f"a frame of {size} bytes (allowed: {self._max_bytes})",
                    hint=recognise(bytes(scratch[position : self._filled])),
                )
            end = position + 4 + size
            if end > self._filled:
                if 4 + size > len(scratch):
                    self._start_large(position + 4, size, len(frames))
                    return frames
                break
            frames.append(memoryview(bytes(scratch[position + 4 : end])))
            position = end
        rest = bytes(scratch[position : self._filled])
        scratch[: len(rest)] = rest
        self._filled = len(rest)
        return frames

    def _start_large(self, start: int, size: int, ahead: int) -> None:
        self._large = self._memory(size, ahead)
        self._large_filled = self._filled - start
        self._large[: self._large_filled] = self._scratch[start : self._filled]
        self._filled = 0


async def open_connection(
    host: str,
    port: int,
    config: ConnectionConfig,
    tls: SSLContext | None,
    buffers: Buffers,
    tokens: TokenSource | None = None,
    traffic: Traffic | None = None,
) -> BrokerConnection:
    """Connect, agree on versions, authenticate.

    Raises:
        ConnectionFailedError: nobody listens there, or not in time.
        AuthenticationError: the credentials, or the broker's certificate, were refused.
    """
    name = f"{host}:{port}"
    timeout_s = config.socket_connection_setup_timeout_ms / 1000
    loop = asyncio.get_running_loop()
    connection: BrokerConnection | None = None
    try:
        async with asyncio.timeout(timeout_s):
            _, connection = await loop.create_connection(
                lambda: BrokerConnection(config, name, buffers, tokens, traffic),
                host,
                port,
                ssl=tls,
                server_hostname=host if tls is not None else None,
            )
            await _agree_on_versions(connection)
            if config.uses_sasl:
                config.check_readable_secret(host)  # another broker may have named it
                await connection.authenticate()
    except SSLError as error:
        if traffic is not None:
            traffic.refused.record(1, loop.time())
        raise AuthenticationError(
            ErrorCode.SASL_AUTHENTICATION_FAILED, f"TLS with {name} failed: {error}"
        ) from error
    except TimeoutError:
        _discard(connection)
        raise ConnectionFailedError(f"{name} was not ready within {timeout_s:g} s") from None
    except (OSError, UnicodeError) as error:  # a name that no DNS can hold is a UnicodeError
        _discard(connection)
        reason = _reason(error)
        if tls is not None and isinstance(error, ConnectionError):
            reason += "; perhaps this listener does not speak TLS"
        raise ConnectionFailedError(f"cannot connect to {name}: {reason}") from error
    except BaseException:
        _discard(connection)
        raise
    logger.debug("connected to %s", name)
    return connection


def _reason(error: Exception) -> str:
    """What the system said, without the tuples of addresses that asyncio adds to it."""
    numbers = re.findall(r"\[Errno (\d+)\] Connect call failed", str(error))
    said = ", ".join(dict.fromkeys(os.strerror(int(number)) for number in numbers))
    return said or getattr(error, "strerror", None) or str(error) or type(error).__name__


def is_refusal(error: Exception | None) -> bool:
    """Whether an attempt to connect failed because nobody listens there, or there is no there."""
    cause = None if error is None else error.__cause__
    if isinstance(cause, ConnectionRefusedError | socket.gaierror):
        return True
    # A name with several addresses: asyncio puts what happened at each into one text.
    numbers = {int(number) for number in re.findall(r"\[Errno (\d+)\]", str(cause))}
    return numbers == {errno.ECONNREFUSED}


def _discard(connection: BrokerConnection | None) -> None:
    if connection is not None:
        connection.close()


async def _agree_on_versions(connection: BrokerConnection) -> None:
    version = API[ApiKey.API_VERSIONS].max_version
    request = ApiVersionsRequest(client_software_name="shoal", client_software_version=__version__)
    answer: ApiVersionsResponse = await connection.send(request, version=version)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        offered = {key.api_key: key.max_version for key in answer.api_keys}
        version = min(version, max(offered.get(ApiKey.API_VERSIONS, 0), 0))
        answer = await connection.send(request, version=version)
    if answer.error_code:
        raise error_for(answer.error_code, f"ApiVersions at {connection.name}")
    connection.versions = {
        key.api_key: (key.min_version, key.max_version) for key in answer.api_keys
    }
    connection.features = {one.name: one.max_version_level for one in answer.finalized_features}
    connection.features_epoch = answer.finalized_features_epoch
