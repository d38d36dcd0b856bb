"""What clients lean on, seen from the wire: records written, read and looked up."""

from __future__ import annotations

import time

import pytest

from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.wire.apis.delete_records import DeleteRecordsRequest
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.produce import ProduceRequest
from tests.broker.asking import commit, fetch, fetch_request, list_offset, produce, topic_id
from tests.broker.raw_client import RawClient, batch, values_of

# --- produce -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
def test_every_produce_version_appends(raw, topic, version):
    for base_offset in (0, 2):
        answer = produce(raw, topic, batch(b"a", b"b"), version=version)
        assert (answer.error_code, answer.base_offset) == (0, base_offset)
        assert answer.log_append_time_ms == -1


def test_acks_0_gets_no_answer_and_the_record_is_there(raw, topic):
    produce(raw, topic, batch(b"quiet"), acks=0)
    assert list_offset(raw, topic, -1).offset == 1


def test_acks_0_with_an_error_closes_the_connection(raw):
    produce(raw, "there-is-no-such-topic", batch(b"x"), acks=0)
    assert raw.is_cut()


def test_acks_2_is_refused(raw, topic):
    assert produce(raw, topic, batch(b"x"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def _broken(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x55]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (_broken(batch(b"x"), 65), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"x") + batch(b"y"), ErrorCode.INVALID_RECORD),
        (batch(b"x", base_offset=5), ErrorCode.INVALID_RECORD),
        (batch(b"x" * 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
        (batch(b"x", timestamp_ms=1 << 60), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_a_batch_that_must_not_be_stored_is_refused_and_nothing_is_written(
    raw, shared_broker, request, records, error
):
    name = f"refused-{abs(hash(request.node.name))}"
    shared_broker.create_topic(name)
    assert produce(raw, name, records).error_code == error
    assert list_offset(raw, name, -1).offset == 0


def test_a_topics_own_limit_counts(raw, shared_broker):
    shared_broker.create_topic("small", max_message_bytes=100)
    assert produce(raw, "small", batch(b"x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert produce(raw, "small", batch(b"x")).error_code == 0


def test_a_record_without_a_key_is_refused_by_a_compacted_topic(raw, shared_broker):
    shared_broker.create_topic("compacted", cleanup_policy="compact")
    assert produce(raw, "compacted", batch(b"x")).error_code == ErrorCode.INVALID_RECORD


def test_internal_topics_take_no_records(raw):
    raw.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="__consumer_offsets")]))
    answer = produce(raw, "__consumer_offsets", batch(b"x"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_an_idempotent_retry_gets_the_first_offset_and_a_gap_is_refused(raw, topic):
    producer_id = raw.ask(
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4
    ).producer_id

    def send(sequence: int, epoch: int = 0):
        records = batch(
            b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
        answer = produce(raw, topic, records)
        return ErrorCode.of(answer.error_code), answer.base_offset

    assert send(0) == (ErrorCode.NONE, 0)
    assert send(2) == (ErrorCode.NONE, 2)
    assert send(0) == (ErrorCode.NONE, 0)
    assert send(2) == (ErrorCode.NONE, 2)
    assert send(6)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, epoch=1) == (ErrorCode.NONE, 4)
    assert send(2, epoch=0)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert list_offset(raw, topic, -1).offset == 6
    described = raw.ask(
        DescribeProducersRequest(
            topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[0])]
        )
    )
    (state,) = described.topics[0].partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer_id, 1, 1)


def test_producer_ids_are_never_given_twice(raw):
    def new() -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        return int(raw.ask(request, 4).producer_id)

    ids = [new() for _ in range(20)]
    assert len(set(ids)) == 20


def test_log_append_time_is_told(raw, shared_broker):
    shared_broker.create_topic("stamped", message_timestamp_type="LogAppendTime")
    before = time.time_ns() // 1_000_000
    answer = produce(raw, "stamped", batch(b"x"))
    assert before <= answer.log_append_time_ms <= time.time_ns() // 1_000_000 + 1
    assert list_offset(raw, "stamped", -3).timestamp == answer.log_append_time_ms


# --- fetch ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_every_fetch_version_reads(raw, topic, version):
    produce(raw, topic, batch(b"a", b"b"))
    if version < 13:
        answer = fetch(raw, topic, 1, version)
    else:
        request = fetch_request("", 1)
        request.topics[0].topic_id = topic_id(raw, topic)
        answer = raw.ask(request, version).responses[0].partitions[0]
    assert (answer.error_code, answer.high_watermark) == (0, 2)
    # Whole batches: the client drops what comes before the offset it asked for.
    assert values_of(answer.records) == [b"a", b"b"]


@pytest.mark.parametrize("version", [4, 11, 12])
def test_no_data_is_empty_records_not_null(raw, topic, version):
    answer = fetch(raw, topic, 0, version)
    assert answer.records is not None
    assert bytes(answer.records) == b""


def test_max_bytes_1_still_returns_one_batch(raw, topic):
    for _ in range(3):
        produce(raw, topic, batch(b"x" * 1000))
    answer = fetch(raw, topic, 0, max_bytes=1, partition_max_bytes=1)
    assert values_of(answer.records) == [b"x" * 1000]


def test_a_response_stays_within_max_bytes_whatever_its_partitions_may_hold(raw, shared_broker):
    shared_broker.create_topic("shares", 3)
    for index in range(3):
        data = ProduceRequest.PartitionProduceData(index=index, records=batch(b"x" * 900))
        topic = ProduceRequest.TopicProduceData(name="shares", partition_data=[data])
        raw.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    wanted = [
        FetchRequest.Partition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(3)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=2100,
        topics=[FetchRequest.Topic(topic="shares", partitions=wanted)],
    )
    found = raw.ask(request, 12).responses[0].partitions
    assert [bool(each.records) for each in found] == [True, True, False]


def test_a_full_waiting_room_answers_at_once():
    limits = BrokerLimits(waiting_fetches=1)
    with (
        Broker(topics=["t"], config=BrokerConfig(limits=limits)) as broker,
        RawClient(broker.port) as waiting,
        RawClient(broker.port, timeout=5) as other,
    ):
        waiting.send(fetch_request("t", 0, max_wait_ms=30_000), 12)
        until = time.monotonic() + 5
        while not broker.counters()["fetches_waiting"]:
            assert time.monotonic() < until
        assert bytes(fetch(other, "t", 0, max_wait_ms=30_000).records) == b""


def test_offsets_outside_the_log_are_out_of_range(raw, topic):
    produce(raw, topic, batch(b"x"))
    for offset in (-1, 2):
        assert fetch(raw, topic, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(raw, topic, 1).error_code == 0


@pytest.mark.parametrize("index", [-1, 1, 1 << 30])
def test_partitions_that_do_not_exist_are_unknown_and_not_made(raw, shared_broker, topic, index):
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    data = ProduceRequest.PartitionProduceData(index=index, records=batch(b"x"))
    wanted = ProduceRequest.TopicProduceData(name=topic, partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted])
    for _ in range(3):  # the long way and the quick one
        (answer,) = raw.ask(request, 9).responses[0].partition_responses
        assert answer.error_code == unknown
        assert fetch(raw, topic, 0, partition=index).error_code == unknown
    opened = shared_broker.on_loop(lambda live: [*live.directory.partitions])
    assert TopicPartition(topic, index) not in opened


def test_whoever_knows_an_old_leader_epoch_has_to_look_again():
    with Broker(topics=["t"]) as broker:
        with RawClient(broker.port) as raw:
            produce(raw, "t", batch(b"x"))
        broker.restart(kill=True)
        expected = {-1: ErrorCode.NONE, 0: ErrorCode.FENCED_LEADER_EPOCH, 1: ErrorCode.NONE}
        expected[2] = ErrorCode.UNKNOWN_LEADER_EPOCH
        with RawClient(broker.port) as raw:
            for epoch, code in expected.items():
                wanted = FetchRequest.Partition(
                    partition=0,
                    fetch_offset=0,
                    partition_max_bytes=1000,
                    current_leader_epoch=epoch,
                )
                topic = FetchRequest.Topic(topic="t", partitions=[wanted])
                request = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])
                (answer,) = raw.ask(request, 12).responses[0].partitions
                assert answer.error_code == code, epoch


