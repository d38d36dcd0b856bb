"""What a running broker shows of itself: a look at its memory, then families of metrics.

A look is taken on the loop, in slices; what follows from it (lag, sums, text) is worked out in a
thread, on copies. So a scrape of ten thousand groups keeps nobody's heartbeat waiting.

Rule: a scrape reads memory and asks nobody. Names of the process (``process_``) and of Kafka are
the usual ones; ours begin with ``shoal_``.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING, Final

from shoal._version import __version__
from shoal.broker.counters import LAG_EDGES
from shoal.broker.slices import Turns
from shoal.metrics.cluster import (
    GroupFacts,
    PartitionFacts,
    PartitionPosition,
    ShownCluster,
    cluster_families,
)
from shoal.metrics.end_samples import EndSamples
from shoal.metrics.exposition import Buckets, Family, Labels, gauge
from shoal.types import TopicPartition
from shoal.wire.apis.registry import API

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.partitions import Partition

_STARTED_S: Final = time()
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class SeenGroup:
    """A group as it stood when it was looked at."""

    group_id: str
    state: str
    protocol: str
    members: int
    generation: int
    committed: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """A partition that was used, as it stood when it was looked at; counts since it was opened."""

    start: int
    end: int
    size_bytes: int
    records_in: int
    bytes_in: int
    batches_in: int
    refused: int
    bytes_out: int
    fetches: int


@dataclass(frozen=True, slots=True)
class BrokerLook:
    """Everything a scrape needs, copied."""

    at_s: float
    own: list[Family]
    node_id: int
    address: str
    topics: dict[str, int]
    partitions: dict[TopicPartition, SeenPartition]
    offline: int
    groups: list[SeenGroup]
    rebalances: dict[tuple[str, str], int]
    durations: dict[str, Buckets]
    requests: dict[str, int]


async def look_at(broker: Broker) -> BrokerLook:
    """Take a look, with pauses: others have their turns in between."""
    turns = Turns()
    topics, partitions = {}, {}
    for topic in list(broker.catalogue):
        if not topic.is_internal:
            topics[topic.name] = topic.partition_count
    for partition in broker.partitions.all_open():
        await turns.pause()
        if partition.topic_partition.topic in topics:
            partitions[partition.topic_partition] = _seen(partition)
    groups = []
    for runtime in list(broker.groups.runtimes.values()) if broker.has_groups else ():
        for group in list(runtime.machine.groups):
            await turns.pause()
            committed = {
                TopicPartition(topic, number): position.offset
                for topic, positions in runtime.machine.offsets.by_topic(group.group_id).items()
                for number, position in positions.items()
            }
            groups.append(
                SeenGroup(
                    group.group_id,
                    group.state_name,
                    group.type.value,
                    len(group.members),
                    group.generation,
                    committed,
                )
            )
    transactions: Counter[str] = Counter()
    if broker.has_transactions:
        for record in list(broker.transactions.records()):
            await turns.pause()
            transactions[record.state.title] += 1
    counts = broker.groups.rebalances if broker.has_groups else None
    first = broker.listeners[0] if broker.listeners else None
    return BrokerLook(
        monotonic(),
        [*_own(broker), *_counted(groups, transactions)],
        broker.node_id,
        "" if first is None else "{}:{}".format(*first.advertised),
        topics,
        partitions,
        len(broker.directory.offline),
        groups,
        {} if counts is None else counts.by_group(),
        {} if counts is None else counts.durations(),
        dict(broker.counters.requests),
    )


def _seen(partition: Partition) -> SeenPartition:
    log = partition.log
    return SeenPartition(
        log.start_offset,
        log.high_watermark,
        log.size_bytes,
        log.end_offset - partition.end_at_first,
        partition.appended_bytes,
        partition.appended_batches,
        partition.refused_batches,
        partition.fetched_bytes,
        partition.fetches,
    )


class BrokerFamilies:
    """From looks to families. It remembers where partitions ended, for lag in seconds."""

    def __init__(self, *, series_max: int, jmx_names: bool) -> None:
        self._series_max = series_max
        self._jmx_names = jmx_names
        self._ends = EndSamples()

    def families(self, look: BrokerLook, received: Iterable[Family] = ()) -> list[Family]:
        """``received``: what clients pushed."""
        groups = self._groups(look)
        generations: dict[Labels, float] = {(one.group_id,): one.generation for one in look.groups}
        text = "The generation of a group, or its epoch; each rebalance is a new one."
        shown = ShownCluster(
            {look.node_id: look.address},
            look.topics,
            {
                TopicPartition(name, number): self._partition(look, TopicPartition(name, number))
                for name, count in look.topics.items()
                for number in range(count)
            },
            groups,
            rebalances=look.rebalances,
            durations=look.durations,
        )
        coarse = [*look.own, *(_jmx_totals(look) if self._jmx_names else ())]
        fine = [
            Family("shoal_group_generation", "gauge", text, ("consumergroup",), generations),
            *_topics(look),
            *(_jmx_topics(look) if self._jmx_names else ()),
            *received,
        ]
        return cluster_families(shown, series_max=self._series_max, coarse=coarse, fine=fine)

    def _partition(self, look: BrokerLook, tp: TopicPartition) -> PartitionFacts:
        seen = look.partitions.get(tp)
        start, end = (0, 0) if seen is None else (seen.start, seen.end)
        return PartitionFacts(start, end, look.node_id, (look.node_id,), (look.node_id,))

    def _groups(self, look: BrokerLook) -> list[GroupFacts]:
        read = {tp for group in look.groups for tp in group.committed}
        ends = {
            tp: seen.end if (seen := look.partitions.get(tp)) is not None else 0
            for tp in read
            if tp.partition < look.topics.get(tp.topic, 0)
        }
        self._ends.add(ends, look.at_s)
        return [self._group(group, ends, look) for group in look.groups]

    def _group(
        self, group: SeenGroup, ends: Mapping[TopicPartition, int], look: BrokerLook
    ) -> GroupFacts:
        positions = {}
        for tp, committed in group.committed.items():
            end = ends.get(tp)
            if end is None:
                continue  # its topic is gone
            seen = look.partitions.get(tp)
            reached = max(committed, seen.start if seen is not None else 0)
            behind_s = self._ends.behind_s(tp, reached, look.at_s) or 0.0
            positions[tp] = PartitionPosition(committed, max(0, end - reached), behind_s)
        return GroupFacts(
            group.group_id, group.state, group.protocol, group.members, look.node_id, positions
        )


# --- the broker itself ---------------------------------------------------------------------------


def _own(broker: Broker) -> Iterator[Family]:
    counters = broker.counters
    yield Family(
        "shoal_broker_info",
        "gauge",
        "This broker: its version, its cluster, when it calls a record stored; always 1.",
        ("version", "cluster_id", "node_id", "durability"),
        {(__version__, broker.cluster_id, str(broker.node_id), broker.config.durability): 1},
    )
    yield from _process()
    yield from _requests(broker)
    edges = LAG_EDGES[:-1]
    yield _histogram(
        "shoal_loop_lag_seconds",
        "How late the event loop comes to what is due: everybody waits so long.",
        Buckets(edges, tuple(counters.lag_counts), counters.lag_total_seconds),
    )
    yield gauge("shoal_connections", "Open connections.", counters.connections_open)
    yield _counter(
        "shoal_connections_accepted", "Connections so far.", counters.connections_accepted
    )
    yield _counter("shoal_received_bytes", "Bytes from clients.", counters.received_bytes)
    yield _counter("shoal_sent_bytes", "Bytes to clients.", counters.sent_bytes)
    yield _counter(
        "shoal_appended_bytes", "Bytes appended to logs.", counters.records_bytes_appended
    )
    yield _counter("shoal_appended_batches", "Batches appended to logs.", counters.batches_appended)
    yield _counter("shoal_sync_rounds", "Rounds of syncs to the disk.", broker.syncer.rounds)
    yield _by("shoal_errors", "error", "What went wrong, by Kafka's error or API.", counters.errors)
    yield _by("shoal_refused", "reason", "Connections and clients refused.", counters.refused)
    yield _counter("shoal_authorization_denied", "Operations denied by rules.", counters.denied)
    yield _counter("shoal_throttled", "Answers with a wait behind them.", counters.throttled)
    yield _counter(
        "shoal_throttled_seconds", "How long they had to.", round(counters.throttled_seconds, 3)
    )
    memory = broker.server.memory
    yield Family(
        "shoal_memory_bytes",
        "gauge",
        "Memory that clients make the broker hold, by what for.",
        ("use",),
        {(use,): size for use, size in memory.snapshot().items()},
    )
    yield gauge("shoal_memory_limit_bytes", "The budget for it.", memory.limit)
    yield gauge("shoal_fetches_waiting", "Fetches that wait for data.", counters.fetches_waiting)
    yield gauge("shoal_fetch_sessions", "Incremental fetch sessions.", len(broker.fetch_sessions))
    yield gauge("shoal_topics", "Topics.", len(broker.catalogue))
    yield gauge("shoal_partitions_open", "Partitions with a log.", len(broker.directory.partitions))
    yield gauge(
        "shoal_partitions_offline",
        "Partitions whose log could not be opened.",
        len(broker.directory.offline),
    )
    total, free = broker.partitions.disk_space()
    yield gauge("shoal_disk_free_bytes", "Free on the disk of the log.", free)
    yield gauge("shoal_disk_bytes", "Size of that disk.", total)


def _requests(broker: Broker) -> Iterator[Family]:
    counters, timings = broker.counters, broker.server.timings
    assert timings is not None, "there is a port, so requests are timed"
    yield _by("shoal_requests", "api", "Requests, by API.", counters.requests)
    yield Family(
        "shoal_request_seconds",
        "histogram",
        "From a request to its answer, waits for data and for the disk included.",
        ("api",),
        {(API[key].name,): one for key, one in timings.answers().items()},
    )
    yield Family(
        "shoal_request_slowest_seconds",
        "gauge",
        "The slowest answer of the last minute or two.",
        ("api",),
        {(API[key].name,): round(seconds, 6) for key, seconds in timings.slowest().items()},
    )
    yield Family(
        "shoal_request_loop_seconds_max",
        "gauge",
        "The longest time a request, or a slice of one, has kept everybody else waiting.",
        ("api",),
        {(api,): round(seconds, 6) for api, seconds in counters.slowest_seconds.items()},
    )
    yield _by("shoal_stalls", "api", "Requests that did so for more than 50 ms.", counters.stalls)
    yield _histogram(
        "shoal_durable_ack_seconds",
        "From a produce request to its acknowledgement, where that means: it is on the disk.",
        timings.acks(),
    )


def _process() -> Iterator[Family]:
    """As the libraries of Prometheus call it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield gauge("process_start_time_seconds", "When this process began.", _STARTED_S)
    yield _counter("process_cpu_seconds", "CPU time of it.", used.ru_utime + used.ru_stime)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        files = len(os.listdir("/proc/self/fd"))
    except OSError:
        return  # no such place on this system
    yield gauge("process_resident_memory_bytes", "Memory of it.", pages * _PAGE_BYTES)
    yield gauge("process_open_fds", "Files it has open.", files)
    yield gauge(
        "process_max_fds", "Files it may have open.", resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    )


