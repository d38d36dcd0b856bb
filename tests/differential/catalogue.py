"""One good request of every API both brokers serve, what to try beside it, and what to ask after.

Whatever changes something uses names of its own (``place.fresh``, ``place.new_topic``), so that no
case sees what another one did.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from shoal.machine.internal_topic import partition_for
from shoal.records.batch import encode_batch
from shoal.wire.apis.alter_client_quotas import AlterClientQuotasRequest
from shoal.wire.apis.alter_configs import AlterConfigsRequest
from shoal.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from shoal.wire.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from shoal.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from shoal.wire.apis.create_acls import CreateAclsRequest
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_acls import DeleteAclsRequest
from shoal.wire.apis.delete_groups import DeleteGroupsRequest
from shoal.wire.apis.delete_records import DeleteRecordsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_acls import DescribeAclsRequest
from shoal.wire.apis.describe_client_quotas import DescribeClientQuotasRequest
from shoal.wire.apis.describe_cluster import DescribeClusterRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.describe_quorum import DescribeQuorumRequest
from shoal.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from shoal.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from shoal.wire.apis.elect_leaders import ElectLeadersRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.list_config_resources import ListConfigResourcesRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from shoal.wire.apis.list_transactions import ListTransactionsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_delete import OffsetDeleteRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.apis.update_features import UpdateFeaturesRequest
from shoal.wire.schema import Message
from tests.differential.edges import NULL, Hints
from tests.differential.place import LOGGED_IN, Place

# Made by ``prepare`` in both places before the first case.
SEEN, COMPACTED, STAMPED = "seen", "compacted", "stamped"
RESTED, LIVELY = "rested", "lively"
THEN_MS = 1_700_000_000_000
SESSION_MS = 1_800_000
# ConsumerProtocolSubscription v0 of the topic ``seen``.
SUBSCRIPTION = b"\0\0\0\0\0\1\0\4seen\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\1\0\4seen\0\0\0\1\0\0\0\0\xff\xff\xff\xff"

Build = Callable[[Place, int], Message]
After = Callable[[Place, Any, int], Iterator[tuple[Message, int]]]


def nothing(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    return iter(())


@dataclass(frozen=True)
class Subject:
    """A good request (``build``), odd values worth trying, and questions about its effect.

    ``on`` is the connection it is sent on: of a stranger, or of somebody who has logged in.
    """

    name: str
    build: Build
    after: After = nothing
    hints: Hints = field(default_factory=dict)
    settles: bool = False
    since: int = 0
    on: str = "main"


def records(*values: bytes, timestamp_ms: int = THEN_MS, **fields: Any) -> bytes:
    """A batch; its records are a millisecond apart."""
    rows = [(b"key", value, (), timestamp_ms + n) for n, value in enumerate(values)]
    return bytes(encode_batch(rows, **fields))


def produce(place: Place, topic: str, partition: int, data: bytes) -> None:
    """Store a batch beside the comparison."""
    part = ProduceRequest.PartitionProduceData(index=partition, records=data)
    topic_data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    answer = place.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic_data]), 9)
    assert not answer.responses[0].partition_responses[0].error_code, answer


def commit(place: Place, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets beside the comparison, as a client that is no member."""
    partitions = [
        OffsetCommitRequest.Partition(
            partition_index=number, committed_offset=offset, committed_metadata=f"note {number}"
        )
        for number, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequest.Topic(name=topic, partitions=partitions)],
    )
    answer = place.ask(request, 8)
    assert not any(p.error_code for t in answer.topics for p in t.partitions), answer


def prepare(place: Place) -> None:
    """Topics, records, committed offsets and a living group, the same in both places."""
    place.create_topics({SEEN: 3})
    place.create_topics({COMPACTED: 1}, cleanup_policy="compact")
    place.create_topics({STAMPED: 1}, message_timestamp_type="LogAppendTime")
    for number in range(3):
        values = [b"%d-%d" % (number, n) for n in range(4)]
        produce(place, SEEN, 0, records(*values, timestamp_ms=THEN_MS + 1000 * number))
    produce(place, SEEN, 2, records(*(b"x" * 50 for _ in range(10))))
    produce(place, COMPACTED, 0, records(b"a", b"b"))
    cut = DeleteRecordsRequest.Partition(partition_index=2, offset=4)
    place.ask(
        DeleteRecordsRequest(
            topics=[DeleteRecordsRequest.Topic(name=SEEN, partitions=[cut])], timeout_ms=10_000
        )
    )
    coordinate(place, RESTED)
    identify(place)
    commit(place, RESTED, SEEN, {0: 5, 1: 0})
    join(place, LIVELY)
    for _ in range(3):
        place.new_topic()


