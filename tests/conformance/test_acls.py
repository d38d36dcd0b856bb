"""Other people's administrators of access rules against our broker, and clients that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.access.resources import Operation, ResourceType
from shoal.access.rules import Acl
from shoal.broker.config import Listener
from shoal.testing.broker import Broker
from tests.peers import need
from tests.peers.jars import java, kafka_jars
from tests.peers.kafka import tool

pytestmark = [pytest.mark.slow, pytest.mark.peer]
USERS = {"admin": "secret", "ann": "secret"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    listener = Listener(port=0, sasl=("PLAIN",))
    rules = [Acl(ResourceType.TOPIC, "orders", "User:ann", Operation.READ)]
    with Broker(
        users=USERS, listeners=(listener,), topics=["orders", "secret"], acls=rules
    ) as running:
        yield running


def librdkafka(broker: Broker, user: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": USERS[user],
    }


def test_confluent_kafka_makes_finds_and_removes_rules(broker):
    kafka = pytest.importorskip("confluent_kafka")
    theirs = pytest.importorskip("confluent_kafka.admin")
    admin = theirs.AdminClient(librdkafka(broker, "admin"))
    binding = theirs.AclBinding(
        theirs.ResourceType.GROUP,
        "bill",
        theirs.ResourcePatternType.PREFIXED,
        "User:ann",
        "*",
        theirs.AclOperation.READ,
        theirs.AclPermissionType.ALLOW,
    )
    for done in admin.create_acls([binding]).values():
        done.result(10)
    anything = theirs.AclBindingFilter(
        theirs.ResourceType.ANY,
        None,
        theirs.ResourcePatternType.ANY,
        None,
        None,
        theirs.AclOperation.ANY,
        theirs.AclPermissionType.ANY,
    )
    found = admin.describe_acls(anything).result(10)
    assert {(rule.name, rule.operation.name) for rule in found} == {
        ("bill", "READ"),
        ("orders", "READ"),
    }

    consumer = kafka.Consumer(
        {**librdkafka(broker, "ann"), "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    try:
        assert "secret" not in consumer.list_topics(timeout=10).topics
        consumer.subscribe(["orders"])
        producer = kafka.Producer(librdkafka(broker, "admin"))
        producer.produce("orders", b"x")
        assert producer.flush(10) == 0
        message = consumer.poll(20)
        assert message is not None
        assert message.error() is None
        assert message.value() == b"x"
    finally:
        consumer.close()

    (removed,) = [done.result(10) for done in admin.delete_acls([anything]).values()]
    assert len(removed) == 2
    assert admin.describe_acls(anything).result(10) == []


def test_kafka_python_is_refused_and_let_in_by_rules(broker):
    kafka = pytest.importorskip("kafka")
    theirs = pytest.importorskip("kafka.admin")
    errors = pytest.importorskip("kafka.errors")

    def settings(user: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": user,
            "sasl_plain_password": USERS[user],
        }

    producer = kafka.KafkaProducer(**settings("ann"), enable_idempotence=False)
    with pytest.raises(errors.TopicAuthorizationFailedError):
        producer.send("orders", b"x", partition=0).get(20)
    admin = theirs.KafkaAdminClient(**settings("admin"))
    rule = theirs.ACL(
        principal="User:ann",
        host="*",
        operation=theirs.ACLOperation.WRITE,
        permission_type=theirs.ACLPermissionType.ALLOW,
        resource_pattern=theirs.ResourcePattern(theirs.ResourceType.TOPIC, "orders"),
    )
    made = admin.create_acls([rule])
    assert not made["failed"]
    assert producer.send("orders", b"x", partition=0).get(20).offset == 0
    producer.close()
    admin.close()


@pytest.mark.kafka
def test_kafka_acls_adds_and_lists_rules(broker: Broker, tmp_path: Path) -> None:
    need(java)
    need(kafka_jars)
    login = tmp_path / "login.properties"
    login.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="secret";\n'
    )
    where = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(login))

    def acls(*arguments: str) -> str:
        done = tool("AclCommand", *where, *arguments, timeout=100)
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
        return done.stdout

    consumer = ("--consumer", "--topic", "orders", "--group", "billing")
    acls("--add", "--allow-principal", "User:bob", *consumer)
    listed = acls("--list", "--topic", "orders")
    assert "principal=User:bob, host=*, operation=READ, permissionType=ALLOW" in listed
    acls("--remove", "--force", "--allow-principal", "User:bob", *consumer)
    assert "User:bob" not in acls("--list")
