"""A transactional producer that says exactly what a test wants, in the version it wants.

It speaks to any broker: ours, and Apache Kafka where answers are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time_ns
from typing import Any

from shoal.errors import ErrorCode
from shoal.types import TopicPartition
from shoal.wire.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from shoal.wire.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from shoal.wire.apis.end_txn import EndTxnRequest
from shoal.wire.apis.fetch import FetchRequest
from shoal.wire.apis.init_producer_id import InitProducerIdRequest
from shoal.wire.apis.list_offsets import ListOffsetsRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.produce import ProduceRequest
from shoal.wire.apis.txn_offset_commit import TxnOffsetCommitRequest
from tests.broker.raw_client import RawClient, batch, values_of

OLD = 1
"""Partitions are announced, the epoch stays (``transaction.version`` 1)."""
NEW = 2
"""Partitions come with the data, the epoch grows (``transaction.version`` 2)."""


def now_ms() -> int:
    return time_ns() // 1_000_000


class Transactional:
    """One producer of a transactional id."""

    def __init__(self, raw: RawClient, name: str, flow: int = OLD) -> None:
        self.raw = raw
        self.name = name
        self.flow = flow
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(
        self,
        *,
        expected: tuple[int, int] = (-1, -1),
        timeout_ms: int = 60_000,
        version: int = 5,
    ) -> ErrorCode:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self.raw.ask(request, version)
        if not answer.error_code:
            self.adopt(answer.producer_id, answer.producer_epoch)
        return ErrorCode.of(answer.error_code)

    def adopt(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.producer_id, self.epoch = producer_id, epoch
            self.sequences = {}

    def add(self, *partitions: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        topics = [
            AddPartitionsToTxnRequest.Topic(name=topic, partitions=[index])
            for topic, index in partitions
        ]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=topics,
        )
        return [
            ErrorCode.of(each.partition_error_code)
            for topic in self.raw.ask(request, version).results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ]

    def request(self, topic: str, *values: bytes, partition: int = 0, **said: Any) -> Any:
        """A produce request, not sent."""
        sequence = self.sequences.get((topic, partition), 0)
        records = batch(
            *values,
            timestamp_ms=now_ms(),
            producer_id=said.get("producer_id", self.producer_id),
            producer_epoch=said.get("epoch", self.epoch),
            base_sequence=said.get("sequence", sequence),
            is_transactional=said.get("is_transactional", True),
        )
        self.sequences[topic, partition] = sequence + len(values)
        data = ProduceRequest.PartitionProduceData(index=partition, records=records)
        return ProduceRequest(
            transactional_id=said.get("name", self.name),
            acks=said.get("acks", -1),
            timeout_ms=10_000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[data])],
        )

    @property
    def produce_version(self) -> int:
        return 12 if self.flow == NEW else 11

    def produce(self, topic: str, *values: bytes, version: int | None = None, **said: Any) -> Any:
        before = dict(self.sequences)
        request = self.request(topic, *values, **said)
        answer = self.raw.ask(request, self.produce_version if version is None else version)
        code = ErrorCode.of(answer.responses[0].partition_responses[0].error_code)
        if code is not ErrorCode.NONE:
            self.sequences = before
        return code

    def write(self, topic: str, *values: bytes, partition: int = 0) -> None:
        """As a client does it in this flow; all goes well."""
        if self.flow == OLD:
            assert self.add((topic, partition)) == [ErrorCode.NONE]
        assert self.produce(topic, *values, partition=partition) is ErrorCode.NONE

    def end(self, *, commit: bool, version: int | None = None) -> ErrorCode:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        chosen = version if version is not None else 5 if self.flow == NEW else 4
        answer = self.raw.ask(request, chosen)
        if chosen >= 5 and not answer.error_code:
            self.adopt(answer.producer_id, answer.producer_epoch)
        return ErrorCode.of(answer.error_code)

    def commit(self) -> None:
        assert self.end(commit=True) is ErrorCode.NONE

    def abort(self) -> None:
        assert self.end(commit=False) is ErrorCode.NONE

    def add_offsets(self, group: str, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group,
        )
        return ErrorCode.of(self.raw.ask(request, version).error_code)

    def commit_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        *,
        version: int | None = None,
        member: tuple[str, int] = ("", -1),
        instance: str | None = None,
        metadata: str = "",
    ) -> list[ErrorCode]:
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            generation_id=member[1],
            member_id=member[0],
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequest.Topic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequest.Partition(
                            partition_index=index,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, index), offset in offsets.items()
            ],
        )
        chosen = version if version is not None else 5 if self.flow == NEW else 4
        return [
            ErrorCode.of(each.error_code)
            for topic in self.raw.ask(request, chosen).topics
            for each in topic.partitions
        ]

    def stage(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """As a client does it in this flow; all goes well."""
        if self.flow == OLD:
            assert self.add_offsets(group) is ErrorCode.NONE
        assert set(self.commit_offsets(group, offsets)) <= {ErrorCode.NONE}


def read(
    raw: RawClient, topic: str, *, partition: int = 0, committed: bool = True, offset: int = 0
) -> list[bytes | None]:
    """What a reader gets, from the bytes of one fetch."""
    wanted = FetchRequest.Partition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=int(committed),
        topics=[FetchRequest.Topic(topic=topic, partitions=[wanted])],
    )
    answer = raw.ask(request, 12).responses[0].partitions[0]
    assert answer.error_code == 0
    aborted = {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()}
    return visible(bytes(answer.records or b""), aborted)


def visible(data: bytes, aborted: set[tuple[int, int]]) -> list[bytes | None]:
    """Values of the batches that are not control batches and not aborted."""
    from shoal.records.batch import iter_headers
    from shoal.records.markers import is_abort_marker

    found: list[bytes | None] = []
    active: set[int] = set()
    for position, header in iter_headers(data):
        active |= {pid for pid, first in aborted if first <= header.base_offset}
        if header.is_control:
            if is_abort_marker(data, position):
                active.discard(header.producer_id)
                aborted = {
                    each
                    for each in aborted
                    if each[0] != header.producer_id or each[1] > header.base_offset
                }
            continue
        if header.is_transactional and header.producer_id in active:
            continue
        found += values_of(data[position : position + header.size_bytes])
    return found


def end_offset(raw: RawClient, topic: str, *, committed: bool, partition: int = 0) -> int:
    wanted = ListOffsetsRequest.Partition(partition_index=partition, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsRequest.Topic(name=topic, partitions=[wanted])],
    )
    offset: int = raw.ask(request, 7).topics[0].partitions[0].offset
    return offset


def committed_offset(
    raw: RawClient, group: str, topic: str, partition: int = 0, *, require_stable: bool = False
) -> tuple[int, ErrorCode]:
    request = OffsetFetchRequest(
        require_stable=require_stable,
        groups=[
            OffsetFetchRequest.Group(
                group_id=group,
                topics=[OffsetFetchRequest.Topics(name=topic, partition_indexes=[partition])],
            )
        ],
    )
    found = raw.ask(request, 9).groups[0].topics[0].partitions[0]
    return found.committed_offset, ErrorCode.of(found.error_code)


def topic_partitions(names: Sequence[str]) -> list[TopicPartition]:
    return [TopicPartition(name, 0) for name in names]
