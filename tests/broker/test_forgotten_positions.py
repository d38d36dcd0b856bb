"""Positions in a deleted topic: all of them go, and a disk that refuses ends the attempt."""

from __future__ import annotations

from itertools import islice

from shoal import Admin, OffsetAndMetadata, TopicPartition
from shoal.testing import Broker

PARTITIONS = 450
"""More than two portions of what is forgotten at once."""


def committed(broker: Broker) -> int:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        wide = [TopicPartition("wide", number) for number in range(PARTITIONS)]
        admin.alter_group_offsets("g", {tp: OffsetAndMetadata(0) for tp in wide})
    return PARTITIONS


def positions(broker: Broker) -> int:
    def count(live) -> int:
        machine = live.groups.runtime_of("g").machine
        return sum(map(len, machine._shard.offsets.by_topic("g").values()))

    return broker.on_loop(count)


def test_every_position_in_a_deleted_topic_is_forgotten() -> None:
    with Broker(topics={"wide": PARTITIONS}) as broker:
        assert committed(broker) == positions(broker) == PARTITIONS
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_topics("wide")
        assert positions(broker) == 0


def test_forgetting_ends_where_the_journal_takes_nothing() -> None:
    with Broker(topics={"wide": PARTITIONS}) as broker:
        committed(broker)

        def steps(live) -> int:
            live.groups.runtime_of("g").partition.log.fence("the disk said so")
            return len(list(islice(live.groups.topics_deleted({"wide"}, live.now_ms), 20)))

        assert broker.on_loop(steps) == 1
