"""From a frame to a handler and back: versions, authentication, faults, encoding.

Rule: a handler sees a decoded request and returns a response, or ``None`` and replies later
through its ``Call``. Everything that is the same for all APIs happens here, once.

What Kafka does with what it does not know: an unknown ApiVersions version is answered in version
0 with UNSUPPORTED_VERSION (KIP-511), so that clients can fall back; any other unknown API or
version closes the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import iscoroutinefunction, isgeneratorfunction
from struct import Struct
from time import perf_counter
from types import GeneratorType, ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

from shoal.broker.connection import Connection, Exchange
from shoal.broker.handlers import SUPPORTED, Support
from shoal.broker.outbox import FileRange, Part
from shoal.broker.sasl import Session
from shoal.broker.slices import SLICE_SECONDS
from shoal.errors import ErrorCode, InvalidFrameError
from shoal.wire.frames import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from asyncio import Future

    from shoal.broker.broker import Broker

logger = logging.getLogger("shoal.broker.dispatch")

_HEAD: Final = Struct(">ii")
_FLEXIBLE_HEAD: Final = Struct(">iix")
API_VERSIONS: Final = 18
_BEFORE_AUTHENTICATION: Final = frozenset({17, 18, 36})
NO_REPLY: Final = object()
_PRODUCE: Final = 0


class Call(Exchange):
    """One request being handled: who asked, in which version, and how to answer."""

    __slots__ = ("_flexible", "is_large")

    def __init__(self, connection: Connection, size_bytes: int, started: float) -> None:
        super().__init__(connection, size_bytes, started)
        self._flexible = False
        # It took more than one slice, so its reply is encoded off the loop.
        self.is_large = False

    @property
    def session(self) -> Session:
        session = self.connection.session
        assert isinstance(session, Session)
        return session

    @property
    def client_host(self) -> str:
        """As Java prints an address: tools show it so."""
        return f"/{self.connection.peer_host}"

    def reply(self, response: Any) -> None:
        """Encode and send. For a client that has gone it does nothing."""
        if self.connection.is_closed:
            return
        self.send(_encoded(self, response, self.api_version))

    def answer(self, response: Any) -> None:
        """Reply in the way that fits how long the request took."""
        (self.reply_large if self.is_large else self.reply)(response)

    def reply_large(self, response: Any) -> None:
        """As ``reply``, for what may hold tens of thousands of elements: encoded in a thread.

        The interpreter lock goes back and forth, so the loop waits a millisecond, not for all.
        """

        def encode() -> None:
            parts = _encoded(self, response, self.api_version)
            loop.call_soon_threadsafe(self._send_if_open, parts)

        if not self.connection.is_closed:
            loop = self.connection.loop
            loop.run_in_executor(None, encode).add_done_callback(self._was_encoded)

    def _send_if_open(self, parts: list[Part | FileRange]) -> None:
        if not self.connection.is_closed:
            self.send(parts)

    def _was_encoded(self, done: Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("a reply cannot be encoded", exc_info=error)
            self.connection.close()


def _encoded(call: Call, response: Any, version: int) -> list[Part | FileRange]:
    parts: list[Part | FileRange] = response.encode_parts(version)
    size = sum(map(len, parts))  # type: ignore[arg-type]  # every part has a length
    if call._flexible:
        head = _FLEXIBLE_HEAD.pack(size + 5, call.correlation_id)
    else:
        head = _HEAD.pack(size + 4, call.correlation_id)
    first = parts[0]
    if isinstance(first, bytes) and len(first) < 4096:
        parts[0] = head + first
    else:
        parts.insert(0, head)
    return parts


class Faults(Protocol):
    """What a test wants to go wrong (``shoal.testing``)."""

    def intercept(self, call: Call, api: str, frame: memoryview) -> bool:
        """True if the request was taken over (answered, dropped, delayed)."""
        ...


class Api:
    """One API as this broker serves it: its handler's module is imported on first use."""

    __slots__ = (
        "_support",
        "flexible_from",
        "handle",
        "is_async",
        "is_sliced",
        "key",
        "module",
        "name",
        "request",
    )

    def __init__(self, key: int, support: Support) -> None:
        from shoal.wire.apis.registry import API

        module = import_module(f"shoal.broker.handlers.{support.module}")
        spec = API[key]
        self.key = key
        self.name = spec.name
        self.request: Any = spec.request
        self.flexible_from: int = 1 << 15 if spec.flexible_from is None else spec.flexible_from
        self.handle: Callable[[Broker, Call, Any], Any] = module.handle
        self.is_async = iscoroutinefunction(module.handle)
        self.is_sliced = isgeneratorfunction(module.handle)
        self.module: ModuleType = module
        self._support = support

    def serves(self, version: int) -> bool:
        return self._support.min_version <= version <= self._support.max_version

    def refuse(self, request: Any, code: ErrorCode, version: int) -> Any:
        """This API's answer that says ``code`` wherever it can say one."""
        make = getattr(self.module, "refuse", None)
        if make is not None:
            return make(request, code, version)
        from shoal.wire.apis.registry import API

        response: Any = API[self.key].response
        return response(error_code=code)


