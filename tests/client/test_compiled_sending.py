"""Sending by the extension module and by Python: the same bytes, the same futures, the same errors.

Both ways run in one process: ``Twin`` is what ``Producer.send`` works on, without an engine, made
of either implementation. What a test does to one, it does to the other.
"""

import gc
import threading
import time
import weakref
from collections import UserDict, UserString
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.client import accumulator, producer_batch
from shoal.client.accumulator import Accumulator
from shoal.client.config import ProducerConfig
from shoal.client.partitioner import Sticky, murmur2, partition_for_key
from shoal.client.producer import Producer, run_all
from shoal.client.producer_batch import (
    Builder,
    Intake,
    PlainBuilder,
    PlainIntake,
    PlainSendFuture,
    ProducerBatch,
    SendFuture,
)
from shoal.errors import BrokerError, ErrorCode, RequestTimeoutError, error_for
from shoal.records.batch import decode_batch
from shoal.records.encoding import Stamp
from shoal.records.extension import extension
from shoal.types import RecordMetadata, TopicPartition

NATIVE: Any = extension("shoal.client._sending")
pytestmark = pytest.mark.skipif(NATIVE is None, reason="the extension was not built")
PATIENCE_S = 10


class PlainBatch(ProducerBatch):
    """A batch for Python's futures; its state is C's all the same, which they do not notice."""

    __slots__ = ()


def filled(batch: ProducerBatch) -> Builder:
    """The builder of a batch that is made of single records."""
    assert batch.builder is not None
    return batch.builder


class Twin(Producer):
    """``Producer.send`` on an accumulator that nobody empties."""

    def __init__(self, *, is_compiled: bool, counts: dict[str, int] | None = None, **settings):
        self.config = ProducerConfig(**settings)
        turn = count()
        self._partitioner = Sticky(lambda n: next(turn) % n)
        self._on_batch = self._partitioner.batch_done
        self._partition_counts = {"t": 3, "u": 1} if counts is None else counts
        nobody: Any = object()
        self._callbacks = nobody
        self.is_compiled = is_compiled
        self.taken = 0
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(accumulator, "Intake", Intake if is_compiled else PlainIntake)
            self._accumulator = Accumulator(self.config, lambda: None, lambda: 0.0)
        self._serve()

    def _serve(self) -> None:
        super()._serve()
        take = self._take

        def counting(*arguments):
            future = take(*arguments)
            self.taken += future is not None
            return future

        self._take = counting

    def send(self, *arguments, **named) -> SendFuture:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(accumulator, "Builder", Builder if self.is_compiled else PlainBuilder)
            patched.setattr(
                accumulator, "SendFuture", SendFuture if self.is_compiled else PlainSendFuture
            )
            return super().send(*arguments, **named)

    def _partition_count(self, topic: str) -> int:
        raise RequestTimeoutError(f"no {topic}")

    def _need_partition(self, topic: str, partition: int) -> int:
        raise ValueError(f"{topic} {partition}")

    def __del__(self) -> None:
        """There is no engine to stop."""

    @property
    def batches(self) -> Iterator[ProducerBatch]:
        for queue in self._accumulator._queues.values():
            yield from queue.batches

    def encoded(self, **stamp) -> list[tuple[TopicPartition, int, int, bytes]]:
        return [
            (batch.tp, batch.record_count, batch.size_bytes, filled(batch).encoded(Stamp(**stamp)))
            for batch in self.batches
        ]


def twins(**settings) -> tuple[Twin, Twin]:
    return Twin(is_compiled=True, **settings), Twin(is_compiled=False, **settings)


def outcome(call):
    """What a call returns or raises, in a form that can be compared."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error), getattr(error, "__notes__", [])


class Text(str):
    """As StrEnum and numpy's strings are."""


class Chunk(bytes):
    pass


class Number(int):
    pass


