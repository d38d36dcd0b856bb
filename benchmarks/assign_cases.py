"""Groups to assign, and who assigns them: Shoal, Kafka's Java classes, kafka-python, aiokafka.

A case is one or more rebalances in a row; the last one is timed, the ones before it make the
ownership it starts from. Shoal and Java get the same members and must give the same lists: their
checksums are compared.

All times are CPU time of the one thread that assigns. That leaves neighbours on the machine out,
and Java's garbage collector and compiler threads too, which is in Java's favour.
"""

from __future__ import annotations

import gc
import statistics
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.assign.oracle import Oracle
from tests.peers.cache import PeerMissingError

from shoal.assign import Assignment, ClusterMetadata, GroupAssignment, Subscription, load
from shoal.types import ConsumerGroupMetadata, TopicPartition

Member = list[Any]
"""``[id]`` subscribes to everything, ``[id, start, end]`` to those topics."""


@dataclass(frozen=True)
class Case:
    """``topics`` topics of ``partitions`` partitions, and the members at each rebalance."""

    topics: int
    partitions: int
    steps: Sequence[Sequence[Member]]


def topic_name(index: int) -> str:
    return f"topic-{index:05d}"


def member_ids(count: int) -> list[str]:
    return [f"consumer-{index:05d}" for index in range(count)]


def everybody(count: int) -> list[Member]:
    return [[member_id] for member_id in member_ids(count)]


def fresh(topics: int, partitions: int, members: int) -> Case:
    return Case(topics, partitions, [everybody(members)])


def one_leaves(topics: int, partitions: int, members: int) -> Case:
    group = everybody(members)
    gone = members // 3
    return Case(topics, partitions, [group, [*group[:gone], *group[gone + 1 :]]])