def test_unknown_topics_names_and_ids(raw, topic):
    answer = fetch(raw, "nowhere", 0)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    request = fetch_request("", 0)
    request.topics[0].topic_id = b"\7" * 16
    answer = raw.ask(request, 16).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_replica_may_not_fetch(raw, topic):
    assert raw.ask(fetch_request(topic, 0, replica_id=1), 12).error_code != 0


def test_a_long_poll_is_woken_by_data(raw, shared_broker, topic):
    raw.send(fetch_request(topic, 0, max_wait_ms=30_000), 12)
    with RawClient(shared_broker.port) as other:
        produce(other, topic, batch(b"news"))
    answer = raw.receive(1, 12).responses[0].partitions[0]
    assert values_of(answer.records) == [b"news"]


def test_a_long_poll_waits_for_min_bytes(raw, shared_broker, topic):
    raw.send(fetch_request(topic, 0, max_wait_ms=30_000, min_bytes=400), 12)
    with RawClient(shared_broker.port) as other:
        for _ in range(2):
            produce(other, topic, batch(b"x" * 200))
    answer = raw.receive(1, 12).responses[0].partitions[0]
    assert values_of(answer.records) == [b"x" * 200] * 2


def test_what_is_refused_does_not_count_towards_min_bytes(raw, shared_broker, topic):
    raw.send(fetch_request(topic, 0, max_wait_ms=30_000, min_bytes=1000), 12)
    damaged = bytearray(batch(b"x" * 900))
    damaged[-1] ^= 1
    until = time.monotonic() + 10
    while shared_broker.counters()["fetches_waiting"] != 1:
        assert time.monotonic() < until
    with RawClient(shared_broker.port) as other:
        for records in (bytes(damaged), batch(b"x" * 200), batch(b"y" * 700)):
            # Whoever has enough is answered before the next request is looked at.
            assert shared_broker.counters()["fetches_waiting"] == 1
            produce(other, topic, records)
    answer = raw.receive(1, 12).responses[0].partitions[0]
    assert values_of(answer.records) == [b"x" * 200, b"y" * 700]