SURROGATE = "\ud800"
contents = st.one_of(st.none(), st.binary(max_size=300), st.text(max_size=80))
odd_contents = st.one_of(
    contents,
    st.sampled_from(
        [bytearray(b"ab"), memoryview(b"abc"), Text("tëxt"), Chunk(b"c"), SURROGATE, 7, [], "", b""]
    ),
)
names = st.one_of(st.text(max_size=10), st.sampled_from(["", "ü" * 40, "trace-id"]))
header_values = st.one_of(st.none(), st.binary(max_size=40))
pairs = st.lists(st.tuples(names, header_values), max_size=4)
headers = st.one_of(
    st.just(()), pairs, pairs.map(tuple), st.dictionaries(names, header_values, max_size=4)
)
odd_headers = st.one_of(
    headers,
    st.sampled_from(
        [
            None,
            [["h", b"v"]],
            [("h", "text")],
            [(b"h", b"v")],
            [("h", b"v", 1)],
            [(SURROGATE, b"v")],
            [(Text("h"), Chunk(b"v"))],
            {"h": 1},
            {1: b"v"},
            UserDict({"h": b"v"}),
            "ab",
            5,
            [("h", None), ("h", b"")],
            [(None, b"v")],
        ]
    ),
)
partitions = st.one_of(
    st.none(), st.integers(0, 2), st.sampled_from([-1, 3, 2**70, True, "0", 1.0, Number(1)])
)
times = st.one_of(
    st.integers(0, 2**63 - 1),
    st.sampled_from([0, 2**63 - 1, 2**63, -1, 2**80, True, "0", 1.5, Number(5)]),
)
topics = st.sampled_from(["t", "t", "t", "u", "missing", "", Text("t"), UserString("t"), None, 5])
odd_sends = st.fixed_dictionaries(
    {"topic": topics, "value": odd_contents, "key": odd_contents},
    optional={
        "partition": partitions,
        "timestamp_ms": times,
        "headers": odd_headers,
        "on_delivery": st.sampled_from([None, print, 5]),
    },
)


def place_of(future: SendFuture) -> tuple[TopicPartition, int, int]:
    return future._batch.tp, future._index, future._timestamp_ms


@given(
    st.lists(odd_sends, max_size=30),
    st.sampled_from([100, 500, 100_000]),
    st.sampled_from([60, 10_000]),
)
@example(
    [
        {"topic": "u", "value": b"1", "key": None, "headers": [["h", b"v"]]},
        {
            "topic": "u",
            "value": Chunk(b"2"),
            "key": Chunk(b"k"),
            "headers": {Text("h"): Chunk(b"v")},
        },
        {"topic": "u", "value": bytes(61), "key": None},
    ],
    500,
    60,
)
def test_whatever_is_sent_both_ways_take_and_refuse_the_same(sends, batch_size, max_request_size):
    """Sizes too, which decide when a batch is full; ``timestamp_ms`` is fixed where none is."""
    settings = {"batch_size": batch_size, "max_request_size": max_request_size}
    compiled, plain = twins(**settings)
    for send in sends:
        send = {"timestamp_ms": 1_700_000_000_000, **send}
        ours = outcome(lambda: place_of(compiled.send(**send)))  # noqa: B023
        theirs = outcome(lambda: place_of(plain.send(**send)))  # noqa: B023
        assert ours == theirs
    assert compiled.encoded() == plain.encoded()
    assert compiled._accumulator.intake.used_bytes == plain._accumulator.intake.used_bytes
    ours, theirs = compiled._partitioner, plain._partitioner
    assert isinstance(ours, Sticky)
    assert isinstance(theirs, Sticky)
    assert ours.current == theirs.current


usual_sends = st.tuples(
    st.sampled_from(["t", "u"]), contents, contents, headers, st.integers(0, 2**63 - 1)
)


