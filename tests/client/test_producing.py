"""Producing: what arrives, in which order, and what happens when it cannot."""

from __future__ import annotations

import math
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.client.accumulator import Accumulator
from shoal.client.config import ProducerConfig
from shoal.client.partitioner import partition_for_key
from shoal.errors import BrokerError, ErrorCode, RequestTimeoutError
from shoal.wire.apis.metadata import MetadataResponse
from shoal.wire.apis.registry import ApiKey
from tests.client.conftest import take
from tests.client.scripted import ScriptedBroker
from tests.patience import PATIENCE_S


def read_all(servers, topic, count, partitions=1):
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
        one.assign([TopicPartition(topic, n) for n in range(partitions)])
        return take(one, count)


def test_a_future_tells_where_the_record_went(producer, topic):
    futures = [producer.send(topic, str(n), timestamp_ms=n) for n in range(3)]
    found = [future.result(10) for future in futures]
    assert [(m.topic, m.partition, m.offset, m.timestamp_ms) for m in found] == [
        (topic, 0, n, n) for n in range(3)
    ]
    assert all(future.done() for future in futures)
    assert futures[0].exception() is None


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_arrives(servers, topic, codec):
    values = [b"abc" * n for n in range(50)]
    with Producer(bootstrap_servers=servers, compression_type=codec) as producer:
        for value in values:
            producer.send(topic, value)
    assert [record.value for record in read_all(servers, topic, 50)] == values


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_every_acks_arrives(servers, topic, acks):
    with Producer(bootstrap_servers=servers, acks=acks) as producer:
        future = producer.send(topic, b"x")
        offset = future.result(10).offset
    assert offset == (None if acks == 0 else 0)
    assert read_all(servers, topic, 1)[0].value == b"x"


def test_keys_go_where_java_puts_them_and_others_stick(servers, new_topic):
    topic = new_topic(5)
    with Producer(bootstrap_servers=servers, linger_ms=1000) as producer:
        keyed = [producer.send(topic, b"v", f"key-{n}") for n in range(30)]
        loose = [producer.send(topic, b"v") for _ in range(30)]
        producer.flush(10)
    for n, future in enumerate(keyed):
        assert future.result().partition == partition_for_key(f"key-{n}".encode(), 5)
    assert len({future.result().partition for future in loose}) == 1


def test_a_custom_partitioner_and_a_given_partition(servers, new_topic):
    topic = new_topic(3)
    asked = []

    def last(name, key, count):
        asked.append((name, key, count))
        return count - 1

    with Producer(bootstrap_servers=servers, partitioner=last) as producer:
        assert producer.send(topic, b"v", "k").result(10).partition == 2
        assert producer.send(topic, b"v", partition=1).result(10).partition == 1
        with pytest.raises(ValueError, match="partitions 0 to 2, not 3"):
            producer.send(topic, b"v", partition=3)
    assert asked == [(topic, b"k", 3)]


def test_serializers_and_what_is_refused_without(servers, topic):
    with Producer(bootstrap_servers=servers, value_serializer=lambda v: repr(v).encode()) as p:
        p.send(topic, {"a": 1}).result(10)
        with pytest.raises(TypeError, match="key_serializer"):
            p.send(topic, "v", key=5)
    assert read_all(servers, topic, 1)[0].value == b"{'a': 1}"


def test_headers_may_be_a_mapping(producer, servers, topic):
    producer.send(topic, b"v", headers={"a": b"1", "b": None}).result(10)
    assert list(read_all(servers, topic, 1)[0].headers) == [("a", b"1"), ("b", None)]


def test_callbacks_run_on_another_thread_and_cannot_hurt(producer, topic):
    seen = []
    told = threading.Event()

    def broken(future):
        raise LookupError("from a callback")

    def good(future):
        seen.append((future.result().offset, threading.current_thread()))
        told.set()

    producer.send(topic, b"v", on_delivery=broken)
    producer.send(topic, b"v", on_delivery=good)
    producer.flush(10)
    assert told.wait(5)
    assert seen[0][0] == 1
    assert seen[0][1] is not threading.current_thread()
    late = producer.send(topic, b"v")
    late.result(10)
    late.add_done_callback(good)
    assert seen[-1][0] == 2