def identify(place: Place) -> None:
    """Wait until producers get ids, also transactional ones of every partition.

    Kafka makes the fifty of ``__transaction_state`` one after the other when it is first asked.
    """
    wanted = [None, *_names_of_all_partitions()]
    for name in wanted:
        for _ in range(200):
            if name is not None:
                place.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
            answer = place.ask(request, 4)
            if not answer.error_code:
                break
            time.sleep(0.05)
        else:
            raise AssertionError(f"{place.name}: no producer ids: {answer}")


def _names_of_all_partitions() -> list[str]:
    """Transactional ids, one for each partition that holds some."""
    names: dict[int, str] = {}
    for number in range(1_000):
        name = f"transactional-{number}"
        names.setdefault(partition_for(name, 50), name)
    assert len(names) == 50
    return list(names.values())


def coordinate(place: Place, group: str) -> None:
    """Wait until the group has a coordinator: the first question makes ``__consumer_offsets``."""
    for _ in range(200):
        answer = place.ask(FindCoordinatorRequest(coordinator_keys=[group]), 4)
        if not answer.coordinators[0].error_code:
            probe = place.ask(DescribeGroupsRequest(groups=[group]), 5)
            if probe.groups[0].error_code == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"{place.name}: no coordinator: {answer}")


def join(place: Place, group: str) -> tuple[str, int]:
    """A member of a stable group, beside the comparison: its id and generation."""
    if place.port is None:
        return "a-member", 1
    request = join_request(group)
    first = place.ask(request, 9)
    request.member_id = first.member_id
    joined = place.ask(request, 9)
    assert not joined.error_code, joined
    mine = SyncGroupRequest.Assignment(member_id=joined.member_id, assignment=ASSIGNMENT)
    synced = place.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[mine],
        ),
        5,
    )
    assert not synced.error_code, synced
    return joined.member_id, joined.generation_id


def join_request(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=SUBSCRIPTION)],
    )


# ---------------------------------------------------------------------- questions about effects


def names_in(request: Any) -> list[str]:
    """The topics a request names, those that can be asked about."""
    listed = getattr(request, "topics", None) or []
    names = [getattr(topic, "name", None) for topic in listed]
    names += list(getattr(request, "topic_names", ()))
    return sorted({name for name in names if name and len(name) < 250 and "@@" not in name})


