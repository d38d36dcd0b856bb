"""Facts about a cluster → families of metrics, as ``shoal.metrics.cluster`` names them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from shoal.fleet.collector import ClusterFacts
from shoal.metrics.cluster import (
    SERIES_MAX,
    PartitionFacts,
    ShownCluster,
    cluster_families,
)
from shoal.metrics.exposition import Buckets, Family
from shoal.types import TopicPartition


def families_of(
    facts: ClusterFacts,
    rebalances: Mapping[tuple[str, str], int],
    durations: Mapping[str, Buckets],
    *,
    series_max: int = SERIES_MAX,
) -> list[Family]:
    """What a scrape shows of a cluster."""
    survey = facts.survey
    topics = {n: t for n, t in survey.metadata.topics.items() if not t.is_internal}
    partitions = {}
    for name, topic in topics.items():
        for number, one in enumerate(topic.partitions):
            tp = TopicPartition(name, number)
            partitions[tp] = PartitionFacts(
                survey.starts.get(tp),
                survey.ends.get(tp),
                one.leader_id,
                one.replicas,
                one.in_sync_replicas,
            )
    shown = ShownCluster(
        {node.id: f"{node.host}:{node.port}" for node in survey.metadata.nodes.values()},
        {name: len(topic.partitions) for name, topic in topics.items()},
        partitions,
        facts.groups,
        facts.problems,
        rebalances,
        durations,
    )
    return cluster_families(shown, series_max=series_max)
