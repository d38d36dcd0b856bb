"""Long requests pause, so that the loop has time for others; counted in pauses, not in seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from shoal.broker import dispatch, slices
from shoal.broker.config import BrokerConfig, BrokerLimits
from shoal.errors import ErrorCode
from shoal.machine.decision import Reply
from shoal.testing.broker import Broker
from shoal.wire.apis.create_topics import CreateTopicsRequest
from shoal.wire.apis.delete_topics import DeleteTopicsRequest
from shoal.wire.apis.describe_configs import DescribeConfigsRequest
from shoal.wire.apis.describe_groups import DescribeGroupsRequest
from shoal.wire.apis.describe_log_dirs import DescribeLogDirsRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.metadata import MetadataRequest
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.produce import ProduceRequest
from tests.broker.asking import fetch, produce
from tests.broker.raw_client import RawClient, batch, values_of

WIDE = 1_500


@pytest.fixture(scope="module")
def wide_broker() -> Iterator[Broker]:
    with Broker(topics={"wide": WIDE}) as broker:
        yield broker


@pytest.fixture
def raw(wide_broker: Broker) -> Iterator[RawClient]:
    with RawClient(wide_broker.port) as client:
        yield client


@pytest.fixture(autouse=True)
def _slices_of_one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SLICE_SECONDS", 0.0)
    monkeypatch.setattr(slices, "SLICE_SECONDS", 0.0)


def pauses(broker: Broker, api: str) -> int:
    return broker.counters()["slices"].get(api, 0)


def test_metadata_of_many_partitions_pauses(wide_broker, raw):
    before = pauses(wide_broker, "Metadata")
    (topic,) = raw.ask(MetadataRequest(topics=[MetadataRequest.Topic(name="wide")])).topics
    assert [each.partition_index for each in topic.partitions] == list(range(WIDE))
    assert pauses(wide_broker, "Metadata") - before >= WIDE // 100


def test_metadata_of_many_topics_pauses(wide_broker, raw):
    names = [f"unknown-{n}" for n in range(200)]
    before = pauses(wide_broker, "Metadata")
    request = MetadataRequest(
        topics=[MetadataRequest.Topic(name=name) for name in names],
        allow_auto_topic_creation=False,
    )
    assert [topic.name for topic in raw.ask(request).topics] == names
    assert pauses(wide_broker, "Metadata") - before >= 4


def test_configurations_of_many_topics_pause(wide_broker, raw):
    names = ["wide", *(f"unknown-{n}" for n in range(50))]
    resources = [
        DescribeConfigsRequest.Resource(
            resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
        )
        for name in names
    ]
    before = pauses(wide_broker, "DescribeConfigs")
    found = raw.ask(DescribeConfigsRequest(resources=resources)).results
    assert [each.resource_name for each in found] == names
    assert found[0].configs[0].name == "retention.ms"
    assert pauses(wide_broker, "DescribeConfigs") - before >= 50


def test_offsets_of_many_partitions_pause(wide_broker, raw):
    wanted = [ListOffsetsRequest.Partition(partition_index=n, timestamp=-1) for n in range(100)]
    topic = ListOffsetsRequest.Topic(name="wide", partitions=wanted)
    before = pauses(wide_broker, "ListOffsets")
    (found,) = raw.ask(ListOffsetsRequest(replica_id=-1, topics=[topic])).topics
    assert {each.offset for each in found.partitions} == {0}
    assert pauses(wide_broker, "ListOffsets") - before >= 100


def test_sizes_of_many_partitions_pause(wide_broker, raw):
    before = pauses(wide_broker, "DescribeLogDirs")
    (found,) = raw.ask(DescribeLogDirsRequest(topics=None), 4).results
    assert WIDE in [len(topic.partitions) for topic in found.topics]
    assert pauses(wide_broker, "DescribeLogDirs") - before >= WIDE


def fetch_all(raw: RawClient, max_wait_ms: int, topic: str = "wide", first: int = 0) -> int:
    wanted = [
        FetchRequest.Partition(
            partition=n, fetch_offset=0 if n else first, partition_max_bytes=1000
        )
        for n in range(WIDE)
    ]
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[FetchRequest.Topic(topic=topic, partitions=wanted)],
    )
    return raw.send(request, 11)


def test_a_fetch_of_many_partitions_pauses_and_so_it_does_when_it_is_woken(wide_broker, raw):
    before = pauses(wide_broker, "Fetch")
    fetch_all(raw, 30_000)
    with RawClient(wide_broker.port) as other:
        while not wide_broker.counters()["fetches_waiting"]:
            pass
        produce(other, "wide", batch(b"woken"))
    (topic,) = raw.receive(1, 11).responses
    assert [each.partition_index for each in topic.partitions if each.records] == [0]
    assert pauses(wide_broker, "Fetch") - before >= WIDE // 100


@pytest.mark.slow
def test_what_comes_while_a_fetch_pauses_is_in_its_answer(wide_broker, raw):
    wide_broker.create_topic("busy", WIDE)
    before = pauses(wide_broker, "Fetch")
    with RawClient(wide_broker.port) as other:
        for n in range(20):
            fetch_all(raw, 30_000, "busy", first=n)
            produce(other, "busy", batch(b"while it looks"))
            (topic,) = raw.receive(1, 11).responses
            assert [p.partition_index for p in topic.partitions if p.records] == [0]
    assert pauses(wide_broker, "Fetch") - before >= WIDE // 100


def commit(raw: RawClient, *indexes: int):
    topic = OffsetCommitRequest.Topic(
        name="wide",
        partitions=[
            OffsetCommitRequest.Partition(
                partition_index=n, committed_offset=7, committed_metadata=""
            )
            for n in indexes
        ],
    )
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[topic])
    return raw.ask(request, 8).topics[0].partitions


def test_a_large_commit_is_decided_in_parts_and_answered_in_order(wide_broker, raw):
    before = pauses(wide_broker, "OffsetCommit")
    answers = commit(raw, *range(WIDE), WIDE + 1)
    assert [each.partition_index for each in answers] == [*range(WIDE), WIDE + 1]
    assert {each.error_code for each in answers[:-1]} == {ErrorCode.NONE}
    assert answers[-1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert pauses(wide_broker, "OffsetCommit") - before >= WIDE // 500
    (topic,) = raw.ask(OffsetFetchRequest(group_id="g", topics=None), 7).topics
    assert {each.committed_offset for each in topic.partitions} == {7}
    assert len(topic.partitions) == WIDE


def test_who_comes_behind_a_large_request_waits_for_it(wide_broker, raw):
    def request(offset: int, indexes: range) -> OffsetCommitRequest:
        partitions = [
            OffsetCommitRequest.Partition(
                partition_index=n, committed_offset=offset, committed_metadata=""
            )
            for n in indexes
        ]
        topic = OffsetCommitRequest.Topic(name="wide", partitions=partitions)
        return OffsetCommitRequest(group_id="ordered", member_id="", topics=[topic])

    raw.send(request(7, range(WIDE)), 8)
    raw.send(request(8, range(WIDE - 5, WIDE)), 8)
    for _ in range(2):
        assert {each.error_code for each in raw.receive(8, 8).topics[0].partitions} == {0}
    (topic,) = raw.ask(OffsetFetchRequest(group_id="ordered", topics=None), 7).topics
    found = {each.partition_index: each.committed_offset for each in topic.partitions}
    assert [found[n] for n in (0, WIDE - 6, WIDE - 5, WIDE - 1)] == [7, 7, 8, 8]


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_produce_to_many_partitions_pauses_and_keeps_its_batches(wide_broker, raw, acks):
    def request(sign: bytes, indexes: range) -> ProduceRequest:
        data = [
            ProduceRequest.PartitionProduceData(index=n, records=batch(sign * 50 + b"%d" % n))
            for n in indexes
        ]
        topic = ProduceRequest.TopicProduceData(name="wide", partition_data=data)
        return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])

    before = pauses(wide_broker, "Produce")
    indexes = range(100 + acks, 300 + acks)
    raw.send(request(b"a", indexes), 9)
    raw.send(request(b"b", indexes), 9)  # into the same buffer, while the first pauses
    if acks:
        for _ in range(2):
            (topic,) = raw.receive(0, 9).responses
            assert {each.error_code for each in topic.partition_responses} == {0}
    else:
        raw.ask(MetadataRequest(topics=[]))
    assert pauses(wide_broker, "Produce") - before >= 2 * 150
    with RawClient(wide_broker.port) as other:
        for n in (indexes[0], indexes[19], indexes[20], indexes[-1]):
            found = fetch(other, "wide", 0, partition=n)
            values = values_of(found.records)[-2:]
            assert values == [b"a" * 50 + b"%d" % n, b"b" * 50 + b"%d" % n]


def test_many_groups_are_asked_with_pauses(wide_broker, raw):
    before = pauses(wide_broker, "DescribeGroups")
    names = [f"group-{n}" for n in range(40)]
    found = raw.ask(DescribeGroupsRequest(groups=names)).groups
    assert [each.group_id for each in found] == names
    assert pauses(wide_broker, "DescribeGroups") - before >= 40


def test_topics_are_created_and_deleted_with_pauses(raw, monkeypatch):
    taken: list[None] = []
    pause = asyncio.sleep

    async def counted(seconds: float) -> None:
        taken.append(None)
        await pause(seconds)

    monkeypatch.setattr(asyncio, "sleep", counted)
    names = [f"made-{n}" for n in range(30)]
    made = raw.ask(
        CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
                )
                for name in names
            ]
        )
    ).topics
    assert [each.name for each in made] == names
    assert len(taken) >= 30
    taken.clear()
    gone = raw.ask(
        DeleteTopicsRequest(
            topics=[
                DeleteTopicsRequest.DeleteTopicState(name=n, topic_id=bytes(16)) for n in names
            ],
            timeout_ms=1000,
        )
    ).responses
    assert {each.error_code for each in gone} == {0}
    assert len(taken) >= 30


def test_topics_of_one_request_count_together_against_the_limits():
    with (
        Broker(config=BrokerConfig(limits=BrokerLimits(partitions=10))) as broker,
        RawClient(broker.port) as raw,
    ):
        found = raw.ask(
            CreateTopicsRequest(
                topics=[
                    CreateTopicsRequest.CreatableTopic(
                        name=name,
                        num_partitions=6,
                        replication_factor=1,
                        assignments=[],
                        configs=[],
                    )
                    for name in ("first", "second")
                ]
            )
        ).topics
        assert [each.error_code for each in found] == [0, ErrorCode.POLICY_VIOLATION]


def test_groups_work_when_the_limit_of_partitions_is_reached():
    config = BrokerConfig(limits=BrokerLimits(partitions=2, topics=1))
    with Broker(config=config, topics={"wide": 2}) as broker, RawClient(broker.port) as raw:
        assert commit(raw, 0)[0].error_code == ErrorCode.NONE


class Ticket:
    def __init__(self) -> None:
        self.responses: list[object] = []

    def reply(self, response: object) -> None:
        self.responses.append(response)


def test_the_replies_of_a_large_rebalance_leave_in_parts_and_in_order(wide_broker):
    ticket = Ticket()
    replies = tuple(Reply(ticket, number) for number in range(1000))

    def send(live) -> int:
        live.groups.runtime_of("g")._send(replies)
        return len(ticket.responses)

    assert wide_broker.on_loop(send) == 200
    while len(ticket.responses) < 1000:
        wide_broker.on_loop(lambda _: None)
    assert ticket.responses == list(range(1000))


def test_a_large_fetch_does_not_wait_in_front_of_other_requests(wide_broker, raw):
    fetch_all(raw, 60_000)
    raw.send(MetadataRequest(topics=[]), 9)
    assert raw.receive(1, 11).error_code == 0
    assert raw.receive(3, 9).brokers
