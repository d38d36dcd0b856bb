"""The partitions this broker serves: a log each, opened or created when first used.

Rule: a topic exists when the catalogue says so; its logs follow. A partition without a log is an
empty partition, and its log is made by the first request that needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

from shoal.broker.catalogue import INTERNAL_TOPICS, Catalogue, Topic
from shoal.broker.counters import Counters
from shoal.broker.waiting import WaitingRoom
from shoal.errors import ErrorCode
from shoal.log.config import LogConfig
from shoal.log.directory import LogDirectory
from shoal.log.durability import Syncer
from shoal.log.partition import AppendResult, Origin, PartitionLog
from shoal.log.validation import Checked, Refusal
from shoal.records.markers import MARKER_SIZE
from shoal.records.vetting import Facts
from shoal.types import TopicPartition

logger = logging.getLogger("shoal.broker.partitions")


class Partition:
    """A log and what the broker keeps beside it."""

    __slots__ = (
        "_arrived",
        "_counters",
        "_stable",
        "_waiting",
        "appended_batches",
        "appended_bytes",
        "end_at_first",
        "fetched_bytes",
        "fetches",
        "log",
        "refused_batches",
        "topic_partition",
    )

    def __init__(self, log: PartitionLog, waiting: WaitingRoom, counters: Counters) -> None:
        self.log = log
        self.topic_partition = log.topic_partition
        self._waiting = waiting
        self._counters = counters
        # Since it was opened.
        self.appended_bytes = self.appended_batches = self.refused_batches = 0
        self.fetched_bytes = self.fetches = 0
        self.end_at_first = log.end_offset
        # Bytes appended that nobody may read yet.
        self._arrived = 0
        # Where readers of committed records were last told to stop; None: at the end of all that
        # can be seen.
        stable = log.last_stable_offset
        self._stable = stable if stable < log.high_watermark else None
        log.on_advance = self._on_advance

    def append(
        self,
        data: bytes | bytearray | memoryview,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        facts: Facts | Refusal | Checked | None = None,
        transaction_version: int | None = None,
    ) -> AppendResult:
        self._arrived += len(data)
        result = self.log.append(
            data,
            now_ms=now_ms,
            origin=origin,
            facts=facts,
            transaction_version=transaction_version,
        )
        self._note(len(data), result, now_ms)
        return result

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """End a producer's transaction here: ``PartitionLog.append_marker``."""
        self._arrived += MARKER_SIZE
        result = self.log.append_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            commit=commit,
            transaction_version=transaction_version,
            now_ms=now_ms,
        )
        self._note(MARKER_SIZE, result, now_ms)
        return result

    def append_run(self, run: Sequence[memoryview], now_ms: int) -> list[AppendResult]:
        """Several batches of clients, in one write if that is possible."""
        self._arrived += sum(map(len, run))
        results = self.log.append_run(run, now_ms)
        for data, result in zip(run, results, strict=True):
            self._note(len(data), result, now_ms)
        return results

    def _note(self, size: int, result: AppendResult, now_ms: int) -> None:
        if result.error or result.duplicate:
            self._arrived = max(0, self._arrived - size)
            if result.error:
                self.refused_batches += 1
            failed = result.error is ErrorCode.KAFKA_STORAGE_ERROR
            if failed and self._counters.may_complain(now_ms):
                logger.error("cannot store records of %s: %s", self.topic_partition, result.detail)
        else:
            self._counters.batches_appended += 1
            self._counters.records_bytes_appended += size
            self.appended_bytes += size
            self.appended_batches += 1

    def _on_advance(self, log: PartitionLog) -> None:
        if log.closed:
            return
        if log.fenced is not None:
            logger.error("%s takes no more records: %s", self.topic_partition, log.fenced)
            self._waiting.disturb(self.topic_partition)
            return
        arrived, self._arrived = self._arrived, 0
        stable = arrived
        if log.producers.has_undecided or self._stable is not None:
            stable = self._stable_bytes(arrived)
        self._waiting.arrived(self.topic_partition, arrived, stable)

    def _stable_bytes(self, arrived: int) -> int:
        """How many bytes became stable since it was last asked, now that so many are visible."""
        log, before = self.log, self._stable
        stable = log.last_stable_offset
        self._stable = stable if stable < log.high_watermark else None
        if not self._waiting.awaits_stable(self.topic_partition):
            return 0  # to look up where bytes lie costs reads, and nobody counts
        if before is None:
            if self._stable is None:
                return arrived
            unstable = log.size_between(stable, log.high_watermark)
            return max(0, arrived - unstable)
        return log.size_between(before, stable) if stable > before else 0


def strict_epoch_fault(partition: Partition | None, current_leader_epoch: int) -> ErrorCode:
    """As ``epoch_fault``, where Kafka takes -1 alone for "I do not know" and not all below zero."""
    if current_leader_epoch < -1:
        return ErrorCode.FENCED_LEADER_EPOCH
    return epoch_fault(partition, current_leader_epoch)


def epoch_fault(partition: Partition | None, current_leader_epoch: int) -> ErrorCode:
    """A client that knows another leader epoch has old metadata, or newer than ours."""
    epoch = partition.log.leader_epoch if partition is not None else 0
    if current_leader_epoch < 0 or current_leader_epoch == epoch:
        return ErrorCode.NONE
    if current_leader_epoch < epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


