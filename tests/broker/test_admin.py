"""What administration tools ask, answered as Kafka answers it on one node."""

from __future__ import annotations

import pytest

from shoal import Admin
from shoal.broker.topic_configs import ConfigSource
from shoal.errors import BrokerError, ErrorCode
from shoal.testing.broker import Broker
from shoal.wire.apis.alter_configs import AlterConfigsRequest
from shoal.wire.apis.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from shoal.wire.apis.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from shoal.wire.apis.describe_acls import DescribeAclsRequest
from shoal.wire.apis.describe_client_quotas import DescribeClientQuotasRequest
from shoal.wire.apis.describe_cluster import DescribeClusterRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from shoal.wire.apis.describe_quorum import DescribeQuorumRequest
from shoal.wire.apis.describe_topic_partitions import DescribeTopicPartitionsRequest
from shoal.wire.apis.elect_leaders import ElectLeadersRequest
from shoal.wire.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from shoal.wire.apis.list_config_resources import ListConfigResourcesRequest
from shoal.wire.apis.list_groups import ListGroupsRequest
from shoal.wire.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from shoal.wire.apis.list_transactions import ListTransactionsRequest
from shoal.wire.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from shoal.wire.apis.update_features import UpdateFeaturesRequest
from tests.broker.asking import commit, produce
from tests.broker.raw_client import RawClient, batch

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


def describe(raw: RawClient, kind: int, name: str, *keys: str):
    resource = DescribeConfigsRequest.Resource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    (found,) = raw.ask(request).results
    return ErrorCode.of(found.error_code), {row.name: row for row in found.configs}


def test_what_is_asked_twice_of_a_resource_is_answered_once_with_all_keys(raw, topic):
    def asked(*keys: list[str] | None) -> list[list[str]]:
        resources = [
            DescribeConfigsRequest.Resource(
                resource_type=TOPIC, resource_name=topic, configuration_keys=wanted
            )
            for wanted in keys
        ]
        results = raw.ask(DescribeConfigsRequest(resources=resources)).results
        return [[row.name for row in one.configs] for one in results]

    assert asked(["retention.ms"], ["segment.ms"]) == [["retention.ms", "segment.ms"]]
    (everything,) = asked(None, ["segment.ms"])
    assert len(everything) > 20


def alter(raw: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None]):
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            IncrementalAlterConfigsRequest.AlterableConfig(
                name=key, config_operation=operation, value=value
            )
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    return ErrorCode.of(raw.ask(request).responses[0].error_code)


