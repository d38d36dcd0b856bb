"""Spans and metrics of producers and consumers for OpenTelemetry (extra: otel).

    from shoal.client.opentelemetry import instrument

    instrument(producer)
    telemetry = instrument(consumer)
    for record in consumer:
        with telemetry.process(record):
            ...

``send`` is a span that lasts until the record is stored, and its context goes along in the
record's headers (``traceparent``). A record is processed in a span whose parent is that one, in
another process or later: ``Consumer.process`` does it by itself, other loops say ``with``. What one
``poll`` brought is a span that links to all of them.

Rule: clients know nothing of this; a client that is instrumented has some methods of its own in
place of its class's. What comes in headers is a stranger's: it may be lost, but never break the
reading. Only OpenTelemetry's API is used; without its SDK all this does nothing.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

from shoal.errors import BrokerError, WakeupError, missing_extra

try:
    from opentelemetry import metrics, propagate, trace
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
except ImportError as error:  # pragma: no cover - where the extra is not installed
    raise ImportError(str(missing_extra("OpenTelemetry's API", "otel"))) from error

from shoal._version import __version__
from shoal.client import telemetry_names as words
from shoal.client.async_consumer import AsyncConsumer
from shoal.client.async_producer import AsyncProducer
from shoal.client.consumer import Consumer
from shoal.client.producer import Producer
from shoal.client.producer_batch import SendFuture
from shoal.types import Header, Record, TopicPartition

logger = logging.getLogger(__name__)

# As many as a span keeps by default.
_LINKS_MAX: Final = 128
# What is longer is no trace context, whatever it says.
_HEADER_BYTES_MAX: Final = 8192
_MARK: Final = "_telemetry"

Attributes = dict[str, str | int | bool]
AnyRecord = Record[Any, Any]


class _HeaderGetter(Getter[Sequence[Header]]):
    """Of several headers with one name the last counts, as for whoever wrote it."""

    def get(self, carrier: Sequence[Header], key: str) -> list[str] | None:
        for name, content in reversed(carrier):
            if name == key and content is not None and len(content) <= _HEADER_BYTES_MAX:
                return [content.decode("latin-1")]
        return None

    def keys(self, carrier: Sequence[Header]) -> list[str]:
        return [name for name, _ in carrier]


class _HeaderSetter(Setter[list[Header]]):
    def set(self, carrier: list[Header], key: str, value: str) -> None:
        carrier.append((key, value.encode()))


_GETTER: Final = _HeaderGetter()
_SETTER: Final = _HeaderSetter()


def instrument(
    client: Producer | AsyncProducer | Consumer | AsyncConsumer,
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
) -> ClientTelemetry:
    """Make spans and metrics of what ``client`` does from now on.

    Args:
        tracer_provider: the global one, if not given.
        meter_provider: the global one, if not given.

    Raises:
        TypeError: this is neither a producer nor a consumer.
        ValueError: it is instrumented already.
    """
    if _MARK in vars(client):
        raise ValueError(f"instrument(): this {type(client).__name__} is instrumented already")
    telemetry = ClientTelemetry(client, tracer_provider, meter_provider)
    if isinstance(client, Producer):
        telemetry._watch_producer(client)
    elif isinstance(client, AsyncProducer):
        telemetry._watch_async_producer(client)
    elif isinstance(client, Consumer | AsyncConsumer):
        telemetry._watch_consumer(client)
    else:
        raise TypeError(
            f"instrument(): a producer or a consumer is wanted, not {type(client).__name__}"
        )
    vars(client)[_MARK] = telemetry
    return telemetry


class ClientTelemetry:
    """What ``instrument`` returns: how one client is watched."""

    def __init__(
        self,
        client: Any,
        tracer_provider: trace.TracerProvider | None,
        meter_provider: metrics.MeterProvider | None,
    ) -> None:
        self._client = client
        self._replaced: list[str] = []
        self._tracer = trace.get_tracer(
            "shoal", __version__, tracer_provider, schema_url=words.SCHEMA_URL
        )
        meter = metrics.get_meter("shoal", __version__, meter_provider, words.SCHEMA_URL)
        self._durations = meter.create_histogram(
            words.OPERATION_DURATION,
            "s",
            "How long an operation of a client took.",
            explicit_bucket_boundaries_advisory=words.DURATION_BUCKETS_S,
        )
        self._process_durations = meter.create_histogram(
            words.PROCESS_DURATION,
            "s",
            "How long a record was worked on.",
            explicit_bucket_boundaries_advisory=words.DURATION_BUCKETS_S,
        )
        self._sent = meter.create_counter(
            words.SENT_MESSAGES, "{message}", "Records a producer tried to send."
        )
        self._consumed = meter.create_counter(
            words.CONSUMED_MESSAGES, "{message}", "Records that were given to the application."
        )
        config = getattr(client, "config", None)
        self._shared: Attributes = {words.SYSTEM: words.KAFKA}
        self._identity: Attributes = {words.CLIENT_ID: getattr(config, "client_id", "")}
        group_id = getattr(config, "group_id", None)
        if group_id is not None:
            self._shared[words.GROUP] = group_id
        self._transactional_id = getattr(config, "transactional_id", None)

    def remove(self) -> None:
        """Watch the client no more."""
        for name in (*self._replaced, _MARK):
            vars(self._client).pop(name, None)
        self._replaced.clear()

    # --- processing ---

    @contextmanager
    def process(self, record: AnyRecord) -> Iterator[Span]:
        """A span for the work on one record, current within; its parent is who sent the record."""
        attributes = self._about("process", None, record.topic)
        kind: Attributes = {words.OPERATION_TYPE: words.TYPE_PROCESS}
        began = time.perf_counter()
        failure: BaseException | None = None
        with (
            _within(_context_of(record)),
            self._tracer.start_as_current_span(
                f"process {record.topic}",
                kind=SpanKind.CONSUMER,
                attributes={**attributes, **kind, **self._identity, **_facts(record)},
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
        ):
            try:
                yield span
            except BaseException as error:
                failure = error
                _fail(span, error)
                raise
            finally:
                kept = _measured(attributes, failure)
                self._process_durations.record(time.perf_counter() - began, kept)

    # --- producers ---

    def _watch_producer(self, producer: Producer) -> None:
        send, send_arrow = producer.send, producer.send_arrow

        @wraps(send)
        def traced_send(topic: str, *values: Any, headers: Any = (), **options: Any) -> SendFuture:
            sending = _Sending(self, topic, 1)
            given = options.pop("on_delivery", None)

            def delivered(future: SendFuture) -> None:
                sending.settled(future)
                if given is not None:
                    given(future)

            told = delivered if given is None or callable(given) else given
            try:
                return send(
                    topic, *values, headers=sending.headers(headers), on_delivery=told, **options
                )
            except BaseException as error:
                sending.failed(error)
                raise

        @wraps(send_arrow)
        def traced_arrow(topic: str, data: Any, **options: Any) -> list[SendFuture]:
            rows = getattr(data, "num_rows", 0)
            sending = _Sending(self, topic, rows, is_batch=True)
            try:
                futures = send_arrow(topic, data, **options)
            except BaseException as error:
                sending.failed(error)
                raise
            sending.awaits(futures)
            return futures

        self._replace("send", traced_send)
        self._replace("send_arrow", traced_arrow)
        for name in ("commit_transaction", "abort_transaction"):
            self._replace(name, self._around(getattr(producer, name), name))

    def _watch_async_producer(self, producer: AsyncProducer) -> None:
        enqueue = producer.enqueue

        @wraps(enqueue)
        async def traced_enqueue(
            topic: str, *values: Any, headers: Any = (), **options: Any
        ) -> Any:
            sending = _Sending(self, topic, 1)
            try:
                taken = await enqueue(topic, *values, headers=sending.headers(headers), **options)
            except BaseException as error:
                sending.failed(error)
                raise
            taken.add_done_callback(sending.settled)
            return taken

        @wraps(producer.send)
        async def traced_send(topic: str, *values: Any, **options: Any) -> Any:
            return await (await traced_enqueue(topic, *values, **options))

        self._replace("enqueue", traced_enqueue)
        self._replace("send", traced_send)
        for name in ("commit_transaction", "abort_transaction"):
            self._replace(name, self._around_awaited(getattr(producer, name), name))

    # --- consumers ---

    def _watch_consumer(self, consumer: Consumer | AsyncConsumer) -> None:
        is_awaited = isinstance(consumer, AsyncConsumer)
        for name in ("poll", "_poll_raw", "_hand"):
            poll = getattr(consumer, name)
            self._replace(name, self._polling(poll, self._received, is_awaited))
        self._replace(
            "poll_arrow", self._polling(consumer.poll_arrow, self._received_rows, is_awaited)
        )
        process = consumer.process
        handling = self._handling_awaited if is_awaited else self._handling

        @wraps(process)
        def traced_process(handler: Callable[[AnyRecord], Any], **options: Any) -> Any:
            return process(handling(handler), **options)

        self._replace("process", traced_process)
        around = self._around_awaited if is_awaited else self._around
        name = "commit" if is_awaited else "commit_sync"
        self._replace(name, around(getattr(consumer, name), "commit", words.TYPE_SETTLE))

    def _handling(self, handler: Any) -> Any:
        @wraps(handler, updated=())
        def called(record: AnyRecord) -> Any:
            with self.process(record):
                return handler(record)

        return called

    def _handling_awaited(self, handler: Any) -> Any:
        @wraps(handler, updated=())
        async def called(record: AnyRecord) -> Any:
            with self.process(record):
                result = handler(record)
                return await result if inspect.isawaitable(result) else result

        return called

    def _polling(
        self, poll: Callable[..., Any], received: Callable[[Any, _Poll], None], is_awaited: bool
    ) -> Callable[..., Any]:
        @wraps(poll)
        def polled(*values: Any, **options: Any) -> Any:
            one = _Poll()
            try:
                taken = poll(*values, **options)
            except Exception as error:
                self._poll_failed(one, error)
                raise
            received(taken, one)
            return taken

        @wraps(poll)
        async def polled_awaited(*values: Any, **options: Any) -> Any:
            one = _Poll()
            try:
                taken = await poll(*values, **options)
            except Exception as error:
                self._poll_failed(one, error)
                raise
            received(taken, one)
            return taken

        return polled_awaited if is_awaited else polled

    def _received(self, records: Sequence[AnyRecord], poll: _Poll) -> None:
        if not records:
            return
        counts: dict[str, int] = {}
        links: dict[tuple[int, int], Link] = {}
        for record in records:
            counts[record.topic] = counts.get(record.topic, 0) + 1
            if len(links) < _LINKS_MAX and record.headers:
                sent = trace.get_current_span(_context_of(record)).get_span_context()
                if sent.is_valid:
                    links[sent.trace_id, sent.span_id] = Link(sent)
        self._poll_span(counts, poll, list(links.values()))

    def _received_rows(self, rows: Any, poll: _Poll) -> None:
        if rows.num_rows:
            found = rows.column("topic").value_counts()
            counts = {one["values"]: one["counts"] for one in found.to_pylist()}
            self._poll_span(counts, poll, [])

    def _poll_span(self, counts: dict[str, int], poll: _Poll, links: list[Link]) -> None:
        topic = next(iter(counts)) if len(counts) == 1 else None
        attributes = self._about("poll", words.TYPE_RECEIVE, topic)
        span = self._tracer.start_span(
            "poll" if topic is None else f"poll {topic}",
            kind=SpanKind.CLIENT,
            attributes={
                **attributes,
                **self._identity,
                words.MESSAGE_COUNT: sum(counts.values()),
            },
            links=links,
            start_time=poll.began_ns,
        )
        span.end()
        self._durations.record(poll.seconds, attributes)
        for name, count in counts.items():
            kept = self._about("poll", None, name)
            self._consumed.add(count, kept)

    def _poll_failed(self, poll: _Poll, error: Exception) -> None:
        if isinstance(error, WakeupError):
            return  # asked for
        attributes = self._about("poll", words.TYPE_RECEIVE, None)
        span = self._tracer.start_span(
            "poll",
            kind=SpanKind.CLIENT,
            attributes={**attributes, **self._identity},
            start_time=poll.began_ns,
        )
        _fail(span, error)
        span.end()
        self._durations.record(poll.seconds, _measured(attributes, error))

    # --- calls that are spans as they are ---

    def _around(
        self, call: Callable[..., Any], name: str, kind: str | None = None
    ) -> Callable[..., Any]:
        @wraps(call)
        def called(*values: Any, **options: Any) -> Any:
            with self._call_span(name, kind):
                return call(*values, **options)

        return called

    def _around_awaited(
        self, call: Callable[..., Awaitable[Any]], name: str, kind: str | None = None
    ) -> Callable[..., Awaitable[Any]]:
        @wraps(call)
        async def called(*values: Any, **options: Any) -> Any:
            with self._call_span(name, kind):
                return await call(*values, **options)

        return called

    @contextmanager
    def _call_span(self, name: str, kind: str | None) -> Iterator[None]:
        attributes = self._about(name, kind, None)
        more = dict(self._identity)
        if self._transactional_id is not None:
            more[words.TRANSACTIONAL_ID] = self._transactional_id
        began = time.perf_counter()
        failure: BaseException | None = None
        span = self._tracer.start_span(
            name, kind=SpanKind.CLIENT, attributes={**attributes, **more}
        )
        try:
            yield
        except BaseException as error:
            failure = error
            _fail(span, error)
            raise
        finally:
            span.end()
            kept = _measured(attributes, failure)
            self._durations.record(time.perf_counter() - began, kept)

    # --- what all have in common ---

    def _about(self, name: str, kind: str | None, topic: str | None) -> Attributes:
        """What spans and metrics say of an operation."""
        attributes = {**self._shared, words.OPERATION_NAME: name}
        if kind is not None:
            attributes[words.OPERATION_TYPE] = kind
        if topic is not None:
            attributes[words.DESTINATION] = topic
        return attributes

    def _replace(self, name: str, function: Callable[..., Any]) -> None:
        vars(self._client)[name] = function
        self._replaced.append(name)


class _Poll:
    """When a poll began."""

    __slots__ = ("_began", "began_ns")

    def __init__(self) -> None:
        self.began_ns = time.time_ns()
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._began


class _Sending:
    """One record, or one lot of rows, on its way: a span from the call until it is stored."""

    def __init__(
        self, telemetry: ClientTelemetry, topic: str, count: int, *, is_batch: bool = False
    ) -> None:
        self._telemetry = telemetry
        self._began = time.perf_counter()
        self._count = count
        self._left = 1
        self._error: BaseException | None = None
        self._attributes = telemetry._about("send", words.TYPE_SEND, str(topic))
        more = dict(telemetry._identity)
        if is_batch:
            more[words.MESSAGE_COUNT] = count
        self._span = telemetry._tracer.start_span(
            f"send {topic}",
            kind=SpanKind.CLIENT if is_batch else SpanKind.PRODUCER,
            attributes={**self._attributes, **more},
        )

    def headers(self, given: Any) -> Any:
        """With where this record comes from; what an older span left there is replaced."""
        pairs: list[Any]
        if isinstance(given, Mapping):
            pairs = list(given.items())
        elif isinstance(given, list | tuple):
            pairs = list(given)
        else:
            return given  # send() says what is wrong with it
        ours: list[Header] = []
        propagate.inject(ours, trace.set_span_in_context(self._span), _SETTER)
        names = {name for name, _ in ours}
        return [*(one for one in pairs if not _is_named(one, names)), *ours]

    def awaits(self, futures: Sequence[SendFuture]) -> None:
        """Until all of these are settled."""
        self._left = len(futures)
        if not futures:
            self._end(None)
        for future in futures:
            future.add_done_callback(self.settled)

    def settled(self, future: Any) -> None:
        """What became of it: of a producer's future, or one of asyncio's."""
        is_cancelled = getattr(future, "cancelled", None)
        if is_cancelled is not None and is_cancelled():
            self._end(None)  # nobody wants to know, and nobody does
            return
        error = future.exception()
        if error is None and self._count == 1:
            stored = future.result()
            self._span.set_attribute(words.PARTITION, str(stored.partition))
            if stored.offset is not None:
                self._span.set_attribute(words.OFFSET, stored.offset)
        self._error = self._error or error
        self._left -= 1
        if self._left <= 0:
            self._end(self._error)

    def failed(self, error: BaseException) -> None:
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            _fail(self._span, error)
        self._span.end()
        kept = _measured(self._attributes, error)
        self._telemetry._durations.record(time.perf_counter() - self._began, kept)
        kept = {name: text for name, text in kept.items() if name != words.OPERATION_TYPE}
        self._telemetry._sent.add(self._count, kept)


def _is_named(header: Any, names: Collection[str]) -> bool:
    is_pair = isinstance(header, tuple | list) and len(header) == 2
    return is_pair and isinstance(header[0], str) and header[0] in names


def _context_of(record: AnyRecord) -> Context:
    """Where a record comes from, as its headers say; nothing, if they make no sense."""
    if not record.headers:
        return Context()
    try:
        return propagate.extract(record.headers, Context(), _GETTER)
    except Exception:
        where = TopicPartition(record.topic, record.partition)
        logger.debug("headers of %s at %d have no context", where, record.offset, exc_info=True)
        return Context()


@contextmanager
def _within(context: Context) -> Iterator[None]:
    """Where a record comes from is where the work on it goes on; else it stays where it is."""
    if not context:
        yield
        return
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def _facts(record: AnyRecord) -> Attributes:
    facts: Attributes = {
        words.PARTITION: str(record.partition),
        words.OFFSET: record.offset,
    }
    if record.value is None:
        facts[words.TOMBSTONE] = True
    elif isinstance(record.value, bytes):
        facts[words.BODY_SIZE] = len(record.value)
    return facts


def _error_type(error: BaseException) -> str:
    """Kafka's name of it, if it has one."""
    if isinstance(error, BrokerError):
        return error.code.name
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
    span.set_attribute(words.ERROR_TYPE, _error_type(error))


def _measured(attributes: Attributes, error: BaseException | None) -> Attributes:
    return attributes if error is None else {**attributes, words.ERROR_TYPE: _error_type(error)}
