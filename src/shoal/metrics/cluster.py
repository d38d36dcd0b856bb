"""Facts about a cluster and its groups → families of metrics, within a limit. Pure.

Topics and groups have the names of kafka_exporter, which most dashboards look for; what nobody else
tells is called ``shoal_``. The broker shows itself so, and the exporter shows any cluster.

Rule: families stand in the order in which they are given up. If there are too many series, the
finest go first, partitions and then topics; ``shoal_metrics_dropped`` names each that is missing.
No label holds a member, a host or a client id: those come and go without end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from operator import attrgetter
from typing import Final

from shoal.metrics.exposition import Buckets, Family, Labels
from shoal.types import TopicPartition

SERIES_MAX: Final = 50_000
FAMILIES_MAX: Final = 20
"""So many series are kept free, for the names of what is left out."""
_GROUP: Final = ("consumergroup",)
_GROUP_TOPIC: Final = ("consumergroup", "topic")
_TOPIC_PARTITION: Final = ("topic", "partition")


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """Where a group stands in one partition."""

    committed: int
    lag: int
    behind_s: float
    at_least: bool = False
    """It was behind already at the first look: for how long, nobody saw."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """One group at the time it was looked at."""

    group_id: str
    state: str
    protocol: str
    members: int
    coordinator_id: int
    positions: Mapping[TopicPartition, PartitionPosition]
    problem: str = ""

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.positions.values())

    @property
    def behind_s(self) -> float:
        """Of the partition that is behind for the longest time."""
        return max((one.behind_s for one in self.positions.values()), default=0.0)

    @property
    def at_least(self) -> bool:
        """Whether ``behind_s`` may be more."""
        return any(one.at_least for one in self.positions.values())

    def by_topic(self) -> dict[str, list[PartitionPosition]]:
        """Its positions, topic by topic."""
        ordered = sorted(self.positions.items())
        return {
            topic: [position for _, position in part]
            for topic, part in groupby(ordered, key=lambda one: one[0].topic)
        }


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition. A partition nobody leads has neither a beginning nor an end."""

    start: int | None
    end: int | None
    leader_id: int | None
    replicas: Sequence[int]
    in_sync_replicas: Sequence[int]


