"""Wrong arguments of public methods: a TypeError in one line that names method and argument."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pyarrow as pa
import pytest

from shoal import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    OffsetAndMetadata,
    Producer,
    RangeReader,
    RebalanceListener,
    TopicPartition,
)
from shoal.client.arguments import checks_arguments
from shoal.types import PreparedTransaction

T0 = TopicPartition("t", 0)
NOBODY = "127.0.0.1:1"
TEXT: Any = "0"  # where a number belongs
CLIENTS = [Consumer, AsyncConsumer, Producer, AsyncProducer, Admin, AsyncAdmin, RangeReader]


def parameters():
    """Every parameter of every public method that has a type."""
    for client in CLIENTS:
        for name, method in inspect.getmembers(client, inspect.isfunction):
            if name.startswith("_"):
                continue
            for parameter in list(inspect.signature(method).parameters.values())[1:]:
                if parameter.annotation != "Any":
                    yield pytest.param(
                        client, name, parameter, id=f"{client.__name__}.{name}-{parameter.name}"
                    )


# What makes a call complete up to the argument that is wrong.
FITTING = {
    "PreparedTransaction": PreparedTransaction("t", 1, 0, is_v2=True),
    "str": "x",
    "int": 1,
    "str | int": "earliest",
    "int | OffsetAndMetadata": 1,
    "TopicPartition": T0,
    "TopicPartition | Collection[TopicPartition]": T0,
    "Collection[TopicPartition]": [T0],
    "Collection[str] | re.Pattern[str] | str": ["t"],
    "Mapping[TopicPartition, int]": {T0: 0},
    "Mapping[TopicPartition, int | str]": {T0: "earliest"},
    "Mapping[TopicPartition, OffsetAndMetadata | int]": {T0: 0},
    "Ranges": {T0: (0, 1)},
    "Offsets": {T0: OffsetAndMetadata(0)},
    "Mapping[str, int]": {"t": 2},
    "Mapping[str, str | None]": {"retention.ms": "1"},
    "Mapping[str, float | None]": {"producer_byte_rate": 1.0},
    "Handler": print,
    "Sequence[Any]": [b"x"],
    "pa.RecordBatch | pa.Table": pa.table({"value": [b"x"]}),
}


@pytest.mark.parametrize(("client", "method", "wrong"), list(parameters()))
def test_an_object_of_no_use_is_refused_by_name(client, method, wrong):
    arguments, keywords = [], {}
    for parameter in list(inspect.signature(getattr(client, method)).parameters.values())[1:]:
        is_wrong = parameter.name == wrong.name
        value = object() if is_wrong else FITTING.get(parameter.annotation)
        if parameter.kind is parameter.KEYWORD_ONLY:
            if is_wrong:
                keywords[parameter.name] = value
        elif parameter.kind is parameter.VAR_POSITIONAL:
            if is_wrong:
                arguments.append(value)
        elif is_wrong or parameter.default is parameter.empty:
            keywords[parameter.name] = value
    if arguments:
        arguments = [*keywords.values(), *arguments]
        keywords = {}
    with pytest.raises(TypeError) as caught:
        asyncio.run(call(client, method, arguments, keywords))
    message = str(caught.value)
    shown = {"headers": "header"}.get(wrong.name, wrong.name)
    named = {"enqueue": "send"}.get(method, method)
    assert message.startswith(f"{named}(): ")
    assert shown in message
    assert "\n" not in message


async def call(client, method, arguments, keywords):
    one = client(bootstrap_servers=NOBODY)
    if client in (Producer, AsyncProducer):
        inside = one if client is Producer else one._producer
        inside._partition_counts["x"] = 1  # so that it need not ask
    try:
        outcome = getattr(one, method)(*arguments, **keywords)
        if inspect.isawaitable(outcome):
            await outcome
    finally:
        closed = one.close()
        if inspect.isawaitable(closed):
            await closed


@pytest.fixture(scope="module")
def consumer():
    with Consumer(bootstrap_servers=NOBODY, group_id="g") as one:
        yield one


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.pause("t"), "pause(): each of partitions must be a TopicPartition, not 't'"),
        (lambda c: c.pause(["t"]), "each of partitions must be a TopicPartition, not 't'"),
        (lambda c: c.committed([("t", 0)]), "must be a TopicPartition, not a tuple"),
        (lambda c: c.seek_to_end(("t", 0)), "must be a TopicPartition, not a tuple"),
        (lambda c: c.assign(T0), "assign(): partitions must be a list of TopicPartitions"),
        (
            lambda c: c.assign(["t"]),
            "assign(): each of partitions must be a TopicPartition, not 't'",
        ),
        (lambda c: c.assign([TopicPartition("t", TEXT)]), "TopicPartition(topic, number), not"),
        (lambda c: c.subscribe([1]), "subscribe(): each of topics must be a string, not 1"),
        (lambda c: c.subscribe(None), "topics must be a list of topics, not None; or one name"),
        (lambda c: c.subscribe(), "topics must be a list of topics, not None; or one name"),
        (lambda c: c.subscribe(["t"], pattern="t"), "topics or a pattern, not both"),
        (lambda c: c.subscribe(pattern=["t"]), "pattern must be a string, not a list"),
        (lambda c: c.subscribe(["t"], RebalanceListener), "an object, not the class"),
        (lambda c: c.subscribe(["t"], print), "listener must have any of on_partitions_assigned"),
        (lambda c: c.seek(T0, "5"), "seek(): offset must be a whole number, not '5'"),
        (lambda c: c.seek(T0, True), "seek(): offset must be a whole number, not True"),
        (lambda c: c.poll("1"), "poll(): timeout must be a number of seconds, not '1'"),
        (lambda c: c.commit_sync({T0: 5}), "must be OffsetAndMetadata(offset), not 5"),
        (lambda c: c.commit_sync([T0]), "commit_sync(): offsets must be a dict of TopicPartition"),
        (
            lambda c: c.commit_async({T0: OffsetAndMetadata(1)}, "call me"),
            "commit_async(): callback must be callable, not 'call me'",
        ),
        (lambda c: c.offsets_for_times({T0: 1.5}), "times_ms[t-0] must be a whole number, not 1.5"),
        (lambda c: c.partitions_for(["t"]), "partitions_for(): topic must be a string, not a list"),
        (lambda c: c.end_offsets("t"), "end_offsets(): partitions must be a list of TopicPart"),
        (lambda c: c.polll(), "polll"),
    ],
)
def test_the_message_says_what_is_wanted(consumer, call, message):
    with pytest.raises((TypeError, AttributeError)) as caught:
        call(consumer)
    assert message in str(caught.value)


@pytest.mark.parametrize("seconds", [-1, -0.5, float("nan")])
def test_a_time_that_cannot_be_waited_is_refused(consumer, seconds):
    with pytest.raises(ValueError, match="not a time to wait"):
        consumer.poll(seconds)
    with pytest.raises(ValueError, match="not a time to wait"):
        consumer.position(T0, timeout=seconds)


def test_a_poll_for_no_records_is_refused(consumer):
    with pytest.raises(ValueError, match="max_records=0"):
        consumer.poll(max_records=0)


@pytest.mark.parametrize("client", CLIENTS)
def test_properties_that_are_no_mapping_are_refused(client):
    if client is not RangeReader:
        with pytest.raises(TypeError, match="properties must be a dict, not list"):
            client.from_properties(["bootstrap.servers"])


def test_a_range_is_two_numbers():
    with RangeReader(bootstrap_servers=NOBODY) as reader:
        with pytest.raises(TypeError, match=r"ranges\[t-0\] must be \(start, end\), not 5"):
            reader.read({T0: 5})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="each key of ranges must be a TopicPartition, not 't'"):
            reader.read({"t": (0, 1)})  # type: ignore[dict-item]


def test_a_refused_call_changes_nothing(consumer):
    with pytest.raises(TypeError):
        consumer.assign([T0, "t-1"])
    assert consumer.assignment() == frozenset()


def test_what_a_serializer_returns_is_looked_at():
    wrong: Any = str
    with (
        Producer(bootstrap_servers=NOBODY, value_serializer=wrong) as producer,
        pytest.raises(TypeError, match="value_serializer returned str, not bytes"),
    ):
        producer.send("t", 5)


def test_signatures_stay_what_they_were():
    assert list(inspect.signature(Consumer.seek).parameters) == [
        *("self", "partition", "offset", "leader_epoch"),
    ]
    assert inspect.iscoroutinefunction(AsyncConsumer.seek)
    assert Consumer.seek.__doc__


def test_an_annotation_nobody_can_check_is_our_mistake():
    with pytest.raises(KeyError):

        @checks_arguments()
        class _Odd:
            def method(self, one: frozenset[complex]) -> None: ...