def test_a_callback_may_close_its_producer(servers, topic):
    outcome, closed = [], threading.Event()
    producer = Producer(bootstrap_servers=servers, linger_ms=0)

    def on_delivery(future):
        try:
            outcome.append(future.result(0).offset)
            producer.close(5)
        except Exception as error:
            outcome.append(error)
        closed.set()

    producer.send(topic, b"v", on_delivery=on_delivery)
    assert closed.wait(10)
    assert outcome == [0]
    with pytest.raises(RuntimeError, match="closed"):
        producer.send(topic, b"v")


def test_linger_waits_for_company_and_flush_does_not(servers, topic):
    with Producer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        future = producer.send(topic, b"v")
        with pytest.raises(RequestTimeoutError):
            future.result(0.05)
        producer.flush(10)
        assert future.result(0).offset == 0


def test_many_threads_share_a_producer(servers, new_topic):
    topic = new_topic(3)
    with Producer(bootstrap_servers=servers, linger_ms=1, batch_size=500) as producer:

        def work(name):
            for n in range(200):
                producer.send(topic, f"{name}-{n}", partition=n % 3)

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    records = read_all(servers, topic, 800, partitions=3)
    assert len({record.value for record in records}) == 800
    for partition in range(3):
        for name in "abcd":
            mine = [
                int(record.value.split(b"-")[1])
                for record in records
                if record.partition == partition and record.value.startswith(name.encode())
            ]
            assert mine == sorted(mine)


def test_a_batch_too_large_for_the_topic_is_split(servers, new_topic):
    topic = new_topic(1, max_message_bytes=2000)
    with Producer(bootstrap_servers=servers, linger_ms=30, batch_size=100_000) as producer:
        futures = [producer.send(topic, bytes([n]) * 300) for n in range(40)]
        called = []
        futures[25].add_done_callback(lambda f: called.append(f.result().offset))
        producer.flush(20)
        assert [future.result(0).offset for future in futures] == [*range(40)]
        with pytest.raises(BrokerError) as caught:
            producer.send(topic, b"x" * 5000).result(10)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send(topic, b"after").result(10).offset == 40
    assert called == [25]
    assert [record.value[0] for record in read_all(servers, topic, 40)] == [*range(40)]


def test_a_record_larger_than_any_request_is_refused_at_once(producer, topic):
    with pytest.raises(ValueError, match="max_request_size"):
        producer.send(topic, bytes(2_000_000))


def test_a_full_buffer_blocks_and_then_says_so():
    with Producer(
        bootstrap_servers="127.0.0.1:9", buffer_memory=1000, max_block_ms=100
    ) as producer:
        producer._partition_counts["t"] = 1  # known from before the cluster went away
        producer.send("t", bytes(900))
        producer.send("t", bytes(900))
        before = time.monotonic()
        with pytest.raises(RequestTimeoutError, match="buffer_memory"):
            producer.send("t", bytes(900))
        assert time.monotonic() - before < 10
        producer.close(0)


@given(st.floats(0, 1e7), st.integers(1, 10_000))
def test_what_has_lingered_enough_by_the_clock_is_ready(created, linger_ms):
    now = created
    config = ProducerConfig(bootstrap_servers="localhost:9092", linger_ms=linger_ms)
    accumulator = Accumulator(config, lambda: None, lambda: now)
    accumulator.append(TopicPartition("t", 0), None, b"v", (), 0)
    assert accumulator.ready(lambda _: 1) == []
    now += accumulator.next_due_s()
    while (accumulator.next_due_s() or 0.0) > 0:
        now = math.nextafter(now, math.inf)
    assert len(accumulator.ready(lambda _: 1)) == 1, "or the sender asks for ever, in no time"


class Deaf(ScriptedBroker):
    """Reads nothing more once a record was sent to it."""

    def __init__(self):
        super().__init__()
        self.hears_again = threading.Event()

    def _answer(self, frame):
        if int.from_bytes(frame[:2], "big") == ApiKey.PRODUCE:
            self.hears_again.wait(30)
            return None
        return super()._answer(frame)


def test_a_buffer_is_bounded_also_when_nobody_waits_for_acknowledgements():
    with (
        Deaf() as broker,
        Producer(
            bootstrap_servers=broker.servers,
            acks=0,
            enable_idempotence=False,
            buffer_memory=2**20,
            max_block_ms=200,
        ) as producer,
    ):
        with pytest.raises(RequestTimeoutError, match="buffer_memory"):
            [producer.send("t", bytes(2**16)) for _ in range(1000)]
        broker.hears_again.set()
        producer.close(0)


