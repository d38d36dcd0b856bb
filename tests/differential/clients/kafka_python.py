"""Every admin, metadata and group call of kafka-python, with its defaults."""

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
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
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
    from kafka.structs import OffsetAndMetadata

    out: Outcomes = {}
    topic, group, tp = "kafka-python", "kafka-python-group", TopicPartition("kafka-python", 0)
    admin = KafkaAdminClient(bootstrap_servers=servers)
    called(out, "create_topics", lambda: admin.create_topics({topic: {"num_partitions": 2}}))
    called(out, "create_topics again", lambda: admin.create_topics({topic: {"num_partitions": 2}}))
    called(out, "wait_for_topics", lambda: admin.wait_for_topics([topic]))
    called(out, "create_partitions", lambda: admin.create_partitions({topic: 3}))
    await_partitions(servers, topic, 3)
    producer = KafkaProducer(bootstrap_servers=servers)
    now_ms = int(time.time() * 1000)
    sent = [
        producer.send(topic, b"value", partition=0, timestamp_ms=now_ms + number)
        for number in range(3)
    ]
    called(out, "flush", lambda: producer.flush(WAIT_S))
    called(out, "send", lambda: [one.get(WAIT_S).offset for one in sent])
    called(out, "partitions_for", lambda: producer.partitions_for(topic))
    producer.close()
    called(out, "list_topics", lambda: topic in admin.list_topics())
    called(out, "describe_topics", lambda: admin.describe_topics([topic]))
    called(out, "describe_topics of an unknown one", lambda: admin.describe_topics(["unknown"]))
    called(out, "describe_topic_partitions", lambda: admin.describe_topic_partitions([topic]))
    called(out, "describe_cluster", admin.describe_cluster)
    called(out, "api_versions", lambda: bool(admin.api_versions()))
    called(out, "get_broker_version_data", lambda: bool(admin.get_broker_version_data(1)))
    called(out, "describe_features", lambda: bool(admin.describe_features()))
    called(out, "update_features", lambda: admin.update_features({"no.such": 3}))
    called(out, "describe_log_dirs", lambda: bool(admin.describe_log_dirs()))
    called(out, "describe_metadata_quorum", lambda: bool(admin.describe_metadata_quorum()))
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "9000000"})
    called(out, "alter_configs", lambda: admin.alter_configs([resource]))
    await_setting(servers, topic, "retention.ms", "9000000")
    called(out, "describe_configs", lambda: admin.describe_configs([resource]))
    called(out, "reset_configs", lambda: admin.reset_configs([resource]))
    broker = ConfigResource(ConfigResourceType.BROKER, "1", {"log.cleaner.threads": "2"})
    called(out, "alter_configs of the broker", lambda: admin.alter_configs([broker]))
    called(out, "list_config_resources", lambda: bool(admin.list_config_resources()))
    for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST, OffsetSpec.MAX_TIMESTAMP):
        name = f"list_partition_offsets {spec}"
        called(out, name, partial(admin.list_partition_offsets, {tp: spec}))
    called(out, "delete_records", lambda: admin.delete_records({tp: 1}))
    called(out, "describe_producers", lambda: admin.describe_producers([tp]))
    called(out, "list_transactions", admin.list_transactions)
    called(out, "find_hanging_transactions", admin.find_hanging_transactions)
    called(
        out,
        "alter_replica_log_dirs to nowhere",
        lambda: admin.alter_replica_log_dirs({(topic, 0, 1): "/no/such/directory"}),
    )
    called(out, "elect_leaders", lambda: admin.elect_leaders(0, {topic: [0]}))
    called(out, "list_partition_reassignments", admin.list_partition_reassignments)
    called(out, "alter_partition_reassignments", lambda: _cancel(admin, tp))
    _groups(out, admin, servers, topic, group, KafkaConsumer, tp)
    called(
        out,
        "alter_group_offsets",
        lambda: admin.alter_group_offsets(group, {tp: OffsetAndMetadata(2, "", -1)}),
    )
    called(
        out,
        "reset_group_offsets",
        lambda: admin.reset_group_offsets(group, {tp: OffsetSpec.EARLIEST}),
    )
    called(out, "delete_group_offsets", lambda: admin.delete_group_offsets(group, [tp]))
    called(
        out,
        "remove_group_members",
        lambda: admin.remove_group_members(group, [MemberToRemove(member_id="nobody")]),
    )
    called(out, "delete_groups", lambda: admin.delete_groups([group]))
    called(out, "delete_groups again", lambda: admin.delete_groups([group]))
    scram = UserScramCredentialUpsertion("kafka-python", ScramMechanism.SCRAM_SHA_256, "secret")
    called(out, "alter_user_scram_credentials", lambda: admin.alter_user_scram_credentials([scram]))
    called(
        out,
        "describe_user_scram_credentials",
        lambda: admin.describe_user_scram_credentials(["kafka-python"]),
    )
    acl = (
        "User:u",
        "*",
        ACLOperation.READ,
        ACLPermissionType.ALLOW,
        ResourcePattern(ResourceType.TOPIC, "t"),
    )
    called(out, "create_acls", lambda: admin.create_acls([ACL(*acl)]))
    called(out, "describe_acls", lambda: admin.describe_acls(ACLFilter(*acl)))
    called(out, "delete_acls", lambda: admin.delete_acls([ACLFilter(*acl)]))
    called(out, "delete_topics", lambda: admin.delete_topics([topic]))
    called(out, "delete_topics again", lambda: admin.delete_topics([topic]))
    admin.close()
    return out