def _counted(groups: list[SeenGroup], transactions: Mapping[str, int]) -> Iterator[Family]:
    states: Counter[Labels] = Counter((one.protocol, one.state) for one in groups)
    yield Family(
        "shoal_groups",
        "gauge",
        "Groups, by protocol and state.",
        ("protocol", "state"),
        dict(states),
    )
    yield gauge("shoal_members", "Members of all groups.", sum(one.members for one in groups))
    yield Family(
        "shoal_transactional_ids",
        "gauge",
        "Transactional ids, by the state of their transaction.",
        ("state",),
        {(state,): count for state, count in transactions.items()},
    )
    ongoing = transactions.get("Ongoing", 0)
    yield gauge("shoal_transactions_open", "Transactions that are neither way ended.", ongoing)


def _topics(look: BrokerLook) -> Iterator[Family]:
    sizes: Counter[Labels] = Counter({(name,): 0 for name in look.topics})
    for tp, seen in look.partitions.items():
        sizes[tp.topic,] += seen.size_bytes
    yield Family("shoal_topic_bytes", "gauge", "Bytes of a topic's log.", ("topic",), sizes)


# --- as Kafka's beans are called by the JMX exporter --------------------------------------------

_BROKER_TOPICS: Final = {
    "messagesin": ("Records appended.", "records_in"),
    "bytesin": ("Bytes appended.", "bytes_in"),
    "bytesout": ("Bytes of records sent to consumers.", "bytes_out"),
    "totalproducerequests": ("Batches that producers sent.", ""),
    "failedproducerequests": ("Batches that were refused.", "refused"),
    "totalfetchrequests": ("Partitions that consumers asked for.", "fetches"),
}


