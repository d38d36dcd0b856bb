"""May a producer's transactional batches be appended? The transaction's coordinator says so.

Asking and appending are one step here: nothing happens between the coordinator's yes and the
append, so no transaction can end in between. Clients of the old flow announce their partitions,
and are asked about (verified); a batch of the new flow (Produce v12) adds its partition. The
addition and the batch are then stored in one round: a crash that keeps the batch alone leaves an
open transaction that no coordinator knows, and that is aborted at the next start.

Rule: no transactional batch gets to the log without an ``Admission``.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from shoal.errors import ErrorCode
from shoal.records.batch import HEADER_SIZE
from shoal.transaction.requests import TV0, TV2, AddPartitions, VerifyPartitions
from shoal.types import TopicPartition
from shoal.wire.apis.produce import ProduceRequest

if TYPE_CHECKING:
    from asyncio import Future

    from shoal.broker.broker import Broker
    from shoal.broker.partitions import Partition
    from shoal.broker.transactions import Reported

_ADDS_FROM: Final = 12
_ABORTABLE_FROM: Final = 11
# Of a batch's header: producer id and epoch, and where they stand.
_PRODUCER: Final = Struct(">qh")
_PRODUCER_FROM: Final = 43

_RETRIABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)

Producer = tuple[int, int]
"""Id and epoch."""


def is_transactional(records: bytes | bytearray | memoryview | None) -> bool:
    """Is this batch part of a transaction?"""
    return records is not None and len(records) >= HEADER_SIZE and records[22] & 0x10 != 0


def _producer(records: bytes | bytearray | memoryview) -> Producer:
    producer_id, epoch = _PRODUCER.unpack_from(records, _PRODUCER_FROM)
    return producer_id, epoch


def admission_for(
    broker: Broker, request: ProduceRequest, version: int
) -> Admission | ErrorCode | None:
    """What a request's batches need; None if no transaction is about, or why there can be none."""
    found = {
        _producer(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None and is_transactional(data.records)
    }
    if not found:
        return None
    if request.transactional_id is None:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if len(found) > 1:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return Admission(broker, request.transactional_id, found.pop(), version)


def known_version(
    broker: Broker,
    transactional_id: str | None,
    records: memoryview,
    partition: Partition,
    version: int,
) -> int | None:
    """The version of the transaction that a batch goes on with, if nothing needs to be added.

    None: an ``Admission`` says what is to be done with it. To be asked right before the append.
    """
    if transactional_id is None:
        return None
    question = VerifyPartitions(
        transactional_id, *_producer(records), frozenset({partition.topic_partition})
    )
    if broker.transactions.verify(question):
        return None
    return TV2 if version >= _ADDS_FROM else TV0


class Admission:
    """One request's way past the coordinator."""

    __slots__ = ("_broker", "_name", "_producer", "_version", "added", "transaction_version")

    def __init__(
        self, broker: Broker, transactional_id: str, producer: Producer, version: int
    ) -> None:
        self._broker = broker
        self._name = transactional_id
        self._producer = producer
        self._version = version
        adds = version >= _ADDS_FROM
        self.transaction_version = TV2 if adds else TV0
        self.added: Reported | None = None
        """Of a request that adds: told when the addition is stored, or refused."""

    def ask(self, partitions: frozenset[TopicPartition]) -> bool:
        """False: the answer comes later, through ``added``; what ``fault`` says counts then."""
        if self._version < _ADDS_FROM or self._verdict(partitions) is ErrorCode.NONE:
            return True
        self.added = self._broker.transactions.add(
            AddPartitions(self._name, *self._producer, partitions, TV2)
        )
        return self.added.code is not None or self._verdict(partitions) is ErrorCode.NONE

    def _verdict(self, partitions: frozenset[TopicPartition]) -> ErrorCode:
        return self._broker.transactions.verify(
            VerifyPartitions(self._name, *self._producer, partitions)
        )

    async def wait(self) -> None:
        """Until the coordinator has answered."""
        if self.added is None:
            return
        answered: Future[None] = self._broker.loop.create_future()

        def told(_: ErrorCode) -> None:
            if not answered.done():
                answered.set_result(None)

        self.added.when_told(told)
        await answered

    def fault(self, partition: TopicPartition) -> ErrorCode:
        """Why this partition takes no batch of the transaction. To be asked right before it."""
        if self.added is not None and self.added.code:
            error = self.added.code
        else:
            error = self._verdict(frozenset({partition}))
        if error is ErrorCode.INVALID_PRODUCER_ID_MAPPING and self._is_fenced(partition):
            # Its epochs were used up when it was fenced, and the id has another producer id now.
            error = ErrorCode.PRODUCER_FENCED
        return self.told(error)

    def _is_fenced(self, partition: TopicPartition) -> bool:
        """Whether the partition itself knows a later epoch, by a marker."""
        log = self._broker.directory.partitions.get(partition)
        entry = None if log is None else log.producers.entries.get(self._producer[0])
        return entry is not None and entry.epoch > self._producer[1]

    def told(self, error: ErrorCode) -> ErrorCode:
        """What a coordinator says, in words that producers of this version know."""
        if error is ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if error in _RETRIABLE or (
            error is ErrorCode.CONCURRENT_TRANSACTIONS and self._version < _ADDS_FROM
        ):
            # Retriable everywhere, and no reason to look for another leader (KAFKA-15459).
            return ErrorCode.NOT_ENOUGH_REPLICAS
        if error is ErrorCode.TRANSACTION_ABORTABLE and self._version < _ABORTABLE_FROM:
            return ErrorCode.INVALID_TXN_STATE
        return error
