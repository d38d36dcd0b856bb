"""Administration of transactions: list, describe, abort, fence, and find those nobody will end.

A transaction is known in two places: its coordinator knows the transactional id, its state and its
partitions; the leader of each partition knows which producer has a transaction open there, and
since which offset. One that a leader knows and no coordinator does is *hanging*: it holds back
every reader of committed records forever, until it is aborted by hand (KIP-664).

Rule: as in ``topic_admin.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

from shoal.client.cluster import Cluster, TransactionalId
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline
from shoal.client.topic_admin import describe_topics, list_topics, need_partitions
from shoal.errors import BrokerError, ErrorCode
from shoal.types import PreparedTransaction, TopicPartition
from shoal.wire.apis.describe_producers import DescribeProducersRequest
from shoal.wire.apis.describe_transactions import DescribeTransactionsRequest
from shoal.wire.apis.end_txn import EndTxnRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.list_transactions import ListTransactionsRequest
from shoal.wire.apis.registry import ApiKey
from shoal.wire.apis.write_txn_markers import WriteTxnMarkersRequest

_INIT_STABLE: Final = 5
_END_V1: Final = 4
# Of a producer that is only shut out; it never begins anything.
_FENCE_TIMEOUT_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator sees it; ``state`` is Kafka's word.

    ``start_ms`` is when the present transaction began, ``None`` if there is none.
    """

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class PartitionProducer:
    """A producer that has written to a partition, as its leader sees it.

    ``start_offset`` is where its open transaction begins, ``None`` if it has none there.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator will end."""

    topic_partition: TopicPartition
    producer: PartitionProducer


async def list_transactions(
    cluster: Cluster,
    states: Collection[str],
    producer_ids: Collection[int],
    longer_than_ms: int | None,
    pattern: str | None,
    deadline: Deadline,
) -> list[TransactionListing]:
    def build(version: int) -> ListTransactionsRequest:
        for needed, given, what in (
            (1, longer_than_ms is not None, "duration"),
            (2, pattern is not None, "a pattern of their ids"),
        ):
            if given and version < needed:
                reason = f"a broker this old cannot list transactions by {what}"
                raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, reason)
        request = ListTransactionsRequest(
            state_filters=list(states), producer_id_filters=list(producer_ids)
        )
        if version >= 1 and longer_than_ms is not None:
            request.duration_filter = longer_than_ms
        if version >= 2:
            request.transactional_id_pattern = pattern
        return request

    async def of(node_id: int) -> list[TransactionListing]:
        answer = await cluster.ask(
            Versioned(ApiKey.LIST_TRANSACTIONS, build), node_id=node_id, deadline=deadline
        )
        cluster.check("Transaction", answer.error_code)
        if answer.unknown_state_filters:
            unknown = ", ".join(answer.unknown_state_filters)
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"there are no states {unknown}")
        return [
            TransactionListing(
                one.transactional_id, one.producer_id, one.transaction_state, node_id
            )
            for one in answer.transaction_states
        ]

    async def attempt() -> list[TransactionListing]:
        metadata = await cluster.refresh((), deadline)
        parts = await asyncio.gather(*(of(node_id) for node_id in metadata.nodes))
        found = (one for part in parts for one in part)
        return sorted(found, key=lambda one: one.transactional_id)

    return await cluster.retrying(attempt, deadline)


async def describe_transactions(
    cluster: Cluster, transactional_ids: Collection[str], deadline: Deadline
) -> dict[str, TransactionDescription]:
    """Raises BrokerError TRANSACTIONAL_ID_NOT_FOUND for one nobody knows."""

    async def of(name: str) -> TransactionDescription:
        key = TransactionalId(name)

        async def attempt() -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[name])
            answer = await cluster.ask_coordinator(key, request, deadline)
            (one,) = answer.transaction_states
            cluster.check("Transaction", one.error_code, str(key), group_id=key)
            start = one.transaction_start_time_ms
            return TransactionDescription(
                name,
                one.transaction_state,
                one.producer_id,
                one.producer_epoch,
                one.transaction_timeout_ms,
                start if start >= 0 else None,
                tuple(
                    sorted(
                        TopicPartition(topic.topic, number)
                        for topic in one.topics
                        for number in topic.partitions
                    )
                ),
                await cluster.coordinator(key, deadline),
            )

        return await cluster.retrying(attempt, deadline)

    names = dict.fromkeys(transactional_ids)
    found = await asyncio.gather(*(of(name) for name in names))
    return dict(zip(names, found, strict=True))