def show_topics(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    if names := names_in(request):
        topics = [MetadataRequest.Topic(name=name) for name in names]
        yield MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9


def show_topics_and_configs(
    place: Place, request: Any, version: int
) -> Iterator[tuple[Message, int]]:
    yield from show_topics(place, request, version)
    for name in names_in(request):
        yield from _configs(2, name)


def show_configs(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    for resource in request.resources:
        if "@@" not in resource.resource_name and len(resource.resource_name) < 250:
            yield from _configs(resource.resource_type, resource.resource_name)


def _configs(kind: int, name: str) -> Iterator[tuple[Message, int]]:
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    yield DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4


def show_ends(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    for topic in getattr(request, "topics", ()) or getattr(request, "topic_data", ()):
        name = topic.name
        if not name or "@@" in name or len(name) > 249:
            continue
        for timestamp in (-2, -1):
            partitions = [
                ListOffsetsRequest.Partition(partition_index=n, timestamp=timestamp) for n in (0, 1)
            ]
            yield (
                ListOffsetsRequest(
                    topics=[ListOffsetsRequest.Topic(name=name, partitions=partitions)]
                ),
                7,
            )


def show_committed(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    group = request.group_id
    if "@@" not in group:
        yield OffsetFetchRequest(group_id=group, topics=None), 7


def show_group(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    if "@@" not in request.group_id:
        yield DescribeGroupsRequest(groups=[request.group_id]), 5


def show_new_group(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    if "@@" not in request.group_id:
        asked = [request.group_id]
        yield (
            ConsumerGroupDescribeRequest(group_ids=asked, include_authorized_operations=False),
            1,
        )


def show_groups(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    names = [name for name in request.groups_names if "@@" not in name]
    if names:
        yield DescribeGroupsRequest(groups=names), 6


def show_quotas(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    for entry in request.entries:
        components = [
            DescribeClientQuotasRequest.ComponentData(
                entity_type=entity.entity_type,
                match_type=1 if entity.entity_name is None else 0,
                match=entity.entity_name,
            )
            for entity in entry.entity
            if "@@" not in entity.entity_type and "@@" not in (entity.entity_name or "")
        ]
        yield DescribeClientQuotasRequest(components=components, strict=False), 1


def show_scram(place: Place, request: Any, version: int) -> Iterator[tuple[Message, int]]:
    names = [row.name for row in (*request.deletions, *request.upsertions) if "@@" not in row.name]
    users = [
        DescribeUserScramCredentialsRequest.UserName(name=name) for name in dict.fromkeys(names)
    ]
    if users:
        yield DescribeUserScramCredentialsRequest(users=users), 0


# ---------------------------------------------------------------------- good requests


def _produce(place: Place, version: int) -> Message:
    topic = place.new_topic()
    part = ProduceRequest.PartitionProduceData(index=0, records=records(b"one", b"two"))
    by_id = version >= 13
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[part])
    if by_id:
        data.topic_id = place.topic_id(topic)
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def _fetch(place: Place, version: int) -> Message:
    part = FetchRequest.Partition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.Topic(topic=SEEN, partitions=[part])
    if version >= 13:
        topic.topic_id = place.topic_id(SEEN)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic])


def _fetch_session(place: Place, version: int) -> Message:
    request: Any = _fetch(place, version)
    request.session_epoch = 0
    forgotten = FetchRequest.ForgottenTopic(topic=SEEN, partitions=[1])
    if version >= 13:
        forgotten.topic_id = place.topic_id(SEEN)
    request.forgotten_topics_data = [forgotten]
    return request  # type: ignore[no-any-return]


def _list_offsets(place: Place, version: int) -> Message:
    parts = [ListOffsetsRequest.Partition(partition_index=n, timestamp=-1) for n in (0, 1, 2)]
    return ListOffsetsRequest(topics=[ListOffsetsRequest.Topic(name=SEEN, partitions=parts)])


def _metadata(place: Place, version: int) -> Message:
    topics = [MetadataRequest.Topic(name=SEEN), MetadataRequest.Topic(name=COMPACTED)]
    request = MetadataRequest(topics=topics)
    if version >= 4:
        request.allow_auto_topic_creation = False
    return request


def _metadata_unknown(place: Place, version: int) -> Message:
    topics = [MetadataRequest.Topic(name="nobody-knows-this"), MetadataRequest.Topic(name=SEEN)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _metadata_by_id(place: Place, version: int) -> Message:
    topics = [MetadataRequest.Topic(name=None, topic_id=place.topic_id(SEEN))]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def _metadata_creates(place: Place, version: int) -> Message:
    return MetadataRequest(topics=[MetadataRequest.Topic(name=place.fresh("auto"))])


def _offset_commit(place: Place, version: int) -> Message:
    topic = place.new_topic()
    part = OffsetCommitRequest.Partition(
        partition_index=0, committed_offset=7, committed_metadata="note"
    )
    named = OffsetCommitRequest.Topic(name=topic, partitions=[part])
    if version >= 10:
        named.topic_id = place.topic_id(topic)
    return OffsetCommitRequest(group_id=place.fresh("group"), member_id="", topics=[named])


def _offset_commit_of_a_member(place: Place, version: int) -> Message:
    request: Any = _offset_commit(place, version)
    member_id, generation_id = join(place, request.group_id)
    request.member_id = member_id
    request.generation_id_or_member_epoch = generation_id
    return request  # type: ignore[no-any-return]


def _offset_fetch(place: Place, version: int) -> Message:
    if version < 8:
        topic = OffsetFetchRequest.Topic(name=SEEN, partition_indexes=[0, 1, 2])
        return OffsetFetchRequest(group_id=RESTED, topics=[topic])
    named = OffsetFetchRequest.Topics(name=SEEN, partition_indexes=[0, 1, 2])
    if version >= 10:
        named.topic_id = place.topic_id(SEEN)
    return OffsetFetchRequest(
        groups=[OffsetFetchRequest.Group(group_id=RESTED, topics=[named])],
    )


def _find_coordinator(place: Place, version: int) -> Message:
    if version < 4:
        return FindCoordinatorRequest(key=RESTED)
    return FindCoordinatorRequest(coordinator_keys=[RESTED, LIVELY])


def _join(place: Place, version: int) -> Message:
    return join_request(place.fresh("group"))


def _heartbeat(place: Place, version: int) -> Message:
    group = place.fresh("group")
    member_id, generation_id = join(place, group)
    return HeartbeatRequest(group_id=group, generation_id=generation_id, member_id=member_id)


def _new_join(place: Place, version: int) -> ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member of the consumer protocol (KIP-848)."""
    return ConsumerGroupHeartbeatRequest(
        group_id=place.fresh("new-group"),
        member_id="" if version == 0 else "a-member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[SEEN],
        topic_partitions=[],
    )


def _new_heartbeat(place: Place, version: int) -> Message:
    request = _new_join(place, 1)
    owned = ConsumerGroupHeartbeatRequest.TopicPartitions(
        topic_id=place.topic_id(SEEN), partitions=[0, 1, 2]
    )
    epoch = 1
    if place.port is not None:
        joined = place.ask(request, 1)
        assert not joined.error_code, joined
        epoch = joined.member_epoch
    return ConsumerGroupHeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=epoch,
        topic_partitions=[owned],
    )


def _describe_new(place: Place, version: int) -> Message:
    request = _new_join(place, 1)
    if place.port is not None:
        place.ask(request, 1)
    return ConsumerGroupDescribeRequest(
        group_ids=[request.group_id, LIVELY, RESTED, "unknown"],
        include_authorized_operations=False,
    )


def _leave(place: Place, version: int) -> Message:
    group = place.fresh("group")
    member_id, _ = join(place, group)
    if version < 3:
        return LeaveGroupRequest(group_id=group, member_id=member_id)
    member = LeaveGroupRequest.MemberIdentity(member_id=member_id)
    return LeaveGroupRequest(group_id=group, members=[member])


def _sync(place: Place, version: int) -> Message:
    group = place.fresh("group")
    member_id, generation_id = join(place, group)
    mine = SyncGroupRequest.Assignment(member_id=member_id, assignment=ASSIGNMENT)
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[mine],
    )


def _create_topics(place: Place, version: int) -> Message:
    setting = CreateTopicsRequest.CreatableTopicConfig(name="retention.ms", value="86400000")
    topic = CreateTopicsRequest.CreatableTopic(
        name=place.fresh("made"),
        num_partitions=2,
        replication_factor=1,
        assignments=[],
        configs=[setting],
    )
    return CreateTopicsRequest(topics=[topic])


def _create_topics_by_hand(place: Place, version: int) -> Message:
    assignment = CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])
    topic = CreateTopicsRequest.CreatableTopic(
        name=place.fresh("made"),
        num_partitions=-1,
        replication_factor=-1,
        assignments=[assignment],
        configs=[],
    )
    return CreateTopicsRequest(topics=[topic])


def _delete_topics(place: Place, version: int) -> Message:
    name = place.new_topic()
    if version < 6:
        return DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
    from shoal.wire.schema import ZERO_UUID

    topic = DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ZERO_UUID)
    return DeleteTopicsRequest(topics=[topic], timeout_ms=10_000)


def _delete_topics_by_id(place: Place, version: int) -> Message:
    name = place.new_topic()
    topic = DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=place.topic_id(name))
    return DeleteTopicsRequest(topics=[topic], timeout_ms=10_000)


def _delete_records(place: Place, version: int) -> Message:
    topic = place.new_topic()
    if place.port is not None:
        produce(place, topic, 0, records(b"a", b"b", b"c"))
    part = DeleteRecordsRequest.Partition(partition_index=0, offset=2)
    named = DeleteRecordsRequest.Topic(name=topic, partitions=[part])
    return DeleteRecordsRequest(topics=[named], timeout_ms=10_000)


def _init_producer_id(place: Place, version: int) -> Message:
    return InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)


def _epochs(place: Place, version: int) -> Message:
    part = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=SEEN, partitions=[part])
    return OffsetForLeaderEpochRequest(topics=[topic])


def _describe_acls(place: Place, version: int) -> Message:
    return DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )


def _create_acls(place: Place, version: int) -> Message:
    one = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name=SEEN,
        principal="User:ada",
        host="*",
        operation=3,
        permission_type=3,
    )
    return CreateAclsRequest(creations=[one])


def _delete_acls(place: Place, version: int) -> Message:
    one = DeleteAclsRequest.Filter(
        resource_type_filter=2,
        resource_name_filter=SEEN,
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    return DeleteAclsRequest(filters=[one])


def _describe_configs(kind: int, name: str, keys: list[str] | None) -> Build:
    def build(place: Place, version: int) -> Message:
        resource = DescribeConfigsRequest.Resource(
            resource_type=kind,
            resource_name=name,
            configuration_keys=None if keys is None else list(keys),
        )
        return DescribeConfigsRequest(resources=[resource])

    return build


def _alter_configs(place: Place, version: int) -> Message:
    resource = AlterConfigsRequest.Resource(
        resource_type=2,
        resource_name=place.new_topic(),
        configs=[AlterConfigsRequest.AlterableConfig(name="max.message.bytes", value="2000")],
    )
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def _alter_broker(place: Place, version: int) -> Message:
    resource = AlterConfigsRequest.Resource(
        resource_type=4,
        resource_name="1",
        configs=[AlterConfigsRequest.AlterableConfig(name="log.cleaner.threads", value="2")],
    )
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def _incremental(kind: int, name: str | None, key: str, value: str, operation: int = 0) -> Build:
    def build(place: Place, version: int) -> Message:
        one = IncrementalAlterConfigsRequest.AlterableConfig(
            name=key, config_operation=operation, value=value
        )
        if name is not None:
            chosen = name
        else:
            chosen = place.new_topic() if kind == 2 else place.fresh("group")
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=chosen, configs=[one]
        )
        return IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

    return build


def _alter_log_dirs(place: Place, version: int) -> Message:
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=SEEN, partitions=[0])
    one = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path="/nowhere/at/all", topics=[topic])
    return AlterReplicaLogDirsRequest(dirs=[one])


def _describe_log_dirs(place: Place, version: int) -> Message:
    topic = DescribeLogDirsRequest.DescribableLogDirTopic(topic=SEEN, partitions=[0, 2])
    return DescribeLogDirsRequest(topics=[topic])


def _create_partitions(place: Place, version: int) -> Message:
    topic = CreatePartitionsRequest.Topic(name=place.new_topic(), count=4, assignments=None)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


def _create_partitions_by_hand(place: Place, version: int) -> Message:
    assignment = CreatePartitionsRequest.Assignment(broker_ids=[1])
    topic = CreatePartitionsRequest.Topic(name=place.new_topic(), count=3, assignments=[assignment])
    return CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)


def _delete_groups(place: Place, version: int) -> Message:
    group = place.fresh("group")
    if place.port is not None:
        commit(place, group, SEEN, {0: 1})
    return DeleteGroupsRequest(groups_names=[group])


def _elect(place: Place, version: int) -> Message:
    topic = ElectLeadersRequest.TopicPartitions(topic=SEEN, partitions=[0])
    return ElectLeadersRequest(topic_partitions=[topic])


def _reassign(place: Place, version: int) -> Message:
    part = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=[1])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=SEEN, partitions=[part])
    return AlterPartitionReassignmentsRequest(topics=[topic])


def _cancel(place: Place, version: int) -> Message:
    part = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0)
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=SEEN, partitions=[part])
    return AlterPartitionReassignmentsRequest(topics=[topic])


def _list_reassignments(place: Place, version: int) -> Message:
    topic = ListPartitionReassignmentsRequest.Topics(name=SEEN, partition_indexes=[0])
    return ListPartitionReassignmentsRequest(topics=[topic])


def _offset_delete(place: Place, version: int) -> Message:
    group = place.fresh("group")
    if place.port is not None:
        commit(place, group, SEEN, {0: 1, 1: 2})
    part = OffsetDeleteRequest.Partition(partition_index=0)
    topic = OffsetDeleteRequest.Topic(name=SEEN, partitions=[part])
    return OffsetDeleteRequest(group_id=group, topics=[topic])


def _offset_delete_of_a_member(place: Place, version: int) -> Message:
    part = OffsetDeleteRequest.Partition(partition_index=0)
    topic = OffsetDeleteRequest.Topic(name=SEEN, partitions=[part])
    return OffsetDeleteRequest(group_id=LIVELY, topics=[topic])


def _describe_quotas(place: Place, version: int) -> Message:
    part = DescribeClientQuotasRequest.ComponentData(entity_type="user", match_type=2, match=None)
    return DescribeClientQuotasRequest(components=[part], strict=False)


def _alter_quotas(place: Place, version: int) -> Message:
    entity = AlterClientQuotasRequest.EntityData(
        entity_type="user", entity_name=place.fresh("user")
    )
    one = AlterClientQuotasRequest.OpData(key="producer_byte_rate", value=1e9, remove=False)
    entry = AlterClientQuotasRequest.EntryData(entity=[entity], ops=[one])
    return AlterClientQuotasRequest(entries=[entry], validate_only=False)


def _describe_scram(place: Place, version: int) -> Message:
    names = [DescribeUserScramCredentialsRequest.UserName(name=n) for n in ("ada", "nobody")]
    return DescribeUserScramCredentialsRequest(users=names)


def _alter_scram(place: Place, version: int) -> Message:
    one = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=place.fresh("user"),
        mechanism=1,
        iterations=8192,
        salt=b"0123456789",
        salted_password=b"x" * 32,
    )
    return AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])


def _delete_scram(place: Place, version: int) -> Message:
    one = AlterUserScramCredentialsRequest.ScramCredentialDeletion(
        name=place.fresh("user"), mechanism=1
    )
    return AlterUserScramCredentialsRequest(deletions=[one], upsertions=[])


def _describe_quorum(place: Place, version: int) -> Message:
    part = DescribeQuorumRequest.PartitionData(partition_index=0)
    topic = DescribeQuorumRequest.TopicData(topic_name="__cluster_metadata", partitions=[part])
    return DescribeQuorumRequest(topics=[topic])


def _update_features(place: Place, version: int) -> Message:
    one = UpdateFeaturesRequest.FeatureUpdateKey(feature="metadata.version", max_version_level=30)
    return UpdateFeaturesRequest(feature_updates=[one])


def _describe_producers(place: Place, version: int) -> Message:
    topic = DescribeProducersRequest.TopicRequest(name=SEEN, partition_indexes=[0])
    return DescribeProducersRequest(topics=[topic])


def _list_transactions(place: Place, version: int) -> Message:
    return ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[7])


def _describe_partitions(place: Place, version: int) -> Message:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name=n) for n in (COMPACTED, SEEN)]
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name=COMPACTED, partition_index=0)
    return DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2, cursor=cursor)


_TIMES = (-3, -4, -5, -6, THEN_MS, THEN_MS + 1001, THEN_MS + 10**6)
_KINDS = (8, 16, 32)
_BROKER_SETTINGS = (
    "log.retention.ms",
    "log.retention.bytes",
    "min.insync.replicas",
    "num.partitions",
    "broker.id",
)
# None that a request would create: the rest of the run needs it unknown.
_NAMES = ("", "__consumer_offsets", "odd name/with:signs", ".", "x" * 300, "ünï©ode", NULL)

SUBJECTS: tuple[Subject, ...] = (
    Subject(
        "", lambda p, v: ApiVersionsRequest(client_software_name="x", client_software_version="1")
    ),
    Subject("", _metadata, hints={"name!": _NAMES}),
    Subject(
        " of an unknown topic",
        _metadata_unknown,
        hints={"name!": (), "allow_auto_topic_creation!": ()},
        since=4,
    ),
    Subject(" of every topic", lambda p, v: MetadataRequest(topics=[]), hints={}),
    Subject(" by id", _metadata_by_id, hints={"name!": _NAMES}, since=12),
    Subject(
        " that creates", _metadata_creates, after=show_topics, settles=True, hints={"name!": _NAMES}
    ),
    Subject("", _list_offsets, hints={"timestamp": _TIMES, "partition_index": [2, 3]}),
    Subject(
        "",
        _fetch,
        hints={
            "max_wait_ms!": (0, -1, 1, 50),
            "partition_max_bytes": [1, 100],
            "max_bytes": [100],
            "fetch_offset": [2, 12, 13],
            "session_epoch": [0, 1],
        },
    ),
    Subject(" with a session", _fetch_session, hints={"max_wait_ms!": (0,)}, since=7),
    Subject("", _find_coordinator, hints={"key_type": [5]}),
    Subject("", _offset_fetch, hints={"group_id": [LIVELY], "member_id": [""]}),
    Subject("", lambda p, v: DescribeGroupsRequest(groups=[LIVELY, RESTED, "unknown"])),
    Subject(
        "",
        _new_join,
        after=show_new_group,
        settles=True,
        # A name that others use would be a group of this kind from then on.
        hints={
            "group_id!": ("", NULL),
            "server_assignor": ["range", "uniform"],
            "subscribed_topic_regex": ["^se+n$", "(", ".*"],
        },
    ),
    Subject(
        " of a member",
        _new_heartbeat,
        after=show_new_group,
        settles=True,
        hints={"group_id!": ("", NULL), "member_epoch!": (-3, -2, -1, 0, 1, 9, 2**31 - 1)},
    ),
    Subject("", _describe_new),
    Subject("", lambda p, v: ListGroupsRequest()),
    Subject(
        " with filters",
        lambda p, v: ListGroupsRequest(states_filter=["Stable"], types_filter=["classic"]),
        hints={
            "states_filter": ["stable", "Empty", "PreparingRebalance", "Dead"],
            "types_filter": ["Classic", "consumer", "share", "Unknown"],
        },
        since=5,
    ),
    Subject("", _epochs, hints={"replica_id!": (-1, -2, 0, 1)}),
    Subject(" of a topic", _describe_configs(2, SEEN, None), hints={"resource_type": _KINDS}),
    Subject(
        " of two keys",
        _describe_configs(2, SEEN, ["retention.ms", "cleanup.policy"]),
        hints={"configuration_keys": ["no.such.key"]},
    ),
    Subject(
        " of the broker",
        _describe_configs(4, "1", ["num.partitions", "log.retention.ms", "listeners"]),
        hints={"resource_name": ["2", "x"]},
    ),
    Subject(" of all brokers", _describe_configs(4, "", None)),
    Subject(" of a group", _describe_configs(32, RESTED, None)),
    Subject("", _describe_log_dirs),
    Subject("", _alter_log_dirs),
    Subject("", _elect, hints={"election_type": [1]}),
    Subject("", _reassign, hints={"replicas": [2]}),
    Subject(" that cancels", _cancel),
    Subject("", _list_reassignments),
    Subject("", _describe_quotas, hints={"entity_type": ["client-id", "ip"]}),
    Subject("", _describe_scram, on=LOGGED_IN),
    Subject("", _describe_quorum),
    Subject("", lambda p, v: DescribeClusterRequest(include_cluster_authorized_operations=False)),
    Subject("", _describe_producers),
    Subject("", _list_transactions, hints={"state_filters": ["Empty", "Nonsense"]}),
    Subject("", lambda p, v: ListConfigResourcesRequest(), since=0),
    Subject(
        " of topics",
        lambda p, v: ListConfigResourcesRequest(resource_types=[16]),
        hints={"resource_types": _KINDS},
        since=1,
    ),
    Subject("", _describe_partitions, hints={"response_partition_limit": [3, 4000]}),
    Subject("", _describe_acls),
    Subject("", _create_acls),
    Subject("", _delete_acls),
    # --- what changes something
    Subject("", _produce, after=show_ends, hints={"acks!": (0, 1, 2, -2)}),
    Subject("", _init_producer_id),
    Subject("", _offset_commit, after=show_committed),
    Subject(" of a member", _offset_commit_of_a_member, after=show_committed),
    Subject("", _offset_delete, after=show_committed),
    Subject(" of a topic being read", _offset_delete_of_a_member),
    Subject(
        "",
        _join,
        after=show_group,
        settles=True,
        # Names of groups of others would wait for those; short timeouts race with the machine.
        hints={
            "group_id!": ("", NULL),
            "session_timeout_ms": [5999, 6000, 1_800_001],
            "rebalance_timeout_ms!": (1_000_000, (1 << 31) - 1),
        },
    ),
    Subject("", _sync, after=show_group),
    Subject("", _heartbeat),
    Subject("", _leave, after=show_group),
    Subject("", _delete_groups, after=show_groups, hints={"groups_names": [LIVELY]}),
    Subject(
        "",
        _create_topics,
        after=show_topics_and_configs,
        settles=True,
        hints={
            "num_partitions!": (-(1 << 31), -2, -1, 0, 1, 3, 10_001),
            "name": [SEEN, "__consumer_offsets", "..", "x" * 249, "x" * 250, "no.such.setting"],
            "value": ["-2", "text", "9223372036854775808"],
        },
    ),
    Subject(
        " with replicas by hand",
        _create_topics_by_hand,
        after=show_topics,
        settles=True,
        hints={"broker_ids": [2], "num_partitions!": (-1, 0, 1, 2)},
    ),
    Subject("", _delete_topics, after=show_topics, settles=True),
    Subject(" by id", _delete_topics_by_id, since=6),
    Subject("", _delete_records, after=show_ends, settles=True, hints={"offset": [3, 4]}),
    Subject(
        "",
        _create_partitions,
        after=show_topics,
        settles=True,
        hints={"count!": (-(1 << 31), -1, 0, 1, 2, 3)},
    ),
    Subject(
        " with replicas by hand",
        _create_partitions_by_hand,
        after=show_topics,
        settles=True,
        hints={"count!": (-1, 0, 1, 2, 4), "broker_ids": [2]},
    ),
    Subject(
        " of a topic",
        _alter_configs,
        after=show_configs,
        settles=True,
        hints={"name": ["cleanup.policy", "no.such.setting"], "resource_type": _KINDS},
    ),
    Subject(
        " of the broker",
        _alter_broker,
        after=show_configs,
        settles=True,
        hints={"name": _BROKER_SETTINGS, "resource_name!": ("1", "", "2", "x")},
    ),
    Subject(
        " of all brokers",
        _incremental(4, "", "log.cleaner.threads", "2"),
        after=show_configs,
        settles=True,
        hints={"name": _BROKER_SETTINGS, "resource_name!": ("",)},
    ),
    Subject(
        " of one broker",
        _incremental(4, "1", "log.cleanup.policy", "compact"),
        after=show_configs,
        settles=True,
        hints={"name": _BROKER_SETTINGS, "value": ["delete"], "resource_name!": ("1", "2", "x")},
    ),
    Subject(
        " of a topic",
        _incremental(2, None, "max.message.bytes", "2000"),
        after=show_configs,
        settles=True,
        hints={"name": ["cleanup.policy", "no.such.setting"], "resource_type": _KINDS},
    ),
    Subject(
        " of a list",
        _incremental(2, None, "cleanup.policy", "compact", 2),
        after=show_configs,
        settles=True,
        hints={"value": ["delete", "compact,delete", "archive"]},
    ),
    Subject(
        " of a group",
        _incremental(32, None, "consumer.session.timeout.ms", "50000"),
        after=show_configs,
        settles=True,
        hints={"value": ["44999", "60000", "60001"], "name": ["no.such.setting"]},
    ),
    Subject("", _alter_quotas, after=show_quotas, settles=True),
    Subject(
        "",
        _alter_scram,
        after=show_scram,
        settles=True,
        hints={"iterations": [4095, 16385]},
        on=LOGGED_IN,
    ),
    Subject(" that deletes", _delete_scram, after=show_scram, settles=True, on=LOGGED_IN),
    Subject(
        "",
        _update_features,
        # Lower levels are legal there, and would be another Kafka from then on.
        hints={"feature": ["no.such.feature"], "max_version_level!": (-1, 0, 1, 31, 32767)},
    ),
)