def test_a_long_poll_ends_in_time(raw, topic):
    began = time.monotonic()
    answer = fetch(raw, topic, 0, max_wait_ms=50)
    assert bytes(answer.records) == b""
    assert 0.045 <= time.monotonic() - began < 5


def test_another_request_does_not_wait_behind_a_long_poll(raw, topic):
    raw.send(fetch_request(topic, 0, max_wait_ms=30_000), 12)
    raw.send(MetadataRequest(topics=[]), 12)
    assert bytes(raw.receive(1, 12).responses[0].partitions[0].records) == b""
    assert raw.receive(3, 12).brokers


def test_an_incremental_fetch_leaves_unchanged_partitions_out(raw, shared_broker):
    shared_broker.create_topic("session", 3)
    partitions = [
        FetchRequest.Partition(partition=index, fetch_offset=0, partition_max_bytes=1000)
        for index in range(3)
    ]
    wanted = [FetchRequest.Topic(topic="session", partitions=partitions)]
    full = raw.ask(FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=wanted), 12)
    assert len(full.responses[0].partitions) == 3
    assert full.session_id != 0

    def again(epoch: int, max_wait_ms: int = 0):
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=full.session_id,
            session_epoch=epoch,
            topics=[],
        )
        return raw.ask(request, 12)

    assert not again(1).responses
    with RawClient(shared_broker.port) as other:
        produce(other, "session", batch(b"x"))
    (changed,) = again(2).responses
    assert [each.partition_index for each in changed.partitions] == [0]
    assert again(2).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


# --- offsets -------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 12))
def test_every_list_offsets_version_answers(raw, topic, version):
    for at in (10, 20, 30):
        produce(raw, topic, batch(b"x", timestamp_ms=at))
    assert list_offset(raw, topic, -1, version).offset == 3
    assert list_offset(raw, topic, -2, version).offset == 0
    assert list_offset(raw, topic, 15, version).offset == 1
    assert list_offset(raw, topic, 31, version).offset == -1
    if version >= 7:
        found = list_offset(raw, topic, -3, version)
        assert (found.offset, found.timestamp) == (2, 30)
    if version >= 8:
        assert list_offset(raw, topic, -4, version).offset == 0


@pytest.mark.parametrize("version", [4, 7, 10])
def test_an_offset_is_not_looked_up_for_who_knows_another_epoch(raw, topic, version):
    produce(raw, topic, batch(b"a"))
    for timestamp in (-1, -2, 0):
        found = list_offset(raw, topic, timestamp, version, leader_epoch=5)
        assert (found.error_code, found.offset) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        assert list_offset(raw, topic, timestamp, version, leader_epoch=0).error_code == 0


def delete_records(raw: RawClient, name: str, offset: int) -> tuple[ErrorCode, int]:
    wanted = DeleteRecordsRequest.Partition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsRequest.Topic(name=name, partitions=[wanted])], timeout_ms=1000
    )
    answer = raw.ask(request).topics[0].partitions[0]
    return ErrorCode.of(answer.error_code), answer.low_watermark


def test_delete_records_answers_as_kafka_does(raw, topic):
    for _ in range(5):
        produce(raw, topic, batch(b"x"))
    assert delete_records(raw, topic, 2) == (ErrorCode.NONE, 2)
    assert delete_records(raw, topic, 9)[0] is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(raw, "nowhere", 0)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(raw, topic, -2).offset == 2
    assert fetch(raw, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete_records(raw, topic, -1) == (ErrorCode.NONE, 5)


def test_records_of_compacted_and_of_internal_topics_are_not_deleted(raw, topic, shared_broker):
    compacted = f"{topic}-compacted"
    shared_broker.create_topic(compacted, 1, **{"cleanup.policy": "compact"})
    assert commit(raw, "g", topic, 0, 1) == 0  # which makes the internal one
    for name, code in [
        (compacted, ErrorCode.POLICY_VIOLATION),
        ("__consumer_offsets", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]:
        for offset in (0, -1):
            assert delete_records(raw, name, offset) == (code, -1)


def test_who_waits_for_records_that_are_deleted_is_told_at_once(raw, topic, shared_broker):
    for _ in range(5):
        produce(raw, topic, batch(b"x"))
    with RawClient(shared_broker.port) as waiting:
        waiting.send(fetch_request(topic, 1, min_bytes=1 << 20, max_wait_ms=60_000), 12)
        while not shared_broker.on_loop(lambda live: len(live.waiting)):
            pass
        assert delete_records(raw, topic, 3) == (ErrorCode.NONE, 3)
        answer = waiting.receive(1, 12)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
