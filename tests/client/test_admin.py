"""Looking after a cluster: topics, partitions, settings, groups, records, users."""

from __future__ import annotations

import contextlib
import inspect
import threading
import time
import uuid
from typing import Any

import pytest

from shoal import Admin, OffsetAndMetadata, TopicPartition
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl, AclFilter
from shoal.errors import BrokerError, ConfigError, ErrorCode, RequestTimeoutError, ShoalError
from shoal.types import PreparedTransaction
from tests.client.conftest import poll_until, take
from tests.patience import PATIENCE_S, reason_in_time


def fill(producer, topic, count, partition=0, start_ms=1000):
    for n in range(count):
        producer.send(topic, str(n), partition=partition, timestamp_ms=start_ms + n)
    producer.flush(10)


def refused(code):
    """A ``pytest.raises`` for this answer of a broker."""
    return pytest.raises(BrokerError, match=code.name)


# --- cluster, topics, partitions ---


def test_the_cluster_is_described(admin, servers):
    found = admin.describe_cluster()
    assert found.cluster_id
    assert found.controller in found.nodes
    assert f"{found.nodes[0].host}:{found.nodes[0].port}" == servers


def test_topics_are_made_listed_described_grown_and_deleted(admin):
    name = f"t-{uuid.uuid4().hex[:8]}"
    admin.create_topic(name, partitions=2, configs={"retention.ms": "60000"})
    assert name in admin.list_topics()
    found = admin.describe_topics(name)[name]
    assert (found.name, found.is_internal, len(found.partitions)) == (name, False, 2)
    assert found.topic_id
    assert all(one.leader in one.in_sync_replicas for one in found.partitions)
    assert admin.describe_configs(topic=name)["retention.ms"].value == "60000"
    with refused(ErrorCode.TOPIC_ALREADY_EXISTS):
        admin.create_topic(name)
    admin.create_partitions({name: 5})
    assert len(admin.describe_topics(name)[name].partitions) == 5
    with refused(ErrorCode.INVALID_PARTITIONS):
        admin.create_partitions({name: 3})
    admin.delete_topics(name)
    assert name not in admin.list_topics()
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        admin.delete_topics(name, timeout=5)
    with refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        admin.describe_topics(name, timeout=5)


def test_a_topic_that_someone_makes_anew_at_once_was_deleted_all_the_same(shoal_broker):
    over = threading.Event()

    def write_on():
        while not over.is_set():
            with contextlib.suppress(ShoalError):
                shoal_broker.create_topic("t", 1)

    shoal_broker.create_topic("t", 1)
    writer = threading.Thread(target=write_on)
    with Admin(bootstrap_servers=shoal_broker.bootstrap_servers) as admin:
        before = admin.describe_topics("t")["t"].topic_id
        writer.start()
        shoal_broker.delay("Metadata", 0.1, times=10)
        try:
            admin.delete_topics("t", timeout=PATIENCE_S)
        finally:
            over.set()
            writer.join(10)
        assert admin.describe_topics("t")["t"].topic_id != before


def test_a_bad_name_or_setting_is_refused(admin):
    with refused(ErrorCode.INVALID_TOPIC_EXCEPTION):
        admin.create_topic("no/slash")
    with refused(ErrorCode.INVALID_CONFIG):
        admin.create_topic(f"t-{uuid.uuid4().hex[:8]}", configs={"retention.ms": "soon"})
    with refused(ErrorCode.INVALID_REPLICATION_FACTOR):
        admin.create_topic(f"t-{uuid.uuid4().hex[:8]}", replication_factor=7)


# --- settings ---


