"""Answers to odd requests, field by field as Apache Kafka 4.3 gives them.

`make differential` compares thousands; here stands what clients have been seen to look at, so
that it is checked where there is no Java.
"""

from __future__ import annotations

from typing import Any

import pytest

from shoal.errors import ErrorCode
from shoal.wire.apis.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from shoal.wire.apis.api_versions import ApiVersionsRequest
from shoal.wire.apis.consumer_group_describe import ConsumerGroupDescribeRequest
from shoal.wire.apis.create_partitions import CreatePartitionsRequest
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_records import DeleteRecordsRequest
from shoal.wire.apis.describe_client_quotas import DescribeClientQuotasRequest
from shoal.wire.apis.describe_cluster import DescribeClusterRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.describe_quorum import DescribeQuorumRequest
from shoal.wire.apis.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from shoal.wire.apis.elect_leaders import ElectLeadersRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.find_coordinator import FindCoordinatorRequest
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.sync_group import SyncGroupRequest
from shoal.wire.apis.update_features import UpdateFeaturesRequest
from tests.broker.asking import fetch, list_offset, produce
from tests.broker.raw_client import RawClient, batch, values_of


def offsets_request(topic: str, *indexes: int, **fields: Any) -> ListOffsetsRequest:
    wanted = [ListOffsetsRequest.Partition(partition_index=i, timestamp=-1) for i in indexes]
    named = ListOffsetsRequest.Topic(name=topic, partitions=wanted)
    return ListOffsetsRequest(topics=[named], **fields)


def test_a_partition_asked_for_twice_is_refused_once(raw: RawClient, topic: str) -> None:
    (named,) = raw.ask(offsets_request(topic, 0, 0)).topics
    codes = [(p.partition_index, p.error_code) for p in named.partitions]
    assert codes == [(0, ErrorCode.INVALID_REQUEST)]


def test_a_topic_without_partitions_is_not_in_the_answer(raw: RawClient, topic: str) -> None:
    assert not raw.ask(offsets_request(topic)).topics
    named = OffsetCommitRequest.Topic(name=topic, partitions=[])
    request = OffsetCommitRequest(group_id="none", member_id="", topics=[named])
    assert not raw.ask(request, 8).topics
    data = ProduceRequest.TopicProduceData(name=topic, partition_data=[])
    assert not raw.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data]), 9).responses


def test_an_isolation_level_nobody_knows_is_an_error(raw: RawClient, topic: str) -> None:
    (named,) = raw.ask(offsets_request(topic, 0, isolation_level=2)).topics
    assert named.partitions[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert raw.ask(_fetch(topic, isolation_level=2), 12).error_code < 0


def _fetch(topic: str, *, offset: int = 0, **fields: Any) -> FetchRequest:
    part = FetchRequest.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    named = FetchRequest.Topic(topic=topic, partitions=[part, *fields.pop("more", ())])
    return FetchRequest(max_wait_ms=0, min_bytes=0, topics=[named], **fields)


def test_who_reads_committed_records_is_told_that_nothing_was_aborted(
    raw: RawClient, topic: str
) -> None:
    produce(raw, topic, batch(b"x"))
    for level, aborted in ((0, None), (1, [])):
        (named,) = raw.ask(_fetch(topic, isolation_level=level), 12).responses
        found = named.partitions[0].aborted_transactions
        assert found == aborted if found is None else list(found) == aborted


def test_outside_of_the_log_there_is_no_watermark(raw: RawClient, topic: str) -> None:
    produce(raw, topic, batch(b"x"))
    found = fetch(raw, topic, 99)
    assert found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (found.high_watermark, found.last_stable_offset, found.log_start_offset) == (-1, -1, -1)


def test_a_partition_fetched_twice_is_read_once_as_it_was_asked_for_last(
    raw: RawClient, topic: str
) -> None:
    produce(raw, topic, batch(b"a"))
    produce(raw, topic, batch(b"b"))
    again = FetchRequest.Partition(partition=0, fetch_offset=1, partition_max_bytes=1 << 20)
    (named,) = raw.ask(_fetch(topic, more=[again]), 12).responses
    assert [values_of(part.records) for part in named.partitions] == [[b"b"]]


def test_of_two_batches_for_one_partition_the_last_is_stored(raw: RawClient, topic: str) -> None:
    data = [
        ProduceRequest.PartitionProduceData(index=0, records=batch(value)) for value in (b"a", b"b")
    ]
    named = ProduceRequest.TopicProduceData(name=topic, partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])
    (answer,) = raw.ask(request, 9).responses
    assert [(p.index, p.error_code, p.base_offset) for p in answer.partition_responses] == [
        (0, 0, 0)
    ]
    assert list_offset(raw, topic, -1).offset == 1
    assert values_of(fetch(raw, topic, 0).records) == [b"b"]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_old_clients_are_told_in_words_that_nothing_is_wrong(raw: RawClient, version: int) -> None:
    assert raw.ask(FindCoordinatorRequest(key="g"), version).error_message == "NONE"
    (found,) = raw.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    assert found.error_message == ""


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None), (9, None)])
def test_a_refused_member_has_no_protocol(raw: RawClient, version: int, name: str | None) -> None:
    request = JoinGroupRequest(
        group_id="refused",
        session_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequest.Protocol(name="range", metadata=b"")],
    )
    answer = raw.ask(request, version)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.protocol_name == name