class Dispatch:
    """Takes frames from connections to handlers."""

    def __init__(self, broker: Broker, elements_max: int) -> None:
        self._broker = broker
        self._elements_max = elements_max
        self._apis: dict[int, Api] = {}
        self.faults: Faults | None = None

    def api(self, key: int) -> Api | None:
        found = self._apis.get(key)
        if found is None and (support := SUPPORTED.get(key)) is not None:
            found = self._apis[key] = Api(key, support)
        return found

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        call = Call(connection, len(frame), perf_counter())
        habit = connection.produces
        if habit is not None and habit.take(call, frame):
            return
        session = connection.session
        if session is None:
            session = connection.session = self._broker.new_session(connection)
        assert isinstance(session, Session)
        if session.raw_tokens:
            connection.expect(call)
            self._on_raw_token(call, bytes(frame))
            return
        try:
            header, body = decode_request_header(frame)
        except InvalidFrameError as error:
            self._close(call, error.reason)
            return
        call.api_key = header.api_key
        call.api_version = header.api_version
        call.correlation_id = header.correlation_id
        call.client_id = header.client_id
        connection.expect(call)
        if not session.is_authenticated and header.api_key not in _BEFORE_AUTHENTICATION:
            self._broker.audit(
                "request before authentication", peer=connection.peer_host, api=header.api_key
            )
            connection.close()
            return
        api = self.api(header.api_key)
        if api is None or not api.serves(header.api_version):
            self._on_unknown(call, header.api_key, header.api_version)
            return
        # ApiVersions replies never have a flexible header: the client cannot know yet.
        call._flexible = header.api_version >= api.flexible_from and api.key != API_VERSIONS
        if self.faults is not None and self.faults.intercept(call, api.name, body):
            return
        self.run(call, api, body)
        if api.key == _PRODUCE and not connection.is_closed:
            self._study(connection, header, frame, body)

    def _study(
        self, connection: Connection, header: RequestHeader, frame: memoryview, body: memoryview
    ) -> None:
        from shoal.broker.quick_produce import Habit

        habit = connection.produces
        if habit is None:
            habit = connection.produces = Habit(self._broker, connection)
        assert isinstance(habit, Habit)
        habit.study(header, frame, body, self._elements_max)

    def run(self, call: Call, api: Api, body: memoryview) -> None:
        """Decode, handle, reply."""
        try:
            request = api.request.decode(body, call.api_version, budget=self._elements_max)
        except InvalidFrameError as error:
            self._broker.counters.errors["undecodable"] += 1
            self._broker.audit(
                "request refused", peer=call.connection.peer_host, reason=error.reason
            )
            call.connection.close()
            return
        if api.is_async:
            call.connection.hold()
            self._broker.spawn(self._run_async(call, api, request))
            return
        if api.is_sliced:
            self._broker.counters.requests[api.name] += 1
            steps = api.handle(self._broker, call, request)
            self._run_slice(call, api, request, steps, call.started)
            return
        try:
            response = api.handle(self._broker, call, request)
        except Exception:
            logger.exception("%s v%d failed", api.name, call.api_version)
            response = self._failure(api, request, call)
        if isinstance(response, GeneratorType):
            self._run_slice(call, api, request, response, call.started)
            self._broker.counters.requests[api.name] += 1
            return
        if response is NO_REPLY:
            call.send(())
        elif response is not None:
            call.reply(response)
        self._broker.counters.request_took(api.name, perf_counter() - call.started)

    def _run_slice(
        self, call: Call, api: Api, request: Any, steps: Iterator[None], began: float
    ) -> None:
        """Let a handler go on until its slice is used up; the rest comes after the others' turn."""
        counters = self._broker.counters
        try:
            next(steps)
            while perf_counter() - began < SLICE_SECONDS:
                next(steps)
        except StopIteration as finished:
            response = finished.value
        except Exception:
            logger.exception("%s v%d failed", api.name, call.api_version)
            response = self._failure(api, request, call)
        else:
            counters.slices[api.name] += 1
            counters.loop_held(api.name, perf_counter() - began)
            call.is_large = True
            call.connection.hold()
            self._broker.loop.call_soon(self._go_on, call, api, request, steps)
            return
        call.connection.release()
        if response is NO_REPLY:
            call.send(())
        elif response is not None:
            call.answer(response)
        counters.loop_held(api.name, perf_counter() - began)

    def _go_on(self, call: Call, api: Api, request: Any, steps: Iterator[None]) -> None:
        if call.is_open:
            self._run_slice(call, api, request, steps, perf_counter())

    async def _run_async(self, call: Call, api: Api, request: Any) -> None:
        """For requests that wait for the disk; how long they take is not time on the loop."""
        try:
            response = await api.handle(self._broker, call, request)
        except OSError as error:
            logger.error("%s v%d failed: %s", api.name, call.api_version, error)
            response = self._failure(api, request, call, ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:
            logger.exception("%s v%d failed", api.name, call.api_version)
            response = self._failure(api, request, call)
        finally:
            call.connection.release()
        self._broker.counters.requests[api.name] += 1
        if response is not None:
            call.answer(response)

    def _failure(
        self,
        api: Api,
        request: Any,
        call: Call,
        code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR,
    ) -> Any:
        self._broker.counters.errors[api.name] += 1
        if call.parts is not None:
            return None
        try:
            return api.refuse(request, code, call.api_version)
        except Exception:
            logger.exception("%s cannot report its failure", api.name)
            call.connection.close()
            return None

    def _on_unknown(self, call: Call, key: int, version: int) -> None:
        self._broker.counters.errors["unknown API or version"] += 1
        if key == API_VERSIONS:
            from shoal.broker.handlers.api_versions import unsupported

            call.send(_encoded(call, unsupported(), 0))
            return
        self._broker.audit(
            "request refused",
            peer=call.connection.peer_host,
            reason=f"API {key} version {version} is not served",
        )
        call.connection.close()

    def _on_raw_token(self, call: Call, token: bytes) -> None:
        from shoal.broker.handlers.sasl_authenticate import on_raw_token

        on_raw_token(self._broker, call, token)

    def _close(self, call: Call, reason: str) -> None:
        call.connection.expect(call)
        self._broker.audit("request refused", peer=call.connection.peer_host, reason=reason)
        call.connection.close()