def settings_when(admin, topic, **wanted):
    """What a topic has. Apache Kafka's broker hears of a change after its controller answered."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = admin.describe_configs(topic=topic)
        seen = {name: found[name.replace("_", ".")].value for name in wanted}
        if seen == wanted or time.monotonic() > end:
            assert seen == wanted
            return found
        time.sleep(0.05)


def test_settings_are_changed_one_by_one_and_restored(admin, topic):
    before = admin.describe_configs(topic=topic)["segment.ms"]
    assert before.is_default
    admin.alter_configs({"segment.ms": "50000"}, topic=topic)
    admin.alter_configs({"max.message.bytes": "2000"}, topic=topic)
    found = settings_when(admin, topic, segment_ms="50000", max_message_bytes="2000")
    assert found["segment.ms"].source == "topic"
    admin.alter_configs({"segment.ms": None}, topic=topic)
    settings_when(admin, topic, segment_ms=before.value, max_message_bytes="2000")
    with refused(ErrorCode.INVALID_CONFIG):
        admin.alter_configs({"segment.ms": "soon"}, topic=topic)


def test_a_setting_may_be_given_as_a_number(admin, topic):
    admin.alter_configs({"retention.ms": 3_600_000}, topic=topic)
    settings_when(admin, topic, retention_ms="3600000")


def test_a_broker_has_settings_and_exactly_one_thing_is_asked_about(admin):
    broker = admin.describe_cluster().nodes[0].id
    assert admin.describe_configs(broker=broker)
    with pytest.raises(ValueError, match="exactly one"):
        admin.describe_configs()
    with pytest.raises(ValueError, match="exactly one"):
        admin.describe_configs(topic="t", broker=1)


# --- offsets and records ---


def test_offsets_are_listed_by_end_and_time(admin, producer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 5)
    wanted = {"earliest": 0, "latest": 5, "max_timestamp": 4, 1002: 2}
    for spec, offset in wanted.items():
        assert admin.list_offsets({tp: spec})[tp].offset == offset
    assert admin.list_offsets({tp: 99_999_999_999_999})[tp] is None
    for spec in ("newest", -1):
        with pytest.raises(ValueError, match=str(spec)):
            admin.list_offsets({tp: spec})
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        admin.list_offsets({TopicPartition(topic, 9): "latest"})


def test_a_failure_is_told_once_however_many_attempts_were_nested(consumer):
    one = consumer(allow_auto_create_topics=False)
    with pytest.raises(RequestTimeoutError) as caught:
        one.end_offsets([TopicPartition("absent", 0)], timeout=2)
    assert str(caught.value).count("gave up after") == 1
    assert "topic 'absent'" in str(caught.value)


def test_records_are_deleted_up_to_an_offset_or_all(admin, producer, consumer, topic):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 5)
    assert admin.delete_records({tp: 3}) == {tp: 3}
    assert admin.list_offsets({tp: "earliest"})[tp].offset == 3
    one = consumer()
    one.assign([tp])
    assert [record.offset for record in take(one, 2)] == [3, 4]
    with refused(ErrorCode.OFFSET_OUT_OF_RANGE):
        admin.delete_records({tp: 6})
    assert admin.delete_records({tp: -1}) == {tp: 5}


def test_partitions_have_sizes_that_grow_with_them(admin, producer, new_topic):
    topic = new_topic(2)
    full, empty = TopicPartition(topic, 0), TopicPartition(topic, 1)
    fill(producer, topic, 50)
    before = admin.partition_sizes(topic)
    assert before[full] > before[empty] == 0
    fill(producer, topic, 50)
    assert admin.partition_sizes(topic)[full] > before[full]


# --- groups ---


def test_a_group_is_listed_and_described_while_it_lives_and_after(admin, consumer, topic, group):
    one = consumer(client_id="me", assignors=["sticky"])
    one.subscribe([topic])
    poll_until(one, one.assignment)
    listed = {one.group_id: one for one in admin.list_groups()}
    assert (listed[group].state, listed[group].kind.lower()) == ("Stable", "classic")
    found = admin.describe_group(group)
    assert (found.state, found.protocol_type, found.assignor) == ("Stable", "consumer", "sticky")
    (member,) = found.members
    assert member.client_id == "me"
    assert member.topics == (topic,)
    assert member.assignment == (TopicPartition(topic, 0),)
    one.commit_sync({TopicPartition(topic, 0): OffsetAndMetadata(0)})
    one.close()
    assert admin.describe_group(group).state == "Empty"
    assert group in {one.group_id for one in admin.list_groups(states=["Empty"])}
    assert group not in {one.group_id for one in admin.list_groups(states=["Stable"])}
    admin.delete_groups(group)
    assert admin.describe_group(group).state == "Dead"
    with refused(ErrorCode.GROUP_ID_NOT_FOUND):
        admin.delete_groups(group)


def test_the_offsets_of_a_group_are_read_set_reset_and_forgotten(admin, producer, new_topic, group):
    topic = new_topic(2)
    left, right = TopicPartition(topic, 0), TopicPartition(topic, 1)
    fill(producer, topic, 10, 0)
    admin.alter_group_offsets(group, {left: 4, right: OffsetAndMetadata(0, "note")})
    found = admin.group_offsets(group)
    assert (found[left].offset, found[right].metadata) == (4, "note")
    assert admin.group_offsets(group, [left, TopicPartition("none", 0)]) == {
        left: found[left],
        TopicPartition("none", 0): None,
    }
    lag = admin.group_lag(group)
    assert (lag[left].committed, lag[left].end, lag[left].lag) == (4, 10, 6)
    assert lag[right].lag == 0
    resets = (
        ("earliest", 0),
        ("time:9999", 10),
        ("latest", 10),
        ("time:1003", 3),
        (7, 7),
        (99, 10),
    )
    for to, offset in resets:
        assert admin.reset_group_offsets(group, [left], to) == {left: offset}
        assert admin.group_offsets(group)[left].offset == offset
    with pytest.raises(ValueError, match="yesterday"):
        admin.reset_group_offsets(group, [left], "yesterday")
    with pytest.raises(ValueError, match="time:soon"):
        admin.reset_group_offsets(group, [left], "time:soon")
    absent = TopicPartition(left.topic, 99)
    with pytest.raises(BrokerError, match=f"UNKNOWN_TOPIC_OR_PARTITION.*{absent}"):
        admin.reset_group_offsets(group, [absent], "earliest")
    admin.delete_group_offsets(group, [left])
    assert admin.group_offsets(group) == {right: found[right]}


def test_who_reads_and_has_committed_nothing_is_behind_by_nobody_knows_how_much(
    admin, producer, consumer, topic, group
):
    tp = TopicPartition(topic, 0)
    fill(producer, topic, 10, 0)
    one = consumer()
    one.subscribe([topic])
    poll_until(one, one.assignment)
    lag = admin.group_lag(group)[tp]
    assert (lag.committed, lag.end, lag.lag) == (None, 10, None)
    assert lag.member_id == one.group_metadata().member_id


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_name_that_cannot_be_a_hosts_is_an_address_nobody_answers_at(host):
    told = f"cannot connect to {host}:9092"
    with Admin(bootstrap_servers=f"{host}:9092") as nowhere:
        reason_in_time(lambda s: nowhere.list_topics(timeout=s), RequestTimeoutError, told)


def test_a_group_in_use_is_not_changed_behind_its_back(admin, consumer, topic, group):
    tp = TopicPartition(topic, 0)
    one = consumer()
    one.subscribe([topic])
    poll_until(one, one.assignment)
    for change in (
        lambda: admin.alter_group_offsets(group, {tp: 0}),
        lambda: admin.reset_group_offsets(group, [tp], "earliest"),
        lambda: admin.delete_groups(group),
    ):
        with refused(ErrorCode.NON_EMPTY_GROUP):
            change()
    with refused(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC):
        admin.delete_group_offsets(group, [tp])


# --- users ---


def test_users_get_and_lose_passwords(admin):
    user = f"u-{uuid.uuid4().hex[:8]}"
    admin.set_password(user, "secret")
    admin.set_password(user, "secret", mechanism="SCRAM-SHA-256")
    assert sorted(admin.describe_users(user)[user]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert user in admin.describe_users()
    admin.delete_password(user)
    assert admin.describe_users(user)[user] == ["SCRAM-SHA-256"]
    with refused(ErrorCode.RESOURCE_NOT_FOUND):
        admin.delete_password(user)
    with pytest.raises(ConfigError, match="mechanism"):
        admin.set_password(user, "secret", mechanism="MD5")


# --- time ---

FITTING: dict[str, Any] = {
    "name": "t",
    "names": ["t"],
    "topics": ["t"],
    "totals": {"t": 2},
    "changes": {"retention.ms": "1"},
    "wanted": {TopicPartition("t", 0): "latest"},
    "before": {TopicPartition("t", 0): 1},
    "group_id": "g",
    "group_ids": ["g"],
    "group_instance_ids": ["i"],
    "partitions": [TopicPartition("t", 0)],
    "offsets": {TopicPartition("t", 0): 1},
    "to": "latest",
    "user": "u",
    "password": "p",
    "partition": TopicPartition("t", 0),
    "start_offset": 1,
    "transactional_ids": ["x"],
    "acls": [Acl(ResourceType.TOPIC, "t", "User:u", Operation.READ)],
    "filters": [AclFilter()],
    "quotas": {"producer_byte_rate": 1.0},
    "prepared": PreparedTransaction("x", 7, 0, is_v2=True),
    "commit": True,
}
CALLS = [
    name
    for name, method in inspect.getmembers(Admin, inspect.isfunction)
    if "timeout" in inspect.signature(method).parameters and not name.startswith("_")
]


@pytest.mark.parametrize("name", CALLS)
def test_every_call_ends_in_its_time_when_nobody_answers(name):
    arguments: list[Any] = []
    keywords: dict[str, Any] = {"timeout": 0.1}
    for parameter in list(inspect.signature(getattr(Admin, name)).parameters.values())[1:]:
        if parameter.kind is parameter.VAR_POSITIONAL:
            arguments += FITTING[parameter.name]
        elif parameter.default is not parameter.empty:
            continue
        elif parameter.kind is parameter.KEYWORD_ONLY:
            keywords[parameter.name] = FITTING[parameter.name]
        else:
            arguments.append(FITTING[parameter.name])
    if name.endswith("_configs"):
        keywords["topic"] = "t"
    if name == "alter_quotas":
        keywords["user"] = "u"
    with Admin(bootstrap_servers="127.0.0.1:9") as admin:
        before = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            getattr(admin, name)(*arguments, **keywords)
        assert time.monotonic() - before < 10
