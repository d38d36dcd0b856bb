"""What clients lean on, seen from the wire: versions, traps, and answers they check."""

from __future__ import annotations

import time

import pytest

from shoal.broker.handlers import SUPPORTED
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_records import DeleteRecordsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.registry import API
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.schema import ZERO_UUID
from tests.broker.raw_client import RawClient, batch, values_of


def topic_id(client: RawClient, name: str) -> bytes:
    (found,) = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name=name)])).topics
    return bytes(found.topic_id)


def produce(
    client: RawClient, name: str, records: bytes | None, *, acks: int = -1, version: int = 9
):
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="" if version >= 13 else name,
                topic_id=topic_id(client, name) if version >= 13 else ZERO_UUID,
                partition_data=[data],
            )
        ],
    )
    if acks == 0:
        client.send(request, version)
        return None
    return client.ask(request, version).responses[0].partition_responses[0]


def fetch_request(name: str, offset: int, **fields) -> FetchRequest:
    partition = FetchRequest.Partition(
        partition=0,
        fetch_offset=offset,
        partition_max_bytes=fields.pop("partition_max_bytes", 1 << 20),
    )
    return FetchRequest(
        max_wait_ms=fields.pop("max_wait_ms", 0),
        min_bytes=fields.pop("min_bytes", 1),
        topics=[FetchRequest.Topic(topic=name, partitions=[partition])],
        **fields,
    )


def fetch(client: RawClient, name: str, offset: int, version: int = 12, **fields):
    response = client.ask(fetch_request(name, offset, **fields), version)
    return response.responses[0].partitions[0]


def list_offset(client: RawClient, name: str, timestamp: int, version: int = 7):
    wanted = ListOffsetsRequest.Partition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.Topic(name=name, partitions=[wanted])]
    )
    return client.ask(request, version).topics[0].partitions[0]


# --- versions ------------------------------------------------------------------------------


def test_what_is_advertised_is_what_is_served(raw):
    advertised = {
        each.api_key: (each.min_version, each.max_version)
        for each in raw.ask(ApiVersionsRequest(), 2).api_keys
    }
    assert advertised.keys() == SUPPORTED.keys()
    for key, (low, high) in advertised.items():
        spec = API[key]
        assert high <= spec.max_version
        assert low == (0 if key == 0 else SUPPORTED[key].min_version)
        assert SUPPORTED[key].min_version >= spec.min_version


def test_apis_of_later_issues_are_not_advertised(raw):
    keys = {each.api_key for each in raw.ask(ApiVersionsRequest(), 0).api_keys}
    transactions, consumer_protocol = {24, 25, 26, 28}, {68, 69}
    assert not keys & (transactions | consumer_protocol)


@pytest.mark.parametrize("version", [5, 99])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(raw, version):
    # Header v2 (flexible), body of a version nobody knows yet.
    header = (18).to_bytes(2) + version.to_bytes(2) + (7).to_bytes(4) + b"\0\3raw\0"
    body = header + b"\4abc\4def\0"
    raw.sock.sendall(len(body).to_bytes(4) + body)
    frame = raw.receive_frame()
    assert frame is not None
    assert frame[:4] == (7).to_bytes(4)
    # No tagged fields in the header: the body starts right after the correlation id.
    answer = ApiVersionsResponse.decode(frame[4:], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (own,) = answer.api_keys
    assert (own.api_key, own.min_version, own.max_version) == (18, 0, 4)
    assert raw.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)