def test_a_partition_that_cannot_be_sent_to_does_not_make_others_linger():
    now = 0.0
    config = ProducerConfig(bootstrap_servers="localhost:9092", linger_ms=50)
    accumulator = Accumulator(config, lambda: None, lambda: now)

    def free(tp):
        return 0 if tp.topic == "stuck" else 1

    accumulator.append(TopicPartition("stuck", 0), None, b"v", (), 0)
    now = 10.0
    assert accumulator.ready(free) == []
    assert accumulator.next_due_s() is None
    accumulator.append(TopicPartition("other", 0), None, b"v", (), 0)
    assert accumulator.ready(free) == []
    assert accumulator.next_due_s() == pytest.approx(0.05)


def test_an_unknown_cluster_is_named_in_time():
    with Producer(bootstrap_servers="127.0.0.1:9", max_block_ms=1000) as producer:
        before = time.monotonic()
        with pytest.raises(RequestTimeoutError, match=r"127\.0\.0\.1:9"):
            producer.send("t", b"v")
        assert time.monotonic() - before < 30  # far from the default of a minute


# --- against our broker alone, which can be told to fail ---


@pytest.fixture
def broker(shoal_broker):
    shoal_broker.create_topic("t", 1)
    return shoal_broker


def producer_of(broker, **settings):
    given = {"retry_backoff_ms": 2, "linger_ms": 0, "batch_size": 200, **settings}
    return Producer(bootstrap_servers=broker.bootstrap_servers, **given)


def sent_in_order(broker, count, **settings):
    with producer_of(broker, **settings) as producer:
        futures = [producer.send("t", str(n)) for n in range(count)]
        producer.flush(20)
        offsets = [future.result(0).offset for future in futures]
    values = [int(r.value) for r in read_all(broker.bootstrap_servers, "t", count)]
    return offsets, values


RETRIED = [
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
]


@pytest.mark.parametrize("code", RETRIED)
def test_passing_errors_change_neither_order_nor_count(broker, code):
    broker.fail("Produce", code, times=3)
    offsets, values = sent_in_order(broker, 60)
    assert offsets == values == [*range(60)]


@pytest.mark.parametrize("acks", ["all", 1])
def test_order_is_kept_with_and_without_idempotence(broker, acks):
    broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    offsets, values = sent_in_order(broker, 60, acks=acks)
    assert offsets == values == [*range(60)]


@contextmanager
def sent_together(producer):
    """What is sent within leaves at once at the end: as many batches under way as may be.

    The topic must be known: the engine answers nobody meanwhile.
    """
    over = threading.Event()
    producer._engine.post(over.wait, 10)
    yield
    over.set()


@pytest.mark.parametrize("acks", ["all", 1])
def test_order_is_kept_when_one_of_several_batches_under_way_fails(broker, acks):
    with producer_of(broker, acks=acks) as producer:
        producer.send("t", "0").result(10)  # from now on several may be under way
        broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with sent_together(producer):
            futures = [producer.send("t", str(n)) for n in range(1, 60)]
        producer.flush(20)
        assert [future.result(0).offset for future in futures] == [*range(1, 60)]
    values = [int(r.value) for r in read_all(broker.bootstrap_servers, "t", 60)]
    assert values == [*range(60)]


@pytest.mark.parametrize(
    "error",
    [None, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND],
    ids=["no answer", "timed out", "after append"],
)
def test_what_may_be_stored_is_not_sent_again_under_another_number(broker, error):
    """Its place in the sequence was the only proof of whether it is there."""
    with producer_of(broker) as producer:
        producer.send("t", "0").result(10)
        if error is None:
            broker.drop("Produce", after=True)
        else:
            broker.fail("Produce", error)
        broker.fail("Produce", ErrorCode.UNKNOWN_PRODUCER_ID)
        with pytest.raises(RequestTimeoutError, match="may have been stored or not"):
            producer.send("t", "1").result(10)
        end = 2 if error is None else 1
        assert producer.send("t", "2").result(10).offset == end
    values = [int(r.value) for r in read_all(broker.bootstrap_servers, "t", end + 1)]
    assert values == ([0, 1, 2] if error is None else [0, 2])


