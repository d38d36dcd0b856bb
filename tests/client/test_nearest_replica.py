"""Reading from the replica the leader points to (KIP-392), and going back when it fails."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from shoal import Admin, Consumer, Producer, TopicPartition
from shoal.errors import ErrorCode
from shoal.wire.apis.fetch import FetchResponse
from shoal.wire.apis.metadata import MetadataResponse
from tests.client.conftest import take
from tests.client.scripted import RECORDS, ScriptedBroker


class Replica(ScriptedBroker):
    """One of two nodes: the first leads and sends everybody in rack "here" to the second."""

    def __init__(self):
        super().__init__()
        self.follower: Any = None
        self.leader: Any = None
        self.racks = []

    def _metadata(self, code):
        leader = self if self.follower is not None else self.leader
        part = MetadataResponse.Partition(
            partition_index=0,
            leader_id=1,
            leader_epoch=0,
            replica_nodes=[1, 2],
            isr_nodes=[1, 2],
        )
        nodes = {1: leader, 2: leader.follower}
        return MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=id_, host="127.0.0.1", port=node.port)
                for id_, node in nodes.items()
            ],
            controller_id=1,
            topics=[MetadataResponse.Topic(name="t", partitions=[part])],
        )

    def _fetch(self, request, code):
        self.racks.append(request.rack_id)
        if self.follower is None or request.rack_id != "here":
            return super()._fetch(request, code)
        part = FetchResponse.PartitionData(
            partition_index=0, preferred_read_replica=2, high_watermark=RECORDS
        )
        return FetchResponse(
            responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[part])]
        )


@pytest.fixture
def nodes():
    with Replica() as leader, Replica() as follower:
        leader.follower = follower
        follower.leader = leader
        yield leader, follower


def consumer(leader, **settings):
    return Consumer(
        bootstrap_servers=leader.servers,
        auto_offset_reset="earliest",
        retry_backoff_ms=1,
        **settings,
    )


def test_a_reader_with_a_rack_goes_where_it_is_sent(nodes):
    leader, follower = nodes
    with consumer(leader, client_rack="here") as one:
        one.assign([TopicPartition("t", 0)])
        assert len(take(one, RECORDS)) == RECORDS
    assert leader.asked["Fetch"] >= 1
    assert set(follower.racks) == {"here"}


def test_a_reader_without_one_stays_with_the_leader(nodes):
    leader, follower = nodes
    with consumer(leader) as one:
        one.assign([TopicPartition("t", 0)])
        assert len(take(one, RECORDS)) == RECORDS
    assert follower.asked["Fetch"] == 0


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_replica_that_is_behind_is_left_and_no_position_is_reset(nodes, code):
    leader, follower = nodes
    follower.fail("Fetch", code)
    with consumer(leader, client_rack="here") as one:
        one.assign([TopicPartition("t", 0)])
        one.seek(TopicPartition("t", 0), 4)
        assert [record.offset for record in take(one, RECORDS - 4)] == [*range(4, RECORDS)]
    assert leader.asked["Fetch"] >= 2


@pytest.mark.slow
def test_the_leader_is_asked_once_in_a_while_who_is_nearest_now(nodes):
    leader, follower = nodes
    with consumer(leader, client_rack="here", metadata_max_age_ms=200) as one:
        one.assign([TopicPartition("t", 0)])
        take(one, RECORDS)
        until = time.monotonic() + 10
        while leader.asked["Fetch"] < 3:
            assert time.monotonic() < until, "the follower is asked for ever"
            one.poll(0.1)
    assert follower.asked["Fetch"] > leader.asked["Fetch"]


@pytest.mark.kafka
@pytest.mark.long
def test_a_real_cluster_with_racks_sends_a_reader_to_the_nearest_replica():
    from tests.peers import need
    from tests.peers.jars import kafka_jars
    from tests.peers.kafka import ApacheKafka

    class Racks(ApacheKafka):
        """Node n stands in rack rn."""

        def start(self, node):
            with Path(self._file(node)).open("a") as properties:
                properties.write(f"broker.rack=r{node}\n")
            super().start(node)

    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    need(kafka_jars)
    cluster = Racks(nodes=3, heap="400m", settings={"replica.selector.class": selector})
    with cluster as kafka:
        read_in_every_rack(kafka.bootstrap_servers)


def read_in_every_rack(servers):
    tp = TopicPartition("near", 0)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topic("near", partitions=1, replication_factor=3, timeout=60)
        (info,) = admin.describe_topics("near")["near"].partitions
    assert info.leader is not None
    with Producer(bootstrap_servers=servers) as producer:
        for n in range(100):
            producer.send("near", str(n))
        producer.flush(60)
    for node in info.replicas:
        settings: dict[str, Any] = {"auto_offset_reset": "earliest", "client_rack": f"r{node.id}"}
        with Consumer(bootstrap_servers=servers, **settings) as one:
            one.assign([tp])
            assert [record.offset for record in take(one, 100, 60)] == [*range(100)]
            read_from = one._session.positions[tp].read_from
        assert read_from == (None if node.id == info.leader.id else node.id)