def test_a_nonsense_software_name_is_an_invalid_request(raw):
    answer = raw.ask(ApiVersionsRequest(client_software_name="-x-"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", range(5))
def test_18659_produce_is_advertised_from_0_and_refused_below_3(raw, version):
    """Kafka 4.0 listed it from 3 on, and librdkafka compressed nothing any more."""
    answer = raw.ask(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), version
    )
    (produce_range,) = [each for each in answer.api_keys if each.api_key == 0]
    assert (produce_range.min_version, produce_range.max_version) == (0, 13)
    body = (0).to_bytes(2) + (2).to_bytes(2) + (9).to_bytes(4) + b"\xff\xff" + bytes(20)
    raw.sock.sendall(len(body).to_bytes(4) + body)
    assert raw.is_cut()


@pytest.mark.parametrize(("key", "version"), [(2, 0), (1, 3), (1, 19), (4, 0), (999, 0), (68, 0)])
def test_unknown_apis_and_versions_close_the_connection(shared_broker, key, version):
    with RawClient(shared_broker.port) as client:
        body = key.to_bytes(2) + version.to_bytes(2) + (9).to_bytes(4) + b"\xff\xff" + bytes(20)
        client.sock.sendall(len(body).to_bytes(4) + body)
        assert client.is_cut()


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


def test_a_transactional_id_is_refused_at_once(raw):
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    assert raw.ask(request, 4).error_code == ErrorCode.INVALID_REQUEST
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
    (answer,) = raw.ask(request, 4).coordinators
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "transactions" in answer.error_message


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


def test_offsets_outside_the_log_are_out_of_range(raw, topic):
    produce(raw, topic, batch(b"x"))
    for offset in (-1, 2):
        assert fetch(raw, topic, offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetch(raw, topic, 1).error_code == 0


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


def test_delete_records_answers_as_kafka_does(raw, topic):
    for _ in range(5):
        produce(raw, topic, batch(b"x"))

    def delete(name: str, offset: int):
        wanted = DeleteRecordsRequest.Partition(partition_index=0, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.Topic(name=name, partitions=[wanted])], timeout_ms=1000
        )
        answer = raw.ask(request).topics[0].partitions[0]
        return ErrorCode.of(answer.error_code), answer.low_watermark

    assert delete(topic, 2) == (ErrorCode.NONE, 2)
    assert delete(topic, 9)[0] is ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete("nowhere", 0)[0] is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list_offset(raw, topic, -2).offset == 2
    assert fetch(raw, topic, 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert delete(topic, -1) == (ErrorCode.NONE, 5)


# --- topics --------------------------------------------------------------------------------


def test_the_first_mention_of_a_topic_creates_it_and_the_answer_has_it(raw):
    wanted = MetadataRequest(topics=[MetadataRequest.Topic(name="made-by-metadata")])
    (found,) = raw.ask(wanted).topics
    assert found.error_code == 0
    assert len(found.partitions) == 1
    again = MetadataRequest(
        topics=[MetadataRequest.Topic(name="not-made")], allow_auto_topic_creation=False
    )
    assert raw.ask(again).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def create(raw: RawClient, name: str, partitions: int = 1, factor: int = 1, **fields):
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=fields.pop("assignments", []),
        configs=[],
    )
    answer = raw.ask(CreateTopicsRequest(topics=[topic], **fields)).topics[0]
    return ErrorCode.of(answer.error_code), answer


def test_creating_topics(raw):
    assert create(raw, "made", 3)[0] is ErrorCode.NONE
    assert create(raw, "made", 3)[0] is ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(raw, "by-default", -1, -1)[1].num_partitions == 1
    assert create(raw, "replicated", 1, 3)[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(raw, "../up")[0] is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create(raw, "only-checked", validate_only=True)[0] is ErrorCode.NONE
    assert create(raw, "only-checked")[0] is ErrorCode.NONE
    assigned = [CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    assert create(raw, "assigned", -1, -1, assignments=assigned)[0] is ErrorCode.NONE


def test_partitions_are_added_and_topics_deleted_by_name_and_by_id(raw):
    create(raw, "growing", 1)
    grow = CreatePartitionsRequest.Topic(name="growing", count=4, assignments=None)
    request = CreatePartitionsRequest(topics=[grow], timeout_ms=1000, validate_only=False)
    assert raw.ask(request).results[0].error_code == 0
    assert raw.ask(request).results[0].error_code == ErrorCode.INVALID_PARTITIONS
    state = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id(raw, "growing"))
    answer = raw.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000)).responses[0]
    assert (answer.error_code, answer.name) == (0, "growing")
    answer = raw.ask(DeleteTopicsRequest(topics=[state], timeout_ms=1000)).responses[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    by_name = DeleteTopicsRequest(topic_names=["growing"], timeout_ms=1000)
    assert raw.ask(by_name, 1).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_made_anew_under_an_old_name_is_empty(raw, shared_broker):
    create(raw, "reborn")
    produce(raw, "reborn", batch(b"old"))
    first = topic_id(raw, "reborn")
    raw.ask(DeleteTopicsRequest(topic_names=["reborn"], timeout_ms=1000), 1)
    create(raw, "reborn")
    assert topic_id(raw, "reborn") != first
    assert list_offset(raw, "reborn", -1).offset == 0
    request = fetch_request("", 0)
    request.topics[0].topic_id = first
    answer = raw.ask(request, 16).responses[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


# --- groups: only what the broker adds to the coordinator ---------------------------------------


def commit(raw: RawClient, group: str, name: str, partition: int, offset: int, version: int = 8):
    wanted = OffsetCommitRequest.Partition(
        partition_index=partition, committed_offset=offset, committed_metadata="note\0"
    )
    topic = OffsetCommitRequest.Topic(name=name, partitions=[wanted])
    if version >= 10:
        topic = OffsetCommitRequest.Topic(topic_id=topic_id(raw, name), partitions=[wanted])
    request = OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
    return raw.ask(request, version).topics[0].partitions[0].error_code


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_and_fetched_in_every_version(raw, topic, version):
    group = f"group-{version}"
    assert commit(raw, group, topic, 0, 7, version) == 0
    wanted = OffsetFetchRequest.Topic(name=topic, partition_indexes=[0])
    for fetch_version in range(1, 8):
        request = OffsetFetchRequest(group_id=group, topics=[wanted])
        found = raw.ask(request, fetch_version).topics[0].partitions[0]
        # Bytes as they came: librdkafka ends its note with a NUL.
        assert (found.committed_offset, found.metadata) == (7, "note\0")
    for fetch_version in (8, 9, 10):
        topics = OffsetFetchRequest.Topics(name=topic, partition_indexes=[0])
        if fetch_version == 10:
            topics = OffsetFetchRequest.Topics(topic_id=topic_id(raw, topic), partition_indexes=[0])
        groups = [
            OffsetFetchRequest.Group(group_id=name, topics=[topics]) for name in (group, "nobody")
        ]
        answers = raw.ask(OffsetFetchRequest(groups=groups), fetch_version).groups
        assert [g.group_id for g in answers] == [group, "nobody"]
        assert [g.topics[0].partitions[0].committed_offset for g in answers] == [7, -1]


def test_a_commit_for_an_unknown_partition_is_refused_beside_one_that_counts(raw, topic):
    partitions = [
        OffsetCommitRequest.Partition(
            partition_index=index, committed_offset=3, committed_metadata=None
        )
        for index in (0, 5)
    ]
    request = OffsetCommitRequest(
        group_id="partly",
        member_id="",
        topics=[
            OffsetCommitRequest.Topic(name=topic, partitions=partitions),
            OffsetCommitRequest.Topic(name="no.such", partitions=partitions[:1]),
        ],
    )
    first, second = raw.ask(request, 8).topics
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in first.partitions] == [0, unknown]
    assert [each.error_code for each in second.partitions] == [unknown]


def test_a_group_of_one_is_stable_at_once(raw, topic):
    """No initial delay: the first join is answered without a wait."""
    request = JoinGroupRequest(
        group_id="quick",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    began = time.monotonic()
    first = raw.ask(request, 9)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    request.member_id = first.member_id
    second = raw.ask(request, 9)
    assert (second.error_code, second.generation_id) == (0, 1)
    assert time.monotonic() - began < 1.0


def test_a_session_timeout_out_of_bounds_is_refused(raw):
    request = JoinGroupRequest(
        group_id="impatient",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    assert raw.ask(request, 5).error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_find_coordinator_answers_several_keys(raw, shared_broker):
    answers = raw.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["a", "b"]), 6)
    assert [(c.key, c.port) for c in answers.coordinators] == [
        ("a", shared_broker.port),
        ("b", shared_broker.port),
    ]
    assert raw.ask(FindCoordinatorRequest(key="a"), 0).port == shared_broker.port


def test_sasl_on_a_plaintext_listener_is_an_illegal_state(raw):
    answer = raw.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_deleting_a_topic_wakes_who_waits_for_it(shared_broker):
    shared_broker.create_topic("doomed")
    with RawClient(shared_broker.port) as waiting, RawClient(shared_broker.port) as other:
        waiting.send(fetch_request("doomed", 0, max_wait_ms=30_000), 12)
        shared_broker.on_loop(
            lambda live: live.partitions.get(live.catalogue.get("doomed"), 0)  # type: ignore[arg-type]
        )
        other.ask(DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=1000), 1)
        answer = waiting.receive(1, 12).responses[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_thousand_partitions_cost_nothing_until_they_are_used():
    with Broker(topics={"wide": 1000}) as broker, RawClient(broker.port) as client:
        (found,) = client.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="wide")])).topics
        assert len(found.partitions) == 1000
        assert broker.counters()["partitions_open"] == 0
        assert list_offset(client, "wide", -1).offset == 0
        assert bytes(fetch(client, "wide", 0).records) == b""
        assert fetch(client, "wide", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        produce(client, "wide", batch(b"x"))
        opened = broker.on_loop(lambda live: list(live.directory.partitions))
        assert opened == [TopicPartition("wide", 0)]
