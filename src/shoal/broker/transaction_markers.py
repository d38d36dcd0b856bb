"""Writes the markers that end transactions, and sees that every transaction gets them.

An order comes from a coordinator when its decision is stored. Its markers are appended at once, to
all partitions, and wait for one round of syncs; when all are stored the coordinator is told. What
cannot be written now is tried again, for as long as it takes: the decision stands. A partition
that was deleted needs none.

Rule: a transaction that is open in a partition has a coordinator that knows it, or is aborted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from shoal.broker.catalogue import OFFSETS_TOPIC
from shoal.broker.groups import Groups
from shoal.broker.partitions import Partition
from shoal.errors import ErrorCode
from shoal.log.durability import Syncer
from shoal.transaction.journal import TransactionRecord
from shoal.transaction.requests import TV2, WriteMarkers
from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition

logger = logging.getLogger("shoal.broker.transaction_markers")

_AGAIN_SECONDS: Final = 0.5
# There is nothing to end, or somebody newer has ended it.
_SETTLED: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)


class _Order:
    """One transaction's markers that are still to be stored."""

    __slots__ = ("left", "order")

    def __init__(self, order: WriteMarkers) -> None:
        self.order = order
        self.left = set(order.partitions)


class _Told:
    """The ticket of a marker in the log of a group coordinator."""

    __slots__ = ("_then",)

    def __init__(self, then: Callable[[ErrorCode], None]) -> None:
        self._then = then

    def reply(self, error: ErrorCode) -> None:
        self._then(error)


class MarkerWriter:
    """Takes orders as replies: it is the ticket that coordinators send them to."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        syncer: Syncer,
        now_ms: Callable[[], int],
        *,
        find: Callable[[TopicPartition], Partition | ErrorCode],
        groups: Callable[[], Groups],
        written: Callable[[WriteMarkers], None],
    ) -> None:
        self._loop = loop
        self._syncer = syncer
        self._now_ms = now_ms
        self._find = find
        self._groups = groups
        self._written = written
        self._orders: dict[tuple[str, int, int], _Order] = {}
        self._stopped = False

    def stop(self) -> None:
        """What is not written yet is ordered again at the next start."""
        self._stopped = True

    def reply(self, order: WriteMarkers | ErrorCode) -> None:
        """An order; or the news that its decision was not stored, and that there is none."""
        if isinstance(order, ErrorCode):
            return
        if not order.partitions:
            self._written(order)
            return
        key = order.transactional_id, order.producer_id, order.epoch
        if key in self._orders:
            return  # ordered again after a restart of its coordinator: it is under way
        pending = self._orders[key] = _Order(order)
        for partition in sorted(order.partitions):
            self._write(pending, partition)

    def _stored(self, pending: _Order, partition: TopicPartition) -> None:
        """One marker less; the last one is news for the coordinator, if one ordered them."""
        pending.left.discard(partition)
        if pending.left:
            return
        order = pending.order
        key = order.transactional_id, order.producer_id, order.epoch
        if self._orders.pop(key, None) is not None:
            self._written(order)

    def left(self, record: TransactionRecord) -> frozenset[TopicPartition]:
        """The partitions of a decided transaction whose marker is not stored yet."""
        pending = self._orders.get((record.transactional_id, record.producer_id, record.epoch))
        return record.partitions if pending is None else frozenset(pending.left)

    def _write(self, pending: _Order, topic_partition: TopicPartition) -> None:
        if self._stopped:
            return

        def then(error: ErrorCode) -> None:
            if error in _SETTLED:
                if error:
                    logger.warning(
                        "no marker of producer %d in %s: %s",
                        pending.order.producer_id,
                        topic_partition,
                        error.name,
                    )
                self._stored(pending, topic_partition)
                return
            self._loop.call_later(_AGAIN_SECONDS, self._write, pending, topic_partition)

        order = pending.order
        self.write_one(
            topic_partition,
            order.producer_id,
            order.epoch,
            commit=order.commit,
            transaction_version=order.client_version,
            then=then,
        )

    def write_one(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        transaction_version: int = 0,
        coordinator_epoch: int | None = None,
        then: Callable[[ErrorCode], None],
    ) -> None:
        """One marker; ``then`` is called when it is stored, or with what went wrong."""
        partition = self._find(topic_partition)
        if isinstance(partition, ErrorCode):
            then(partition)
            return
        log = partition.log
        if coordinator_epoch is None:
            # There is one coordinator, and it is the newest, whatever an older one wrote here.
            known = log.producers.entries.get(producer_id)
            coordinator_epoch = max(0, known.coordinator_epoch) if known is not None else 0
        if topic_partition.topic == OFFSETS_TOPIC:
            fault = log.producers.check_marker(
                producer_id, epoch, coordinator_epoch, transaction_version
            )
            if fault is not None:
                then(fault)
                return
            # One writer owns that partition, and its memory follows its log (KAFKA-14505, 17507).
            self._groups().end_transaction(
                topic_partition.partition, producer_id, epoch, commit=commit, ticket=_Told(then)
            )
            return
        result = partition.append_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            transaction_version=transaction_version,
            now_ms=self._now_ms(),
        )
        if result.error:
            then(result.error)
            return
        self._syncer.register(partition.log, result.end_offset, then)

    def abort_unknown(
        self, partitions: Iterable[Partition], known: Iterable[TransactionRecord]
    ) -> int:
        """End what is open and in no coordinator's books; how many there were.

        A crash may take the record of an addition and leave the data that came after it.
        """
        books = {
            (record.producer_id, epoch, partition)
            for record in known
            for epoch in _epochs_of_data(record)
            for partition in record.partitions
        }
        count = 0
        for partition in partitions:
            for found in partition.log.open_transactions():
                producer_id, epoch = found.producer_id, found.producer_epoch
                if (producer_id, epoch, partition.topic_partition) in books:
                    continue
                count += 1
                where = partition.topic_partition
                logger.warning(
                    "aborting the transaction of producer %d in %s: no coordinator knows it",
                    producer_id,
                    where,
                )
                if where.topic != OFFSETS_TOPIC:
                    # What its producer sends again would be taken for what is aborted here, and
                    # acknowledged. (Offsets have no sequence: they are staged again.)
                    epoch += 1
                order = WriteMarkers("", producer_id, epoch, False, frozenset({where}), 0)
                self._write(_Order(order), where)
        return count


def _epochs_of_data(record: TransactionRecord) -> tuple[int, ...]:
    """Which epochs the batches of its transaction have, if there is one."""
    if record.state is TransactionState.ONGOING:
        return (record.epoch,)
    if not record.state.is_prepared:
        return ()
    if record.client_version >= TV2:
        # A batch with the epoch of the decision belongs to the transaction after it. A crash may
        # have taken the record that began that one, and Complete* of this one before it.
        return (record.epoch - 1,)
    # The coordinator's own aborts have a new epoch in the old flow, too.
    return (record.epoch, record.epoch - 1)
