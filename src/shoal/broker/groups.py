"""The group coordinators of this broker: one per partition of ``__consumer_offsets``.

Rule: how a coordinator is run is in ``coordinator_runtime.py``; here stands what its log holds,
and what the broker's other parts tell all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from struct import Struct
from typing import TYPE_CHECKING, Any

from shoal.assign.server import SERVER_ASSIGNORS
from shoal.broker.broker_configs import ASSIGNOR, WEIGHTS, weights_of
from shoal.broker.catalogue import OFFSETS_TOPIC, Catalogue, Topic
from shoal.broker.config import GroupSettings
from shoal.broker.connection import ClientConnection
from shoal.broker.coordinator_runtime import CoordinatorRuntime, Coordinators, RuntimeParts, Ticket
from shoal.broker.internal_log import walk
from shoal.broker.partitions import Partition
from shoal.errors import CorruptDataError, ErrorCode
from shoal.group.coordinator.cluster_image import NO_OVERRIDES, ClusterImage, ImageTopic
from shoal.group.coordinator.config import (
    ConsumerGroupConfig,
    CoordinatorAssignor,
    GroupConfig,
    MigrationPolicy,
    OutsideAssignor,
)
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.decision import EventKind, GroupEvent
from shoal.group.coordinator.journal import (
    JournalRecord,
    TransactionMarker,
    encode,
    producer_of,
)
from shoal.group.coordinator.journal_loading import Loader
from shoal.group.coordinator.offset_store import OffsetStore
from shoal.group.coordinator.refusals import refusal
from shoal.group.coordinator.target_orders import TargetAnswer, TargetOrder
from shoal.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    decode_batch,
    encode_batch,
    iter_headers,
    read_header,
)
from shoal.records.markers import encode_marker, is_abort_marker
from shoal.records.objects import decode_records
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.broker.assignor_orders import AssignorOrders
    from shoal.broker.assignor_process import AssignorProcess
    from shoal.broker.rebalance_counts import RebalanceCounts

logger = logging.getLogger("shoal.broker.groups")

_TOMBSTONES_AT_ONCE = 200
# States in which a group of the consumer protocol has nothing more to hand over.
_SETTLED = frozenset({"Stable", "Empty", "Dead"})
# Of a batch's header. A journal may consist of a million batches of one commit each.
_SIZE_AND_ATTRIBUTES = Struct(">8x i 9x h")
# The bits of a transaction and of its end.
_OF_TRANSACTIONS = 0x30

GroupRuntime = CoordinatorRuntime[Coordinator, JournalRecord, GroupEvent]


class OffsetsTopicFormat:
    """``__consumer_offsets``: what its batches hold, and the coordinators they make."""

    def __init__(
        self,
        config: GroupConfig,
        image: ClusterImage,
        assignors: AssignorOrders | None,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._image = image
        self._assignors = assignors
        self._new_id = new_id
        self.rebalances: RebalanceCounts | None = None

    def new_machine(self, number: int) -> Coordinator:
        return Coordinator(
            self._config,
            new_id=self._new_id,
            partition=number,
            image=self._image,
            assignors=self._assignors,
        )

    def batch(self, records: Sequence[JournalRecord], now_ms: int) -> bytes:
        first = records[0]
        if isinstance(first, TransactionMarker):
            assert len(records) == 1
            return encode_marker(
                commit=first.commit,
                producer_id=first.producer_id,
                producer_epoch=first.producer_epoch,
                timestamp_ms=now_ms,
            )
        producer = producer_of(records)
        return encode_batch(
            [(key, value, (), now_ms) for key, value in map(encode, records)],
            producer_id=-1 if producer is None else producer[0],
            producer_epoch=-1 if producer is None else producer[1],
            is_transactional=producer is not None,
        )

    def load(self, partition: Partition, machine: Coordinator) -> None:
        loader = Loader(machine.replay)
        walk(partition, lambda data: _feed(loader, data))
        loader.flush()

    def refusal(self, request: Any, error: ErrorCode, version: int) -> Any:
        return refusal(request, error, version)

    def tell(self, events: Sequence[GroupEvent]) -> None:
        if self.rebalances is not None:
            self.rebalances.told(events)
        for event in events:
            # Clients choose ids and causes: as they are, they could write lines of their own.
            level = logging.WARNING if event.kind is EventKind.ASSIGNOR_FAILED else logging.INFO
            logger.log(
                level,
                "group %r generation %d: %s (%s)%s",
                event.group_id,
                event.generation,
                event.kind.value,
                _printable(event.cause),
                f" {event.member_id!r}" if event.member_id else "",
            )


def _printable(text: str) -> str:
    """Without line ends and terminal controls; the rest stays as it is."""
    return repr(text)[1:-1]


def _feed(loader: Loader, data: bytes) -> int:
    """Whole batches; returns the offset behind them."""
    attributes, last = _overview(data)
    records = None
    if not attributes & _OF_TRANSACTIONS:
        with suppress(CorruptDataError):
            records = decode_records(("", 0, data, 0, None))
    if records is not None:
        loader.feed(records)
    else:
        for position, header in iter_headers(data):
            try:
                _feed_batch(loader, data, position, header)
            except CorruptDataError as error:
                logger.error("a batch of committed offsets and groups is lost: %s", error)
    return read_header(data, last).next_offset


def _feed_batch(loader: Loader, data: bytes, position: int, header: BatchHeader) -> None:
    producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
    if not header.is_control:
        loader.feed(decode_batch(data, position), producer=producer)
    elif producer is not None:
        commit = not is_abort_marker(data, position)
        loader.end_transaction(TransactionMarker(*producer, commit=commit), header.base_offset)


def _overview(data: bytes) -> tuple[int, int]:
    """What the attributes of any batch say, and where the last batch begins."""
    attributes = position = last = 0
    while position + HEADER_SIZE <= len(data):
        last = position
        size, found = _SIZE_AND_ATTRIBUTES.unpack_from(data, position)
        attributes |= found
        position += 12 + size
    return attributes, last


# The numbers of ``GroupOverrides`` as they are called when they are set on a group.
_OVERRIDES = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")


def _assignor(name: str, process: AssignorProcess | None) -> CoordinatorAssignor:
    return OutsideAssignor(name) if process is not None else SERVER_ASSIGNORS[name]()


def _image_topic(topic: Topic) -> ImageTopic:
    return ImageTopic(topic.name, topic.id, topic.partition_count)


class Groups(Coordinators[Coordinator, JournalRecord, GroupEvent]):
    """Every group coordinator of this broker."""

    def __init__(
        self,
        settings: GroupSettings,
        around: RuntimeParts,
        catalogue: Catalogue,
        *,
        open_partition: Callable[[int], Partition | ErrorCode],
        assignors: Mapping[str, AssignorProcess | None],
        orders: AssignorOrders | None,
        new_id: Callable[[], str],
        rebalances: RebalanceCounts | None = None,
    ) -> None:
        """``rebalances`` is told of every one, if there is somebody to show them."""
        self._catalogue = catalogue
        self.rebalances = rebalances
        # Versions are moments, so that they go on growing after a restart.
        self._image = ClusterImage(map(_image_topic, catalogue), version=around.now_ms())
        for group_id in catalogue.group_configs:
            self._override(group_id)
        config = GroupConfig(
            group_min_session_timeout_ms=settings.min_session_timeout_ms,
            group_max_session_timeout_ms=settings.max_session_timeout_ms,
            group_initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            group_max_size=settings.max_size,
            offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
            offsets_retention_minutes=settings.offsets_retention_minutes,
            dead_connection_grace_ms=settings.dead_connection_grace_ms or None,
            consumer=ConsumerGroupConfig(
                session_timeout_ms=settings.consumer_session_timeout_ms,
                min_session_timeout_ms=settings.consumer_min_session_timeout_ms,
                max_session_timeout_ms=settings.consumer_max_session_timeout_ms,
                heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms or None,
                min_heartbeat_interval_ms=settings.consumer_min_heartbeat_interval_ms,
                max_heartbeat_interval_ms=settings.consumer_max_heartbeat_interval_ms,
                assignment_interval_ms=settings.consumer_assignment_interval_ms,
                max_size=settings.consumer_max_size,
                migration_policy=MigrationPolicy(settings.consumer_migration_policy),
                assignors=tuple(map(_assignor, assignors, assignors.values())),
            ),
        )
        journal_format = OffsetsTopicFormat(config, self._image, orders, new_id)
        journal_format.rebalances = rebalances
        super().__init__(
            journal_format,
            around,
            count=settings.offsets_partitions,
            open_partition=open_partition,
        )

    def asked(
        self, key: str, runtime: CoordinatorRuntime[Coordinator, JournalRecord, GroupEvent]
    ) -> None:
        counts = self.rebalances
        if counts is not None and key in counts.unsettled:
            group = runtime.machine.group(key)
            if group is None or group.state_name in _SETTLED:
                counts.settled(key)

    def target_answered(self, order: TargetOrder, answered: TargetAnswer) -> None:
        """An assignor is done with an order."""
        runtime = self.runtimes.get(self.number_of(order.group_id))
        if runtime is not None:
            now_ms = self.now_ms()
            runtime.settle(runtime.machine.target_answered(order, answered, now_ms), now_ms)
            self.arm(runtime)

    def offsets_of(self, group_id: str) -> OffsetStore | None:
        """What groups of the same partition have committed."""
        runtime = self.runtimes.get(self.number_of(group_id))
        return runtime.machine.offsets if runtime is not None else None

    def partition_of(self, group_id: str) -> TopicPartition:
        """Where a group's offsets are."""
        return TopicPartition(OFFSETS_TOPIC, self.number_of(group_id))

    def end_transaction(
        self, number: int, producer_id: int, epoch: int, *, commit: bool, ticket: Ticket
    ) -> None:
        """Its commits in one partition count from now on, or are forgotten; then tell the ticket.

        What it is told is an ``ErrorCode``, when the marker is stored.
        """
        runtime = self.runtime(number)
        if isinstance(runtime, ErrorCode):
            ticket.reply(runtime)
            return
        now_ms = self.now_ms()
        decision = runtime.machine.end_transaction(
            producer_id, epoch, commit=commit, now_ms=now_ms, ticket=ticket
        )
        runtime.settle(decision, now_ms)
        self.arm(runtime)

    @property
    def group_count(self) -> int:
        return sum(len(each.machine.groups) for each in self.runtimes.values())

    def connection_closed(self, connection: ClientConnection) -> None:
        """Members that were heard on it have a moment to come on another one."""
        for runtime in self.runtimes.values():
            runtime.machine.connection_closed(connection)
            self.arm(runtime)

    def topic_changed(self, name: str, now_ms: int) -> None:
        """It was created, has more partitions, or is gone."""
        topic = self._catalogue.get(name)
        if topic is not None:
            self._image.put(_image_topic(topic), version=now_ms)
        elif self._image.topic(name) is not None:
            self._image.remove(name, version=now_ms)
        for runtime in self.runtimes.values():
            runtime.machine.topics_changed([name])

    def settings_changed(self, group_id: str) -> None:
        """Members learn of it with the answers to their next heartbeats."""
        self._image.overrides.pop(group_id, None)
        if group_id in self._catalogue.group_configs:
            self._override(group_id)
        runtime = self.runtimes.get(self.number_of(group_id))
        if runtime is not None:
            runtime.machine.settings_changed(group_id)

    def _override(self, group_id: str) -> None:
        configs = self._catalogue.group_configs[group_id]
        numbers = {
            name.replace(".", "_"): int(configs[f"consumer.{name}"])
            for name in _OVERRIDES
            if f"consumer.{name}" in configs
        }
        self._image.overrides[group_id] = NO_OVERRIDES._replace(
            **numbers,
            assignor=configs.get(ASSIGNOR),
            weights=tuple(sorted(weights_of(configs.get(WEIGHTS, "")).items())),
        )

    def topics_deleted(self, names: set[str], now_ms: Callable[[], int]) -> Iterator[None]:
        """Forget positions in them; pauses after each group, and within one that has many."""
        for runtime in list(self.runtimes.values()):
            for group_id in runtime.machine.groups_with_offsets():
                left = True
                while left:
                    time_ms = now_ms()
                    decision = runtime.machine.topics_deleted(
                        names, time_ms, group_id=group_id, limit=_TOMBSTONES_AT_ONCE
                    )
                    # What cannot be written now is forgotten when it is loaded again, or expires.
                    is_written = runtime.settle(decision, time_ms)
                    left = is_written and len(decision.journal) == _TOMBSTONES_AT_ONCE
                    yield
            self.arm(runtime)