def test_the_group_without_a_name_is_never_described(raw: RawClient) -> None:
    request = ConsumerGroupDescribeRequest(
        group_ids=["", "unknown"], include_authorized_operations=False
    )
    found = {group.group_id: group for group in raw.ask(request).groups}
    assert found[""].error_code == ErrorCode.INVALID_GROUP_ID
    assert found[""].error_message is None
    assert found["unknown"].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_since_version_5_a_sync_must_name_its_protocol(raw: RawClient) -> None:
    def sync(version: int, **names: Any) -> int:
        request = SyncGroupRequest(
            group_id="unnamed", generation_id=1, member_id="m", assignments=[], **names
        )
        return int(raw.ask(request, version).error_code)

    assert sync(4) == ErrorCode.UNKNOWN_MEMBER_ID
    assert sync(5) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(5, protocol_type="consumer") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    both = {"protocol_type": "consumer", "protocol_name": "range"}
    assert sync(5, **both) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_are_never_of_the_group_without_a_name(raw: RawClient, topic: str) -> None:
    part = OffsetCommitRequest.Partition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    named = OffsetCommitRequest.Topic(name=topic, partitions=[part])
    # Old clients commit to it, so the group is there.
    raw.ask(OffsetCommitRequest(group_id="", member_id="", topics=[named]), 8)
    beat = HeartbeatRequest(group_id="", generation_id=1, member_id="m")
    assert raw.ask(beat).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_group_that_is_not_there_allows_nothing(raw: RawClient) -> None:
    request = DescribeGroupsRequest(groups=["nowhere"], include_authorized_operations=True)
    (group,) = raw.ask(request, 6).groups
    assert (group.error_code, group.authorized_operations) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        -(1 << 31),
    )