@dataclass(frozen=True, slots=True)
class ShownCluster:
    """What there is to show of a cluster."""

    brokers: Mapping[int, str]
    """Id → address."""
    topics: Mapping[str, int]
    """Name → number of partitions; without those the cluster has for itself."""
    partitions: Mapping[TopicPartition, PartitionFacts]
    groups: Sequence[GroupFacts]
    problems: Mapping[str, int] = field(default_factory=dict)
    """How many groups had no answer, by the reason."""
    rebalances: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often, by group and cause."""
    durations: Mapping[str, Buckets] = field(default_factory=dict)
    """How long they took, by cause."""


def cluster_families(
    shown: ShownCluster,
    *,
    series_max: int,
    coarse: Iterable[Family] = (),
    fine: Iterable[Family] = (),
) -> list[Family]:
    """What a scrape shows of a cluster. ``coarse`` comes first, ``fine`` after what is shown of
    topics and before what is shown of partitions."""
    families = (
        coarse,
        _brokers(shown),
        _groups(shown.groups),
        _rebalances(shown),
        _topics(shown.topics),
        _group_topics(shown.groups),
        fine,
        _partitions(shown.partitions),
        _group_partitions(shown.groups),
    )
    return _within(chain.from_iterable(families), series_max)


def _within(families: Iterable[Family], series_max: int) -> list[Family]:
    """As many as fit, the first ones; and the names of those that do not."""
    kept: list[Family] = []
    left = series_max - FAMILIES_MAX
    dropped: dict[tuple[str, ...], float] = {}
    for family in families:
        series = family.series
        if series <= left and not dropped:
            left -= series
            kept.append(family)
        else:
            # Clients choose some of the names: those beyond a few are counted together.
            name = family.name if len(dropped) < FAMILIES_MAX - 1 else ""
            dropped[(name,)] = dropped.get((name,), 0) + series
    text = "Series of this name that were left out, because there would be too many in all."
    return [*kept, Family("shoal_metrics_dropped", "gauge", text, ("name",), dropped)]


def _brokers(shown: ShownCluster) -> Iterable[Family]:
    yield Family("kafka_brokers", "gauge", "Brokers in the cluster.", (), {(): len(shown.brokers)})
    yield Family(
        "kafka_broker_info",
        "gauge",
        "A broker and its address; always 1.",
        ("id", "address"),
        {(str(node_id), address): 1 for node_id, address in shown.brokers.items()},
    )
    yield Family(
        "shoal_groups_without_answer",
        "gauge",
        "Groups that could not be looked at in the last sweep, by the error.",
        ("reason",),
        {(reason,): count for reason, count in shown.problems.items()},
    )


def _groups(groups: Iterable[GroupFacts]) -> Iterable[Family]:
    known = [one for one in groups if not one.problem]
    yield Family(
        "kafka_consumergroup_members",
        "gauge",
        "Members of a group.",
        _GROUP,
        {(one.group_id,): one.members for one in known},
    )
    yield Family(
        "shoal_group_lag",
        "gauge",
        "Records a group has not committed yet, in all its partitions.",
        _GROUP,
        {(one.group_id,): one.lag for one in known if one.positions},
    )
    yield Family(
        "shoal_group_lag_seconds",
        "gauge",
        "How long the oldest record a group has not committed has been there; after a start "
        "at least so long.",
        _GROUP,
        {(one.group_id,): round(one.behind_s, 3) for one in known if one.positions},
    )
    yield Family(
        "shoal_group_info",
        "gauge",
        "The state of a group and how its members rebalance; always 1.",
        ("consumergroup", "state", "protocol"),
        {(one.group_id, one.state, one.protocol): 1 for one in known},
    )


def _rebalances(shown: ShownCluster) -> Iterable[Family]:
    yield Family(
        "shoal_group_rebalances",
        "counter",
        "Rebalances of a group since counting began, by cause.",
        ("consumergroup", "cause"),
        {(group, cause): count for (group, cause), count in shown.rebalances.items()},
    )
    yield Family(
        "shoal_group_rebalance_seconds",
        "histogram",
        "How long rebalances took, up to the moment the assignment was written.",
        ("cause",),
        {(cause,): one for cause, one in shown.durations.items()},
    )


def _topics(topics: Mapping[str, int]) -> Iterable[Family]:
    yield Family(
        "kafka_topic_partitions",
        "gauge",
        "Partitions of a topic.",
        ("topic",),
        {(name,): count for name, count in topics.items()},
    )


def _group_topics(groups: Iterable[GroupFacts]) -> Iterable[Family]:
    committed: dict[tuple[str, ...], float] = {}
    lags: dict[tuple[str, ...], float] = {}
    for group in groups:
        for topic, positions in group.by_topic().items():
            committed[group.group_id, topic] = sum(one.committed for one in positions)
            lags[group.group_id, topic] = sum(one.lag for one in positions)
    yield Family(
        "kafka_consumergroup_lag_sum",
        "gauge",
        "Records of a topic a group has not committed yet.",
        _GROUP_TOPIC,
        lags,
    )
    yield Family(
        "kafka_consumergroup_current_offset_sum",
        "gauge",
        "Offsets a group has committed in a topic, added up; its growth is the rate of reading.",
        _GROUP_TOPIC,
        committed,
    )


def _partitions(partitions: Mapping[TopicPartition, PartitionFacts]) -> Iterable[Family]:
    parts = {(tp.topic, str(tp.partition)): one for tp, one in partitions.items()}

    def family(name: str, text: str, samples: Mapping[tuple[str, ...], float]) -> Family:
        return Family(f"kafka_topic_partition_{name}", "gauge", text, _TOPIC_PARTITION, samples)

    yield family(
        "current_offset",
        "Where a partition ends.",
        {n: one.end for n, one in parts.items() if one.end is not None},
    )
    yield family(
        "oldest_offset",
        "Where a partition begins.",
        {n: one.start for n, one in parts.items() if one.start is not None},
    )
    yield family(
        "leader",
        "The broker that leads a partition; -1 if none does.",
        {n: -1 if one.leader_id is None else one.leader_id for n, one in parts.items()},
    )
    yield family(
        "replicas", "Replicas of a partition.", {n: len(one.replicas) for n, one in parts.items()}
    )
    yield family(
        "in_sync_replica",
        "Replicas of a partition that are in sync.",
        {n: len(one.in_sync_replicas) for n, one in parts.items()},
    )
    yield family(
        "leader_is_preferred",
        "1 if the first replica leads.",
        {n: int(one.leader_id in one.replicas[:1]) for n, one in parts.items()},
    )
    yield family(
        "under_replicated_partition",
        "1 if a replica is not in sync.",
        {n: int(len(one.in_sync_replicas) < len(one.replicas)) for n, one in parts.items()},
    )


class _PartitionSamples:
    """A value for each partition of each group. There may be a million: each is made when it is
    told, and forgotten then."""

    def __init__(
        self, groups: Sequence[GroupFacts], value: Callable[[PartitionPosition], int]
    ) -> None:
        self._groups, self._value = groups, value

    def __len__(self) -> int:
        return sum(len(group.positions) for group in self._groups)

    def items(self) -> Iterator[tuple[Labels, int]]:
        value = self._value
        for group in self._groups:
            for tp, one in group.positions.items():
                yield (group.group_id, tp.topic, str(tp.partition)), value(one)


def _group_partitions(groups: Sequence[GroupFacts]) -> Iterable[Family]:
    labels = (*_GROUP_TOPIC, "partition")
    yield Family(
        "kafka_consumergroup_lag",
        "gauge",
        "Records of a partition a group has not committed yet.",
        labels,
        _PartitionSamples(groups, attrgetter("lag")),
    )
    yield Family(
        "kafka_consumergroup_current_offset",
        "gauge",
        "The offset a group has committed in a partition.",
        labels,
        _PartitionSamples(groups, attrgetter("committed")),
    )