@given(
    st.lists(usual_sends, min_size=1, max_size=60),
    st.sampled_from([0, 1, 2, 3, 4]),
    st.booleans(),
)
def test_usual_records_take_the_short_way_and_give_the_same_batches(sends, codec, transactional):
    compiled, plain = twins()
    for topic, value, key, pairs, timestamp_ms in sends:
        for twin in (compiled, plain):
            twin.send(topic, value, key, headers=pairs, timestamp_ms=timestamp_ms)
    stamp = {
        "codec": codec,
        "producer_id": 2**62,
        "producer_epoch": 300,
        "base_sequence": 2**30,
        "is_transactional": transactional,
    }
    assert compiled.encoded(**stamp) == plain.encoded(**stamp)
    # The first of a batch goes the other way, and the first without a key of each topic.
    opened = len(list(compiled.batches))
    assert opened <= len(sends) - compiled.taken <= opened + 2
    assert plain.taken == 0


def test_without_a_time_a_record_has_the_time_it_was_sent_at():
    compiled, _ = twins()
    before = time.time_ns() // 1_000_000
    futures = [compiled.send("u", b"v") for _ in range(3)]
    after = time.time_ns() // 1_000_000
    assert compiled.taken == 2
    assert all(before <= future._timestamp_ms <= after for future in futures)


@given(st.binary(max_size=40), st.integers(1, 2**31 - 1))
@example(b"", 1)
def test_a_key_goes_to_the_partition_java_chooses(key, partition_count):
    """The numbers of Python's hash are compared with Java's in test_partitioner."""
    wanted = partition_for_key(key, partition_count)
    small = wanted % 1000 + 1
    compiled = Twin(is_compiled=True, counts={"t": small})
    chosen = murmur2(key) % 2**31 % small
    compiled.send("t", b"opens it", partition=chosen)
    assert compiled.send("t", b"v", key)._batch.tp == ("t", chosen)
    assert compiled.taken == 1


# --- what closes the short way ---


def test_nothing_is_taken_while_the_accumulator_refuses():
    compiled, _ = twins()
    compiled.send("u", b"first")
    compiled._accumulator.refuse(lambda: RuntimeError("not now"))
    with pytest.raises(RuntimeError, match="not now"):
        compiled.send("u", b"refused")
    compiled._accumulator.accept()
    compiled.send("u", b"second")
    (batch,) = compiled.batches
    assert [value for _, value, _, _ in filled(batch).records] == [b"first", b"second"]


@pytest.mark.parametrize("leaves", ["due", "late"])
def test_nothing_joins_a_batch_that_has_left(leaves):
    compiled, _ = twins(linger_ms=0)
    compiled.send("u", b"first")
    if leaves == "due":
        (gone,) = compiled._accumulator.ready(lambda _: 1)
    else:
        (gone,) = compiled._accumulator.drop_late(1.0)
    future = compiled.send("u", b"second")
    assert (gone.record_count, len(filled(gone))) == (1, 1)
    assert future._batch is not gone


def test_nothing_overtakes_a_batch_made_of_columns():
    compiled, _ = twins()
    compiled.send("u", b"first")
    lease: Any = compiled._accumulator  # any object: it is only kept
    compiled._accumulator.append_prebuilt(TopicPartition("u", 0), memoryview(b"12345"), lease, 1)
    compiled.send("u", b"third")
    assert [batch.record_count for batch in compiled.batches] == [1, 1, 1]


def test_a_full_buffer_makes_who_sends_wait():
    for twin in twins(buffer_memory=300, max_block_ms=1):
        for _ in range(2):
            twin.send("u", bytes(200))
        with pytest.raises(RequestTimeoutError, match="stayed full"):
            twin.send("u", b"too much")
        (batch,) = twin._accumulator.ready(lambda _: 1)
        batch.finish(None)
        twin._accumulator.released(batch)
        assert twin._accumulator.intake.used_bytes == 0
        twin.send("u", b"again")


def test_a_producer_that_knows_its_topic_no_more_asks_for_it():
    for twin in twins():
        twin.send("u", b"v")
        twin._partition_counts.clear()
        with pytest.raises(RequestTimeoutError, match="no u"):
            twin.send("u", b"v")