async def describe_producers(
    cluster: Cluster, partitions: Collection[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, list[PartitionProducer]]:
    found: dict[TopicPartition, list[PartitionProducer]] = {}

    async def of(node_id: int, tps: Iterable[TopicPartition]) -> None:
        request = DescribeProducersRequest(
            topics=[
                DescribeProducersRequest.TopicRequest(name=name, partition_indexes=numbers)
                for name, numbers in _by_topic(tps).items()
            ]
        )
        answer = await cluster.ask(request, node_id=node_id, deadline=deadline)
        for topic in answer.topics:
            for one in topic.partitions:
                tp = TopicPartition(topic.name, one.partition_index)
                cluster.check("DescribeProducers", one.error_code, str(tp))
                found[tp] = [_producer(producer) for producer in one.active_producers]

    async def attempt() -> None:
        await cluster.topics({tp.topic for tp in partitions}, deadline)
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            if tp not in found:
                by_leader.setdefault(cluster.leader_id(tp), []).append(tp)
        await asyncio.gather(*(of(node_id, tps) for node_id, tps in by_leader.items()))

    await need_partitions(cluster, partitions, deadline)
    await cluster.retrying(attempt, deadline)
    return {tp: found.get(tp, []) for tp in partitions}


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(tps):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return by_topic


def _producer(one: Any) -> PartitionProducer:
    return PartitionProducer(
        one.producer_id,
        one.producer_epoch,
        one.last_sequence,
        one.last_timestamp,
        one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
        one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
    )


async def fence_producers(
    cluster: Cluster, transactional_ids: Collection[str], deadline: Deadline
) -> None:
    """Shut out whoever uses these ids; what they have open is aborted by their coordinators."""

    await asyncio.gather(
        *(
            init_producer_id(cluster, name, _FENCE_TIMEOUT_MS, deadline)
            for name in dict.fromkeys(transactional_ids)
        )
    )


async def init_producer_id(
    cluster: Cluster, transactional_id: str, timeout_ms: int, deadline: Deadline
) -> tuple[int, int]:
    """Producer id and epoch for whoever has this id from here on; who had it before is shut out."""
    key = TransactionalId(transactional_id)
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    async def attempt() -> tuple[int, int]:
        versioned = Versioned(ApiKey.INIT_PRODUCER_ID, lambda _: request, up_to=_INIT_STABLE)
        answer = await cluster.ask_coordinator(key, versioned, deadline)
        cluster.check("Transaction", answer.error_code, str(key), group_id=key)
        return answer.producer_id, answer.producer_epoch

    return await cluster.retrying(attempt, deadline)


async def end_transaction(
    cluster: Cluster, prepared: PreparedTransaction, deadline: Deadline, *, commit: bool
) -> None:
    """End what its producer has prepared; to repeat it is harmless, and answered the same."""
    key = TransactionalId(prepared.transactional_id)
    request = EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=commit,
    )
    up_to = None if prepared.is_v2 else _END_V1

    async def attempt() -> None:
        versioned = Versioned(ApiKey.END_TXN, lambda _: request, up_to=up_to)
        answer = await cluster.ask_coordinator(key, versioned, deadline)
        cluster.check("Transaction", answer.error_code, str(key), group_id=key)

    await cluster.retrying(attempt, deadline)


async def abort_transaction(
    cluster: Cluster, tp: TopicPartition, start_offset: int, deadline: Deadline
) -> None:
    """Abort what is open in one partition since this offset, behind the coordinator's back."""
    producers = (await describe_producers(cluster, [tp], deadline))[tp]
    one = next((one for one in producers if one.start_offset == start_offset), None)
    if one is None:
        begins = sorted(p.start_offset for p in producers if p.start_offset is not None)
        there = f"there are at {', '.join(map(str, begins))}" if begins else "there is none"
        raise BrokerError(
            ErrorCode.INVALID_TXN_STATE,
            f"no open transaction begins at offset {start_offset} of {tp}; {there}",
        )
    marker = WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        transaction_result=False,
        topics=[
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                name=tp.topic, partition_indexes=[tp.partition]
            )
        ],
        coordinator_epoch=one.coordinator_epoch or 0,
    )

    async def attempt() -> None:
        request = WriteTxnMarkersRequest(markers=[marker])
        leader_id = cluster.leader_id(tp)
        answer = await cluster.ask(request, node_id=leader_id, deadline=deadline)
        (result,) = answer.markers
        (part,) = result.topics[0].partitions
        cluster.check("WriteTxnMarkers", part.error_code, str(tp))

    await cluster.retrying(attempt, deadline)


async def find_hanging_transactions(
    cluster: Cluster,
    topics: Collection[str],
    idle_ms: int,
    now_ms: int,
    deadline: Deadline,
) -> list[HangingTransaction]:
    """Transactions open for longer than ``idle_ms`` that no coordinator counts as its own.

    Younger ones may just be beginning: a partition can know of one before we have asked everybody.
    """
    names = topics or await list_topics(cluster, deadline)
    described = await describe_topics(cluster, names, deadline)
    tps = [
        TopicPartition(topic.name, part.partition)
        for topic in described.values()
        for part in topic.partitions
    ]
    if not tps:
        return []
    producers = await describe_producers(cluster, tps, deadline)
    old = [
        HangingTransaction(tp, one)
        for tp, ones in producers.items()
        for one in ones
        if one.start_offset is not None and now_ms - one.last_timestamp_ms >= idle_ms
    ]
    if not old:
        return []
    ids = {one.producer.producer_id for one in old}
    listed = await list_transactions(cluster, (), ids, None, None, deadline)
    known = await describe_transactions(cluster, [one.transactional_id for one in listed], deadline)
    owned = {(one.producer_id, tp) for one in known.values() for tp in one.partitions}
    return [one for one in old if (one.producer.producer_id, one.topic_partition) not in owned]