def test_a_sequence_the_broker_lost_uses_up_no_retry(broker):
    with producer_of(broker, retries=0) as producer:
        producer.send("t", "0").result(10)
        broker.fail("Produce", ErrorCode.UNKNOWN_PRODUCER_ID)
        assert producer.send("t", "1").result(10).offset == 1


def test_lost_replies_leave_no_duplicates(broker):
    for _ in range(3):
        broker.drop("Produce", after=True)
    offsets, values = sent_in_order(broker, 60)
    assert offsets == values == [*range(60)]


def test_an_answer_counts_although_its_topic_was_forgotten_meanwhile(broker):
    async def forget():
        producer._cluster.metadata = replace(producer._cluster.metadata, topics={})

    with producer_of(broker, acks=1, enable_idempotence=False) as producer:
        producer.send("t", "0").result(10)
        broker.delay("Produce", 0.1)
        future = producer.send("t", "1")
        while not producer._sender._in_flight[1]:
            time.sleep(0.001)
        producer._engine.call(forget())
        assert future.result(10).offset == 1
    assert len(read_all(broker.bootstrap_servers, "t", 2)) == 2


def test_cut_connections_lose_nothing(broker):
    broker.drop("Produce", times=4)
    broker.drop("InitProducerId", times=2)
    offsets, values = sent_in_order(broker, 60)
    assert offsets == values == [*range(60)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    ],
)
def test_a_broker_that_lost_our_sequence_gets_a_new_epoch(broker, code):
    with producer_of(broker) as producer:
        assert producer.send("t", "0").result(10).offset == 0
        broker.fail("Produce", code)
        futures = [producer.send("t", str(n)) for n in range(1, 30)]
        producer.flush(20)
        assert [future.result(0).offset for future in futures] == [*range(1, 30)]
    assert [int(r.value) for r in read_all(broker.bootstrap_servers, "t", 30)] == [*range(30)]


def test_when_the_epochs_of_a_producer_id_are_used_up_it_takes_another(broker):
    with producer_of(broker) as producer:
        assert producer.send("t", "0").result(10).offset == 0
        (queue,) = producer._sender._queues.values()
        first_id, _ = queue.producer
        queue.producer = (first_id, 2**15 - 1)
        broker.fail("Produce", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        assert producer.send("t", "1").result(10).offset == 1
        assert queue.producer[0] != first_id


def test_a_duplicate_is_a_success(broker):
    broker.fail("Produce", ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    with producer_of(broker) as producer:
        assert producer.send("t", "0").exception(10) is None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.POLICY_VIOLATION,
    ],
)
def test_a_final_error_is_told_and_the_next_records_go_through(broker, code):
    with producer_of(broker) as producer:
        assert producer.send("t", "before").result(10).offset == 0
        broker.fail("Produce", code)
        with pytest.raises(BrokerError) as caught:
            producer.send("t", "refused").result(10)
        assert caught.value.code is code
        assert producer.send("t", "after").result(10).offset == 1


def test_retries_end_with_their_number_and_with_the_delivery_timeout(broker):
    broker.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=1000)
    with producer_of(broker, retries=2) as producer:
        with pytest.raises(BrokerError) as caught:
            producer.send("t", "x").result(10)
        assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    with producer_of(broker, delivery_timeout_ms=100) as producer:
        before = time.monotonic()
        with pytest.raises(RequestTimeoutError, match="delivery_timeout_ms"):
            producer.send("t", "x").result(30)
        assert time.monotonic() - before < 20
        broker.clear_faults()
        assert producer.send("t", "y").result(10).offset == 0


@pytest.mark.slow
def test_a_restarted_broker_is_found_again(broker):
    with producer_of(broker) as producer:
        futures = [producer.send("t", str(n)) for n in range(20)]
        futures[0].result(10)
        broker.restart()
        futures += [producer.send("t", str(n)) for n in range(20, 40)]
        producer.flush(30)
        assert [future.result(0).offset for future in futures] == [*range(40)]


def test_a_closed_producer_fails_what_it_could_not_send(broker):
    broker.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=1000)
    producer = producer_of(broker)
    future = producer.send("t", "x")
    producer.close(0.05)
    assert future.exception(1) is not None
    producer.close()


