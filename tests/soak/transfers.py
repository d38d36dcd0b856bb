"""Tokens that transactional clients move from partition to partition, as a load.

Some movers follow the new flow of transactions, some the old one, all in one group: whoever has a
partition moves its tokens on, with its offsets in the same transaction. Some transfers are aborted,
some transactional ids are taken over while their owner is in the middle of one.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from typing import Any

from shoal import Consumer, OffsetAndMetadata, Producer, TopicPartition
from shoal.errors import (
    ConnectionFailedError,
    RequestTimeoutError,
    ShoalError,
    TransactionAbortableError,
    TransactionFatalError,
)
from shoal.testing.simulation.simulated_producer import OlderCluster
from tests.soak.transfer_history import Hop, TransferHistory

TOKENS = 24
_AT_ONCE = 8
_ABORTED = 0.1
_TAKEN_OVER = 0.03
_TIMEOUT_MS = 10_000
_PATIENCE_S = 90.0


class TransferLoad:
    """Five movers in a group."""

    topic, group = "transfers", "movers"

    def __init__(self, servers: str, partitions: int, *, movers: int = 3, old: int = 2) -> None:
        self.history = TransferHistory()
        self.partitions = partitions
        self._moving = threading.Event()
        self._moving.set()
        self._failures: list[BaseException] = []
        with Producer(bootstrap_servers=servers) as producer:
            for number in range(TOKENS):
                value = Hop(f"token{number}", 0, "start").value
                producer.send(self.topic, value, partition=number % partitions)
            producer.flush(60)
        kinds: list[Any] = [_Mover] * movers + [_OldMover] * old
        self._threads = [
            threading.Thread(
                target=self._guarded,
                args=(kind, servers, f"mover{number}"),
                name=f"{kind.__name__}{number}",
                daemon=True,
            )
            for number, kind in enumerate(kinds)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, kind: Any, servers: str, name: str) -> None:
        try:
            mover = kind(self, servers, name)
            while self._moving.is_set():
                mover.step()
            mover.close()
        except BaseException as error:
            self._failures.append(error)

    def finish(self) -> None:
        self._moving.clear()
        for thread in self._threads:
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), f"{thread.name} does not finish: {_standing(thread)}"
        if self._failures:
            raise self._failures[0]

    def kill(self) -> None:
        """The threads end with the process."""
        self._moving.clear()

    def judge(self, servers: str) -> tuple[list[str], dict[str, int]]:
        log = self._readable(servers)
        told = list(self.history.told.values())
        counts = {
            "committed": told.count(True),
            "aborted": told.count(False),
            "unknown": len(self.history.written) - len(told),
            "read": len(self.history.read),
            "log": sum(len(records) for records in log.values()),
        }
        return self.history.anomalies(log), counts

    def _readable(self, servers: str) -> dict[int, dict[int, Hop]]:
        """What a reader of committed records finds; nothing may be open for longer than it may."""
        tps = [TopicPartition(self.topic, number) for number in range(self.partitions)]
        with (
            Consumer(bootstrap_servers=servers, isolation_level="read_committed") as reader,
            Consumer(bootstrap_servers=servers) as other,
        ):
            deadline = time.monotonic() + _PATIENCE_S
            while (stable := reader.end_offsets(tps)) != (ends := other.end_offsets(tps)):
                assert time.monotonic() < deadline, f"a transaction hangs: {stable}, not {ends}"
                time.sleep(0.1)
            reader.assign(tps)
            reader.seek_to_beginning()
            log: dict[int, dict[int, Hop]] = {number: {} for number in range(self.partitions)}
            while any(reader.position(tp) < ends[tp] for tp in tps):
                assert time.monotonic() < deadline, "the log cannot be read to its end"
                for record in reader.poll(0.5):
                    log[record.partition][record.offset] = Hop.of(record.value)
        return log


class _Mover:
    """One member of the group with a transactional id; ``step`` moves some tokens."""

    def __init__(self, load: TransferLoad, servers: str, name: str) -> None:
        self._load = load
        self._servers = servers
        self._name = name
        self._count = 0
        self._dice = random.Random(name)
        self._producer = self._new_producer()
        self._consumer = Consumer(
            bootstrap_servers=servers,
            group_id=load.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        self._consumer.subscribe([load.topic])

    def _new_producer(self) -> Producer:
        producer = Producer(
            bootstrap_servers=self._servers,
            transactional_id=self._name,
            transaction_timeout_ms=_TIMEOUT_MS,
            max_block_ms=30_000,
        )
        _until_known(producer.init_transactions)
        return producer

    def _next(self, records: list[tuple[int, int, bytes]]) -> tuple[str, list[Hop]]:
        """A name for a transaction, and what it has to write."""
        history = self._load.history
        self._count += 1
        name = f"{self._name}.{self._count}"
        read = [((partition, offset), Hop.of(value)) for partition, offset, value in records]
        history.read += read
        history.read_by[name] = read
        hops = [Hop(hop.token, hop.number + 1, name) for _, hop in read]
        history.written[name] = hops
        return name, hops

    def _wants_to_commit(self, name: str) -> bool:
        if self._dice.random() < _ABORTED:
            return False
        self._load.history.asked.add(name)
        return True

    def step(self) -> None:
        try:
            records = self._consumer.poll(0.2, max_records=_AT_ONCE)
        except ShoalError:
            return
        if not records:
            return
        group = self._consumer.group_metadata()
        if self._move([(r.partition, r.offset, r.value) for r in records], group):
            return
        first: dict[TopicPartition, int] = {}
        for record in records:
            tp = TopicPartition(record.topic, record.partition)
            first.setdefault(tp, record.offset)
        for tp in first.keys() & self._consumer.assignment():
            self._consumer.seek(tp, first[tp])

    def _move(self, records: list[tuple[int, int, bytes]], group: Any) -> bool:
        """Whether it is committed; if not, the records are to be read again."""
        load, producer = self._load, self._producer
        name, hops = self._next(records)
        behind = {
            TopicPartition(load.topic, partition): OffsetAndMetadata(offset + 1)
            for partition, offset, _ in records
        }
        try:
            producer.begin_transaction()
            for hop in hops:
                producer.send(
                    load.topic, hop.value, partition=self._dice.randrange(load.partitions)
                )
            producer.send_offsets_to_transaction(behind, group)
            if self._dice.random() < _TAKEN_OVER:
                self._producer = self._new_producer()  # what follows is a zombie's
            if self._wants_to_commit(name):
                _until_known(producer.commit_transaction)
                load.history.told[name] = True
                return True
            _until_known(producer.abort_transaction)
        except (TransactionAbortableError, RequestTimeoutError):
            if not self._abort(producer):
                return False
        except TransactionFatalError:
            # Whether a commit that was asked for took effect is not known, and may not be.
            self._renew(producer)
            return False
        finally:
            if producer is not self._producer:
                producer.close(5)
        load.history.told[name] = False
        return False

    def _abort(self, producer: Producer) -> bool:
        try:
            _until_known(producer.abort_transaction)
        except TransactionFatalError:
            self._renew(producer)
            return False
        return True

    def _renew(self, producer: Producer) -> None:
        if producer is self._producer:
            self._producer = self._new_producer()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


def _standing(thread: threading.Thread) -> list[str]:
    """Where a thread is, the innermost place last."""
    frame = sys._current_frames().get(thread.ident or 0)
    return [] if frame is None else traceback.format_stack(frame)[-8:]


def _until_known(call: Any) -> None:
    """As the documentation says: a call whose outcome is not known is made again."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            call()
            return
        except (RequestTimeoutError, ConnectionFailedError):
            assert time.monotonic() < deadline, f"{call} never ends"


class _OldMover(_Mover):
    """In the old flow, as clients that add partitions by requests of their own."""

    def _new_producer(self) -> Producer:
        producer = super()._new_producer()
        producer._cluster.__class__ = OlderCluster
        return producer
