"""Topics as pages show them: partitions, how much is in them, who reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from shoal.errors import ShoalError
from shoal.fleet.collector import ClusterFacts
from shoal.types import TopicPartition
from shoal.web.cluster_watch import ClusterWatch, exact
from shoal.web.group_view import NotThereError

PARTITIONS_MAX: Final = 5_000


def topics_view(watch: ClusterWatch) -> dict[str, Any]:
    """Every topic; what one takes on disk is ``None`` where that cannot be known."""
    facts = _facts(watch)
    metadata = facts.survey.metadata
    sizes, why = _sizes(watch, list(metadata.topics))
    readers: Counter[str] = Counter()
    for group in facts.groups:
        readers.update({tp.topic for tp in group.positions})
    records: Counter[str] = Counter()
    for tp, end in facts.survey.ends.items():
        records[tp.topic] += end - facts.survey.starts.get(tp, end)
    by_topic: Counter[str] = Counter()
    for tp, size in sizes.items():
        by_topic[tp.topic] += size
    return {
        "topics": [
            {
                "topic": name,
                "partitions": len(topic.partitions),
                "internal": topic.is_internal,
                "records": exact(records[name]),
                "bytes": exact(by_topic[name]) if name in by_topic else None,
                "groups": readers[name],
                "leaderless": sum(one.leader_id is None for one in topic.partitions),
            }
            for name, topic in sorted(metadata.topics.items())
        ],
        "sizes_unknown": why,
    }


def topic_view(watch: ClusterWatch, name: str) -> dict[str, Any]:
    """One topic, partition by partition, and the groups that committed in it.

    Raises:
        NotThereError: there is no such topic.
    """
    facts = _facts(watch)
    topic = facts.survey.metadata.topics.get(name)
    if topic is None:
        raise NotThereError(f"there is no topic {name!r}")
    sizes, why = _sizes(watch, [name])
    starts, ends = facts.survey.starts, facts.survey.ends
    rows = []
    for number, one in enumerate(topic.partitions[:PARTITIONS_MAX]):
        tp = TopicPartition(name, number)
        rows.append(
            {
                "partition": number,
                "leader": one.leader_id,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync_replicas),
                "start": str(starts[tp]) if tp in starts else None,
                "end": str(ends[tp]) if tp in ends else None,
                "bytes": exact(sizes[tp]) if tp in sizes else None,
            }
        )
    groups = []
    for group in facts.groups:
        positions = group.by_topic().get(name)
        if positions:
            groups.append(
                {
                    "group": group.group_id,
                    "state": group.state,
                    "lag": exact(sum(each.lag for each in positions)),
                    "behind_s": round(max(each.behind_s for each in positions), 1),
                    "at_least": any(each.at_least for each in positions),
                }
            )
    return {
        "topic": name,
        "internal": topic.is_internal,
        "partitions": rows,
        "left_out": max(0, len(topic.partitions) - PARTITIONS_MAX),
        "groups": groups,
        "sizes_unknown": why,
    }


def _facts(watch: ClusterWatch) -> ClusterFacts:
    facts = watch.state.facts
    if facts is None:
        raise NotThereError("the cluster was not looked at yet")
    return facts


def _sizes(watch: ClusterWatch, names: list[str]) -> tuple[dict[TopicPartition, int], str]:
    """Bytes on disk, or why they are not known."""
    try:
        return (watch.admin.partition_sizes(*names) if names else {}), ""
    except ShoalError as error:
        return {}, str(error)
