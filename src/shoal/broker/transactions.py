"""The transaction coordinators of this broker: one per partition of ``__transaction_state``.

Rule: how a coordinator is run is in ``coordinator_runtime.py``, what it decides in
``shoal.transaction``; here stands what its log holds, and what the broker's other parts ask.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from shoal.broker.config import TransactionSettings
from shoal.broker.coordinator_runtime import (
    CoordinatorRuntime,
    Coordinators,
    RuntimeParts,
    Ticket,
)
from shoal.broker.internal_log import end_offset, walk
from shoal.broker.partitions import Partition
from shoal.errors import CorruptDataError, ErrorCode, InvalidMessageError
from shoal.machine.decision import Caller
from shoal.records.batch import decode_batch, encode_batch, encode_single, iter_headers
from shoal.records.objects import decode_records
from shoal.transaction.coordinator import (
    TransactionConfig,
    TransactionCoordinator,
    TransactionEvent,
    refusal,
)
from shoal.transaction.journal import (
    TransactionLogRecord,
    TransactionRecord,
    decode,
    encode,
)
from shoal.transaction.requests import AddPartitions, MarkersWritten, VerifyPartitions, WriteMarkers
from shoal.types import TopicPartition

logger = logging.getLogger("shoal.broker.transactions")

TransactionRuntime = CoordinatorRuntime[
    TransactionCoordinator, TransactionLogRecord, TransactionEvent
]


RawFields = tuple[int, int, bytes | None, bytes | None, object]
"""Offset, timestamp, key, value and headers, as ``shoal.records`` gives them."""
_Latest = dict[bytes, tuple[int, bytes | None]]
"""Key → offset and value of its last record."""


class TransactionTopicFormat:
    """``__transaction_state``: what its batches hold, and the coordinators they make."""

    def __init__(
        self,
        config: TransactionConfig,
        new_producer_id: Callable[[], int | None],
        markers: Ticket,
    ) -> None:
        self._config = config
        self._new_producer_id = new_producer_id
        self._markers = markers

    def new_machine(self, number: int) -> TransactionCoordinator:
        del number
        return TransactionCoordinator(
            self._config, new_producer_id=self._new_producer_id, markers=self._markers
        )

    def batch(self, records: Sequence[TransactionLogRecord], now_ms: int) -> bytes:
        if len(records) == 1:
            return encode_single(*encode(records[0]), now_ms)
        return encode_batch([(key, value, (), now_ms) for key, value in map(encode, records)])

    def load(self, partition: Partition, machine: TransactionCoordinator) -> None:
        """Of each id the last record counts: only those are decoded."""
        latest: _Latest = {}
        walk(partition, lambda data: _gather(data, latest))
        for key, (offset, value) in latest.items():
            try:
                record = decode(key, value)
            except (InvalidMessageError, ValueError) as error:
                logger.error("a record of %s is lost: %s", partition.topic_partition, error)
                continue
            if record is not None:
                machine.replay(record, offset)

    def refusal(self, request: Any, error: ErrorCode, version: int) -> Any:
        del version
        return refusal(request, error)

    def tell(self, events: Sequence[TransactionEvent]) -> None:
        for event in events:
            # Clients choose their ids: as they are, they could write lines of their own.
            logger.info("transaction of %r %s", event.transactional_id, event.what)


def _gather(data: bytes, latest: _Latest) -> int:
    """Whole batches; returns the offset behind them."""
    try:
        _keep_latest(decode_records(("", 0, data, 0, None)), latest)
    except CorruptDataError:
        for position, header in iter_headers(data):
            try:
                if not header.is_control:
                    _keep_latest(decode_batch(data, position), latest)
            except CorruptDataError as error:
                logger.error("a batch of transactions is lost: %s", error)
    return end_offset(data)


def _keep_latest(records: Sequence[RawFields], latest: _Latest) -> None:
    for offset, _, key, value, _ in records:
        if key is not None:
            latest[key] = offset, value


class Reported:
    """A ticket that remembers what it was told, and tells whoever comes later."""

    __slots__ = ("_then", "code")

    def __init__(self) -> None:
        self.code: ErrorCode | None = None
        self._then: list[Callable[[ErrorCode], None]] = []

    def reply(self, response: ErrorCode) -> None:
        self.code = response
        for then in self._then:
            then(response)

    def when_told(self, then: Callable[[ErrorCode], None]) -> None:
        if self.code is None:
            self._then.append(then)
        else:
            then(self.code)


class _Nobody:
    """For requests of our own that are not answered."""

    def reply(self, response: Any) -> None: ...


NOBODY: Final = Caller(0, "", "", _Nobody())


class TransactionCoordinators(
    Coordinators[TransactionCoordinator, TransactionLogRecord, TransactionEvent]
):
    """Every transaction coordinator of this broker."""

    def __init__(
        self,
        settings: TransactionSettings,
        around: RuntimeParts,
        *,
        open_partition: Callable[[int], Partition | ErrorCode],
        new_producer_id: Callable[[], int | None],
        markers: Ticket,
        abort_unknown: Callable[[], None],
    ) -> None:
        self._abort_unknown = abort_unknown
        config = TransactionConfig(
            transaction_max_timeout_ms=settings.max_timeout_ms,
            transactional_id_expiration_ms=settings.id_expiration_ms,
            remove_expired_interval_ms=settings.remove_expired_interval_ms,
            two_phase_commit_enable=settings.two_phase_commit,
        )
        super().__init__(
            TransactionTopicFormat(config, new_producer_id, markers),
            around,
            count=settings.state_partitions,
            open_partition=open_partition,
        )

    def __len__(self) -> int:
        return sum(len(each.machine.records) for each in self.runtimes.values())

    @property
    def all_loaded(self) -> bool:
        return all(each.machine.is_active for each in self.runtimes.values())

    def loaded_again(self, runtime: TransactionRuntime) -> None:
        """Memory was ahead of the disk: what was added in it, and appended, is unknown now."""
        super().loaded_again(runtime)
        self._abort_unknown()

    def verify(self, request: VerifyPartitions) -> ErrorCode:
        """Whether something of a transaction may be appended, here and now."""
        runtime = self.runtime_of(request.transactional_id)
        if isinstance(runtime, ErrorCode):
            return runtime
        return runtime.machine.verify(request)

    def add(self, request: AddPartitions) -> Reported:
        """Make partitions part of a transaction; told when that is stored.

        It may count before: ``verify`` says so. What is appended meanwhile is aborted after a
        crash that takes the addition back, because no coordinator knows it then.
        """
        added = Reported()
        self.ask(request.transactional_id, request, Caller(0, "", "", added))
        return added

    def markers_written(self, order: WriteMarkers) -> None:
        done = MarkersWritten(order.transactional_id, order.producer_id, order.epoch)
        self.ask(order.transactional_id, done, NOBODY)

    def record(self, transactional_id: str) -> TransactionRecord | ErrorCode | None:
        """What is known of an id; None if nothing."""
        runtime = self.runtime_of(transactional_id)
        if isinstance(runtime, ErrorCode):
            return runtime
        if not runtime.machine.is_active:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return runtime.machine.record(transactional_id)

    def open_in(self, producer_id: int, partition: TopicPartition) -> TransactionRecord | None:
        """Whose transaction it is that is open, or being ended, in a partition. It looks at all."""
        for record in self.records():
            if record.producer_id == producer_id and partition in record.partitions:
                return None if record.state.is_idle else record
        return None

    def records(self) -> Iterator[TransactionRecord]:
        """Every id that is known."""
        for runtime in list(self.runtimes.values()):
            yield from runtime.machine.records