def test_closing_tells_of_a_batch_that_waits_for_others_before_it_is_tried_again(broker):
    producer = producer_of(broker)
    producer.send("t", "0").result(10)
    broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker.delay("Produce", 60, times=1000)
    with sent_together(producer):
        futures = [producer.send("t", bytes(150)) for _ in range(3)]
    (queue,) = producer._sender._queues.values()
    until = time.monotonic() + 10
    while not queue.failed:
        assert time.monotonic() < until
        time.sleep(0.001)
    producer.close(0)
    assert all(future.exception(1) is not None for future in futures)


def test_a_full_buffer_does_not_wait_for_company(broker):
    full = {"linger_ms": 60_000, "batch_size": 2**20, "buffer_memory": 1000, "max_block_ms": 2000}
    with producer_of(broker, **full) as producer:
        futures = [producer.send("t", bytes(300)) for _ in range(20)]
        producer.flush(10)
        assert [future.result(0).offset for future in futures] == [*range(20)]


def test_records_after_a_batch_that_was_never_sent_are_sent(broker):
    broker.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=100_000)
    with producer_of(broker, acks=1, delivery_timeout_ms=200) as producer:
        producer.partitions_for("t")  # whose answer the engine could not take below
        with sent_together(producer):
            futures = [producer.send("t", "given up") for _ in range(10)]
        for future in futures:
            assert isinstance(future.exception(PATIENCE_S), RequestTimeoutError)
        broker.clear_faults()
        # One is enough: on a busy machine the time of some may be up again.
        assert any(producer.send("t", "sent").exception(PATIENCE_S) is None for _ in range(20))


def test_who_waits_for_room_when_the_producer_is_closed_is_refused(broker):
    producer = producer_of(broker, buffer_memory=1000, max_block_ms=60_000)
    producer.send("t", "first").result(10)
    broker.delay("Produce", 60, times=1000)
    futures, refused = [], []

    def fill():
        try:
            while True:
                futures.append(producer.send("t", bytes(150)))
        except RuntimeError as error:
            refused.append(str(error))

    filling = threading.Thread(target=fill, daemon=True)
    filling.start()
    while producer._accumulator.intake.used_bytes < 1000:
        time.sleep(0.001)
    producer.close(0)
    filling.join(10)
    assert refused == ["this client is closed"]
    assert all(future.exception(1) is not None for future in futures)


def test_who_sends_slowly_and_without_keys_reaches_every_partition(shoal_broker):
    shoal_broker.create_topic("t", 4)
    with producer_of(shoal_broker, batch_size=1000) as producer:
        reached = [producer.send("t", bytes(300)).result(10).partition for _ in range(100)]
    assert set(reached) == {0, 1, 2, 3}
    moves = sum(a != b for a, b in pairwise(reached))
    assert moves <= 100 * 400 / 1000  # a batch full each, however many it takes


def test_a_deleted_topic_is_not_made_again_by_who_no_longer_writes_to_it(shoal_broker):
    with (
        producer_of(shoal_broker, metadata_max_age_ms=50) as producer,
        Admin(bootstrap_servers=shoal_broker.bootstrap_servers) as admin,
    ):

        def work_on_for(seconds):
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                producer.send("kept", b"v").result(10)

        producer.send("gone", b"v").result(10)
        work_on_for(0.15)
        admin.delete_topics("gone")
        work_on_for(0.15)
        assert admin.list_topics() == ["kept"]
        assert producer.send("gone", b"v").result(10).offset == 0


def test_the_first_record_makes_the_topic_where_that_is_allowed(shoal_broker):
    with producer_of(shoal_broker) as producer:
        assert producer.send("brand-new", b"v").result(10).offset == 0


def test_a_partition_that_was_added_meanwhile_can_be_sent_to_at_once(servers, admin, new_topic):
    topic = new_topic(1)
    with Producer(bootstrap_servers=servers, linger_ms=0) as producer:
        assert producer.send(topic, b"v").result(10).partition == 0
        admin.create_partitions({topic: 4})
        assert producer.send(topic, b"v", partition=2).result(10).partition == 2
        admin.create_partitions({topic: 6})
        (future,) = producer.send_arrow(topic, pa.table({"value": [b"v"]}), partition=5)
        assert future.result(10).partition == 5
        with pytest.raises(ValueError, match="has partitions 0 to 5, not 6"):
            producer.send(topic, b"v", partition=6)


