"""What clients lean on, seen from the wire: versions, traps, topics and groups."""

from __future__ import annotations

import uuid
from importlib import import_module
from inspect import iscoroutinefunction, isgeneratorfunction
from typing import Any

import pytest

from shoal.broker.config import BrokerConfig, GroupSettings, Listener
from shoal.broker.handlers import SERVED, Runs
from shoal.errors import ErrorCode
from shoal.testing.broker import Broker
from shoal.types import TopicPartition
from shoal.wire.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.registry import API
from shoal.wire.apis.sasl_handshake import SaslHandshakeRequest
from shoal.wire.frames import encode_request
from tests.broker.asking import commit, create, fetch, fetch_request, list_offset, produce, topic_id
from tests.broker.messages import minimal
from tests.broker.raw_client import RawClient, batch
from tests.patience import is_quick

# --- versions ------------------------------------------------------------------------------


def test_what_is_advertised_is_what_is_served(raw):
    advertised = {
        each.api_key: (each.min_version, each.max_version)
        for each in raw.ask(ApiVersionsRequest(), 2).api_keys
    }
    # This broker has no metrics port, so it takes no metrics of clients (test_client_telemetry).
    assert advertised.keys() == {key for key, served in SERVED.items() if not served.needs_receiver}
    for key, (low, high) in advertised.items():
        spec = API[key]
        assert high <= spec.max_version
        versions = SERVED[key].versions(key)
        assert low == (0 if key == 0 else versions.start)
        assert high == versions.stop - 1
        assert versions.start >= spec.min_version


@pytest.mark.parametrize("key", SERVED, ids=lambda key: API[key].name)
def test_a_handler_runs_as_its_row_says(key):
    handle = import_module(f"shoal.broker.handlers.{API[key].key.name.lower()}").handle
    if iscoroutinefunction(handle):
        assert SERVED[key].runs is Runs.WAITING
    elif isgeneratorfunction(handle):
        assert SERVED[key].runs is Runs.IN_SLICES
    else:
        assert SERVED[key].runs in (Runs.AT_ONCE, Runs.AS_IT_TURNS_OUT)


def test_the_apis_of_transactions_are_advertised_as_kafka_does(raw):
    ranges = {
        each.api_key: (each.min_version, each.max_version)
        for each in raw.ask(ApiVersionsRequest(), 0).api_keys
    }
    wanted = {22: (0, 5), 24: (0, 5), 25: (0, 4), 26: (0, 5), 27: (1, 2), 28: (0, 5), 65: (0, 0)}
    assert {key: ranges[key] for key in wanted} == wanted
    # kafka-python takes it for a broker of Kafka 4.3.
    assert ranges[35] == (1, 5)


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


NOT_SERVED = [
    (key, version)
    for key, how in SERVED.items()
    for version in range(API[key].min_version, API[key].max_version + 1)
    if version not in how.versions(key)
]


def test_versions_that_could_be_read_but_are_not_served_close_the_connection(shared_broker):
    assert NOT_SERVED
    for key, version in NOT_SERVED:
        with RawClient(shared_broker.port) as client:
            client.send(minimal(API[key].request, version), version)
            assert client.is_cut(), API[key].name


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

    def join() -> None:
        request = JoinGroupRequest(
            group_id=f"quick-{uuid.uuid4().hex[:8]}",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        first = raw.ask(request, 9)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        request.member_id = first.member_id
        second = raw.ask(request, 9)
        assert (second.error_code, second.generation_id) == (0, 1)

    assert is_quick(1.0, join)


def test_what_is_due_soon_does_not_wait_for_what_is_due_in_days():
    """Offsets of an idle group expire in a week; a new group has a first delay of a moment."""
    settings = GroupSettings(initial_rebalance_delay_ms=50)
    with (
        Broker(config=BrokerConfig(groups=settings), topics=["t"]) as broker,
        RawClient(broker.port) as client,
    ):
        assert commit(client, "idle", "t", 0, 5) == 0
        assert broker.on_loop(lambda live: live.groups.next_deadline()) is not None
        request = JoinGroupRequest(
            group_id="new",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
        )
        request.member_id = client.ask(request, 5).member_id
        assert client.ask(request, 5).generation_id == 1


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


def test_a_request_waits_for_the_one_before_it_on_its_connection(raw):
    """CreateTopics waits for the disk; whoever asks behind it sees what it made."""
    topic = CreateTopicsRequest.CreatableTopic(
        name="awaited", num_partitions=2, replication_factor=1, assignments=[], configs=[]
    )
    wanted = MetadataRequest(
        topics=[MetadataRequest.Topic(name="awaited", topic_id=bytes(16))],
        allow_auto_topic_creation=False,
    )
    gone = DeleteTopicsRequest(topic_names=["awaited"], timeout_ms=1000)
    asked: list[tuple[Any, int]]
    asked = [(CreateTopicsRequest(topics=[topic]), 7), (wanted, 12), (gone, 4), (wanted, 12)]
    frames = [
        b"".join(encode_request(request.API_KEY, version, 1, "raw", request))
        for request, version in asked
    ]
    raw.sock.sendall(b"".join(frames))
    _, before, _, after = [raw.receive(request.API_KEY, version) for request, version in asked]
    assert len(before.topics[0].partitions) == 2
    assert after.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_every_client_is_sent_to_the_listener_it_came_through():
    with Broker(listeners=(Listener(port=0), Listener(port=0))) as broker:
        for port in broker.on_loop(lambda live: [each.port for each in live.listeners]):
            with RawClient(port) as client:
                (node,) = client.ask(MetadataRequest(topics=[])).brokers
                found = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
                assert node.port == found.coordinators[0].port == port


def test_groups_are_there_after_a_restart_before_anybody_asks_for_one():
    with Broker(topics=["t"]) as broker:
        with RawClient(broker.port) as client:
            assert commit(client, "idle", "t", 0, 5) == 0
        broker.restart()
        with RawClient(broker.port) as client:
            listed = client.ask(ListGroupsRequest(states_filter=[]), 4).groups
            assert [each.group_id for each in listed] == ["idle"]


def test_deleting_a_topic_wakes_who_waits_for_it(shared_broker):
    shared_broker.create_topic("doomed")
    with RawClient(shared_broker.port) as waiting, RawClient(shared_broker.port) as other:
        waiting.send(fetch_request("doomed", 0, max_wait_ms=30_000), 12)
        shared_broker.on_loop(
            lambda live: live.partitions.get(live.catalogue.get("doomed"), 0)  # type: ignore[arg-type]  # the topic is there
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