def _cancel(admin: Any, tp: Any) -> Any:
    return admin.alter_partition_reassignments({tp: None})


def _groups(
    out: Outcomes, admin: Any, servers: str, topic: str, group: str, consumer_class: Any, tp: Any
) -> None:
    consumer = consumer_class(
        topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest"
    )
    # A leader of its own that joins before it knows the topic assigns nothing, and may ask no
    # broker again for minutes.
    called(out, "partitions_for_topic", lambda: consumer.partitions_for_topic(topic))
    seen: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(seen) < 2 and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=200).values():
            seen += [(record.partition, record.offset, record.value) for record in records]
    out["consumed"] = plain(seen)
    called(out, "assignment", lambda: sorted(consumer.assignment()))
    called(out, "commit", consumer.commit)
    called(out, "committed", lambda: consumer.committed(tp))
    called(out, "position", lambda: consumer.position(tp))
    called(out, "topics", lambda: topic in consumer.topics())
    called(out, "beginning_offsets", lambda: consumer.beginning_offsets([tp]))
    called(out, "end_offsets", lambda: consumer.end_offsets([tp]))
    called(out, "offsets_for_times", lambda: consumer.offsets_for_times({tp: 1}))
    called(out, "subscription", consumer.subscription)
    called(out, "highwater", lambda: consumer.highwater(tp))
    called(out, "group_metadata", lambda: bool(consumer.group_metadata()))
    called(out, "commit_async", lambda: bool(consumer.commit_async()))
    called(out, "describe_groups", lambda: admin.describe_groups([group]))
    called(out, "delete_groups in use", lambda: admin.delete_groups([group]))
    called(out, "unsubscribe", consumer.unsubscribe)
    _assigned(out, consumer, topic, tp)
    called(out, "close", consumer.close)
    called(out, "list_groups", lambda: _named(admin.list_groups(), group))
    called(out, "list_group_offsets", lambda: admin.list_group_offsets({group: None}))


def _assigned(out: Outcomes, consumer: Any, topic: str, tp: Any) -> None:
    """By hand, without a group's say."""
    called(out, "assign", lambda: consumer.assign([tp]))
    called(out, "pause", lambda: consumer.pause(tp))
    called(out, "paused", consumer.paused)
    called(out, "resume", lambda: consumer.resume(tp))
    for move in ("seek_to_end", "seek_to_beginning"):
        called(out, move, partial(getattr(consumer, move), tp))
        called(out, f"position after {move}", lambda: consumer.position(tp))
    called(out, "seek", lambda: consumer.seek(tp, 2))
    called(out, "poll after seek", lambda: _offsets(consumer.poll(timeout_ms=1000 * WAIT_S)))
    consumer.unsubscribe()
    called(out, "subscribe", lambda: consumer.subscribe(pattern=f"^{topic}$"))


def _offsets(polled: Any) -> Any:
    return [record.offset for records in polled.values() for record in records]


def _named(groups: Any, name: str) -> Any:
    return [each for each in groups if name in repr(each)]
