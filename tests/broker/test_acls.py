"""Access rules in a broker: made, kept, in force for the next request, told to the audit log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl, AclFilter, PatternType, Permission
from shoal.broker.config import AuthorizationSettings, BrokerConfig, Listener, from_toml
from shoal.broker.flags import build_config
from shoal.errors import BrokerError, ConfigError, ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.produce import ProduceRequest
from tests.broker.raw_client import RawClient, batch
from tests.broker.test_security import authenticate, handshake
from tests.patience import PATIENCE_S

USERS = {"admin": "secret", "ann": "secret", "bob": "secret"}
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
LISTENER = Listener(port=0, sasl=("PLAIN",))


def as_user(broker: Broker, name: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": name,
        "sasl_password": USERS[name],
        "default_api_timeout_ms": 5_000,
        **more,
    }


def asking(broker: Broker) -> Admin:
    """Somebody without a name."""
    return Admin(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def broker() -> Iterator[Broker]:
    topics = {"orders": 1, "orders-eu": 1, "payments": 1}
    with Broker(users=USERS, listeners=(LISTENER,), topics=topics, acls=[]) as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(**as_user(broker, "admin")) as one:
        yield one


def test_nobody_but_a_super_user_sees_anything_before_there_are_rules(broker, admin):
    assert set(admin.list_topics()) >= {"orders", "payments"}
    with Admin(**as_user(broker, "ann")) as ann:
        assert ann.list_topics() == []
        with pytest.raises(BrokerError) as refused:
            ann.create_topic("mine")
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(BrokerError) as refused:
            ann.describe_acls()
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        with pytest.raises(BrokerError) as refused:
            ann.create_acls(Acl(CLUSTER, "kafka-cluster", "User:ann", 2))
        assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert admin.describe_acls() == []


def test_a_rule_counts_for_the_next_request_and_no_longer_than_it_is_there(broker, admin):
    writing = Acl(TOPIC, "orders", "User:ann", WRITE, pattern=PatternType.PREFIXED)
    with Producer(**as_user(broker, "ann", enable_idempotence=False)) as producer:
        admin.create_acls(writing)
        producer.send("orders-eu", value=b"x", partition=0).result(5)
        # Twice: the second goes the quick way, which keeps verdicts.
        for _ in range(2):
            producer.send("orders", value=b"x", partition=0).result(5)
        admin.delete_acls(writing)
        with pytest.raises(BrokerError) as refused:
            producer.send("orders", value=b"x", partition=0).result(5)
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ends = admin.list_offsets({TopicPartition("orders", 0): "latest"})
    assert ends[TopicPartition("orders", 0)].offset == 2


def test_a_group_needs_rules_for_itself_and_for_its_topics(broker, admin):
    with Producer(**as_user(broker, "admin")) as producer:
        producer.send("orders", value=b"x").result(5)
    reader = as_user(broker, "bob", group_id="billing", auto_offset_reset="earliest")
    admin.create_acls(Acl(TOPIC, "orders", "User:bob", READ))
    with Consumer(**reader) as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(BrokerError) as refused:
            consumer.poll(5)
        assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    admin.create_acls(Acl(GROUP, "billing", "User:bob", READ))
    with Consumer(**reader) as consumer:
        consumer.subscribe(["orders"])
        records: list[Any] = []
        while not records:
            records = list(consumer.poll(5))
        consumer.commit_sync()
    assert [record.value for record in records] == [b"x"]


def test_rules_are_found_by_filters_and_survive_a_restart(tmp_path):
    rules = [
        Acl(TOPIC, "orders", "User:ann", READ),
        Acl(TOPIC, "ord", "User:ann", WRITE, pattern=PatternType.PREFIXED),
        Acl(TOPIC, "*", "User:bob", DESCRIBE, Permission.DENY, host="10.0.0.1"),
        Acl(GROUP, "billing", "User:bob", READ),
    ]
    broker = Broker(users=USERS, listeners=(LISTENER,), data_dir=tmp_path, acls=rules[:1])
    with broker, Admin(**as_user(broker, "admin")) as admin:
        admin.create_acls(*rules, rules[0])
        admin.create_acls(*rules)
        assert admin.describe_acls() == sorted(rules)
    with broker, Admin(**as_user(broker, "admin")) as admin:
        assert admin.describe_acls() == sorted(rules)
        match = AclFilter(TOPIC, "orders", pattern=PatternType.MATCH)
        assert admin.describe_acls(match) == sorted(rules[:3])
        assert admin.delete_acls(AclFilter(principal="User:bob")) == sorted(rules[2:])
        assert admin.delete_acls(AclFilter(principal="User:bob")) == []
    with broker, Admin(**as_user(broker, "admin")) as admin:
        assert admin.describe_acls() == sorted(rules[:2])


def test_rules_without_authorization_are_kept_and_not_in_force(tmp_path):
    rule = Acl(TOPIC, "*", "User:*", 2, Permission.DENY)
    with Broker(data_dir=tmp_path, acls=[rule]):
        pass
    with Broker(data_dir=tmp_path) as broker, asking(broker) as nobody:
        nobody.create_topic("anything")
        with pytest.raises(BrokerError) as refused:
            nobody.describe_acls()
        assert refused.value.code is ErrorCode.SECURITY_DISABLED
    with Broker(data_dir=tmp_path, acls=[]) as broker, asking(broker) as nobody:
        assert nobody.list_topics() == []


def test_a_bad_rule_is_refused_by_name_before_it_is_sent(admin):
    with pytest.raises(ValueError, match="'ann' is not of the form Type:name"):
        admin.create_acls(Acl(TOPIC, "orders", "ann", READ))
    with pytest.raises(ValueError, match="operation 99 is not known"):
        admin.delete_acls(AclFilter(operation=99))


def test_the_audit_log_names_who_was_refused_what_and_by_which_rule(tmp_path):
    denial = Acl(TOPIC, "orders", "User:ann", 2, Permission.DENY)
    broker = Broker(
        users=USERS,
        listeners=(LISTENER,),
        data_dir=tmp_path,
        topics=["orders"],
        acls=[Acl(TOPIC, "*", "User:*", DESCRIBE), denial],
    )
    with broker:
        with Admin(**as_user(broker, "ann")) as ann, pytest.raises(BrokerError):
            ann.delete_topics("orders")
        with Admin(**as_user(broker, "admin")) as admin:
            admin.delete_acls(denial)
    access = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    (refused,) = [
        line for line in access if line["event"] == "denied" and line["operation"] == "DELETE"
    ]
    assert refused["principal"] == "User:ann"
    assert refused["resource"] == "TOPIC orders"
    assert refused["rule"] == "DENY User:ann to ALL TOPIC orders from *"
    changes = (tmp_path / "audit.log").read_text()
    assert "access rule removed" in changes


# --- settings -----------------------------------------------------------------------------------


def test_authorization_without_a_super_user_does_not_start():
    with pytest.raises(ConfigError, match="nobody could ever add a rule"):
        build_config(authorize=True)
    with pytest.raises(ConfigError, match="write User:admin"):
        build_config(authorize=True, super_user=["admin"])
    with pytest.raises(ConfigError, match="--super-user needs --authorize"):
        build_config(super_user=["User:admin"])


def test_a_file_says_who_the_super_users_are(tmp_path):
    text = '[authorization]\nsuper_users = ["User:admin"]\nallow_everyone_if_no_acl_found = true\n'
    assert from_toml(text).authorization == AuthorizationSettings(("User:admin",), True)
    file = tmp_path / "shoal.toml"
    file.write_text(text)
    config = build_config(config_file=str(file), super_user=["User:root"])
    assert config.authorization == AuthorizationSettings(("User:admin", "User:root"), True)
    with pytest.raises(ConfigError, match="super_users must be a list of texts"):
        from_toml('[authorization]\nsuper_users = "User:admin"\n')
    with pytest.raises(ConfigError, match=r"unknown key 'super_user'.*super_users"):
        from_toml('[authorization]\nsuper_user = ["User:admin"]\n')


def test_what_no_rule_is_about_can_be_open_to_everybody():
    config = BrokerConfig(authorization=AuthorizationSettings(("User:admin",), True))
    rule = Acl(TOPIC, "payments", "User:ann", READ)
    topics = ["orders", "payments"]
    broker = Broker(config=config, topics=topics, acls=[rule])
    with broker, asking(broker) as nobody:
        assert nobody.list_topics() == ["orders"]


def test_a_pattern_matches_what_its_member_may_see(broker, admin):
    """And names are refused, of which one may not be seen."""
    reader = as_user(
        broker, "bob", group_id="billing", group_protocol="consumer", auto_offset_reset="earliest"
    )
    admin.create_acls(
        Acl(GROUP, "billing", "User:bob", READ),
        Acl(TOPIC, "orders", "User:bob", READ, pattern=PatternType.PREFIXED),
    )
    with Consumer(**reader) as consumer:
        consumer.subscribe(pattern="[op].*")
        deadline = time.monotonic() + 2 * PATIENCE_S
        while len(consumer.assignment()) < 2 and time.monotonic() < deadline:
            consumer.poll(0.1)
        assert {tp.topic for tp in consumer.assignment()} == {"orders", "orders-eu"}
        assert {
            tp.topic for one in admin.describe_group("billing").members for tp in one.target
        } == {
            "orders",
            "orders-eu",
        }
        with Admin(**as_user(broker, "ann")) as ann, pytest.raises(BrokerError) as refused:
            ann.describe_group("billing")
        assert refused.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        admin.create_acls(
            Acl(GROUP, "billing", "User:ann", DESCRIBE), Acl(TOPIC, "orders", "User:ann", DESCRIBE)
        )
        with Admin(**as_user(broker, "ann")) as ann, pytest.raises(BrokerError) as refused:
            ann.describe_group("billing")
        assert refused.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topics, group, code in (
        (["orders", "payments"], "billing", ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (["orders"], "others", ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):
        with Consumer(**reader | {"group_id": group}) as consumer:
            consumer.subscribe(topics)
            with pytest.raises(BrokerError) as refused:
                consumer.poll(2 * PATIENCE_S)
            assert refused.value.code is code


@pytest.fixture
def ann(broker: Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        handshake(client, "PLAIN")
        assert authenticate(client, b"\0ann\0secret").error_code == 0
        yield client


@pytest.mark.parametrize("replica", [-2, 0, 1])
def test_nobody_gets_around_rules_by_passing_for_a_broker(broker, admin, ann, replica):
    with Producer(**as_user(broker, "admin")) as producer:
        producer.send("orders", value=b"secret").result(PATIENCE_S)
    part = FetchRequest.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.Topic(topic="orders", partitions=[part])
    asked = FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=0, topics=[topic])
    fetched = ann.ask(asked, 11)
    (data,) = fetched.responses[0].partitions
    # There are no followers here: who says to be one is not even looked up.
    is_follower = replica >= 0
    refused = ErrorCode.INVALID_REQUEST if is_follower else ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert data.error_code == refused
    assert (bytes(data.records or b""), data.high_watermark) == (b"", -1)
    offset = ListOffsetsRequest.Partition(partition_index=0, timestamp=-1)
    listing = ListOffsetsRequest.Topic(name="orders", partitions=[offset])
    listed = ann.ask(ListOffsetsRequest(replica_id=replica, topics=[listing]), 5)
    (entry,) = listed.topics[0].partitions
    assert (entry.error_code, entry.offset) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)


@pytest.mark.parametrize("transactional_id", [None, "somebody-elses"])
def test_nobody_gets_around_rules_by_the_flag_of_transactions(broker, admin, ann, transactional_id):
    admin.create_acls(Acl(TOPIC, "orders", "User:ann", WRITE))
    flagged = batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    data = ProduceRequest.PartitionProduceData(index=0, records=flagged)
    topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[data])
    asked = ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout_ms=1_000, topic_data=[topic]
    )
    (answer,) = ann.ask(asked, 9).responses[0].partition_responses
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (end,) = admin.list_offsets({TopicPartition("orders", 0): "latest"}).values()
    assert end is not None
    assert end.offset == 0
