"""Every call of the Python clients' admin and metadata interfaces, at least once, on our broker.

The test is that the client gets an answer it understands. A client that counts its bytes wrongly
(confluent-kafka's ``list_topics`` and ``alter_user_scram_credentials``) was cut off here once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from shoal.testing import Broker
from tests.conformance.client import Door
from tests.conformance.python_clients import AioKafka, ConfluentKafka, KafkaPython

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Calls = Mapping[str, Callable[[], Any]]
# What our broker says no to, and how: access control, transactions, elections among one node.
REFUSED = ("SECURITY_DISABLED", "SecurityDisabled", "ElectionNotNeeded", "UnsupportedVersion")


@pytest.fixture(scope="module")
def conformance_broker() -> Iterator[Broker]:
    """Without logins: where there are some, only who has logged in may change users."""
    with Broker(durability="group") as broker:
        yield broker


def methods_of(kind: type, without: set[str]) -> set[str]:
    """All that a user can call."""
    public = {name for name in dir(kind) if not name.startswith("_")}
    return {name for name in public if callable(getattr(kind, name))} - without


def settled(answer: Any) -> Any:
    """Waits for the futures of confluent-kafka, wherever they are."""
    if isinstance(answer, Future):
        return answer.result(15)
    if isinstance(answer, dict):
        return {key: settled(value) for key, value in answer.items()}
    return answer


def make(calls: Calls, refused: set[str]) -> None:
    """Each call answers, or is refused in so many words."""
    for name, call in calls.items():
        try:
            settled(call())
        except Exception as error:
            shown = f"{type(error).__name__}: {error} {error.args!r}"
            assert name in refused, f"{name}: {shown}"
            assert any(word in shown for word in REFUSED), f"{name}: {shown}"
        else:
            assert name not in refused, f"{name} is served now"


def test_confluent_kafka(door: Door, topic: str) -> None:
    from confluent_kafka import (
        ConsumerGroupTopicPartitions,
        ElectionType,
        IsolationLevel,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka.admin import (
        AclBinding,
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        ResourcePatternType,
        ResourceType,
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    client = ConfluentKafka()
    client.commit(door, topic, f"g-{topic}", {0: 0})
    client.commit(door, topic, f"h-{topic}", {0: 0})
    admin = client._admin(door)
    acl = ("t", ResourcePatternType.LITERAL, "User:u", "*", AclOperation.READ)
    rule = AclBinding(ResourceType.TOPIC, *acl, AclPermissionType.ALLOW)
    rules = AclBindingFilter(ResourceType.TOPIC, *acl, AclPermissionType.ALLOW)
    named = ConfigResource(ConfigResource.Type.TOPIC, topic)
    kept = ConfigEntry("retention.ms", "9000000", incremental_operation=AlterConfigOpType.SET)
    scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    first = TopicPartition(topic, 0)
    positions = ConsumerGroupTopicPartitions(f"g-{topic}", [TopicPartition(topic, 0, 0)])
    calls: Calls = {
        "list_topics": lambda: admin.list_topics(timeout=10),
        "cluster_id": lambda: admin.cluster_id(timeout=10),
        "list_groups": lambda: admin.list_groups(timeout=10),
        "poll": lambda: admin.poll(0),
        "create_topics": lambda: admin.create_topics([NewTopic(f"{topic}-n", 1, 1)]),
        "create_partitions": lambda: admin.create_partitions([NewPartitions(f"{topic}-n", 3)]),
        "describe_topics": lambda: admin.describe_topics(TopicCollection([topic])),
        "delete_records": lambda: admin.delete_records([TopicPartition(topic, 0, 0)]),
        "delete_topics": lambda: admin.delete_topics([f"{topic}-n"]),
        "describe_configs": lambda: admin.describe_configs([named]),
        "alter_configs": lambda: admin.alter_configs(
            [
                ConfigResource(
                    ConfigResource.Type.TOPIC, topic, set_config={"retention.ms": "8000000"}
                )
            ]
        ),
        "incremental_alter_configs": lambda: admin.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[kept])]
        ),
        "list_consumer_groups": lambda: admin.list_consumer_groups(),
        "describe_consumer_groups": lambda: admin.describe_consumer_groups([f"g-{topic}"]),
        "list_consumer_group_offsets": lambda: admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(f"g-{topic}")]
        ),
        "alter_consumer_group_offsets": lambda: admin.alter_consumer_group_offsets([positions]),
        "delete_consumer_groups": lambda: admin.delete_consumer_groups([f"h-{topic}"]),
        "describe_cluster": lambda: admin.describe_cluster(include_authorized_operations=True),
        "list_offsets": lambda: admin.list_offsets(
            {first: OffsetSpec.latest()}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        ),
        "elect_leaders": lambda: admin.elect_leaders(ElectionType.PREFERRED, [first]),
        "alter_user_scram_credentials": lambda: admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("eve", scram, b"secret", b"salt")]
        ),
        "describe_user_scram_credentials": lambda: admin.describe_user_scram_credentials(["eve"]),
        "set_sasl_credentials": lambda: admin.set_sasl_credentials("u", "p"),
        "create_acls": lambda: admin.create_acls([rule]),
        "describe_acls": lambda: admin.describe_acls(rules),
        "delete_acls": lambda: admin.delete_acls([rules]),
    }
    assert calls.keys() == methods_of(AdminClient, set())
    make(calls, {"create_acls", "delete_acls"})
    assert topic in admin.list_topics(timeout=10).topics
    assert topic in admin.list_topics(topic, timeout=10).topics


def test_aiokafka(door: Door, topic: str) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    client = AioKafka()
    client.commit(door, topic, f"g-{topic}", {0: 0})
    group = f"g-{topic}"

    async def use() -> None:
        admin = AIOKafkaAdminClient(**client.settings(door))
        await admin.start()
        named = ConfigResource(ConfigResourceType.TOPIC, topic)
        changed = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "9000000"})
        fresh = f"{topic}-n"
        calls: Calls = {
            "list_topics": admin.list_topics,
            "describe_topics": lambda: admin.describe_topics([topic]),
            "describe_cluster": admin.describe_cluster,
            "create_topics": lambda: admin.create_topics([NewTopic(fresh, 1, 1)]),
            "create_partitions": lambda: admin.create_partitions({fresh: NewPartitions(3)}),
            "delete_topics": lambda: admin.delete_topics([fresh]),
            "describe_configs": lambda: admin.describe_configs([named]),
            "alter_configs": lambda: admin.alter_configs([changed]),
            "list_consumer_groups": admin.list_consumer_groups,
            "describe_consumer_groups": lambda: admin.describe_consumer_groups([group]),
            "list_consumer_group_offsets": lambda: admin.list_consumer_group_offsets(group),
            "find_coordinator": lambda: admin.find_coordinator(group),
            "delete_records": lambda: admin.delete_records(
                {TopicPartition(topic, 0): RecordsToDelete(before_offset=0)}
            ),
        }
        assert calls.keys() == methods_of(AIOKafkaAdminClient, {"start", "close"})
        for name, call in calls.items():
            try:
                await asyncio.wait_for(call(), 15)
            except Exception as error:
                raise AssertionError(f"{name}: {error!r}") from error
        await admin.close()

    asyncio.run(use())


def test_kafka_python(door: Door, topic: str) -> None:
    from kafka import KafkaAdminClient, OffsetAndMetadata, TopicPartition
    from kafka.admin import (
        ACL,
        ACLFilter,
        ACLOperation,
        ACLPermissionType,
        ConfigResource,
        ConfigResourceType,
        MemberToRemove,
        OffsetSpec,
        ResourcePattern,
        ResourceType,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    client = KafkaPython()
    client.commit(door, topic, f"g-{topic}", {0: 0})
    client.commit(door, topic, f"h-{topic}", {0: 0})
    admin = KafkaAdminClient(**client.settings(door))
    group, fresh, first = f"g-{topic}", f"{topic}-n", TopicPartition(topic, 0)
    pattern = ResourcePattern(ResourceType.TOPIC, "t")
    acl = ("User:u", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    kept = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "9000000"})
    scram = UserScramCredentialUpsertion("mallory", ScramMechanism.SCRAM_SHA_256, "secret")
    directories = admin.describe_log_dirs()
    calls: Calls = {
        "api_versions": admin.api_versions,
        "list_topics": admin.list_topics,
        "describe_topics": lambda: admin.describe_topics([topic]),
        "describe_topic_partitions": lambda: admin.describe_topic_partitions([topic]),
        "describe_cluster": admin.describe_cluster,
        "describe_features": admin.describe_features,
        "describe_log_dirs": admin.describe_log_dirs,
        "describe_metadata_quorum": admin.describe_metadata_quorum,
        "describe_user_scram_credentials": admin.describe_user_scram_credentials,
        "list_config_resources": admin.list_config_resources,
        "list_groups": admin.list_groups,
        "describe_groups": lambda: admin.describe_groups([group]),
        "list_group_offsets": lambda: admin.list_group_offsets({group: None}),
        "list_partition_reassignments": admin.list_partition_reassignments,
        "list_transactions": admin.list_transactions,
        "wait_for_topics": lambda: admin.wait_for_topics([topic]),
        "get_broker_version_data": lambda: admin.get_broker_version_data(
            admin.describe_cluster()["controller_id"]
        ),
    }
    calls = {
        **calls,
        "create_topics": lambda: admin.create_topics({fresh: {"num_partitions": 1}}),
        "create_partitions": lambda: admin.create_partitions({fresh: 3}),
        "delete_topics": lambda: admin.delete_topics([fresh]),
        "delete_records": lambda: admin.delete_records({first: 0}),
        "describe_configs": lambda: admin.describe_configs([kept]),
        "alter_configs": lambda: admin.alter_configs([kept]),
        "reset_configs": lambda: admin.reset_configs([kept]),
        "describe_producers": lambda: admin.describe_producers([first]),
        "list_partition_offsets": lambda: admin.list_partition_offsets({first: OffsetSpec.LATEST}),
        "alter_group_offsets": lambda: admin.alter_group_offsets(
            group, {first: OffsetAndMetadata(0, "", -1)}
        ),
        "reset_group_offsets": lambda: admin.reset_group_offsets(
            group, {first: OffsetSpec.EARLIEST}
        ),
        "delete_group_offsets": lambda: admin.delete_group_offsets(group, [first]),
        "remove_group_members": lambda: admin.remove_group_members(
            group, [MemberToRemove(member_id="nobody")]
        ),
        "delete_groups": lambda: admin.delete_groups([f"h-{topic}"]),
        "alter_user_scram_credentials": lambda: admin.alter_user_scram_credentials([scram]),
        "alter_partition_reassignments": lambda: admin.alter_partition_reassignments({first: None}),
        "elect_leaders": lambda: admin.elect_leaders(0, {topic: [0]}),
        "find_hanging_transactions": admin.find_hanging_transactions,
        "create_acls": lambda: admin.create_acls([ACL(*acl)]),
        "describe_acls": lambda: admin.describe_acls(ACLFilter(*acl)),
        "delete_acls": lambda: admin.delete_acls([ACLFilter(*acl)]),
    }
    assert directories
    # Of a cluster, of transactions, or of versions to come: not for one node yet.
    left_out = {"abort_transaction", "describe_transactions", "alter_replica_log_dirs"}
    left_out |= {"update_features", "close"}
    assert calls.keys() == methods_of(KafkaAdminClient, left_out)
    make(calls, {"describe_acls"})
    admin.close()


def test_what_consumers_ask_about_topics(door: Door, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka import TopicPartition as AioPartition
    from confluent_kafka import Consumer, TopicPartition
    from kafka import KafkaConsumer
    from kafka import TopicPartition as KafkaPartition

    settings = ConfluentKafka().settings(door, **{"group.id": f"m-{topic}"})
    confluent = Consumer(settings)
    assert topic in confluent.list_topics(timeout=10).topics
    assert confluent.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (0, 0)
    (found,) = confluent.offsets_for_times([TopicPartition(topic, 0, 1)], timeout=10)
    assert found.error is None
    confluent.close()

    theirs = KafkaConsumer(**KafkaPython().settings(door))
    partition = KafkaPartition(topic, 0)
    assert topic in theirs.topics()
    assert theirs.partitions_for_topic(topic) == {0, 1, 2, 3}
    assert theirs.beginning_offsets([partition]) == theirs.end_offsets([partition])
    assert theirs.offsets_for_times({partition: 1}) == {partition: None}
    theirs.close()

    async def use() -> None:
        consumer = AIOKafkaConsumer(**AioKafka().settings(door))
        await consumer.start()
        mine = AioPartition(topic, 0)
        assert topic in await consumer.topics()
        assert await consumer.beginning_offsets([mine]) == await consumer.end_offsets([mine])
        assert await consumer.offsets_for_times({mine: 1}) == {mine: None}
        await consumer.stop()

    asyncio.run(use())
