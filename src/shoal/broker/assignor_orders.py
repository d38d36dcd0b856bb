"""Orders of group coordinators to users' assignors, on their way there and back.

An order says who is in a group and what they want; here it is told how far behind the group is in
each partition, and how much arrives there. Then it goes to the assignor's process
(``assignor_process.py``), and what comes back to the coordinator.

Rule: everything here happens on the broker's loop, and none of it waits.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from shoal.assign.server_spec import GroupSpec, SpecMember, SpecPartition
from shoal.broker.assignor_process import AssignorFaultError, AssignorProcess, ByMember
from shoal.broker.partitions import Partition, Partitions
from shoal.errors import ErrorCode
from shoal.group.coordinator.offset_store import OffsetStore
from shoal.group.coordinator.target_orders import TargetAnswer, TargetFault, TargetOrder
from shoal.types import TopicPartition

SAMPLE_SECONDS: Final = 5.0
_SAMPLES: Final = 12


class ByteRates:
    """How many bytes per second arrive in partitions, over the last minute."""

    def __init__(self, partitions: Partitions, now_ms: Callable[[], int]) -> None:
        self._partitions = partitions
        self._now_ms = now_ms
        # What had arrived when, the oldest first; at the beginning, nothing.
        self._samples: deque[tuple[int, dict[TopicPartition, int]]] = deque(maxlen=_SAMPLES)
        self._samples.append((now_ms(), {}))

    def sample(self) -> Iterator[None]:
        """Note what has arrived so far. A job that is done at once."""
        arrived = {
            each.topic_partition: each.appended_bytes for each in self._partitions.all_open()
        }
        self._samples.append((self._now_ms(), arrived))
        yield

    def of(self, partition: Partition) -> float:
        then_ms, arrived = self._samples[0]
        since = partition.appended_bytes - arrived.get(partition.topic_partition, 0)
        # A log that was opened anew counts anew.
        return max(since, 0) * 1_000.0 / max(self._now_ms() - then_ms, 1_000)


class AssignorOrders:
    """Where coordinators leave their orders: a ticket, as far as they know."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        processes: Mapping[str, AssignorProcess],
        partitions: Partitions,
        now_ms: Callable[[], int],
        rack: str | None,
        *,
        answered: Callable[[TargetOrder, TargetAnswer], None],
        offsets_of: Callable[[str], OffsetStore | None],
    ) -> None:
        """``answered`` gets what has become of orders; ``offsets_of`` is what a group has."""
        self._loop = loop
        self._processes = processes
        self._partitions = partitions
        self._racks = (rack,) if rack is not None else ()
        self.rates = ByteRates(partitions, now_ms)
        self._answered = answered
        self._offsets_of = offsets_of

    def reply(self, order: TargetOrder | ErrorCode) -> None:
        """Carry an order out, unless what it is about was not stored after all."""
        if isinstance(order, ErrorCode):
            return

        def done(target: ByMember | AssignorFaultError) -> None:
            with suppress(RuntimeError):  # the loop is closed: the broker has stopped
                self._loop.call_soon_threadsafe(self._answered, order, _answer(order, target))

        self._processes[order.assignor].order(self._spec(order), done)

    def _spec(self, order: TargetOrder) -> GroupSpec:
        topics = order.topics
        members = {
            member_id: SpecMember(
                member_id,
                frozenset(topics[topic_id].name for topic_id in one.member.topics),
                tuple(
                    TopicPartition(topics[topic_id].name, number)
                    for topic_id, numbers in one.member.assigned.items()
                    if topic_id in topics
                    for number in numbers
                ),
                one.member.instance_id,
                one.client_id,
                one.rack_id,
                one.weight,
            )
            for member_id, one in order.members.items()
        }
        offsets = self._offsets_of(order.group_id)
        partitions = {}
        for topic in topics.values():
            for number in range(topic.partition_count):
                tp = TopicPartition(topic.name, number)
                known = offsets.get(order.group_id, tp) if offsets is not None else None
                partitions[tp] = self._partition(tp, known.offset if known is not None else 0)
        return GroupSpec(order.group_id, order.epoch, members, partitions)

    def _partition(self, tp: TopicPartition, committed: int) -> SpecPartition:
        found = self._partitions.opened(tp.topic, tp.partition)
        if found is None:
            return SpecPartition(racks=self._racks)
        log = found.log
        begins = max(committed, log.start_offset)
        return SpecPartition(max(log.high_watermark - begins, 0), self.rates.of(found), self._racks)


def _answer(order: TargetOrder, target: ByMember | AssignorFaultError) -> TargetAnswer:
    """In ids, as coordinators speak."""
    if isinstance(target, AssignorFaultError):
        return TargetFault(str(target))
    ids = {topic.name: topic_id for topic_id, topic in order.topics.items()}
    return {
        member_id: {ids[name]: sorted(numbers) for name, numbers in by_topic.items() if numbers}
        for member_id, by_topic in target.items()
    }
