"""Spans and metrics, as OpenTelemetry's own SDK receives them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode

from shoal import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    Record,
    TimestampType,
    TopicPartition,
)
from shoal.client import telemetry_names as words
from shoal.client.opentelemetry import ClientTelemetry, instrument
from shoal.errors import (
    BrokerError,
    ErrorCode,
    ProcessingError,
    TransactionAbortableError,
    WakeupError,
)
from shoal.testing.broker import Broker
from tests.client.conftest import take
from tests.client.scripted import RECORDS, ScriptedBroker
from tests.patience import PATIENCE_S

T0 = TopicPartition("t", 0)


class Sdk:
    """OpenTelemetry as a program sets it up, with spans and metrics kept in memory."""

    def __init__(self):
        self.exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meter_provider = MeterProvider([self.reader])

    @property
    def providers(self):
        return {"tracer_provider": self.tracer_provider, "meter_provider": self.meter_provider}

    def spans(self, name=None):
        return [one for one in self.exporter.get_finished_spans() if name in (None, one.name)]

    def span(self, name):
        found = self.spans(name)
        assert len(found) == 1, [one.name for one in self.spans()]
        return found[0]

    def points(self, name):
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def sdk():
    return Sdk()


@pytest.fixture
def scripted():
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def broker():
    with Broker() as broker:
        yield broker


def ids(span):
    context = span.get_span_context()
    return context.trace_id, context.span_id


def test_a_record_is_one_trace_from_its_sender_to_who_works_on_it(broker, sdk):
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    broker.create_topic("one")
    tracer = sdk.tracer_provider.get_tracer("the program")
    with (
        Producer(linger_ms=0, client_id="ann", **servers) as producer,
        Consumer(
            auto_offset_reset="earliest", group_id="g", client_id="bob", **servers
        ) as consumer,
    ):
        instrument(producer, **sdk.providers)
        telemetry = instrument(consumer, **sdk.providers)
        with tracer.start_as_current_span("order") as order:
            stored = producer.send("one", b"value", headers={"mine": b"1"}).result(PATIENCE_S)
        consumer.assign([TopicPartition("one", 0)])
        (record,) = take(consumer, 1)
        with telemetry.process(record) as processing:
            assert trace.get_current_span() is processing
        producer.flush()
    sent, polled, processed = sdk.span("send one"), sdk.span("poll one"), sdk.span("process one")
    assert (sent.parent.span_id, sent.kind) == (order.get_span_context().span_id, SpanKind.PRODUCER)
    assert (ids(processed)[0], processed.parent.span_id) == ids(sent)
    assert processed.kind is SpanKind.CONSUMER
    assert polled.kind is SpanKind.CLIENT
    assert [(one.context.trace_id, one.context.span_id) for one in polled.links] == [ids(sent)]
    assert polled.parent is None
    assert [name for name, _ in record.headers] == ["mine", "traceparent"]
    trace_id, span_id = ids(sent)
    parent = record.headers[1][1]
    assert parent is not None
    assert parent.decode().startswith(f"00-{trace_id:032x}-{span_id:016x}-0")
    assert dict(sent.attributes) == {
        words.SYSTEM: "kafka",
        words.OPERATION_NAME: "send",
        words.OPERATION_TYPE: "send",
        words.DESTINATION: "one",
        words.CLIENT_ID: "ann",
        words.PARTITION: "0",
        words.OFFSET: stored.offset,
    }
    shared = {
        words.SYSTEM: "kafka",
        words.GROUP: "g",
        words.DESTINATION: "one",
        words.CLIENT_ID: "bob",
    }
    assert dict(polled.attributes) == {
        **shared,
        words.OPERATION_NAME: "poll",
        words.OPERATION_TYPE: "receive",
        words.MESSAGE_COUNT: 1,
    }
    assert dict(processed.attributes) == {
        **shared,
        words.OPERATION_NAME: "process",
        words.OPERATION_TYPE: "process",
        words.PARTITION: "0",
        words.OFFSET: stored.offset,
        words.BODY_SIZE: 5,
    }
    assert sent.instrumentation_scope.schema_url == words.SCHEMA_URL
    assert all(one.status.status_code is StatusCode.UNSET for one in sdk.spans())


def test_handlers_of_process_run_inside_the_span_of_their_record(broker, sdk):
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    broker.create_topic("handled")
    seen, within = [], []
    with Producer(**servers) as producer:
        instrument(producer, **sdk.providers)
        for number in range(3):
            producer.send("handled", str(number))
    consumer = Consumer(
        group_id="handled", auto_offset_reset="earliest", enable_auto_commit=False, **servers
    )
    instrument(consumer, **sdk.providers)

    def handle(record):
        seen.append(record.value)
        within.append(trace.get_current_span().get_span_context().span_id)
        if len(seen) == 4:
            consumer.wakeup()
        if record.value == b"1" and seen.count(b"1") == 1:
            raise LookupError("not there")

    with consumer:
        consumer.subscribe("handled")
        consumer.process(handle, workers=1, retries=1, retry_delay=0.0)
    spans = sdk.spans("process handled")
    sends = {ids(one)[1] for one in sdk.spans("send handled")}
    assert [one.parent.span_id in sends for one in spans] == [True] * 4
    assert within == [ids(one)[1] for one in spans]
    failed = [one for one in spans if one.status.status_code is StatusCode.ERROR]
    assert len(failed) == 1
    assert failed[0].attributes[words.ERROR_TYPE] == "LookupError"
    assert failed[0].events[0].name == "exception"
    assert sdk.spans("commit")[-1].attributes[words.OPERATION_TYPE] == "settle"
    points = {p.attributes.get(words.ERROR_TYPE): p for p in sdk.points(words.PROCESS_DURATION)}
    assert (points[None].count, points["LookupError"].count) == (3, 1)


def test_awaitable_clients_make_the_same_spans(broker, sdk):
    broker.create_topic("awaited")
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    within = []

    async def main():
        async with AsyncProducer(**servers) as producer:
            instrument(producer, **sdk.providers)
            await producer.send("awaited", b"1")
            await producer.send_many("awaited", [b"2", b"3"])
        consumer = AsyncConsumer(
            group_id="a", auto_offset_reset="earliest", enable_auto_commit=False, **servers
        )
        telemetry = instrument(consumer, **sdk.providers)
        async with consumer:
            await consumer.subscribe("awaited")
            async for record in consumer:
                with telemetry.process(record):
                    pass
                if record.value == b"3":
                    break
            await consumer.commit()
            await consumer.seek_to_beginning()

            async def handle(record):
                await asyncio.sleep(0)
                within.append(trace.get_current_span().get_span_context().span_id)
                if len(within) == 3:
                    consumer.wakeup()

            await consumer.process(handle, workers=3)

    asyncio.run(main())
    sends = [ids(one)[1] for one in sdk.spans("send awaited")]
    processed = sdk.spans("process awaited")
    assert len(sends) == 3
    assert [one.parent.span_id for one in processed[:3]] == sends
    assert sorted(one.parent.span_id for one in processed[3:]) == sorted(sends)
    assert sorted(within) == sorted(ids(one)[1] for one in processed[3:])
    links = {one.context.span_id for span in sdk.spans("poll awaited") for one in span.links}
    assert links == set(sends)
    assert sdk.spans("commit")


def test_a_record_that_is_refused_is_a_span_with_kafkas_error(scripted, sdk):
    scripted.fail("Produce", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    told: list[Any] = []
    with Producer(bootstrap_servers=scripted.servers, linger_ms=0) as producer:
        instrument(producer, **sdk.providers)
        refused = producer.send("t", b"v", partition=0, on_delivery=told.append)
        with pytest.raises(BrokerError):
            refused.result(PATIENCE_S)
        with pytest.raises(ValueError, match="larger than max_request_size"):
            producer.send("t", bytes(2 << 20), partition=0)
        number: Any = 3
        for wrong in ({"headers": 3}, {"headers": [3]}, {"headers": [("k", 3)]}):
            with pytest.raises(TypeError, match=r"send\(\)"):
                producer.send("t", b"v", **wrong)
        with pytest.raises(TypeError, match="on_delivery must be callable"):
            producer.send("t", b"v", partition=0, on_delivery=number)
        with pytest.raises(TypeError, match="topic must be a string"):
            producer.send(number, b"v")
        producer.flush()
    assert told == [refused]
    first, second, *_ = sorted(sdk.spans("send t"), key=lambda one: one.start_time)
    assert first.attributes[words.ERROR_TYPE] == "TOPIC_AUTHORIZATION_FAILED"
    assert first.status.status_code is second.status.status_code is StatusCode.ERROR
    assert second.attributes[words.ERROR_TYPE] == "ValueError"
    kinds = {p.attributes.get(words.ERROR_TYPE): p.value for p in sdk.points(words.SENT_MESSAGES)}
    assert kinds["TOPIC_AUTHORIZATION_FAILED"] == kinds["ValueError"] == 1


def test_transactions_have_spans_and_what_was_aborted_says_so(broker, sdk):
    broker.create_topic("txn")
    with Producer(
        bootstrap_servers=broker.bootstrap_servers, transactional_id="otel", linger_ms=60_000
    ) as producer:
        instrument(producer, **sdk.providers)
        producer.init_transactions()
        with producer.transaction():
            producer.send("txn", b"kept")
        dropped = []

        def change_my_mind():
            with producer.transaction():
                dropped.append(producer.send("txn", b"dropped"))
                raise RuntimeError("changed my mind")

        with pytest.raises(RuntimeError, match="changed my mind"):
            change_my_mind()
        with pytest.raises(RuntimeError, match="no transaction is open"):
            producer.commit_transaction()
    assert isinstance(dropped[0].exception(0), TransactionAbortableError)
    kept, aborted = sorted(sdk.spans("send txn"), key=lambda one: one.start_time)
    assert kept.status.status_code is StatusCode.UNSET
    assert aborted.status.status_code is StatusCode.ERROR
    assert aborted.attributes[words.ERROR_TYPE] == "shoal.errors.TransactionAbortableError"
    committed, refused = sdk.spans("commit_transaction")
    assert committed.attributes[words.TRANSACTIONAL_ID] == "otel"
    assert committed.status.status_code is StatusCode.UNSET
    assert refused.status.status_code is StatusCode.ERROR
    assert sdk.span("abort_transaction").status.status_code is StatusCode.UNSET


def test_columns_are_one_span_for_all_rows(broker, sdk):
    pa = pytest.importorskip("pyarrow")
    broker.create_topic("rows", partitions=2)
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    rows = pa.table({"value": [b"v"] * 10, "partition": [n % 2 for n in range(10)]})
    with (
        Producer(**servers) as producer,
        Consumer(auto_offset_reset="earliest", **servers) as consumer,
    ):
        instrument(producer, **sdk.providers)
        instrument(consumer, **sdk.providers)
        futures = producer.send_arrow("rows", rows, partition="partition")
        producer.send_arrow("rows", rows[:0])
        for one in futures:
            one.result(PATIENCE_S)
        producer.flush()
        with pytest.raises(ValueError, match="nothing"):
            producer.send_arrow("rows", rows, value="nothing")
        consumer.assign([TopicPartition("rows", 0), TopicPartition("rows", 1)])
        read = 0
        while read < 10:
            read += consumer.poll_arrow(1.0).num_rows
    whole, empty, wrong = sorted(sdk.spans("send rows"), key=lambda one: one.start_time)
    assert (whole.kind, whole.attributes[words.MESSAGE_COUNT]) == (SpanKind.CLIENT, 10)
    assert empty.attributes[words.MESSAGE_COUNT] == 0
    assert wrong.status.status_code is StatusCode.ERROR
    polled = sum(one.attributes[words.MESSAGE_COUNT] for one in sdk.spans("poll rows"))
    assert polled == 10
    assert sum(point.value for point in sdk.points(words.CONSUMED_MESSAGES)) == 10


def test_a_context_that_is_passed_on_gives_way_to_the_new_one(scripted, sdk):
    with Producer(bootstrap_servers=scripted.servers) as producer:
        kept = headers_sent_by(producer)
        instrument(producer, **sdk.providers)
        old = (("traceparent", b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01"), ("x", b"y"))
        given_: Any
        for given_ in (old, list(old), dict(old), [list(one) for one in old]):
            producer.send("t", b"v", partition=0, headers=given_)
        producer.flush()
    by_start = sorted(sdk.spans("send t"), key=lambda one: one.start_time)
    sends = [ids(one)[1] for one in by_start]
    for headers, span_id in zip(kept, sends, strict=True):
        assert [tuple(one) for one in headers[:-1]] == [("x", b"y")]
        name, content = headers[-1]
        assert (name, content.split(b"-")[2].decode()) == ("traceparent", f"{span_id:016x}")


def headers_sent_by(producer):
    """Of every send from now on, before anybody reads them."""
    plain, kept = producer.send, []

    def send(*values, **options):
        kept.append(options["headers"])
        return plain(*values, **options)

    vars(producer)["send"] = send
    return kept


def telemetry_of(sdk):
    class Client:
        config = None

    return ClientTelemetry(Client(), sdk.tracer_provider, sdk.meter_provider)


def record_with(headers):
    return Record("t", 0, 7, 0, TimestampType.CREATE_TIME, None, None, headers)


NAMES = st.sampled_from(["traceparent", "tracestate", "baggage", "Traceparent", "x"]) | st.text()
GOOD = b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@example([("traceparent", GOOD.replace(b"b", b"c")), ("traceparent", GOOD)])
@given(
    st.lists(
        st.tuples(NAMES, st.none() | st.binary() | st.sampled_from([GOOD, b"a=" + b"b" * 9999])),
        max_size=6,
    )
)
def test_whatever_stands_in_headers_the_record_is_read_and_worked_on(sdk, headers):
    telemetry = telemetry_of(sdk)
    record = record_with(tuple(headers))
    telemetry._received([record], _poll())
    with telemetry.process(record) as span:
        pass
    last = [content for name, content in headers if name == "traceparent" and content is not None]
    if last[-1:] == [GOOD]:
        assert (span.parent.trace_id, span.parent.span_id) == (
            0xA * (16**32 // 15),
            0xB * (16**16 // 15),
        )
        assert span.attributes[words.TOMBSTONE] is True


def _poll():
    from shoal.client.opentelemetry import _Poll

    return _Poll()


def test_baggage_comes_along_and_the_context_of_before_comes_back(sdk):
    telemetry = telemetry_of(sdk)
    token = attach(baggage.set_baggage("who", "outside"))
    try:
        with telemetry.process(record_with((("baggage", b"who=ann"), ("traceparent", GOOD)))):
            assert baggage.get_baggage("who") == "ann"
        assert baggage.get_baggage("who") == "outside"
        tracer = sdk.tracer_provider.get_tracer("p")
        with tracer.start_as_current_span("outer") as outer:
            with telemetry.process(record_with(())) as span:
                assert span.parent.span_id == outer.get_span_context().span_id
            assert trace.get_current_span() is outer
    finally:
        detach(token)


def test_polls_that_bring_nothing_are_no_spans_and_failures_are(scripted, sdk):
    with Consumer(
        bootstrap_servers=scripted.servers, auto_offset_reset="earliest", group_id="g"
    ) as consumer:
        instrument(consumer, **sdk.providers)
        with pytest.raises(RuntimeError, match="subscribe"):
            consumer.poll(0.0)
        consumer.assign([T0])
        consumer.pause(T0)
        consumer.poll(0.0)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(0.0)
    (failed,) = sdk.spans("poll")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes[words.ERROR_TYPE] == "RuntimeError"


def test_a_poll_of_many_records_keeps_as_many_links_as_spans_keep_by_default(sdk):
    limits = SpanLimits(max_links=1_000)  # ours is the limit, not the SDK's
    sdk.tracer_provider = TracerProvider(span_limits=limits)
    sdk.tracer_provider.add_span_processor(SimpleSpanProcessor(sdk.exporter))
    telemetry = telemetry_of(sdk)
    records = [
        record_with((("traceparent", b"00-" + b"a" * 32 + b"-%016x-01" % number),))
        for number in range(1, 300)
    ]
    telemetry._received(records, _poll())
    span = sdk.span("poll t")
    assert len(span.links) == 128
    assert span.attributes[words.MESSAGE_COUNT] == 299


def test_instruments_are_those_of_the_conventions(scripted, sdk):
    with (
        Producer(bootstrap_servers=scripted.servers, linger_ms=0) as producer,
        Consumer(bootstrap_servers=scripted.servers, auto_offset_reset="earliest") as consumer,
    ):
        instrument(producer, **sdk.providers)
        instrument(consumer, **sdk.providers)
        producer.send("t", b"v", partition=0).result(PATIENCE_S)
        producer.flush()
        consumer.assign([T0])
        take(consumer, RECORDS)
    (sent,) = sdk.points(words.SENT_MESSAGES)
    assert sent.value == 1
    assert dict(sent.attributes) == {
        words.SYSTEM: "kafka",
        words.OPERATION_NAME: "send",
        words.DESTINATION: "t",
    }
    assert sum(one.value for one in sdk.points(words.CONSUMED_MESSAGES)) == RECORDS
    durations = {
        p.attributes[words.OPERATION_NAME]: p for p in sdk.points(words.OPERATION_DURATION)
    }
    assert durations["send"].count == 1
    assert durations["send"].explicit_bounds == words.DURATION_BUCKETS_S
    assert 0 < durations["poll"].sum < PATIENCE_S


def test_an_instrumented_client_can_be_left_alone_again(scripted, sdk):
    with Producer(bootstrap_servers=scripted.servers, linger_ms=0) as producer:
        telemetry = instrument(producer, **sdk.providers)
        with pytest.raises(ValueError, match="instrumented already"):
            instrument(producer, **sdk.providers)
        telemetry.remove()
        telemetry.remove()
        producer.send("t", b"v", partition=0).result(PATIENCE_S)
        assert sdk.spans() == []
        instrument(producer, **sdk.providers)
        producer.send("t", b"v", partition=0).result(PATIENCE_S)
    assert len(sdk.spans("send t")) == 1
    with Admin(bootstrap_servers=scripted.servers) as admin:
        wrong: Any = admin
        with pytest.raises(TypeError, match="not Admin"):
            instrument(wrong)


def test_a_send_that_is_cancelled_ends_its_span(sdk):
    async def main(servers):
        async with AsyncProducer(bootstrap_servers=servers, linger_ms=60_000) as producer:
            instrument(producer, **sdk.providers)
            taken = await producer.enqueue("t", b"v", partition=0)
            taken.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taken

    with Broker(topics=["t"]) as broker:
        asyncio.run(main(broker.bootstrap_servers))
    assert sdk.span("send t").status.status_code is StatusCode.UNSET


def test_a_handler_that_fails_for_good_is_told_as_before(broker, sdk):
    broker.create_topic("fails")
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    with Producer(**servers) as producer:
        producer.send("fails", b"v")
    with Consumer(
        group_id="f", auto_offset_reset="earliest", enable_auto_commit=False, **servers
    ) as consumer:
        instrument(consumer, **sdk.providers)
        consumer.subscribe("fails")
        with pytest.raises(ProcessingError, match="fails-0"):
            consumer.process(lambda record: 1 / 0)
        assert sdk.span("process fails").attributes[words.ERROR_TYPE] == "ZeroDivisionError"


def test_without_an_sdk_nothing_is_added_and_all_works(scripted):
    with Producer(bootstrap_servers=scripted.servers, linger_ms=0) as producer:
        kept = headers_sent_by(producer)
        instrument(producer)
        done = threading.Event()
        producer.send("t", b"v", partition=0, on_delivery=lambda _: done.set())
        assert done.wait(PATIENCE_S)
    assert kept == [[]]


def test_the_words_are_those_of_one_version_of_the_conventions():
    attributes = {
        value
        for module in (messaging_attributes, error_attributes)
        for name, value in vars(module).items()
        if isinstance(value, str) and not name.startswith("_")
    }
    ours = {name: value for name, value in vars(words).items() if name.isupper()}
    attribute_names = (
        *("SYSTEM", "OPERATION_NAME", "OPERATION_TYPE", "DESTINATION", "PARTITION", "GROUP"),
        *("CLIENT_ID", "MESSAGE_COUNT", "BODY_SIZE", "OFFSET", "TOMBSTONE", "ERROR_TYPE"),
    )
    assert {ours[name] for name in attribute_names} <= attributes
    instruments = {value for name, value in vars(messaging_metrics).items() if name.isupper()}
    measured = ("OPERATION_DURATION", "SENT_MESSAGES", "CONSUMED_MESSAGES", "PROCESS_DURATION")
    assert {ours[name] for name in measured} <= instruments
    assert words.SCHEMA_URL in {one.value for one in Schemas}
    kinds = {one.value for one in messaging_attributes.MessagingOperationTypeValues}
    assert {words.TYPE_SEND, words.TYPE_RECEIVE, words.TYPE_PROCESS, words.TYPE_SETTLE} <= kinds


def test_without_the_extra_the_import_says_what_to_install():
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import shoal.client.consumer, shoal.client.producer\n"
        "import shoal.client.opentelemetry"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "OpenTelemetry's API is not installed; run: pip install" in done.stderr
    assert "[otel]" in done.stderr