def _of_topics(look: BrokerLook, field: str) -> Counter[str]:
    counts: Counter[str] = Counter(dict.fromkeys(look.topics, 0))
    for tp, seen in look.partitions.items():
        counts[tp.topic] += getattr(seen, field) if field else seen.batches_in + seen.refused
    return counts


def _jmx_totals(look: BrokerLook) -> Iterator[Family]:
    def named(name: str, text: str, value: float) -> Family:
        return gauge(f"kafka_{name}", text, value)

    partitions = sum(look.topics.values())
    yield named("server_replicamanager_partitioncount", "Partitions here.", partitions)
    yield named("server_replicamanager_leadercount", "Partitions led here.", partitions)
    yield named("server_replicamanager_underreplicatedpartitions", "Always 0 on one node.", 0)
    yield named("server_replicamanager_offlinereplicacount", "Logs not opened.", look.offline)
    yield named("controller_kafkacontroller_activecontrollercount", "Always 1.", 1)
    yield named("controller_kafkacontroller_offlinepartitionscount", "Not led.", look.offline)
    yield named("controller_kafkacontroller_globaltopiccount", "Topics.", len(look.topics))
    yield named("controller_kafkacontroller_globalpartitioncount", "Partitions.", partitions)
    states = Counter(one.state.lower() for one in look.groups)
    prefix = "coordinator_group_groupmetadatamanager_numgroups"
    yield named(prefix, "Groups.", len(look.groups))
    for state in ("stable", "empty", "dead", "preparingrebalance", "completingrebalance"):
        yield named(f"{prefix}{state}", f"Groups: {state}.", states[state])
    yield _by("kafka_network_requestmetrics_requests", "request", "Requests.", look.requests)


def _jmx_topics(look: BrokerLook) -> Iterator[Family]:
    for name, (text, field) in _BROKER_TOPICS.items():
        counts = _of_topics(look, field)
        # Without a topic it is all of them, as the bean without one; an empty label is none.
        samples: dict[Labels, float] = {("",): sum(counts.values())}
        samples |= {(topic,): count for topic, count in counts.items()}
        full = f"kafka_server_brokertopicmetrics_{name}"
        yield Family(full, "counter", text, ("topic",), samples)


def _by(name: str, label: str, text: str, counts: Mapping[str, int]) -> Family:
    return Family(name, "counter", text, (label,), {(key,): n for key, n in counts.items()})


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name, "counter", text, (), {(): value})


def _histogram(name: str, text: str, value: Buckets) -> Family:
    return Family(name, "histogram", text, (), {(): value})