def test_a_topic_named_twice_is_refused_once(raw: RawClient, topic: str) -> None:
    new = CreateTopicsRequest.CreatableTopic(
        name="twice", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    created = raw.ask(CreateTopicsRequest(topics=[new, new])).topics
    assert [(t.name, t.error_code) for t in created] == [("twice", ErrorCode.INVALID_REQUEST)]
    more = CreatePartitionsRequest.Topic(name=topic, count=3, assignments=None)
    request = CreatePartitionsRequest(topics=[more, more], timeout_ms=1000, validate_only=False)
    grown = raw.ask(request).results
    assert [(t.name, t.error_code) for t in grown] == [(topic, ErrorCode.INVALID_REQUEST)]
    produce(raw, topic, batch(b"a", b"b", b"c"))
    parts = [DeleteRecordsRequest.Partition(partition_index=0, offset=n) for n in (1, 2)]
    named = DeleteRecordsRequest.Topic(name=topic, partitions=parts)
    (deleted,) = raw.ask(DeleteRecordsRequest(topics=[named], timeout_ms=1000)).topics
    assert [(p.partition_index, p.low_watermark) for p in deleted.partitions] == [(0, 2)]


def test_one_request_does_not_create_more_than_ten_thousand_partitions(raw: RawClient) -> None:
    new = CreateTopicsRequest.CreatableTopic(
        name="vast", num_partitions=10_001, replication_factor=1, assignments=[], configs=[]
    )
    (answer,) = raw.ask(CreateTopicsRequest(topics=[new])).topics
    assert answer.error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    ("kind", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_answers_for_brokers(raw: RawClient, kind: int, code: ErrorCode) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=kind
    )
    assert raw.ask(request).error_code == code


@pytest.mark.parametrize(
    ("kind", "match_type", "match", "code"),
    [
        ("user", 2, None, ErrorCode.NONE),
        ("user", 0, "ada", ErrorCode.NONE),
        ("user", 0, None, ErrorCode.INVALID_REQUEST),
        ("user", 2, "ada", ErrorCode.INVALID_REQUEST),
        ("user", 9, None, ErrorCode.INVALID_REQUEST),
        ("", 2, None, ErrorCode.INVALID_REQUEST),
        ("dog", 2, None, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_question_about_quotas_must_make_sense(
    raw: RawClient, kind: str, match_type: int, match: str | None, code: ErrorCode
) -> None:
    part = DescribeClientQuotasRequest.ComponentData(
        entity_type=kind, match_type=match_type, match=match
    )
    answer = raw.ask(DescribeClientQuotasRequest(components=[part], strict=False))
    assert answer.error_code == code
    assert (answer.entries is None) == bool(code)


def test_elections_are_preferred_or_unclean(raw: RawClient, topic: str) -> None:
    named = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[0])
    answer = raw.ask(ElectLeadersRequest(election_type=7, topic_partitions=[named]))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    every = raw.ask(ElectLeadersRequest(topic_partitions=None)).replica_election_results
    assert topic in [each.topic for each in every]
    assert not any(each.partition_result for each in every)


def test_the_quorum_has_one_partition(raw: RawClient) -> None:
    def ask(topic: str, *indexes: int) -> Any:
        parts = [DescribeQuorumRequest.PartitionData(partition_index=i) for i in indexes]
        named = DescribeQuorumRequest.TopicData(topic_name=topic, partitions=parts)
        return raw.ask(DescribeQuorumRequest(topics=[named])).topics[0].partitions

    (good,) = ask("__cluster_metadata", 0)
    assert (good.error_code, good.leader_id) == (0, 1)
    for bad in (*ask("other", 0), *ask("__cluster_metadata", 0, 1)):
        assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (bad.leader_id, bad.high_watermark, list(bad.current_voters)) == (0, 0, [])


def test_an_impossible_topic_has_no_producers(raw: RawClient) -> None:
    named = DescribeProducersRequest.TopicRequest(name="a b", partition_indexes=[0])
    (found,) = raw.ask(DescribeProducersRequest(topics=[named])).topics
    assert found.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert found.partitions[0].error_message


def test_nobody_gets_an_empty_password(raw: RawClient) -> None:
    one = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name="empty", mechanism=1, iterations=8192, salt=b"0123456789", salted_password=b""
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[one])
    (answer,) = raw.ask(request).results
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    asked = DescribeUserScramCredentialsRequest.UserName(name="empty")
    (found,) = raw.ask(DescribeUserScramCredentialsRequest(users=[asked])).results
    assert found.error_code == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize("name", ["metadata.version", "group.version", "transaction.version"])
def test_the_level_of_a_feature_is_shown_and_stays(raw: RawClient, name: str) -> None:
    hello = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    (level,) = [each for each in raw.ask(hello).finalized_features if each.name == name]

    def update(feature: str, to: int, version: int) -> Any:
        key = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=to)
        return raw.ask(UpdateFeaturesRequest(feature_updates=[key]), version)

    good = update(level.name, level.max_version_level, 1)
    assert (good.error_code, [r.error_code for r in good.results]) == (0, [0])
    for version in (0, 1, 2):
        bad = update(level.name, level.max_version_level + 1, version)
        assert (bad.error_code, list(bad.results)) == (ErrorCode.INVALID_UPDATE_VERSION, [])
        assert update("no.such", 1, version).error_code == ErrorCode.INVALID_UPDATE_VERSION