def test_a_topics_configurations_say_where_they_come_from(raw, topic):
    assert alter(raw, TOPIC, topic, ("retention.ms", SET, "5000")) is ErrorCode.NONE
    _, rows = describe(raw, TOPIC, topic)
    assert rows["retention.ms"].value == "5000"
    assert rows["retention.ms"].config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert rows["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
    # As Kafka since KIP-966: set for all brokers, although nobody set it.
    quirk = rows["min.insync.replicas"]
    assert (quirk.value, quirk.config_source) == ("1", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert [s.name for s in rows["retention.ms"].synonyms] == ["retention.ms"]
    assert [s.name for s in rows["segment.bytes"].synonyms] == ["log.segment.bytes"]
    assert alter(raw, TOPIC, topic, ("retention.ms", DELETE, None)) is ErrorCode.NONE
    assert describe(raw, TOPIC, topic, "retention.ms")[1]["retention.ms"].value == "604800000"


def test_lists_are_appended_to_and_subtracted_from_and_may_end_empty(raw, topic):
    def policy() -> str:
        return str(describe(raw, TOPIC, topic, "cleanup.policy")[1]["cleanup.policy"].value)

    assert alter(raw, TOPIC, topic, ("cleanup.policy", APPEND, "compact")) is ErrorCode.NONE
    assert policy() == "delete,compact"
    assert alter(raw, TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete")) is ErrorCode.NONE
    assert policy() == "compact"
    assert alter(raw, TOPIC, topic, ("cleanup.policy", SUBTRACT, "compact")) is ErrorCode.NONE
    assert policy() == ""


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.mss", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 9, "1"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_wrong_change_is_refused(raw, shared_broker, change, error):
    if not shared_broker.on_loop(lambda live: "wrong" in live.catalogue):
        shared_broker.create_topic("wrong")
    assert alter(raw, TOPIC, "wrong", change) is error


def test_a_changed_limit_counts_at_once(raw, topic):
    for size in (200, 100, 200):  # its log is open from the first on
        alter(raw, TOPIC, topic, ("max.message.bytes", SET, str(size + 100)))
        assert produce(raw, topic, batch(b"x" * size)).error_code == 0
        refused = produce(raw, topic, batch(b"x" * (size + 100)))
        assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_the_old_way_replaces_everything(raw, topic):
    alter(raw, TOPIC, topic, ("retention.ms", SET, "1"))
    config = AlterConfigsRequest.AlterableConfig(name="segment.ms", value="7")
    resource = AlterConfigsRequest.Resource(
        resource_type=TOPIC, resource_name=topic, configs=[config]
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    assert raw.ask(request).responses[0].error_code == 0
    _, rows = describe(raw, TOPIC, topic)
    assert (rows["segment.ms"].value, rows["retention.ms"].value) == ("7", "604800000")


def test_a_broker_shows_its_addresses_and_passes_defaults_to_topics(raw, shared_broker, topic):
    _, rows = describe(raw, BROKER, "1")
    address = rows["advertised.listeners"]
    assert address.value == f"PLAINTEXT://127.0.0.1:{shared_broker.port}"
    assert (address.read_only, address.config_source) == (True, ConfigSource.STATIC_BROKER_CONFIG)
    assert alter(raw, BROKER, "1", ("log.retention.ms", SET, "77")) is ErrorCode.NONE
    inherited = describe(raw, TOPIC, topic, "retention.ms")[1]["retention.ms"]
    assert (inherited.value, inherited.config_source) == ("77", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert alter(raw, BROKER, "1", ("log.retention.ms", DELETE, None)) is ErrorCode.NONE
    assert alter(raw, BROKER, "1", ("listeners", SET, "x")) is ErrorCode.INVALID_REQUEST
    assert describe(raw, BROKER, "9")[0] is ErrorCode.INVALID_REQUEST


def test_a_setting_of_all_brokers_gives_way_to_one_of_this_broker(raw, topic):
    assert alter(raw, BROKER, "", ("log.retention.ms", SET, "50")) is ErrorCode.NONE
    assert alter(raw, BROKER, "1", ("log.retention.ms", SET, "60")) is ErrorCode.NONE
    row = describe(raw, TOPIC, topic, "retention.ms")[1]["retention.ms"]
    assert (row.value, row.config_source) == ("60", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [s.value for s in row.synonyms] == ["60", "50", "168"]
    assert alter(raw, BROKER, "1", ("log.retention.ms", DELETE, None)) is ErrorCode.NONE
    row = describe(raw, TOPIC, topic, "retention.ms")[1]["retention.ms"]
    assert (row.value, row.config_source) == ("50", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert alter(raw, BROKER, "", ("log.retention.ms", DELETE, None)) is ErrorCode.NONE
    assert set(describe(raw, BROKER, "")[1]) == {"min.insync.replicas"}


def test_a_setting_that_means_nothing_here_is_kept_and_shown(raw):
    def shown() -> tuple[str | None, int, bool]:
        row = describe(raw, BROKER, "1")[1]["log.cleaner.threads"]
        return row.value, row.config_source, row.read_only

    # Before it is set, too: kafka-python sets nothing that it does not see.
    assert shown() == ("1", ConfigSource.DEFAULT_CONFIG, False)
    assert alter(raw, BROKER, "1", ("log.cleaner.threads", SET, "2")) is ErrorCode.NONE
    assert shown() == ("2", ConfigSource.DYNAMIC_BROKER_CONFIG, False)
    assert alter(raw, BROKER, "1", ("log.cleaner.threads", SET, "x")) is ErrorCode.INVALID_REQUEST
    assert alter(raw, BROKER, "1", ("log.cleaner.threads", DELETE, None)) is ErrorCode.NONE
    assert shown() == ("1", ConfigSource.DEFAULT_CONFIG, False)


def test_a_setting_that_nobody_knows_is_kept_and_not_shown_to_anybody(raw):
    assert alter(raw, BROKER, "1", ("my.plugin.secret", SET, "hush")) is ErrorCode.NONE
    row = describe(raw, BROKER, "1")[1]["my.plugin.secret"]
    assert (row.value, row.is_sensitive, row.read_only) == (None, True, True)
    assert alter(raw, BROKER, "1", ("my.plugin.secret", DELETE, None)) is ErrorCode.NONE


def test_the_limit_of_connections_can_be_changed_while_running_and_stays_after_a_restart():
    with Broker() as broker:
        with RawClient(broker.port) as raw:
            assert alter(raw, BROKER, "1", ("max.connections", SET, "1")) is ErrorCode.NONE
            with RawClient(broker.port) as second:
                assert second.is_cut()
        broker.restart()
        with RawClient(broker.port) as raw, RawClient(broker.port) as second:
            assert second.is_cut()
            assert alter(raw, BROKER, "1", ("max.connections", DELETE, None)) is ErrorCode.NONE
            with RawClient(broker.port) as third:
                assert describe(third, BROKER, "1")[0] is ErrorCode.NONE


def test_a_setting_that_counts_from_the_start_cannot_be_changed(raw):
    for name in ("num.partitions", "broker.id", "log.dirs", "group.max.size"):
        assert alter(raw, BROKER, "1", (name, SET, "3")) is ErrorCode.INVALID_REQUEST
    assert alter(raw, BROKER, "1", ("min.insync.replicas", SET, "2")) is ErrorCode.INVALID_CONFIG
    deleted = ("min.insync.replicas", DELETE, None)
    assert alter(raw, BROKER, "", deleted) is ErrorCode.INVALID_CONFIG


def test_groups_carry_configurations(raw):
    key = "consumer.session.timeout.ms"
    assert describe(raw, GROUP, "g")[1][key].value == "45000"
    assert alter(raw, GROUP, "g", (key, SET, "50000")) is ErrorCode.NONE
    row = describe(raw, GROUP, "g")[1][key]
    assert (row.value, row.config_source) == ("50000", ConfigSource.GROUP_CONFIG)
    assert alter(raw, GROUP, "g", (key, SET, "-1")) is ErrorCode.INVALID_CONFIG
    listed = raw.ask(ListConfigResourcesRequest(resource_types=[GROUP])).config_resources
    assert [(r.resource_name, r.resource_type) for r in listed] == [("g", GROUP)]


def test_topics_are_described_page_by_page(raw, shared_broker):
    shared_broker.create_topic("page.a", 3)
    shared_broker.create_topic("page.b", 2)
    names = [
        DescribeTopicPartitionsRequest.TopicRequest(name=name)
        for name in ("page.b", "page.a", "page.none")
    ]
    seen = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=names, response_partition_limit=2, cursor=cursor
        )
        answer = raw.ask(request)
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        if answer.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
    assert seen == [("page.a", 0), ("page.a", 1), ("page.a", 2), ("page.b", 0), ("page.b", 1)]
    assert answer.topics[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_only_replica_leads(raw, topic):
    wanted = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0, 9])
    (found,) = raw.ask(ElectLeadersRequest(topic_partitions=[wanted])).replica_election_results
    codes = [each.error_code for each in found.partition_result]
    assert codes == [ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_reassignments_to_ourselves_are_accepted_and_others_refused(raw, topic):
    def reassign(replicas: list[int] | None) -> ErrorCode:
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=0, replicas=replicas
        )
        wanted = AlterPartitionReassignmentsRequest.ReassignableTopic(
            name=topic, partitions=[partition]
        )
        answer = raw.ask(AlterPartitionReassignmentsRequest(topics=[wanted]))
        return ErrorCode.of(answer.responses[0].partitions[0].error_code)

    assert reassign([1]) is ErrorCode.NONE
    assert reassign([1, 2]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert not raw.ask(ListPartitionReassignmentsRequest(topics=None)).topics


def test_the_directory_is_described_and_a_move_to_it_is_none(raw, shared_broker, topic):
    produce(raw, topic, batch(b"x" * 100))
    (found,) = raw.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert found.log_dir == str(shared_broker.data_dir)
    assert 0 < found.usable_bytes <= found.total_bytes
    sizes = {t.name: t.partitions[0].partition_size for t in found.topics}
    assert sizes[topic] > 100

    def move(path: str) -> ErrorCode:
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
        directory = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=path, topics=[wanted])
        answer = raw.ask(AlterReplicaLogDirsRequest(dirs=[directory]))
        return ErrorCode.of(answer.results[0].partitions[0].error_code)

    assert move(found.log_dir) is ErrorCode.NONE
    assert move("/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND


def test_cluster_and_quorum_are_one_node(raw, shared_broker):
    found = raw.ask(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert [(b.broker_id, b.port) for b in found.brokers] == [(1, shared_broker.port)]
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    wanted = DescribeQuorumRequest.TopicData(
        topic_name="__cluster_metadata", partitions=[partition]
    )
    answer = raw.ask(DescribeQuorumRequest(topics=[wanted])).topics[0].partitions[0]
    assert (answer.error_code, answer.leader_id) == (0, 1)


def test_what_is_not_here_says_so(raw):
    quotas = raw.ask(DescribeClientQuotasRequest(components=[], strict=False)).entries
    assert quotas is not None
    assert not quotas
    acls = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert raw.ask(acls).error_code == ErrorCode.SECURITY_DISABLED
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature="x", max_version_level=1)
    answer = raw.ask(UpdateFeaturesRequest(feature_updates=[update]))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    listed = raw.ask(
        ListTransactionsRequest(state_filters=["Ongoing", "?"], producer_id_filters=[])
    )
    assert list(listed.unknown_state_filters) == ["?"]


def test_groups_are_listed_by_state_and_type(raw, topic):
    commit(raw, "listed", topic, 0, 1)

    def names(states=(), types=()) -> set[str]:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return {group.group_id for group in raw.ask(request).groups}

    assert "listed" in names()
    assert "listed" in names(states=["Empty"], types=["classic"])
    assert "listed" not in names(states=["Stable"])
    assert "listed" not in names(types=["consumer"])


def test_the_end_of_an_epoch(raw, topic):
    produce(raw, topic, batch(b"a", b"b"))
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
    )
    answer = raw.ask(request).topics[0].partitions[0]
    assert (answer.leader_epoch, answer.end_offset) == (0, 2)
    wanted.current_leader_epoch = 5
    answer = raw.ask(request).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.parametrize("size", ["1048575", "14"])
def test_segments_of_a_few_bytes_are_refused(size):
    least = "Value must be at least 1048576"
    with Broker() as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(BrokerError, match=least):
            admin.create_topic("tiny", configs={"segment.bytes": size})
        with pytest.raises(BrokerError, match=least):
            admin.alter_configs({"log.segment.bytes": size}, broker=1)
        admin.create_topic("tiny", configs={"segment.bytes": "1048576"})
        with pytest.raises(BrokerError, match=least):
            admin.alter_configs({"segment.bytes": size}, topic="tiny")
