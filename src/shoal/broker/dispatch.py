"""From a frame to a handler and back: versions, authentication, faults, encoding.

Rule: a handler sees a decoded request and returns a response, or says that it replies later
through its ``Call``. Everything that is the same for all APIs happens here, once.

What Kafka does with what it does not know: an unknown ApiVersions version is answered in version
0 with UNSUPPORTED_VERSION (KIP-511), so that clients can fall back; any other unknown API or
version closes the connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from importlib import import_module
from struct import Struct
from time import perf_counter
from types import CoroutineType, GeneratorType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from shoal.access.resources import CLUSTER_NAME, Operation, ResourceType
from shoal.broker.connection import ClientConnection, Exchange
from shoal.broker.door import REFUSAL_TEXTS, REFUSALS, Door, Row
from shoal.broker.handlers import LATER, NO_REPLY, Runs, Served, served
from shoal.broker.memory import ELEMENT_BYTES
from shoal.broker.outbox import FileRange, Part
from shoal.broker.sasl import SaslSession
from shoal.broker.slices import SLICE_SECONDS
from shoal.errors import ErrorCode, InvalidFrameError
from shoal.wire.apis.registry import API, ApiKey
from shoal.wire.frames import RequestHeader, decode_request_header

if TYPE_CHECKING:
    from asyncio import Future

    from shoal.broker.broker import Broker
    from shoal.broker.catalogue import Topic
    from shoal.broker.throttling import Throttling

logger = logging.getLogger("shoal.broker.dispatch")

_HEAD: Final = Struct(">ii")
_FLEXIBLE_HEAD: Final = Struct(">iix")
_BEFORE_AUTHENTICATION: Final = frozenset(
    {ApiKey.SASL_HANDSHAKE, ApiKey.API_VERSIONS, ApiKey.SASL_AUTHENTICATE}
)
# In Python 3.11 to look a member up takes longer than to compare with it.
_API_VERSIONS: Final = int(ApiKey.API_VERSIONS)
_PRODUCE: Final = int(ApiKey.PRODUCE)
_WAITING: Final = Runs.WAITING
_IN_SLICES: Final = Runs.IN_SLICES
_AS_IT_TURNS_OUT: Final = Runs.AS_IT_TURNS_OUT
# A request begins with API and version; the correlation id follows.
_START: Final = Struct(">4si")
_KIND: Final = slice(4)
_REST: Final = slice(8, None)
_REPEATED_MAX_BYTES: Final = 512
_UNANSWERED: Final = "API %d v%d cannot be answered"


class Call(Exchange):
    """One request being handled: who asked, in which version, and how to answer."""

    __slots__ = (
        "_door",
        "_flexible",
        "_host",
        "_principal",
        "_row",
        "elements_left",
        "is_large",
        "loop_seconds",
        "mutations_wait_ms",
        "throttling",
    )

    _door: Door
    _row: Row
    _principal: str
    _host: str

    def __init__(self, connection: ClientConnection, size_bytes: int, started: float) -> None:
        super().__init__(connection, size_bytes, started)
        self._flexible = False
        # It took more than one slice, so its reply is encoded off the loop.
        self.is_large = False
        # Rows that its reply may still get.
        self.elements_left = 0
        # What it is charged for, where there are quotas (``throttling.py``).
        self.throttling: Throttling | None = None
        self.loop_seconds = 0.0
        self.mutations_wait_ms = 0.0

    # --- what it may touch (``door.py``) --------------------------------------------------------

    def enter(self, door: Door, row: Row) -> None:
        """Before anything is asked below: by the row of which API it is to be judged."""
        self._door = door
        self._row = row
        self._principal = self.session.principal
        self._host = self.connection.peer_host

    def refusal(self, request: Any) -> ErrorCode | None:
        """Why the whole request is refused, if it is."""
        return self._door.refusal(self._principal, self._host, self._row, request, self.api_version)

    def topic(self, key: str | bytes) -> Topic | ErrorCode:
        """The topic of a name or an id, or the code for its entry in the answer."""
        return self._door.topic(self._principal, self._host, self._row, key)

    def check(self, resource: ResourceType, name: str = CLUSTER_NAME) -> ErrorCode:
        """The code for the entry that names a resource: NONE if nothing is against it."""
        need = self._row.entries[resource]
        if self._door.allows(self._principal, self._host, need, name):
            return ErrorCode.NONE
        return REFUSALS[resource]

    def shows(self, resource: ResourceType, name: str) -> bool:
        """Whether a list in which nobody named the resource may hold it."""
        need = self._row.entries[resource]
        return self._door.allows(self._principal, self._host, need, name, audited=False)

    def may(
        self,
        operation: Operation,
        resource: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        audited: bool = False,
    ) -> bool:
        """Whether a detail of the answer, or what a field asks for, is for this client."""
        need = self._row.details[operation, resource]
        return self._door.allows(self._principal, self._host, need, name, audited=audited)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What this client may do with a resource, for answers that tell it."""
        return self._door.operations(self._principal, self._host, resource, name)

    # --- how much it may ask for (``memory.py``) ------------------------------------------------

    def spend(self, elements: int) -> bool:
        """Whether the reply may have so many rows more; they are charged to the budget.

        False: what was asked for is refused with ``TOO_MUCH``, and so is all that follows.
        """
        self.elements_left -= elements
        if self.elements_left < 0:
            self.elements_left = -1
            return False
        self.build(elements * ELEMENT_BYTES)
        return True

    # --- answers --------------------------------------------------------------------------------

    @property
    def session(self) -> SaslSession:
        session = self.connection.session
        assert isinstance(session, SaslSession)
        return session

    @property
    def client_host(self) -> str:
        """As Java prints an address: tools show it so."""
        return f"/{self.connection.peer_host}"

    def reply(self, response: Any) -> None:
        """Encode and send. For a client that has gone it does nothing."""
        if self.connection.is_closed:
            return
        try:
            parts = _encoded(self, response, self.api_version)
            wait_ms = 0 if self.throttling is None else self._charge(parts)
            if wait_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = wait_ms
                parts = _encoded(self, response, self.api_version)
        except Exception:
            logger.exception(_UNANSWERED, self.api_key, self.api_version)
            self.connection.cut()
        else:
            self.send(parts)

    def _charge(self, parts: Sequence[Part | FileRange]) -> int:
        """Count it against its quotas; how many milliseconds the client is not read from now."""
        if self.throttling is None:
            return 0
        size_bytes = sum(map(len, parts))  # type: ignore[arg-type]  # every part has a length
        wait_ms = self.throttling.wait_ms(self, size_bytes)
        if wait_ms:
            self.connection.mute(wait_ms / 1000)
        return wait_ms

    def no_reply(self) -> None:
        """The client expects none."""
        self._charge(())
        self.send(())

    def answered_or_cut(self) -> _AnsweredOrCut:
        """Around what answers later: if it raises, the connection ends, so that nobody waits."""
        return _AnsweredOrCut(self)

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
            self._charge(parts)
            self.send(parts)

    def _was_encoded(self, done: Future[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            logger.error("a reply cannot be encoded", exc_info=error)
            self.connection.cut()


class _AnsweredOrCut:
    """A class, for a generator takes twice as long and every transaction begins with one."""

    __slots__ = ("_call",)

    def __init__(self, call: Call) -> None:
        self._call = call

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        call = self._call
        logger.error(_UNANSWERED, call.api_key, call.api_version, exc_info=error)
        call.connection.cut()
        return True


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
        "_response",
        "flexible_from",
        "handle",
        "is_repeated",
        "key",
        "module",
        "name",
        "request",
        "row",
        "runs",
        "versions",
    )

    def __init__(self, key: int, row: Served) -> None:
        spec = API[key]
        module = import_module(f"shoal.broker.handlers.{spec.key.name.lower()}")
        self.key = key
        self.name = spec.name
        self.request: Any = spec.request
        self.flexible_from: int = 1 << 15 if spec.flexible_from is None else spec.flexible_from
        self.handle: Callable[[Broker, Call, Any], Any] = module.handle
        self.runs = row.runs
        self.is_repeated = row.is_repeated
        self.row = Row(row.needs)
        self.module: ModuleType = module
        self.versions = row.versions(key)
        self._response: Any = spec.response

    def refuse(self, request: Any, code: ErrorCode, version: int) -> Any:
        """This API's answer that says ``code`` wherever it can say one."""
        make = getattr(self.module, "refuse", None)
        if make is not None:
            return make(request, code, version)
        if code in REFUSAL_TEXTS and "error_message" in self._response.__slots__:
            return self._response(error_code=code, error_message=REFUSAL_TEXTS[code])
        return self._response(error_code=code)


class _Decoded(NamedTuple):
    """A request that a client may send again, the same behind another correlation id."""

    rest: bytes
    """All behind the correlation id."""
    header: RequestHeader
    body_from: int
    request: Any


class Dispatch:
    """Takes frames from connections to handlers."""

    def __init__(self, broker: Broker, elements_max: int) -> None:
        self._broker = broker
        self._elements_max = elements_max
        self._elements_per_reply = broker.config.limits.elements_per_reply
        self._apis: dict[int, Api] = {}
        self.faults: Faults | None = None

    def api(self, key: int) -> Api | None:
        found = self._apis.get(key)
        if found is None:
            is_two_phase = self._broker.config.transactions.two_phase_commit
            row = served(key, two_phase_commit=is_two_phase)
            if row is None or (row.needs_receiver and self._broker.metrics is None):
                return None
            found = self._apis[key] = Api(key, row)
        return found

    def on_frame(self, connection: ClientConnection, frame: memoryview) -> None:
        call = Call(connection, len(frame), perf_counter())
        habit = connection.produces
        if habit is not None and habit.take(call, frame):
            return
        session = connection.session
        if session is None:
            session = connection.session = self._broker.new_session(connection)
            if session is None:
                self._close(call, "no rule gives its certificate a name")
                return
        assert isinstance(session, SaslSession)
        is_authenticated = session.is_authenticated
        if not is_authenticated:
            session.asked += 1
            if session.asked > self._broker.config.limits.requests_before_authentication:
                connection.expect(call)
                self._refuse(call, "too many requests before authentication")
                return
        if session.raw_tokens:
            connection.expect(call)
            self._on_raw_token(call, bytes(frame))
            return
        known: _Decoded | None = None
        if connection.decoded and len(frame) >= _START.size:
            kind, call.correlation_id = _START.unpack_from(frame)
            known = connection.decoded.get(kind)
        if known is not None and known.rest == bytes(frame[_REST]):
            header, request = known.header, known.request
            body = frame[known.body_from :]
        else:
            try:
                header, body = decode_request_header(frame)
            except InvalidFrameError as error:
                self._close(call, error.reason)
                return
            request = None
            call.correlation_id = header.correlation_id
        call.api_key = header.api_key
        call.api_version = header.api_version
        call.client_id = header.client_id
        connection.expect(call)
        if session.ends_ms is not None and is_authenticated and self._has_ended(call, session):
            self._broker.counters.refused["session ended"] += 1
            self._refuse(call, "the session has ended and was not renewed")
            return
        if not is_authenticated and header.api_key not in _BEFORE_AUTHENTICATION:
            self._broker.audit.access(
                "request before authentication", peer=connection.peer_host, api=header.api_key
            )
            connection.refuse(call)
            return
        api = self.api(header.api_key)
        if api is None or header.api_version not in api.versions:
            self._on_unknown(call, header.api_key, header.api_version)
            return
        # ApiVersions replies never have a flexible header: the client cannot know yet.
        call._flexible = header.api_version >= api.flexible_from and api.key != _API_VERSIONS
        if self.faults is not None and self.faults.intercept(call, api.name, body):
            return
        if request is None:
            request = self._decode(call, api, body)
            if request is None:
                return
            if api.is_repeated and len(frame) <= _REPEATED_MAX_BYTES:
                connection.decoded[bytes(frame[_KIND])] = _Decoded(
                    bytes(frame[_REST]), header, len(frame) - len(body), request
                )
        self._serve(call, api, request)
        if api.key == _PRODUCE and not connection.is_closed:
            self._study(connection, header, frame, body)

    def _has_ended(self, call: Call, session: SaslSession) -> bool:
        now_ms = self._broker.steady_ms()
        if call.api_key == ApiKey.SASL_HANDSHAKE and session.renew(now_ms):
            return False
        return session.has_ended(now_ms)

    def _study(
        self,
        connection: ClientConnection,
        header: RequestHeader,
        frame: memoryview,
        body: memoryview,
    ) -> None:
        from shoal.broker.quick_produce import Habit

        habit = connection.produces
        if habit is None:
            habit = connection.produces = Habit(self._broker, connection)
        assert isinstance(habit, Habit)
        habit.study(header, frame, body, self._elements_max)

    def run(self, call: Call, api: Api, body: memoryview) -> None:
        """Decode, handle, reply."""
        request = self._decode(call, api, body)
        if request is not None:
            self._serve(call, api, request)

    def _decode(self, call: Call, api: Api, body: memoryview) -> Any:
        """None if it cannot be: then the client hears no more."""
        try:
            request, end = api.request.decode_prefix(
                body, call.api_version, budget=self._elements_max
            )
        except InvalidFrameError as error:
            self._broker.counters.errors["undecodable"] += 1
            self._broker.audit.access(
                "request refused", peer=call.connection.peer_host, reason=error.reason
            )
            call.connection.refuse(call)
            return None
        if end != len(body):
            # librdkafka's Metadata v13 has three bytes too many; Kafka ignores them as well.
            self._broker.counters.surplus_bytes[api.name] += len(body) - end
        return request

    def _serve(self, call: Call, api: Api, request: Any) -> None:
        call.enter(self._broker.door, api.row)
        call.elements_left = self._elements_per_reply
        if self._broker.quotas.is_set:
            call.throttling = self._broker.throttling
        refused = call.refusal(request)
        if refused is not None:
            self._broker.counters.errors[refused.name] += 1
            call.reply(api.refuse(request, refused, call.api_version))
            self._broker.counters.request_took(api.name, perf_counter() - call.started)
            return
        if api.runs is _WAITING:
            call.connection.hold()
            handling = api.handle(self._broker, call, request)
            self._broker.spawn(self._await(call, api, request, handling))
            return
        if api.runs is _IN_SLICES:
            self._broker.counters.requests[api.name] += 1
            steps = api.handle(self._broker, call, request)
            self._run_slice(call, api, request, steps, call.started)
            return
        try:
            response = api.handle(self._broker, call, request)
        except Exception:
            logger.exception("%s v%d failed", api.name, call.api_version)
            response = self._failure(api, request, call)
        if api.runs is _AS_IT_TURNS_OUT:
            if isinstance(response, CoroutineType):
                call.connection.hold()
                self._broker.spawn(self._await(call, api, request, response))
                return
            if isinstance(response, GeneratorType):
                self._run_slice(call, api, request, response, call.started)
                self._broker.counters.requests[api.name] += 1
                return
        if call.throttling is not None:
            call.loop_seconds = perf_counter() - call.started
        if response is NO_REPLY:
            call.no_reply()
        elif response is not LATER:
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
            held = perf_counter() - began
            counters.loop_held(api.name, held)
            call.loop_seconds += held
            call.is_large = True
            call.connection.hold()
            self._broker.loop.call_soon(self._go_on, call, api, request, steps)
            return
        call.connection.release()
        if call.throttling is not None:
            call.loop_seconds += perf_counter() - began
        if response is NO_REPLY:
            call.no_reply()
        elif response is not LATER:
            call.answer(response)
        counters.loop_held(api.name, perf_counter() - began)

    def _go_on(self, call: Call, api: Api, request: Any, steps: Iterator[None]) -> None:
        if call.is_open:
            self._run_slice(call, api, request, steps, perf_counter())

    async def _await(
        self, call: Call, api: Api, request: Any, handling: Coroutine[Any, Any, Any]
    ) -> None:
        """For requests that wait for the disk; how long they take is not time on the loop."""
        try:
            response = await handling
        except OSError as error:
            logger.error("%s v%d failed: %s", api.name, call.api_version, error)
            response = self._failure(api, request, call, ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception:
            logger.exception("%s v%d failed", api.name, call.api_version)
            response = self._failure(api, request, call)
        finally:
            call.connection.release()
        self._broker.counters.requests[api.name] += 1
        if response is NO_REPLY:
            call.no_reply()
        elif response is not LATER:
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
            return LATER
        try:
            return api.refuse(request, code, call.api_version)
        except Exception:
            logger.exception("%s cannot report its failure", api.name)
            call.connection.cut()
            return LATER

    def _on_unknown(self, call: Call, key: int, version: int) -> None:
        self._broker.counters.errors["unknown API or version"] += 1
        if key == ApiKey.API_VERSIONS:
            from shoal.broker.handlers.api_versions import unsupported

            call.send(_encoded(call, unsupported(), 0))
            return
        self._broker.audit.access(
            "request refused",
            peer=call.connection.peer_host,
            reason=f"API {key} version {version} is not served",
        )
        call.connection.refuse(call)

    def _refuse(self, call: Call, reason: str) -> None:
        self._broker.audit.access("request refused", peer=call.connection.peer_host, reason=reason)
        call.connection.refuse(call)

    def _on_raw_token(self, call: Call, token: bytes) -> None:
        from shoal.broker.handlers.sasl_authenticate import on_raw_token

        on_raw_token(self._broker, call, token)

    def _close(self, call: Call, reason: str) -> None:
        call.connection.expect(call)
        self._broker.audit.access("request refused", peer=call.connection.peer_host, reason=reason)
        call.connection.refuse(call)