@pytest.mark.parametrize(
    "settings",
    [
        {"value_serializer": lambda value: b"<" + value + b">"},
        {"key_serializer": lambda key: key},
        {"partitioner": lambda topic, key, count: 0},
        {"partitioner": "round-robin"},
    ],
)
def test_serializers_and_partitioners_of_others_are_asked_for_every_record(settings):
    twin = Twin(is_compiled=True)
    twin.config = ProducerConfig(**settings)
    if callable(given_one := twin.config.partitioner):
        twin._partitioner = given_one
    elif given_one != "sticky":
        twin._partitioner = lambda *_: 2
    twin._accumulator = Accumulator(twin.config, lambda: None, lambda: 0.0)
    twin._serve()
    futures = [twin.send("t", b"v", b"k") for _ in range(5)]
    assert twin.taken == 0
    assert [future._index for future in futures] == [0, 1, 2, 3, 4]
    expected = b"<v>" if "value_serializer" in settings else b"v"
    assert filled(futures[0]._batch).records[4][1] == expected


def test_many_threads_lose_no_record_and_count_each_once():
    compiled, _ = twins(batch_size=2_000)
    each, threads = 3_000, 4

    def send(number: int) -> None:
        for n in range(each):
            compiled._accumulator.intake.take("t", b"%d-%d" % (number, n), b"k", None, 0, (), None)
            Producer.send(compiled, "t", b"%d+%d" % (number, n), b"k", timestamp_ms=0)

    running = [threading.Thread(target=send, args=[number]) for number in range(threads)]
    gone: list[ProducerBatch] = []
    for thread in running:
        thread.start()
    while any(thread.is_alive() for thread in running):
        gone += compiled._accumulator.ready(lambda _: 2)
    for thread in running:
        thread.join(PATIENCE_S)
    gone += compiled._accumulator.drop_late(1.0)
    for number in range(threads):
        sent = [
            int(record.value.partition(b"+")[2])
            for batch in gone
            for record in decode_batch(filled(batch).encoded(Stamp()))
            if record.value is not None and record.value.startswith(b"%d+" % number)
        ]
        assert sent == list(range(each))
    assert all(batch.record_count == len(filled(batch)) for batch in gone)
    intake = compiled._accumulator.intake
    assert intake.used_bytes == sum(batch.size_bytes for batch in gone)


# --- futures ---


def futures_of(batch: ProducerBatch, index: int) -> list[SendFuture]:
    return [kind(batch, index, 1_234) for kind in (SendFuture, PlainSendFuture)]


@given(
    st.one_of(st.none(), st.integers(0, 2**62)),
    st.one_of(st.none(), st.integers(0, 2**62)),
    st.integers(0, 2**31),
    st.sampled_from([None, 0, 1.5, True, Number(1)]),
)
def test_a_settled_future_tells_the_same_either_way(base_offset, append_time_ms, index, timeout):
    batch = ProducerBatch(TopicPartition("t", 7), 0.0)
    batch.base_offset, batch.log_append_time_ms = base_offset, append_time_ms
    batch.finish(None)
    results = [future.result(timeout) for future in futures_of(batch, index)]
    assert results[0] == results[1]
    assert type(results[0]) is RecordMetadata
    assert all(future.exception(timeout=timeout) is None for future in futures_of(batch, index))
    assert all(future.done() for future in futures_of(batch, index))


@pytest.mark.parametrize("timeout", ["soon", b"", [], 1j])
def test_a_timeout_that_is_no_number_is_refused_the_same_way(timeout):
    batch = ProducerBatch(TopicPartition("t", 7), 0.0)
    batch.finish(None)
    for name in ("result", "exception"):
        ours, theirs = (
            outcome(lambda f=f: getattr(f, name)(timeout))  # noqa: B023
            for f in futures_of(batch, 0)
        )
        assert ours == theirs