@pytest.mark.parametrize(
    "wrong",
    [{"headers": [("\udc80", b"")]}, {"timestamp_ms": 2**63}, {"headers": {"a": bytes(2**21)}}],
)
def test_a_record_that_cannot_be_written_is_refused_and_hurts_no_other(servers, topic, wrong):
    with Producer(bootstrap_servers=servers, linger_ms=60_000) as producer:
        good = producer.send(topic, b"good")
        with pytest.raises(ValueError):
            producer.send(topic, b"bad", **wrong)
        producer.flush(10)
        assert good.result(0).offset == 0


def test_a_topic_is_in_use_as_long_as_a_batch_of_it_is_tried_again(broker):
    broker.fail("Produce", ErrorCode.NOT_ENOUGH_REPLICAS, times=8)
    with producer_of(broker, metadata_max_age_ms=20, retry_backoff_max_ms=50) as producer:
        assert producer.send("t", b"v").result(5).offset == 0


@pytest.mark.slow
@pytest.mark.parametrize("acks", ["all", 1])
def test_a_broker_that_takes_its_time_does_not_stretch_the_delivery_timeout(broker, acks):
    with producer_of(broker, acks=acks, delivery_timeout_ms=200) as producer:
        producer.send("t", b"first").result(10)
        broker.delay("Produce", 3, times=1)
        before = time.monotonic()
        late = producer.send("t", b"late")
        with pytest.raises(RequestTimeoutError, match="delivery_timeout_ms"):
            late.result(20)
        assert time.monotonic() - before < 2.5
        threading.Event().wait(before + 3.1 - time.monotonic())  # until the broker goes on
        assert producer.send("t", b"next").result(10).offset == 2
    values = [record.value for record in read_all(broker.bootstrap_servers, "t", 3)]
    assert values == [b"first", b"late", b"next"]


def test_a_busy_partition_does_not_keep_the_others_waiting(shoal_broker):
    shoal_broker.create_topic("t", 2)
    one_at_a_time = {"max_request_size": 1000, "max_in_flight_requests_per_connection": 1}
    with producer_of(shoal_broker, batch_size=1000, **one_at_a_time) as producer:
        shoal_broker.delay("Produce", 0.005, times=1000)
        busy = [producer.send("t", bytes(960), partition=0) for _ in range(50)]
        assert producer.send("t", b"v", partition=1).result(10).offset == 0
        assert not busy[-1].done()


class Leaderless(ScriptedBroker):
    """Two of its three partitions have no leader."""

    def _metadata(self, code):
        answer = super()._metadata(code)
        (topic,) = answer.topics
        topic.partitions = [
            *topic.partitions,
            *(
                MetadataResponse.Partition(partition_index=number, leader_id=-1, leader_epoch=0)
                for number in (1, 2)
            ),
        ]
        return answer


def test_records_without_a_key_go_where_there_is_a_leader():
    with (
        Leaderless() as broker,
        Producer(bootstrap_servers=broker.servers, linger_ms=0, batch_size=100) as producer,
    ):
        for _ in range(30):
            assert producer.send("t", bytes(90)).result(10).partition == 0


@pytest.mark.parametrize("for_ever", [math.inf, 1e12])
def test_a_wait_may_be_without_an_end(broker, for_ever):
    producer = producer_of(broker, max_block_ms=2**63 - 1, buffer_memory=1000)
    futures = [producer.send("t", bytes(150)) for _ in range(50)]
    assert futures[-1].result(for_ever).offset == 49
    producer.send("t", b"v", on_delivery=lambda _: None)
    producer.flush(for_ever)
    assert producer.send("t", b"v").exception(for_ever) is None
    producer.close(for_ever)


def test_the_error_of_a_batch_does_not_grow_with_each_record_that_tells_of_it(broker):
    broker.fail("Produce", ErrorCode.INVALID_RECORD)
    with producer_of(broker, linger_ms=60_000, batch_size=10_000) as producer:
        futures = [producer.send("t", b"v") for _ in range(50)]
        producer.flush(10)
    for future in futures:
        with pytest.raises(BrokerError) as caught:
            future.result(0)
    assert len(caught.traceback) < 5
