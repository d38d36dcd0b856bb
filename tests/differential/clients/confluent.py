"""Every admin, metadata and group call of confluent-kafka, with its defaults."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from tests.differential.clients.outcomes import (
    WAIT_S,
    Outcomes,
    await_partitions,
    await_setting,
    called,
    plain,
)


def run(servers: str) -> Outcomes:
    from confluent_kafka import (
        Consumer,
        ConsumerGroupTopicPartitions,
        ElectionType,
        KafkaException,
        Producer,
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
        UserScramCredentialDeletion,
        UserScramCredentialUpsertion,
    )

    out: Outcomes = {}
    admin = AdminClient({"bootstrap.servers": servers})
    topic = "confluent"
    called(out, "create_topics", lambda: admin.create_topics([NewTopic(topic, 2)]))
    await_partitions(servers, topic, 2)
    called(out, "create_topics again", lambda: admin.create_topics([NewTopic(topic, 2)]))
    called(
        out,
        "create_partitions",
        lambda: admin.create_partitions([NewPartitions(topic, 3), NewPartitions("unknown", 3)]),
    )
    producer = Producer({"bootstrap.servers": servers})
    delivered: list[Any] = []
    now_ms = int(time.time() * 1000)
    for number in range(3):
        producer.produce(
            topic,
            b"value",
            partition=0,
            timestamp=now_ms + number,
            callback=lambda e, m: delivered.append((e, m.offset())),
        )
    called(out, "flush", lambda: producer.flush(WAIT_S))
    out["delivered"] = plain(delivered)
    await_partitions(servers, topic, 3)
    one = admin.list_topics(topic, timeout=WAIT_S)
    out["list_topics"] = plain(one.topics)
    # Internal topics are made when somebody first needs them.
    called(
        out,
        "list_topics of all",
        lambda: sorted(t for t in admin.list_topics(timeout=WAIT_S).topics if t[:2] != "__"),
    )
    called(out, "cluster_id", lambda: bool(admin.cluster_id()))
    called(out, "describe_topics", lambda: admin.describe_topics(TopicCollection([topic, "none"])))
    called(out, "describe_cluster", lambda: admin.describe_cluster())
    of_topic = ConfigResource(ResourceType.TOPIC, topic)
    called(out, "describe_configs of a topic", lambda: _configs(admin, of_topic))
    of_none = ConfigResource(ResourceType.TOPIC, "none")
    called(out, "describe_configs of an unknown topic", lambda: _configs(admin, of_none))
    of_broker = ConfigResource(ResourceType.BROKER, "1")
    called(out, "describe_configs of the broker", lambda: bool(_configs(admin, of_broker)))
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    called(out, "incremental_alter_configs", lambda: admin.incremental_alter_configs([change]))
    change = ConfigResource(
        ResourceType.BROKER,
        "1",
        incremental_configs=[
            ConfigEntry("log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    called(out, "of the broker", lambda: admin.incremental_alter_configs([change]))
    replace = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "2000000"})
    called(out, "alter_configs", lambda: admin.alter_configs([replace]))
    await_setting(servers, topic, "retention.ms", "2000000")
    called(out, "describe_configs after", lambda: _configs(admin, of_topic))
    partition = TopicPartition(topic, 0)
    for name in ("earliest", "latest", "max_timestamp"):
        called(
            out,
            f"list_offsets {name}",
            partial(admin.list_offsets, {partition: getattr(OffsetSpec, name)()}),
        )
    called(
        out,
        "list_offsets for_timestamp",
        lambda: admin.list_offsets({partition: OffsetSpec.for_timestamp(1)}),
    )
    called(out, "delete_records", lambda: admin.delete_records([TopicPartition(topic, 0, 1)]))
    called(
        out,
        "elect_leaders",
        lambda: admin.elect_leaders(ElectionType.PREFERRED, [partition]),
    )
    _groups(out, admin, servers, topic, Consumer, ConsumerGroupTopicPartitions, TopicPartition)
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ada",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    any_name: Any = None  # its types say that there must be one; its documentation does not
    some = AclBindingFilter(
        ResourceType.ANY,
        any_name,
        ResourcePatternType.ANY,
        any_name,
        any_name,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    called(out, "create_acls", lambda: admin.create_acls([binding]))
    called(out, "describe_acls", lambda: admin.describe_acls(some))
    called(out, "delete_acls", lambda: admin.delete_acls([some]))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
    called(
        out,
        "alter_user_scram_credentials",
        lambda: admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("confluent", info, b"word", b"salt")]
        ),
    )
    called(
        out,
        "describe_user_scram_credentials",
        lambda: admin.describe_user_scram_credentials(["confluent", "nobody"]),
    )
    called(
        out,
        "alter_user_scram_credentials that deletes",
        lambda: admin.alter_user_scram_credentials(
            [UserScramCredentialDeletion("confluent", ScramMechanism.SCRAM_SHA_256)]
        ),
    )
    called(out, "delete_topics", lambda: admin.delete_topics([topic, "unknown"]))
    assert issubclass(KafkaException, Exception)
    return out


def _configs(admin: Any, resource: Any) -> Any:
    """Sorted and short: name, value and where it comes from."""
    (future,) = admin.describe_configs([resource]).values()
    return {
        name: (entry.value, entry.source, entry.is_default, entry.is_read_only, entry.is_sensitive)
        for name, entry in future.result(WAIT_S).items()
    }


def _groups(
    out: Outcomes,
    admin: Any,
    servers: str,
    topic: str,
    consumer_class: Any,
    of: Any,
    partition: Any,
) -> None:
    group = "confluent-group"
    consumer = consumer_class(
        {"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    seen: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(seen) < 2 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            seen.append((message.partition(), message.offset(), message.value()))
    out["consumed"] = plain(seen)
    called(out, "assignment", lambda: sorted((p.topic, p.partition) for p in consumer.assignment()))
    called(out, "commit", lambda: consumer.commit(asynchronous=False))
    called(out, "position", lambda: consumer.position([partition(topic, 0)]))
    called(out, "committed", lambda: consumer.committed([partition(topic, 0)], timeout=WAIT_S))
    called(
        out,
        "get_watermark_offsets",
        lambda: consumer.get_watermark_offsets(partition(topic, 0), timeout=WAIT_S),
    )
    called(
        out,
        "offsets_for_times",
        lambda: consumer.offsets_for_times([partition(topic, 0, 1)], timeout=WAIT_S),
    )
    called(out, "memberid", lambda: bool(consumer.memberid()))
    called(out, "consumer_group_metadata", lambda: bool(consumer.consumer_group_metadata()))
    called(out, "describe_consumer_groups", lambda: admin.describe_consumer_groups([group]))
    called(out, "delete_consumer_groups in use", lambda: admin.delete_consumer_groups([group]))
    called(out, "unsubscribe", consumer.unsubscribe)
    called(out, "close", consumer.close)
    # One that was never in the group: leaving goes on in the background, and takes back what was
    # assigned by hand meanwhile.
    alone = consumer_class({"bootstrap.servers": servers, "group.id": group})
    _assigned(out, alone, partition(topic, 0, 1))
    called(out, "close what was assigned by hand", alone.close)
    called(out, "list_groups", lambda: _named(admin.list_groups(timeout=WAIT_S), group))
    listed = admin.list_consumer_groups().result(WAIT_S)
    out["list_consumer_groups"] = plain([g for g in listed.valid if g.group_id == group])
    called(
        out,
        "list_consumer_group_offsets",
        lambda: admin.list_consumer_group_offsets([of(group)]),
    )
    called(
        out,
        "alter_consumer_group_offsets",
        lambda: admin.alter_consumer_group_offsets([of(group, [partition(topic, 0, 2)])]),
    )
    called(
        out,
        "delete_consumer_groups",
        lambda: admin.delete_consumer_groups([group, "unknown"]),
    )


def _assigned(out: Outcomes, consumer: Any, tp: Any) -> None:
    """By hand, without a group's say: the second record is the first that is left."""
    called(out, "incremental_assign", lambda: consumer.incremental_assign([tp]))
    called(out, "incremental_unassign", lambda: consumer.incremental_unassign([tp]))
    called(out, "assign", lambda: consumer.assign([tp]))
    called(out, "pause", lambda: consumer.pause([tp]))
    called(out, "resume", lambda: consumer.resume([tp]))
    called(out, "consume", lambda: [m.offset() for m in consumer.consume(1, timeout=WAIT_S)])
    called(out, "seek", lambda: consumer.seek(tp))
    called(out, "consume again", lambda: [m.offset() for m in consumer.consume(2, timeout=WAIT_S)])
    called(out, "store_offsets", lambda: consumer.store_offsets(offsets=[tp]))
    called(out, "unassign", consumer.unassign)


def _named(groups: Any, name: str) -> Any:
    return [(g.id, g.state, g.protocol_type, g.protocol) for g in groups if g.id == name]