def test_the_futures_of_a_failed_batch_raise_its_error():
    batch = ProducerBatch(TopicPartition("t", 7), 0.0)
    error = error_for(ErrorCode.MESSAGE_TOO_LARGE, "t-7")
    batch.finish(error)
    for future in futures_of(batch, 3):
        for _ in range(2):
            with pytest.raises(BrokerError) as raised:
                future.result()
            assert raised.value is error
        assert future.exception() is error


def test_a_future_that_waits_in_vain_says_so():
    batch = ProducerBatch(TopicPartition("t", 7), 0.0)
    texts = [outcome(lambda f=f: f.result(0))[1] for f in futures_of(batch, 0)]
    assert texts == ["a record for t-7 was not acknowledged within 0 s"] * 2
    assert not any(future.done() for future in futures_of(batch, 0))


def test_a_future_waits_in_one_thread_for_what_another_settles():
    batch = ProducerBatch(TopicPartition("t", 7), 0.0)
    batch.base_offset = 10
    threading.Timer(0.02, batch.finish, [None]).start()
    assert SendFuture(batch, 5, 0).result(PATIENCE_S).offset == 15


def test_the_records_of_a_split_batch_are_found_in_its_parts():
    twin = Twin(is_compiled=True)
    futures = [twin.send("u", b"%d" % n, timestamp_ms=100 + n) for n in range(9)]
    told: list[Any] = []
    for future in futures:
        future.add_done_callback(told.append)
    (batch,) = twin.batches
    left, right = batch.split()
    times = [record[3] for part in (left, right) for record in filled(part).records]
    assert times == list(range(100, 109))
    parts = [left, *right.split()]
    for number, part in enumerate(parts):
        part.base_offset = 100 * number
        run_all(part.finish(None))
    assert told == futures
    assert [future.result(0).offset for future in futures] == [
        *(0, 1, 2, 3),
        *(100, 101),
        *(200, 201, 202),
    ]


def noted(told: list[tuple[str, SendFuture]], name: str) -> Callable[[SendFuture], None]:
    return lambda future: told.append((name, future))


def test_callbacks_come_in_the_order_of_the_calls_with_the_futures_that_were_returned():
    for twin in twins():
        told: list[tuple[str, SendFuture]] = []
        first = twin.send("u", b"0", on_delivery=noted(told, "first"))
        second = twin.send("u", b"1", on_delivery=noted(told, "second"))
        first.add_done_callback(noted(told, "later"))
        third = twin.send("u", b"2", on_delivery=noted(told, "third"))
        (batch,) = twin.batches
        run_all(batch.finish(None))
        assert told == [("first", first), ("second", second), ("later", first), ("third", third)]
        kept = (first, second, first, third)
        assert all(given is one for (_, given), one in zip(told, kept, strict=True))
        third.add_done_callback(noted(told, "at once"))
        assert told[-1] == ("at once", third)


def test_a_callback_that_raises_keeps_none_of_the_others_from_being_called():
    twin = Twin(is_compiled=True)
    told: list[Any] = []

    def fail(_):
        raise ValueError("in a callback")

    for function in (told.append, fail, told.append):
        twin.send("u", b"v", on_delivery=function)
    (batch,) = twin.batches
    run_all(batch.finish(None))
    assert len(told) == 2


# --- memory ---


class Witness:
    future: SendFuture


def test_a_circle_of_a_future_and_its_callback_is_collected():
    """Also if nobody ever settles the batch, as in a process that was forked off."""
    twin = Twin(is_compiled=True)
    twin.send("u", b"opens the batch")
    witness = Witness()
    witness.future = twin.send("u", b"v", on_delivery=lambda _, kept=witness: kept)
    assert twin.taken == 1
    gone = weakref.ref(witness)
    del twin, witness
    gc.collect()
    assert gone() is None