class Partitions:
    """All partitions, by topic and number."""

    def __init__(
        self,
        directory: LogDirectory,
        catalogue: Catalogue,
        syncer: Syncer,
        waiting: WaitingRoom,
        counters: Counters,
        *,
        now_ms: Callable[[], int],
        in_background: Callable[[Callable[[], object]], None],
    ) -> None:
        self.directory = directory
        self._catalogue = catalogue
        self._syncer = syncer
        self._waiting = waiting
        self._counters = counters
        self._now_ms = now_ms
        self._in_background = in_background
        self._open: dict[tuple[str, int], Partition] = {}
        # Deleted, their directories still in place; and moved away, not removed yet.
        self._dropped: dict[TopicPartition, None] = {}
        self._buried: list[str] = []
        for log in directory.partitions.values():
            self._adopt(log)

    @property
    def root(self) -> str:
        return self.directory.disk.root

    def disk_space(self) -> tuple[int, int]:
        """(total, usable) bytes of the file system."""
        return self.directory.disk.total_bytes(), self.directory.disk.free_bytes()

    def _adopt(self, log: PartitionLog) -> Partition:
        partition = Partition(log, self._waiting, self._counters)
        self._open[log.topic_partition] = partition
        return partition

    def opened(self, name: str, index: int) -> Partition | None:
        """A partition that was used before; None says nothing."""
        return self._open.get((name, index))

    def all_open(self) -> list[Partition]:
        """Every partition that was used."""
        return list(self._open.values())

    def find(self, topic: Topic, index: int) -> Partition | ErrorCode | None:
        """The partition, why it cannot be served, or None if nothing was ever written to it.

        Reading makes no log: a consumer of a thousand empty partitions must cost nothing.
        """
        found = self._open.get((topic.name, index))
        if found is not None:
            return found
        if not 0 <= index < topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic.name, index) in self.directory.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

    def get(self, topic: Topic, index: int) -> Partition | ErrorCode:
        """The partition, made if it was never used, or why it cannot be served."""
        found = self.find(topic, index)
        if found is not None:
            return found
        topic_partition = TopicPartition(topic.name, index)
        if topic_partition in self._dropped:
            self._bury(topic_partition)
        try:
            log = self.directory.create(
                topic_partition,
                now_ms=self._now_ms(),
                config=self._log_config(topic),
                topic_id=UUID(bytes=topic.id),
            )
        except OSError as error:
            if self._counters.may_complain(self._now_ms()):
                logger.error("cannot store records of %s: %s", topic_partition, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return self._adopt(log)

    def config_of(self, topic: Topic, index: int) -> LogConfig:
        """How a partition's log is kept, or would be."""
        found = self._open.get((topic.name, index))
        return found.log.config if found is not None else self._log_config(topic)

    def leader_epoch(self, name: str, index: int) -> int:
        """Without making a log: a partition nobody used yet is in its first epoch."""
        found = self._open.get((name, index))
        return found.log.leader_epoch if found is not None else 0

    def reopen(self, partition: Partition) -> Partition:
        """Open a fenced log again; it is scanned again from where it was surely stored."""
        log = self.directory.reopen(partition.topic_partition, now_ms=self._now_ms())
        return self._adopt(log)

    def _log_config(self, topic: Topic) -> LogConfig:
        return log_config(self._catalogue, topic)

    def reconfigure(self, topic: Topic | None = None) -> None:
        """Topic (or, without one, broker) configurations changed: tell the open logs."""
        for (name, _), partition in self._open.items():
            owner = self._catalogue.get(name)
            if owner is not None and topic in (None, owner):
                partition.log.config = self._log_config(owner)

    def delete(self, topic: Topic) -> None:
        """Take a deleted topic's logs out of use; ``clear_away`` does the rest."""
        keys = [(topic.name, index) for index in range(topic.partition_count)]
        self._drop([self._open.pop(key) for key in keys if key in self._open])

    def _drop(self, partitions: list[Partition]) -> None:
        for partition in partitions:
            self._syncer.forget(partition.log)
            self.directory.take_out(partition.topic_partition)
            self._dropped[partition.topic_partition] = None
            self._waiting.disturb(partition.topic_partition)

    def clear_away(self) -> Iterator[None]:
        """Move away the files of deleted topics, with pauses; they are removed in the background.

        Should somebody need the place of one before its turn, ``get`` moves that one first.
        """
        while self._dropped:
            self._bury(next(iter(self._dropped)))
            yield
        if self._buried:
            self._in_background(self.directory.removal(self._buried))
            self._buried = []

    def _bury(self, topic_partition: TopicPartition) -> None:
        del self._dropped[topic_partition]
        try:
            self._buried.append(self.directory.bury(topic_partition))
        except OSError as error:
            logger.error("cannot delete %s: %s", topic_partition, error)

    def drop_strangers(self) -> None:
        """Remove logs of topics that were deleted just before a crash, or recreated since."""
        strangers = []
        for key, partition in list(self._open.items()):
            topic = self._catalogue.get(key[0])
            log_id = partition.log.topic_id
            is_ours = topic is not None and (log_id is None or log_id.bytes == topic.id)
            if is_ours or key[0] in INTERNAL_TOPICS:
                continue
            logger.warning("removing %s: its topic was deleted", partition.topic_partition)
            del self._open[key]
            strangers.append(partition)
        self._drop(strangers)
        for _ in self.clear_away():
            pass


def log_config(catalogue: Catalogue, topic: Topic) -> LogConfig:
    """The log's settings out of Kafka's names; what the log does not use it does not get."""
    known = LogConfig().to_properties()
    return LogConfig.from_properties({name: catalogue.config(topic, name) for name in known})