def a_tenth_joins(topics: int, partitions: int, members: int) -> Case:
    return Case(topics, partitions, [everybody(members), everybody(members + members // 10)])


def one_wants_less(topics: int, partitions: int, members: int, rebalances: int) -> Case:
    """The last member subscribes to one topic only, so the general algorithm runs."""
    group = everybody(members)
    group[-1] = [*group[-1], 0, 1]
    return Case(topics, partitions, [group] * rebalances)


def two_classes(topics: int, partitions: int, members: int) -> Case:
    """A quarter wants the first half of the topics, the others the second half; then a member
    that wants everything replaces one that leaves."""
    half = topics // 2
    group: list[Member] = [
        [member_id, 0, half] if index % 4 == 0 else [member_id, half, topics]
        for index, member_id in enumerate(member_ids(members))
    ]
    joins = [[member_ids(members + 1)[-1]]]
    return Case(topics, partitions, [group, [group[0], *group[2:], *joins]])


@dataclass(frozen=True)
class Timed:
    """Median seconds of an assignment and of encoding it; and what came out."""

    seconds: float
    encode_seconds: float
    checksum: int


def shoal(name: str, case: Case, runs: int) -> Timed:
    """Our time, in this process."""
    topics = tuple(topic_name(index) for index in range(case.topics))
    metadata = ClusterMetadata(dict.fromkeys(topics, case.partitions))
    parts: dict[tuple[int, int], tuple[str, ...]] = {}
    times, encode_times = [], []
    result = GroupAssignment({})
    for run in range(runs + 1):
        owned: dict[str, Sequence[TopicPartition]] = {}
        for step, members in enumerate(case.steps):
            group = {}
            for member in members:
                wanted = topics
                if len(member) > 1:
                    span = member[1], member[2]
                    wanted = parts.setdefault(span, topics[slice(*span)])
                group[member[0]] = _subscription(name, wanted, owned.get(member[0]), step)
            (assignor,) = load([name])
            gc.collect()
            began = time.thread_time()
            assigned = assignor.assign(metadata, group)
            taken = time.thread_time() - began
            assert isinstance(assigned, GroupAssignment)
            result = assigned
            owned = {member_id: one.partitions for member_id, one in result.items()}
        began = time.thread_time()
        result.encode()
        if run:  # the first one warms up
            times.append(taken)
            encode_times.append(time.thread_time() - began)
    return Timed(statistics.median(times), statistics.median(encode_times), checksum(result))


def _subscription(
    name: str, topics: tuple[str, ...], owned: Sequence[TopicPartition] | None, generation: int
) -> Subscription:
    if owned is None or name in ("range", "roundrobin"):
        return Subscription(topics)
    if name == "sticky":
        (assignor,) = load([name])
        metadata = ConsumerGroupMetadata("group", generation, "member")
        assignor.on_assignment(Assignment(owned), metadata)
        return Subscription(topics, assignor.subscription_user_data(topics), (), None, generation)
    return Subscription(topics, None, owned, None, generation)


def checksum(result: GroupAssignment) -> int:
    """Of all lists, in order; the Java program computes the same."""
    crc = 0
    for member_id in sorted(result):
        crc = zlib.crc32(member_id.encode(), crc)
        text = "".join(f"{topic}-{number};" for topic, number in result[member_id].partitions)
        crc = zlib.crc32(text.encode(), crc)
    return crc


def java(oracle: Oracle, name: str, case: Case, runs: int, warm_up: int = 1) -> Timed:
    """Kafka's own classes, warm."""
    answered = oracle.ask({**request(name, case), "runs": runs + warm_up})
    if "error" in answered:
        raise RuntimeError(answered["error"])
    return Timed(
        statistics.median(answered["seconds"][warm_up:]),
        statistics.median(answered["encode_seconds"][warm_up:]),
        answered["checksum"],
    )


def request(name: str, case: Case) -> dict[str, Any]:
    return {
        "bench": name,
        "topics": case.topics,
        "partitions": case.partitions,
        "steps": [{"members": list(members)} for members in case.steps],
        "runs": 1,
    }


def started_oracle(heap: str) -> Oracle | None:
    """The Java program, or None with the reason printed."""
    try:
        return Oracle(heap=heap)
    except PeerMissingError as missing:
        print(f"  without Java: {missing}")
        return None


class _Cluster:
    """As much of a cluster as the other clients' assignors ask for."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def topics(self) -> set[str]:
        return set(self._counts)

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._counts[topic]))


Peer = Callable[[], dict[str, Any]]


def kafka_python(name: str, case: Case) -> Callable[[], object]:
    """One assignment of the case's last step by kafka-python."""
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.protocol.consumer.group import JoinGroupResponse

    make = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }[name]
    topics = [topic_name(index) for index in range(case.topics)]
    cluster = _Cluster(dict.fromkeys(topics, case.partitions))
    part = JoinGroupResponse.JoinGroupResponseMember

    def members(step: int, owned: Mapping[str, Any]) -> list[Any]:
        joined = []
        for one in case.steps[step]:
            assignor = make()
            if one[0] in owned:
                assignor.on_assignment(owned[one[0]], step)
            wanted = topics if len(one) == 1 else topics[one[1] : one[2]]
            joined.append(
                part(member_id=one[0], group_instance_id=None, metadata=assignor.metadata(wanted))
            )
        return joined

    return _last_step(case, lambda given: make().assign(cluster, given), members)


def aiokafka(name: str, case: Case) -> Callable[[], object]:
    """One assignment of the case's last step by aiokafka."""
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    make = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
    }[name]
    topics = [topic_name(index) for index in range(case.topics)]
    cluster = _Cluster(dict.fromkeys(topics, case.partitions))

    def members(step: int, owned: Mapping[str, Any]) -> dict[str, Any]:
        joined = {}
        for one in case.steps[step]:
            wanted = topics if len(one) == 1 else topics[one[1] : one[2]]
            if name == "sticky":
                held = owned[one[0]].partitions() if one[0] in owned else None
                joined[one[0]] = make._metadata(wanted, held, step)
            else:
                joined[one[0]] = make.metadata(wanted)
        return joined

    return _last_step(case, lambda given: make.assign(cluster, given), members)


def _last_step(
    case: Case, assign: Callable[[Any], Any], members: Callable[[int, Mapping[str, Any]], Any]
) -> Callable[[], object]:
    owned: Mapping[str, Any] = {}
    for step in range(len(case.steps) - 1):
        owned = assign(members(step, owned))
    last = members(len(case.steps) - 1, owned)
    return lambda: assign(last)


def timed_once(run: Callable[[], object]) -> float:
    """For peers that take seconds."""
    gc.collect()
    began = time.thread_time()
    run()
    return time.thread_time() - began
