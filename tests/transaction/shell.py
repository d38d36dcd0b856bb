"""A shell around the coordinator: appends, replays, keeps replies, and writes markers when told."""

from __future__ import annotations

from itertools import count
from typing import Any

from shoal.errors import ErrorCode
from shoal.machine.decision import Caller
from shoal.transaction.coordinator import (
    TransactionConfig,
    TransactionCoordinator,
    TransactionDecision,
)
from shoal.transaction.journal import TransactionLogRecord, TransactionRecord, decode, encode
from shoal.transaction.requests import TV0, TV2, AddPartitions, MarkersWritten, WriteMarkers
from shoal.transaction.states import TransactionState
from shoal.types import TopicPartition
from shoal.wire.apis.end_txn import EndTxnRequest, EndTxnResponse
from shoal.wire.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

START_MS = 1_700_000_000_000
TP = TopicPartition("orders", 0)


class Shell:
    """``markers_at_once`` writes markers as soon as they are ordered."""

    def __init__(
        self,
        records: list[TransactionLogRecord] | None = None,
        *,
        markers_at_once: bool = True,
        producer_ids: list[int] | None = None,
        config: TransactionConfig | None = None,
    ) -> None:
        self.records: list[TransactionLogRecord] = list(records or ())
        self.now_ms = START_MS
        self.replies: dict[Any, Any] = {}
        self.orders: list[WriteMarkers] = []
        self.markers_at_once = markers_at_once
        self.fail_appends_with: ErrorCode | None = None
        self._tickets = count(1)
        self._ids = iter(range(1_000, 9_000)) if producer_ids is None else iter(producer_ids)
        self.coordinator = TransactionCoordinator(
            config or TransactionConfig(),
            new_producer_id=lambda: next(self._ids, None),
            markers="markers",
        )
        for offset, record in enumerate(self.records):
            self.coordinator.replay(record, offset)
        self.obey(self.coordinator.loaded(self.now_ms))

    def obey(self, decision: TransactionDecision) -> None:
        if decision.journal and self.fail_appends_with is not None:
            decision = self.coordinator.append_failed(decision, self.fail_appends_with, self.now_ms)
            assert not decision.journal
        elif decision.journal:
            self.coordinator.replay_all(decision.journal, len(self.records))
            self.records += [through_bytes(record) for record in decision.journal]
        ordered = []
        for reply in decision.replies:
            if reply.ticket == "markers":
                ordered.append(reply.response)
            else:
                assert reply.ticket not in self.replies, "one answer for each"
                self.replies[reply.ticket] = reply.response
        self.orders += ordered
        if self.markers_at_once:
            for order in ordered:
                self.written(order)
        self.tick()

    def written(self, order: WriteMarkers) -> None:
        done = MarkersWritten(order.transactional_id, order.producer_id, order.epoch)
        self.obey(self.coordinator.handle(done, Caller(0, "", "", "nobody"), self.now_ms))

    def tick(self) -> None:
        while (due := self.coordinator.next_deadline()) is not None and due <= self.now_ms:
            self.obey(self.coordinator.tick(self.now_ms))

    def advance(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while (due := self.coordinator.next_deadline()) is not None and due <= end_ms:
            self.now_ms = max(self.now_ms, due)
            self.tick()
        self.now_ms = end_ms

    # --- requests --------------------------------------------------------------------------------

    def send(self, request: Any, version: int = 5) -> int:
        ticket = next(self._tickets)
        caller = Caller(version, "c", "/127.0.0.1", ticket)
        self.obey(self.coordinator.handle(request, caller, self.now_ms))
        return ticket

    def ask(self, request: Any, version: int = 5) -> Any:
        return self.replies[self.send(request, version)]

    def init(
        self, name: str = "t", expected: tuple[int, int] = (-1, -1), **given: Any
    ) -> InitProducerIdResponse:
        answer = self.ask(init(name, expected, **given))
        assert isinstance(answer, InitProducerIdResponse)
        return answer

    def add(self, producer: tuple[int, int], *partitions: TopicPartition, tv: int = TV0) -> Any:
        return self.ask(add(producer, *partitions, tv=tv))

    def end(
        self, producer: tuple[int, int], *, commit: bool, version: int = 4, name: str = "t"
    ) -> EndTxnResponse:
        answer = self.ask(end(producer, commit=commit, name=name), version)
        assert isinstance(answer, EndTxnResponse)
        return answer

    def record(self, name: str = "t") -> TransactionRecord:
        found = self.coordinator.record(name)
        assert found is not None
        return found

    def state(self, name: str = "t") -> TransactionState:
        return self.record(name).state

    def rebuilt(self) -> Shell:
        """What a restart finds."""
        return Shell(self.records, markers_at_once=False)


def through_bytes(record: TransactionLogRecord) -> TransactionLogRecord:
    again = decode(*encode(record))
    assert again is not None
    return again


def init(
    name: str = "t", expected: tuple[int, int] = (-1, -1), timeout_ms: int = 60_000
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=name,
        transaction_timeout_ms=timeout_ms,
        producer_id=expected[0],
        producer_epoch=expected[1],
    )


def add(
    producer: tuple[int, int], *partitions: TopicPartition, tv: int = TV0, name: str = "t"
) -> AddPartitions:
    return AddPartitions(name, *producer, frozenset(partitions or (TP,)), tv)


def end(producer: tuple[int, int], *, commit: bool, name: str = "t") -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=commit,
    )


__all__ = ["START_MS", "TP", "TV0", "TV2", "Shell", "add", "end", "init", "through_bytes"]
