"""The broker for tests: faults come when asked, time moves when told, data survives a kill."""

from __future__ import annotations

import threading

import pytest

from shoal import Admin
from shoal.broker.config import BrokerConfig, Listener, TopicDefaults
from shoal.errors import BrokerError, ConfigError, DataDirectoryInUseError, ErrorCode, ShoalError
from shoal.testing.broker import Broker
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.fields import fields_of
from tests.broker.asking import commit, fetch, list_offset, produce
from tests.broker.raw_client import RawClient, batch, values_of

ALL = MetadataRequest(topics=None)


def test_the_fixture_is_found_without_configuration(shoal_broker):
    with RawClient(shoal_broker.port) as client:
        assert client.ask(ALL).brokers[0].port == shoal_broker.port


def test_two_brokers_live_side_by_side():
    with Broker(topics=["a"]) as first, Broker(topics=["b"]) as second:
        for broker, name in ((first, "a"), (second, "b")):
            with RawClient(broker.port) as client:
                assert [topic.name for topic in client.ask(ALL).topics] == [name]


def test_an_error_is_answered_as_often_as_asked(shoal_broker):
    shoal_broker.create_topic("t")
    shoal_broker.fail("Produce", ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    with RawClient(shoal_broker.port) as client:
        codes = [produce(client, "t", batch(b"x")).error_code for _ in range(3)]
        assert codes == [6, 6, 0]
        assert list_offset(client, "t", -1).offset == 1


def test_an_error_can_be_named_by_text_and_an_api_in_any_spelling(shoal_broker):
    shoal_broker.fail("find_coordinator", "COORDINATOR_NOT_AVAILABLE")
    shoal_broker.clear_faults()
    with pytest.raises(ValueError, match="did you mean 'Produce'"):
        shoal_broker.fail("Product", ErrorCode.NONE)
    with pytest.raises(ValueError, match="did you mean 'NOT_LEADER_OR_FOLLOWER'"):
        shoal_broker.fail("Produce", "NOT_LEADER_FOR_PARTITION")


def test_every_api_can_be_made_to_fail(shoal_broker):
    """Whatever the API, its answer to an injected error can be encoded in every version."""
    from shoal.broker.handlers import SERVED
    from shoal.wire.apis.registry import API
    from tests.broker.messages import minimal

    with RawClient(shoal_broker.port) as client:
        for key, served in SERVED.items():
            if key in (17, 18, 36) or served.needs_receiver:
                continue  # those of clients' telemetry are there only beside a metrics port
            for version in served.versions(key):
                shoal_broker.fail(API[key].name, ErrorCode.REQUEST_TIMED_OUT)
                answer = client.ask(minimal(API[key].request, version), version)
                told = set(codes_in(answer, version))
                if (API[key].name, version) not in NO_PLACE_FOR_A_CODE:
                    assert told == {ErrorCode.REQUEST_TIMED_OUT}, (API[key].name, version, answer)


NO_PLACE_FOR_A_CODE = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
"""Only a directory could carry one there, and a refusal names none; as Apache Kafka's does."""


CODES = ("error_code", "partition_error_code")


def codes_in(message, version):
    """The error codes of an answer: those of its parts, or of itself if no part has one."""
    fields = [field.name for field in fields_of(type(message)) if field.exists_in(version)]
    lists = [part for name in fields if isinstance(part := getattr(message, name), list)]
    parts = [each for part in lists for each in part if hasattr(each, "_declared")]
    codes = [code for part in parts for code in codes_in(part, version)]
    return codes or [getattr(message, name) for name in fields if name in CODES]


def test_a_delayed_request_is_handled_later_and_nothing_is_lost(shoal_broker):
    shoal_broker.create_topic("t")
    shoal_broker.delay("Produce", 0.05)
    with RawClient(shoal_broker.port) as slow, RawClient(shoal_broker.port) as quick:
        from shoal.wire.apis.produce import ProduceRequest

        data = ProduceRequest.PartitionProduceData(index=0, records=batch(b"slow"))
        topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
        slow.send(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
        while shoal_broker.live.dispatch.faults is None or not shoal_broker.on_loop(
            lambda live: live.dispatch.faults.is_empty
        ):
            pass
        assert produce(quick, "t", batch(b"quick")).base_offset == 0
        assert slow.receive(0, 9).responses[0].partition_responses[0].base_offset == 1


def test_a_dropped_request_cuts_the_connection_before_or_after_the_work(shoal_broker):
    shoal_broker.create_topic("t")
    for after, end_offset in ((False, 0), (True, 1)):
        shoal_broker.drop("Produce", after=after)
        with RawClient(shoal_broker.port) as client, pytest.raises(AssertionError, match="closed"):
            produce(client, "t", batch(b"x"))
        with RawClient(shoal_broker.port) as client:
            assert list_offset(client, "t", -1).offset == end_offset


def test_a_restart_does_not_bring_back_what_was_deleted():
    with Broker(topics=["kept", "deleted"], users={"ann": "secret", "ben": "secret"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_topics("deleted")
            for mechanism in admin.describe_users("ben")["ben"]:
                admin.delete_password("ben", mechanism=mechanism)
        broker.restart()
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert admin.list_topics() == ["kept"]
            assert list(admin.describe_users()) == ["ann"]


@pytest.mark.parametrize("kill", [False, True])
def test_a_restart_keeps_everything(kill, tmp_path):
    with Broker(data_dir=tmp_path, durability="group") as broker:
        broker.create_topic("t", 3, retention_ms=123_456_789)
        with RawClient(broker.port) as client:
            produce(client, "t", batch(b"a", b"b"))
            assert commit(client, "g", "t", 0, 2) == 0
            before = client.ask(ALL)
        port = broker.port
        broker.restart(kill=kill)
        assert broker.port == port
        with RawClient(broker.port) as client:
            after = client.ask(ALL)
            assert after.cluster_id == before.cluster_id
            assert {t.name: (t.topic_id, len(t.partitions)) for t in after.topics} == {
                t.name: (t.topic_id, len(t.partitions)) for t in before.topics
            }
            assert values_of(fetch(client, "t", 0).records) == [b"a", b"b"]
            assert produce(client, "t", batch(b"c")).base_offset == 2
            from shoal.wire.apis.offset_fetch import OffsetFetchRequest

            wanted = OffsetFetchRequest.Topic(name="t", partition_indexes=[0])
            found = client.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 5)
            assert found.topics[0].partitions[0].committed_offset == 2
        topic = broker.on_loop(lambda live: live.catalogue.get("t"))
        assert topic is not None
        assert topic.configs == {"retention.ms": "123456789"}


def test_a_duplicate_is_recognised_across_a_kill():
    with Broker(durability="group") as broker:
        broker.create_topic("t")
        records = batch(b"once", producer_id=7, producer_epoch=0, base_sequence=0)
        with RawClient(broker.port) as client:
            assert produce(client, "t", records).base_offset == 0
        broker.restart(kill=True)
        with RawClient(broker.port) as client:
            assert produce(client, "t", records).base_offset == 0
            assert list_offset(client, "t", -1).offset == 1


def test_producer_ids_are_not_given_again_after_a_kill(shoal_broker):
    from shoal.wire.apis.init_producer_id import InitProducerIdRequest

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    with RawClient(shoal_broker.port) as client:
        first = client.ask(request, 4).producer_id
    shoal_broker.restart(kill=True)
    with RawClient(shoal_broker.port) as client:
        assert client.ask(request, 4).producer_id > first


def _join(client: RawClient) -> tuple[str, int]:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    request.member_id = client.ask(request, 5).member_id
    joined = client.ask(request, 5)
    assignment = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=b"all")
    synced = client.ask(
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        ),
        3,
    )
    assert synced.error_code == 0
    return joined.member_id, joined.generation_id


def test_advancing_the_clock_expires_a_silent_member(shoal_broker):
    with RawClient(shoal_broker.port) as client:
        member_id, generation = _join(client)
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        shoal_broker.advance(9)
        assert client.ask(beat, 3).error_code == 0
        shoal_broker.advance(11)
        assert client.ask(beat, 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        state = client.ask(DescribeGroupsRequest(groups=["g"]), 5).groups[0].group_state
        assert state == "Empty"


def test_a_member_survives_a_restart_of_the_broker(shoal_broker):
    with RawClient(shoal_broker.port) as client:
        member_id, generation = _join(client)
    shoal_broker.restart()
    with RawClient(shoal_broker.port) as client:
        beat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)
        assert client.ask(beat, 3).error_code == 0


def test_advancing_the_clock_runs_retention(shoal_broker):
    shoal_broker.create_topic("short", retention_ms=1000, segment_ms=1000)
    import time

    with RawClient(shoal_broker.port) as client:
        now_ms = time.time_ns() // 1_000_000
        for _ in range(3):
            produce(client, "short", batch(b"x" * 100, timestamp_ms=now_ms))
        shoal_broker.advance(3600)
        assert list_offset(client, "short", -2).offset == 3


def test_cut_connections_are_cut_and_new_ones_are_welcome(shoal_broker):
    with RawClient(shoal_broker.port) as client:
        client.ask(ALL)
        shoal_broker.cut_connections()
        assert client.is_cut()
    with RawClient(shoal_broker.port) as client:
        assert client.ask(ALL).brokers


def test_two_brokers_may_not_share_a_directory(tmp_path):
    with Broker(data_dir=tmp_path), pytest.raises(DataDirectoryInUseError):
        Broker(data_dir=tmp_path).start()


def test_a_start_that_fails_says_why_and_leaves_nothing_behind(tmp_path):
    broken = Listener(port=0, certificate_file="no.pem", key_file="no.key")
    with pytest.raises(ConfigError, match=r"no\.pem"):
        Broker(data_dir=tmp_path, listeners=(broken,)).start()
    with Broker(data_dir=tmp_path) as broker:
        assert broker.counters()["topics"] == 0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"config": BrokerConfig(topics=TopicDefaults(partitions=0))},
            "partitions must be at least 1",
        ),
        ({"durability": "perhaps"}, "perhaps"),
        ({"topics": ["no/such"]}, "INVALID_TOPIC"),
    ],
)
def test_a_refused_configuration_is_told_at_once_and_leaves_nothing_behind(
    given, named, tmp_path, monkeypatch
):
    monkeypatch.setattr("shoal.testing.broker._MEMORY", tmp_path)
    threads = set(threading.enumerate())
    refused = Broker(**given)
    for _ in range(2):
        with pytest.raises(ShoalError, match=named):
            refused.start()
        assert set(threading.enumerate()) <= threads
        assert not list(tmp_path.iterdir())
    refused.close()


def test_a_topic_that_cannot_be_created_raises(shoal_broker):
    with pytest.raises(BrokerError, match="INVALID_TOPIC"):
        shoal_broker.create_topic("no/such")


def test_offsets_of_a_deleted_topic_do_not_come_back(shoal_broker):
    from shoal.wire.apis.delete_topics import DeleteTopicsRequest
    from shoal.wire.apis.offset_fetch import OffsetFetchRequest

    shoal_broker.create_topic("t")
    with RawClient(shoal_broker.port) as client:
        commit(client, "g", "t", 0, 5)
        client.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 1)
        shoal_broker.create_topic("t")
        wanted = OffsetFetchRequest.Topic(name="t", partition_indexes=[0])
        found = client.ask(OffsetFetchRequest(group_id="g", topics=[wanted]), 5)
        assert found.topics[0].partitions[0].committed_offset == -1


def test_a_commit_without_a_group_is_an_offset_commit_like_any_other(shoal_broker):
    shoal_broker.create_topic("t")
    with RawClient(shoal_broker.port) as client:
        request = OffsetCommitRequest(group_id="empty", member_id="", topics=[])
        assert not client.ask(request, 8).topics
