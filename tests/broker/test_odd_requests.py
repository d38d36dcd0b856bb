"""Requests that contradict themselves or repeat themselves: answered as Apache Kafka 4.3 does.

Every expectation here was asked of a real one.
"""

from __future__ import annotations

import struct

import pytest

from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.alter_configs import AlterConfigsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_delete import OffsetDeleteRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from shoal.wire.frames import encode_request
from shoal.wire.schema import ZERO_UUID
from tests.broker.asking import commit, fetch_request, produce, topic_id
from tests.broker.raw_client import RawClient, batch

UNKNOWN = b"u" * 16
INVALID = ErrorCode.INVALID_REQUEST
TOPIC = 2


@pytest.fixture
def pair(shared_broker: Broker, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two topics, named after the test."""
    name = request.node.name.replace("[", ".").replace("]", "")[-200:]
    for suffix in "ab":
        shared_broker.create_topic(f"{name}-{suffix}", 2)
    return f"{name}-a", f"{name}-b"


# --- DeleteTopics -------------------------------------------------------------------------------


def there(raw: RawClient, *names: str) -> list[bool]:
    topics = [MetadataRequest.Topic(name=name) for name in names]
    answer = raw.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    return [topic.error_code == 0 for topic in answer.topics]


def delete(raw: RawClient, *wanted: tuple[str | None, bytes]) -> list[tuple[str | None, int]]:
    topics = [DeleteTopicsRequest.DeleteTopicState(name=n, topic_id=i) for n, i in wanted]
    answer = raw.ask(DeleteTopicsRequest(topics=topics, timeout_ms=1000), 6)
    return [(each.name, each.error_code) for each in answer.responses]


@pytest.mark.parametrize("version", [1, 5])
def test_a_topic_named_twice_is_not_deleted_and_answered_once(raw, pair, version):
    one, other = pair
    request = DeleteTopicsRequest(topic_names=[one, other, one], timeout_ms=1000)
    answer = raw.ask(request, version).responses
    assert [(each.name, each.error_code) for each in answer] == [(one, INVALID), (other, 0)]
    assert there(raw, one, other) == [True, False]


def test_a_topic_given_twice_by_id_or_by_id_and_name_is_not_deleted(raw, pair):
    one, other = pair
    first, second = topic_id(raw, one), topic_id(raw, other)
    assert delete(raw, (one, ZERO_UUID), (one, ZERO_UUID)) == [(one, INVALID)]
    assert delete(raw, (None, first), (None, first)) == [(None, INVALID)]
    assert delete(raw, (one, first)) == [(one, INVALID)]
    assert delete(raw, (one, second)) == [(one, INVALID)]
    assert delete(raw, (one, ZERO_UUID), (None, first)) == [(one, INVALID)]
    assert delete(raw, (None, first), (one, ZERO_UUID)) == [(one, INVALID)]
    assert delete(raw, (None, ZERO_UUID)) == [(None, INVALID)]
    assert delete(raw, (None, UNKNOWN), (None, UNKNOWN)) == [(None, INVALID)]
    assert delete(raw, (None, UNKNOWN)) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]
    assert there(raw, one, other) == [True, True]
    assert delete(raw, (None, first), (other, ZERO_UUID)) == [(one, 0), (other, 0)]
    assert there(raw, one, other) == [False, False]


# --- Metadata -----------------------------------------------------------------------------------


def described(
    raw: RawClient, version: int, *wanted: tuple[str | None, bytes], create: bool = False
) -> list[tuple[int, str | None]]:
    topics = [MetadataRequest.Topic(name=name, topic_id=topic_id) for name, topic_id in wanted]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
    return [(each.error_code, each.name) for each in raw.ask(request, version).topics]


@pytest.mark.parametrize("version", [12, 13])
def test_the_id_wins_over_a_name_that_disagrees(raw, pair, version):
    one, other = pair
    second = topic_id(raw, other)
    assert described(raw, version, (one, second)) == [(0, other)]
    unknown = [(ErrorCode.UNKNOWN_TOPIC_ID, None)]
    assert described(raw, version, (one, UNKNOWN)) == unknown
    assert described(raw, version, (f"{one}-new", UNKNOWN), create=True) == unknown
    assert there(raw, f"{one}-new") == [False]
    assert described(raw, version, (one, ZERO_UUID), (None, second)) == [(0, other)]
    assert described(raw, version, (None, second), (None, second)) == [(0, other)]
    nothing = [(ErrorCode.UNKNOWN_SERVER_ERROR, ""), (ErrorCode.UNKNOWN_SERVER_ERROR, one)]
    assert described(raw, version, (None, ZERO_UUID), (one, ZERO_UUID)) == nothing


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_are_refused_where_they_are_not_served_yet(raw, pair, version):
    one, _ = pair
    own = topic_id(raw, one)
    for asked in [(None, UNKNOWN), (None, own), (None, ZERO_UUID)]:
        assert described(raw, version, asked) == [(INVALID, "")]
    assert described(raw, version, (one, own)) == [(INVALID, one)]
    assert described(raw, version, (one, ZERO_UUID)) == [(0, one)]


@pytest.mark.parametrize("version", [4, 9, 13])
def test_a_topic_asked_for_twice_is_described_once(raw, pair, version):
    one, other = pair
    asked = [(one, ZERO_UUID), (other, ZERO_UUID), (one, ZERO_UUID)]
    assert described(raw, version, *asked) == [(0, one), (0, other)]


# --- good requests before a bad one ---------------------------------------------------------------

METADATA = b"".join(encode_request(3, 9, 77, "x", MetadataRequest(topics=[])))


@pytest.mark.parametrize(
    "bad",
    [
        struct.pack(">i", -1) + b"xx",
        struct.pack(">i", 2**31 - 1) + b"xx",
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 3, 0, 1, -1),
    ],
    ids=["negative", "huge", "empty", "short", "unknown API", "unknown version", "cut"],
)
def test_what_came_before_a_bad_frame_in_one_segment_is_answered(shared_broker, bad):
    with RawClient(shared_broker.port, timeout=5) as client:
        client.sock.sendall(METADATA * 3 + bad + METADATA)
        for _ in range(3):
            assert client.receive(3, 9).brokers
        assert client.is_cut()
    assert shared_broker.counters()["in_flight_bytes"] == 0


def test_a_long_poll_before_a_bad_frame_is_answered_too(shared_broker, topic):
    with RawClient(shared_broker.port, timeout=5) as client:
        produce(client, topic, batch(b"v"))
        waits = fetch_request(topic, 1, max_wait_ms=60_000)
        whole = b"".join(encode_request(1, 12, 7, "x", waits))
        client.sock.sendall(whole + struct.pack(">i", -1))
        with RawClient(shared_broker.port) as producer:
            produce(producer, topic, batch(b"w"))
        (found,) = client.receive(1, 12).responses[0].partitions
        assert found.high_watermark == 2
        assert client.is_cut()


# --- groups and epochs --------------------------------------------------------------------------


def committed(raw: RawClient, group: str, topic: str) -> int:
    asked = OffsetFetchRequest.Topic(name=topic, partition_indexes=[0])
    (found,) = raw.ask(OffsetFetchRequest(group_id=group, topics=[asked]), 7).topics[0].partitions
    return found.committed_offset


def test_offsets_of_partitions_that_do_not_exist_are_not_deleted(raw, topic):
    def forget(group: str, *partitions: tuple[str, int]):
        topics = [
            OffsetDeleteRequest.Topic(
                name=name, partitions=[OffsetDeleteRequest.Partition(partition_index=index)]
            )
            for name, index in partitions
        ]
        answer = raw.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        return answer.error_code, [
            (each.name, part.error_code) for each in answer.topics for part in each.partitions
        ]

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert forget("nobody", (topic, 9)) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    commit(raw, "a-group", topic, 0, 5)
    assert forget("a-group", (topic, 9)) == (0, [(topic, unknown)])
    assert committed(raw, "a-group", topic) == 5
    asked = [(topic, 9), (topic, 0), ("nowhere", 0)]
    expected = [(topic, unknown), (topic, 0), ("nowhere", unknown)]
    assert forget("a-group", *asked) == (0, expected)
    assert committed(raw, "a-group", topic) == -1


def test_who_does_not_know_an_epoch_is_not_told_where_it_ends(raw, topic):
    def end_of(epoch: int) -> tuple[int, int]:
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, leader_epoch=epoch
        )
        topics = [OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        request = OffsetForLeaderEpochRequest(replica_id=-2, topics=topics)
        (found,) = raw.ask(request, 4).topics[0].partitions
        return found.leader_epoch, found.end_offset

    assert [end_of(epoch) for epoch in (-2, -1, 0, 1)] == [(-2, 0), (-1, -1), (0, 0), (-1, -1)]
    produce(raw, topic, batch(b"x", b"y"))
    assert [end_of(epoch) for epoch in (-2, -1, 0, 1)] == [(-2, 0), (-1, -1), (0, 2), (-1, -1)]


@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize(("producer_id", "epoch"), [(5, -1), (-1, 5), (-1, -2)])
def test_a_producer_id_without_its_epoch_is_refused(raw, version, producer_id, epoch):
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=1000,
        producer_id=producer_id,
        producer_epoch=epoch,
    )
    answer = raw.ask(request, version)
    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (INVALID, -1, -1)


# --- configurations -----------------------------------------------------------------------------


def alter(raw: RawClient, topic: str, *configs: tuple[str, str | None]) -> int:
    made = [AlterConfigsRequest.AlterableConfig(name=name, value=value) for name, value in configs]
    resource = AlterConfigsRequest.Resource(resource_type=TOPIC, resource_name=topic, configs=made)
    answer = raw.ask(AlterConfigsRequest(resources=[resource], validate_only=False))
    return answer.responses[0].error_code


def alter_one(raw: RawClient, topic: str, name: str, value: str) -> int:
    change = IncrementalAlterConfigsRequest.AlterableConfig(
        name=name, value=value, config_operation=0
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[change]
    )
    answer = raw.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    return answer.responses[0].error_code


def test_the_same_configuration_twice_is_refused(raw, shared_broker, topic):
    twice = [("retention.ms", "1000"), ("retention.ms", "1000")]
    assert alter(raw, topic, *twice) == INVALID
    assert alter(raw, topic, ("retention.ms", None), ("retention.ms", None)) == INVALID
    assert alter(raw, topic, ("retention.ms", "1000")) == 0


def test_a_shortest_compaction_lag_above_the_longest_is_refused(raw, topic):
    low, high = "min.compaction.lag.ms", "max.compaction.lag.ms"
    wrong = ErrorCode.INVALID_CONFIG
    assert alter(raw, topic, (low, "10"), (high, "5")) == wrong
    assert alter_one(raw, topic, low, "10") == 0
    assert alter_one(raw, topic, high, "5") == wrong
    assert alter_one(raw, topic, high, "10") == 0
    made = CreateTopicsRequest.CreatableTopic(
        name=f"{topic}-new",
        num_partitions=1,
        replication_factor=1,
        assignments=[],
        configs=[
            CreateTopicsRequest.CreatableTopicConfig(name=low, value="10"),
            CreateTopicsRequest.CreatableTopicConfig(name=high, value="5"),
        ],
    )
    assert raw.ask(CreateTopicsRequest(topics=[made])).topics[0].error_code == wrong