def test_an_error_that_holds_its_futures_is_collected():
    batch = ProducerBatch(TopicPartition("t", 7), 0.0)
    witness = Witness()

    def ask(batch, kept):
        futures = [SendFuture(batch, n, 0) for n in range(3)]
        futures[1].result()  # raises: the traceback holds this frame, and so the futures
        return kept

    batch.finish(ValueError("refused"))
    with pytest.raises(ValueError, match="refused"):
        ask(batch, witness)
    gone = weakref.ref(witness)
    del batch, witness
    gc.collect()
    assert gone() is None


@pytest.mark.slow
def test_sending_and_settling_keeps_no_memory():
    twin = Twin(is_compiled=True)
    names = [f"header-{n}" for n in range(10)]

    def one_round() -> None:
        for n in range(3_000):
            twin.send(
                "t", "välue", b"k%d" % n, headers={names[n % 10]: b"v"}, on_delivery=lambda _: None
            )
            outcome(lambda: twin.send("t", SURROGATE))
            outcome(lambda: twin.send("t", b"", headers=[("h", 5)]))
        for batch in twin._accumulator.drop_late(1.0):
            filled(batch).encoded(Stamp())
            callbacks = batch.finish(None)
            for future in callbacks[::2]:
                future.result(0)
            twin._accumulator.released(batch)

    def blocks() -> int:
        gc.collect()
        import sys

        return sys.getallocatedblocks()

    for _ in range(3):
        one_round()
    before = blocks()
    for _ in range(5):
        one_round()
    assert blocks() - before < 500


# --- the parts, held wrongly ---


def test_the_parts_refuse_what_they_are_not_made_for():
    twin = Twin(is_compiled=True)
    batch = ProducerBatch(TopicPartition("t", 0), 0.0)
    intake: Any = twin._accumulator.intake
    builder: Any = Builder(1000)
    nobody: Any = object()
    number: Any = "0"
    for call in (
        lambda: SendFuture(nobody, 0, 0),
        lambda: SendFuture(batch, number, 0),
        lambda: intake.take("t"),
        lambda: intake.open("t", 0, object(), builder),
        lambda: intake.open("t", 0, batch, object()),
        lambda: intake.add(batch, builder, b"k"),
        lambda: intake.add(object(), builder, b"k", b"v", (), 0),
        lambda: intake.serve({}, [], 5),
        lambda: builder.append("text", b"v", (), 0),
        lambda: builder.append(None, b"v", (("h", "text"),), 0),
        lambda: builder.append(None, b"v", (), -1),
        lambda: builder.append(None, b"v", ()),
        lambda: intake.change("5"),
        lambda: NATIVE.prepare(PlainSendFuture, RecordMetadata, ("topic",)),
        lambda: NATIVE.prepare(PlainSendFuture, RecordMetadata, ("topic",) * 3 + ("__doc__",)),
    ):
        with pytest.raises((TypeError, AttributeError)):
            call()
    intake.open("t", 2**40, batch, builder)  # beyond what it knows: such records go the other way
    intake.close("t", 2**40)
    intake.close("nobody", 0)
    assert len(builder) == 0
    batch.base_offset = 5
    batch.finish(None)
    assert SendFuture(batch, 2, 0).result(0).offset == 7  # what was prepared is as it was
    assert intake.used_bytes == 0


def test_the_compiled_classes_have_the_names_and_signatures_of_pythons():
    import inspect

    for name in ("done", "exception", "result", "add_done_callback"):
        ours = inspect.signature(getattr(SendFuture, name))
        theirs = inspect.signature(getattr(PlainSendFuture, name))
        assert [p.replace(annotation=p.empty) for p in theirs.parameters.values()] == [
            p.replace(kind=p.POSITIONAL_OR_KEYWORD) for p in ours.parameters.values()
        ]
    assert SendFuture.__module__ == PlainSendFuture.__module__
    assert SendFuture.__qualname__ == PlainSendFuture.__qualname__
    assert SendFuture.__doc__ == PlainSendFuture.__doc__
    assert producer_batch.Intake is NATIVE.Intake
