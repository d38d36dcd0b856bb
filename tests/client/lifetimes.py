"""Mistakes with the lifetime of objects in C, hunted: memory that ends, finalizers, threads.

    python -m tests.client.lifetimes              on what is installed
    python -m tests.client.lifetimes --sanitize   on C built with AddressSanitizer and UBSan
    python -m tests.client.lifetimes --seconds 60 the threads, for as long

A mistake of this kind crashes the interpreter, or counts a reference wrongly, which is a crash
later. So each hunt does what applications rarely do, very often: every single allocation of a call
fails once; the garbage collector runs at nearly every allocation, with finalizers that call back
in; threads send, read, flush and close at once. What is checked is that nothing is lost count of.
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from shoal import Consumer, Producer
from shoal.client import producer_batch
from shoal.client.accumulator import Accumulator
from shoal.client.config import ProducerConfig
from shoal.client.producer_batch import Builder, PlainSendFuture, ProducerBatch, SendFuture
from shoal.errors import CorruptDataError, ShoalError
from shoal.records import objects
from shoal.records.batch import encode_batch
from shoal.records.chunks import Chunk, DecodeLimits, as_chunks, native_groups
from shoal.records.encoding import Stamp
from shoal.records.kernel import native
from shoal.records.objects import iter_records, put, texts_of
from shoal.testing.broker import Broker
from shoal.types import Record, RecordMetadata, TimestampType, TopicPartition
from tests.patience import PATIENCE_S

METADATA = ("topic", "partition", "offset", "timestamp_ms")
OF_RECORDS = (
    Record,
    tuple(Record.__slots__),
    TimestampType.CREATE_TIME,
    TimestampType.LOG_APPEND_TIME,
    CorruptDataError,
)
FAILURES_MAX = 400  # no call of ours allocates more often
U0 = TopicPartition("u", 0)


class Rig:
    """An accumulator with open batches that nobody sends, and what is sent to it."""

    def __init__(self) -> None:
        self.accumulator = Accumulator(ProducerConfig(), lambda: None, lambda: 0.0)
        self.intake: Any = self.accumulator.intake
        self.intake.has_callbacks = True
        self.intake.serve({"u": 1}, {"u": 0}, 2**20)
        self.accumulator.append(U0, None, b"opens the batch", (), 0)

    @property
    def batch(self) -> ProducerBatch:
        return self.accumulator._queues[U0].batches[-1]

    def take(self, value: Any, headers: Any, function: Any) -> Any:
        return self.intake.take("u", value, None, None, 5, headers, function)

    def check(self) -> None:
        """What is counted in several places is the same in all of them."""
        batch = self.batch
        builder: Any = batch.builder
        assert len(batch._callbacks) % 2 == 0, "a future without whom to tell"
        assert batch.record_count == len(builder) == len(builder.records)
        assert self.intake.used_bytes == batch.size_bytes
        for future in batch._callbacks[::2]:
            assert future._batch is batch
            assert not future.done()


def settled(tp: TopicPartition = U0) -> ProducerBatch:
    batch = ProducerBatch(tp, 0.0)
    batch.base_offset = 2**40
    batch.finish(None)
    return batch


# Memory that ends ----------------------------------------------------------------------------


def _fresh(text: str) -> str:
    """Equal to ``text``, but its UTF-8 has not been asked for yet, which takes memory."""
    return "".join(list(text))


def _steps() -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    """Names of calls, each with what prepares it anew and returns it."""
    records = [(b"k%d" % n, "vä".encode(), (("hé", b"x"), ("h", None)), n) for n in range(20)]
    data = encode_batch(records, base_offset=3, leader_epoch=7)
    module: Any = producer_batch._native
    reading: Any = objects._native

    def taking(headers: Any) -> Callable[[], Any]:
        rig, text = Rig(), _fresh("wörds")
        named = headers and type(headers)(headers)
        for _ in range(60):  # so that the builder has to grow, and the list of callbacks
            rig.take(b"v" * 66, (), print)

        def call() -> Any:
            try:
                return rig.take(text, named, print)
            finally:
                _checked.append(rig.check)

        return call

    def telling() -> Callable[[], Any]:
        rig = Rig()
        rig.take(b"v", (), print)
        callbacks = rig.batch._callbacks + [None]  # noqa: RUF005 - this makes it exactly so large
        callbacks.pop()  # room for one more, but not for two
        rig.batch._callbacks = callbacks

        def call() -> Any:
            try:
                return rig.take(b"v", (), print)
            finally:
                _checked.append(rig.check)

        return call

    def adding() -> Callable[[], Any]:
        rig = Rig()
        batch, builder = rig.batch, rig.batch.builder
        fields = b"k", b"v" * 9000, ((_fresh("ü"), b"x"),), 5
        return lambda: rig.intake.add(batch, builder, *fields)

    def opening() -> Callable[[], Any]:
        rig = Rig()
        return lambda: rig.intake.open("other", 500, ProducerBatch(U0, 0.0), Builder(100))

    def asking(name: str, *args: Any, is_settled: bool = True, **named: Any) -> Callable[[], Any]:
        batch = settled() if is_settled else ProducerBatch(U0, 0.0)
        return lambda: getattr(SendFuture(batch, 3, 4), name)(*args, **named)

    def sealing() -> Callable[[], Any]:
        builder: Any = Rig().batch.builder
        return lambda: (builder.encoded(Stamp()), builder.encoded(Stamp(codec=1)), builder.records)

    def making() -> Callable[[], Any]:
        # Not the whole way: ctypes, before it, has errors of its own for memory that ends.
        groups = native_groups(native(), as_chunks([Chunk("t", 1, data)]), DecodeLimits())
        group = next(groups)
        which = group.batches, group.first, group.batch_count, group.sizes

        def make() -> Any:
            assert groups is not None, "kept: or its memory is gone"
            return reading.make(*which, "t", 1)

        return make

    def decoding() -> Callable[[], Any]:
        found = [record for part in iter_records(Chunk("t", 1, data)) for record in part]
        return lambda: texts_of(found, 0, len(found), keys=True, values=True)

    yield "take", lambda: taking(())
    yield "take with headers", lambda: taking({_fresh("hé"): b"x"})
    yield "take with a list", lambda: taking([(_fresh("hé"), b"x")])
    yield "take with room for one", telling
    yield "add", adding
    yield "open", opening
    yield "result", lambda: asking("result", 0)
    yield "result, by name", lambda: asking("result", timeout=0)
    yield "exception", lambda: asking("exception", timeout=0)
    yield "done, not yet", lambda: asking("done", is_settled=False)
    yield "add_done_callback", lambda: asking("add_done_callback", id, is_settled=False)
    yield "add_done_callback, at once", lambda: asking("add_done_callback", id)
    yield "encoded", sealing

    def putting() -> Callable[[], Any]:
        ((record, *_),) = iter_records(Chunk("t", 1, data))

        def call() -> None:
            put(record, b"k", [1])
            setattr(record, "value", {})  # noqa: B010 - of another type

        return call

    yield "make", making
    yield "texts", decoding
    yield "put", putting
    yield "prepare records", lambda: lambda: reading.prepare(*OF_RECORDS)
    yield (
        "prepare",
        lambda: lambda: module.prepare(PlainSendFuture, RecordMetadata, METADATA),
    )


_checked: list[Callable[[], None]] = []


def exhaust_memory() -> int:
    """Each allocation of each call fails once; how many that were."""
    import _testcapi

    failures = 0
    for name, prepare in _steps():
        for number in range(FAILURES_MAX):
            call = prepare()
            _checked.clear()
            error: BaseException | None = None
            gc.disable()  # what it allocates is not of the call
            _testcapi.set_nomemory(number, number + 1)
            try:
                call()
            except BaseException as raised:
                error = raised
            finally:
                _testcapi.remove_mem_hooks()
                gc.enable()
            assert error is None or isinstance(error, MemoryError), f"{name}: {error!r}"
            for check in _checked:
                check()
            failures += error is not None
    return failures


# Finalizers ----------------------------------------------------------------------------------


class Garbage:
    """Calls at its end, which only the collector brings if it is a circle."""

    def __init__(self, function: Callable[[], object], *, is_circle: bool = True) -> None:
        self.circle = self if is_circle else None
        self.function = function

    def __del__(self) -> None:
        self.function()


@contextmanager
def _collecting_always() -> Iterator[None]:
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_always(rounds: int) -> int:
    """Finalizers close and open batches, settle futures and send, in the midst of every call."""
    calls = 0
    rig = Rig()
    made: list[Any] = []

    def close() -> None:
        rig.intake.close("u", 0)

    def send() -> None:
        nonlocal calls
        calls += 1
        rig.take(b"of a finalizer", {"h": b"x"}, print)

    def close_another() -> None:
        nonlocal calls
        calls += 1
        rig.intake.close("another", 0)

    def open_another() -> None:
        """A batch that only the intake has: letting go of it calls back, before that is done."""
        batch: Any = ProducerBatch(TopicPartition("another", 0), 0.0)
        batch.lease = Garbage(close_another, is_circle=False)
        rig.intake.open("another", 0, batch, Builder(1000))

    def begin_anew() -> None:
        nonlocal calls
        calls += 1
        for batch in rig.accumulator.drop_late(1.0):
            for function in batch.finish(None)[::2]:
                function.result(0)
            rig.accumulator.released(batch)
        with suppress(ShoalError):
            rig.accumulator.append(U0, b"k", b"again", (), 0)

    records = [(b"k%d" % n, b"v", (("h", b"x"),), n) for n in range(30)]
    data = encode_batch(records)

    def read() -> None:
        nonlocal calls
        calls += 1
        ((record, *_),) = iter_records(Chunk("t", 1, data))
        put(record, [record], {})

    with _collecting_always():
        for number in range(rounds):
            made.append(Garbage((close, send, begin_anew)[number % 3]))
            if number % 5 == 0:
                made.clear()
            future = rig.take("wörds", [("h", b"x")], made.append)
            if future is None:
                future, _ = rig.accumulator.append(U0, None, b"v", (), 0, made.append)
            made.append((future, Garbage(send)))
            future.add_done_callback([Garbage(close)].count)  # to be kept, or called at once
            future.done()
            open_another()
            if number % 2:
                rig.intake.close("another", 0)
            if number % 50 == 0:
                parts = list(iter_records(Chunk("t", 1, data)))
                assert texts_of(parts[0], 0, 30, keys=True, values=True) == 30
                record: Any
                for record in parts[0]:
                    put(record, Garbage(read), Garbage(read, is_circle=False))
                    record.key = record.value = record
    made.clear()
    gc.collect()
    return calls


# References ----------------------------------------------------------------------------------


def count_references(rounds: int) -> None:
    """Whatever goes in and through has as many references afterwards as before."""
    kept: list[Any] = [f"name {id(object())}", bytes([1, 2, 3, 250]), f"text {id(object())}"]
    kept += [lambda future: None, (kept[0], kept[1]), {kept[0]: kept[1]}, 2**70, Rig()]
    kept.append(settled(TopicPartition(kept[2], kept[6])))
    name, content, text, function, pair, headers, number, rig, batch = kept
    records = [(content, content, ((name, content),), 2**40)] * 10
    data = memoryview(encode_batch(records, base_offset=2**50, leader_epoch=2**20))
    kept += [data, SendFuture, Builder, type(rig.intake), RecordMetadata, *OF_RECORDS, None]

    def one_round() -> None:
        for given in (headers, [pair], (pair,), (), None, [(name, 5)], [pair, 7]):
            for value in (content, text, None, number):
                future = rig.intake.take("u", value, content, None, None, given, function)
                assert future is None or future._batch is rig.batch
        rig.intake.add(rig.batch, rig.batch.builder, content, content, (pair,), 2**40)
        with suppress(TypeError, OverflowError):
            rig.intake.add(rig.batch, rig.batch.builder, content, text, (pair,), number)
        SendFuture(batch, 1, 2).result(0)
        SendFuture(batch, 1, 2).result(timeout=0)
        SendFuture(batch, 1, 2).exception()
        SendFuture(batch, 1, 2).add_done_callback(function)
        with suppress(TypeError):
            SendFuture(content, 1, 2)
        (late,) = rig.accumulator.drop_late(1.0)
        late.builder.encoded(Stamp())
        late.finish(None)
        rig.accumulator.released(late)
        rig.accumulator.append(U0, None, b"opens the next", (), 0)
        (found,) = iter_records(Chunk(name, 1, data))
        texts_of(found, 0, 5, keys=True, values=True)  # which are not UTF-8
        record: Any
        for record in found[:5]:
            put(record, text, pair)
            record.headers = [name, found]  # a circle

    def counted() -> list[int]:
        gc.collect()
        return [sys.getrefcount(each) for each in kept]

    def blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    for _ in range(3):
        one_round()
    before, blocks_before = counted(), blocks()
    for _ in range(rounds):
        one_round()
    after, blocks_after = counted(), blocks()
    grown = [
        (each, now - then)
        for each, then, now in zip(kept, before, after, strict=True)
        if abs(now - then) > (rounds // 2 if each is None else 3)
    ]
    assert not grown, f"in {rounds} rounds these gained or lost references: {grown}"
    assert blocks_after - blocks_before < 2 * rounds, "objects are left over"


# Threads -------------------------------------------------------------------------------------


def share_among_threads(seconds: float) -> int:
    """Clients that several threads use, closed under their hands; how many there were."""
    until, clients = time.monotonic() + seconds, 0
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with Broker() as broker:
            broker.create_topic("t", partitions=3)
            while time.monotonic() < until:
                _one_life(broker.bootstrap_servers)
                clients += 1
    finally:
        sys.setswitchinterval(interval)
    return clients


def _one_life(servers: str) -> None:
    producer = Producer(bootstrap_servers=servers, linger_ms=1, batch_size=2_000)
    consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("t", number) for number in range(3)])
    told: list[Any] = []
    closing = threading.Event()
    failures: list[BaseException] = []

    def until_closed(work: Callable[[int], object]) -> Callable[[], None]:
        def run() -> None:
            number = 0
            try:
                while not closing.is_set() or number < 50:
                    number += 1
                    work(number)
            except (ShoalError, RuntimeError, ValueError):
                if not closing.is_set():
                    raise

        def guarded() -> None:
            try:
                run()
            except BaseException as error:
                failures.append(error)

        return guarded

    def send(number: int) -> None:
        key, headers = b"%d" % (number % 7), {"h": b"%d" % number}
        future = producer.send("t", f"v{number}", key, headers=headers, on_delivery=told.append)
        if number % 100 == 0:
            future.result(PATIENCE_S)

    def read(number: int) -> None:
        if number % 3:
            consumer.poll(0.01)
        else:
            consumer.poll_arrow(0.01)

    works = [send, send, lambda _: producer.flush(PATIENCE_S), read]
    threads = [threading.Thread(target=until_closed(work)) for work in works]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    closing.set()
    producer.close(PATIENCE_S)
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread hangs"
    consumer.close()
    assert not failures, failures
    assert all(future.done() for future in told)


# The program ---------------------------------------------------------------------------------


def hunt(seconds: float) -> None:
    if producer_batch._native is None or objects._native is None:
        raise SystemExit("the extension modules were not built; there is nothing to hunt in")
    try:
        print(f"memory that ends: {exhaust_memory()} failed allocations")
    except ModuleNotFoundError:
        print("memory that ends: not run, this Python has no _testcapi")
    print(f"finalizers: {collect_always(2_000)} calls")
    count_references(200)
    print("references: as many as before")
    print(f"threads: {share_among_threads(seconds)} producers and consumers")


def _sanitized(seconds: float) -> int:
    from tests.records.sanitizers import build, find_compiler

    with tempfile.TemporaryDirectory() as directory:
        compiler = find_compiler(Path(directory))
        if compiler is None:
            raise SystemExit("no C compiler with AddressSanitizer and UBSan; install gcc or clang")
        code = (
            "import tests.records.sanitized; from tests.client.lifetimes import hunt; "
            f"hunt({seconds})"
        )
        environment = build(compiler, Path(directory))
        return subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="hunts mistakes with the lifetime of objects in C")
    parser.add_argument("--sanitize", action="store_true", help="on C built with sanitizers")
    parser.add_argument("--seconds", type=float, default=5.0, help="for the threads (5)")
    options = parser.parse_args()
    if options.sanitize:
        return _sanitized(options.seconds)
    hunt(options.seconds)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
