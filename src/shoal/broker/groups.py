"""The shell around the group coordinators: one per partition of ``__consumer_offsets``.

Rule: a coordinator decides; this file appends what it decided, lets it replay that, and sends
its replies in order once everything appended before them is stored. It reads the clock and sets
the timers, and it knows nothing about groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from struct import Struct
from typing import Any, Protocol
from uuid import uuid4

from shoal.broker.config import GroupSettings
from shoal.broker.partitions import Partition
from shoal.errors import CorruptDataError, ErrorCode
from shoal.group.config import GroupConfig
from shoal.group.coordinator import Coordinator, partition_for
from shoal.group.decision import Decision, Reply
from shoal.group.journal import TransactionMarker, encode
from shoal.group.loading import Loader
from shoal.group.refusals import refusal, refuse, response_error
from shoal.log.durability import Syncer
from shoal.log.results import Origin
from shoal.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    decode_batch,
    encode_batch,
    iter_headers,
    read_header,
)
from shoal.records.markers import is_abort_marker
from shoal.records.objects import decode_records

logger = logging.getLogger("shoal.broker.groups")

# As much as is decoded in one go, without a look at each batch.
_LOAD_BYTES = 256 << 10
_RETRY_LOAD_SECONDS = 1.0
_REPLIES_AT_ONCE = 200
_TOMBSTONES_AT_ONCE = 200
# Of a batch's header. A journal may consist of a million batches of one commit each.
_SIZE_AND_ATTRIBUTES = Struct(">8x i 9x h")
# The bits of a transaction and of its end.
_OF_TRANSACTIONS = 0x30


class Ticket(Protocol):
    """Where a reply goes: a call, or somebody who gathers the replies of several shards."""

    def reply(self, response: Any) -> None: ...


class Shard:
    """One partition of the offsets topic: its log and its coordinator."""

    def __init__(
        self,
        number: int,
        partition: Partition,
        config: GroupConfig,
        syncer: Syncer,
        now_ms: Callable[[], int],
        reopen: Callable[[Partition], Partition],
        loop: asyncio.AbstractEventLoop,
        arm: Callable[[Shard], None],
    ) -> None:
        self.number = number
        self.partition = partition
        self._config = config
        self._syncer = syncer
        self._now_ms = now_ms
        self._reopen = reopen
        self._loop = loop
        self._arm = arm
        self._failed = False
        self.coordinator = self._new_coordinator()

    def _new_coordinator(self) -> Coordinator:
        return Coordinator(self._config, new_id=lambda: str(uuid4()), partition=self.number)

    def load(self) -> None:
        """Replay the log and begin to serve."""
        _replay(self.partition, Loader(self.coordinator.replay))
        self._settle(self.coordinator.loaded(self._now_ms()))

    def handle(
        self, request: Any, *, version: int, client: tuple[str | None, str], ticket: Ticket
    ) -> None:
        self._settle(
            self.coordinator.handle(
                request,
                version=version,
                client_id=client[0],
                client_host=client[1],
                ticket=ticket,
                now_ms=self._now_ms(),
            )
        )

    def tick(self, now_ms: int) -> None:
        """Everything that is due, one journal at a time."""
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= now_ms:
            self._settle(self.coordinator.tick(now_ms))

    def topics_deleted(self, names: set[str]) -> Iterator[None]:
        """Forget positions in them; pauses after each group, and within one that has many."""
        for group_id in self.coordinator.groups_with_offsets():
            left = True
            while left:
                decision = self.coordinator.topics_deleted(
                    names, self._now_ms(), group_id=group_id, limit=_TOMBSTONES_AT_ONCE
                )
                before = self.partition.log.end_offset
                self._settle(decision)
                # What cannot be written now is forgotten when it is loaded again, or expires.
                is_written = self.partition.log.end_offset > before
                left = is_written and len(decision.journal) == _TOMBSTONES_AT_ONCE
                yield

    def _settle(self, decision: Decision) -> None:
        if decision.journal:
            decision = self._append(decision)
        for event in decision.events:
            logger.info(
                "group %s generation %d: %s (%s)%s",
                event.group_id,
                event.generation,
                event.kind.value,
                event.cause,
                f" {event.member_id}" if event.member_id else "",
            )
        if decision.replies:
            self._send_when_stored(decision.replies)

    def _append(self, decision: Decision) -> Decision:
        now_ms = self._now_ms()
        batch = encode_batch(
            [(key, value, (), now_ms) for key, value in map(encode, decision.journal)]
        )
        result = self.partition.append(bytearray(batch), now_ms, origin=Origin.BROKER)
        if result.error is not ErrorCode.NONE:
            logger.error("cannot write to %s: %s", self.partition.topic_partition, result.detail)
            if self.partition.log.fenced is not None:
                # It takes nothing more until it is opened anew.
                self._loop.call_soon(self._fail)
            return self.coordinator.append_failed(decision, result.error, now_ms)
        self.coordinator.replay_all(decision.journal, result.base_offset)
        return decision

    def _send_when_stored(self, replies: tuple[Reply, ...]) -> None:
        log = self.partition.log
        if log.high_watermark >= log.end_offset and log.fenced is None:
            self._send(replies)
            return

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._send(replies)
                return
            answer = response_error(error)
            for reply in replies:
                reply.ticket.reply(refuse(reply.response, answer))
            self._fail()

        self._syncer.register(log, log.end_offset, stored)

    def _send(self, replies: tuple[Reply, ...]) -> None:
        """Everybody's reply to a rebalance may be thousands: others have a turn between them."""
        for reply in replies[:_REPLIES_AT_ONCE]:
            reply.ticket.reply(reply.response)
        if len(replies) > _REPLIES_AT_ONCE:
            self._loop.call_soon(self._send, replies[_REPLIES_AT_ONCE:])

    def _fail(self) -> None:
        """A record is not stored after all: memory is ahead of the disk, so start over."""
        if self._failed:
            return
        self._failed = True
        decision = self.coordinator.unload(self._now_ms())
        for reply in decision.replies:
            reply.ticket.reply(reply.response)
        self._loop.call_later(_RETRY_LOAD_SECONDS, self._load_again)

    def _load_again(self) -> None:
        try:
            self.partition = self._reopen(self.partition)
        except OSError as error:
            logger.error("cannot open %s again: %s", self.partition.topic_partition, error)
            self._loop.call_later(_RETRY_LOAD_SECONDS, self._load_again)
            return
        self.coordinator = self._new_coordinator()
        self.load()
        self._failed = False
        self._arm(self)  # nobody may ever ask again, and members must still expire


def _replay(partition: Partition, loader: Loader) -> None:
    log = partition.log
    offset = log.start_offset
    while offset < log.high_watermark:
        found = log.read(offset, _LOAD_BYTES)
        if found.error is ErrorCode.NONE and found.size:
            offset = _feed(loader, found.read_bytes())
            continue
        logger.error("%s cannot be read at offset %d", partition.topic_partition, offset)
        # What comes behind a damaged place is newer: without it groups would go back.
        behind = [bad.end_offset for bad in log.state.corrupt if bad.start_offset <= offset]
        if max(behind, default=0) <= offset:
            break
        offset = max(behind)
    loader.flush()


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


class Groups:
    """Every coordinator of this broker, and the timer that wakes them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: GroupSettings,
        *,
        open_partition: Callable[[int], Partition | ErrorCode],
        syncer: Syncer,
        now_ms: Callable[[], int],
        reopen: Callable[[Partition], Partition],
    ) -> None:
        self._loop = loop
        self._shard_count = settings.offsets_partitions
        self._open_partition = open_partition
        self._syncer = syncer
        self._now_ms = now_ms
        self._reopen = reopen
        self._config = GroupConfig(
            group_min_session_timeout_ms=settings.min_session_timeout_ms,
            group_max_session_timeout_ms=settings.max_session_timeout_ms,
            group_initial_rebalance_delay_ms=settings.initial_rebalance_delay_ms,
            group_max_size=settings.max_size,
            offset_metadata_max_bytes=settings.offset_metadata_max_bytes,
            offsets_retention_minutes=settings.offsets_retention_minutes,
        )
        self.shards: dict[int, Shard] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None

    @property
    def count(self) -> int:
        return sum(len(shard.coordinator.groups) for shard in self.shards.values())

    def load(self, numbers: Iterable[int]) -> None:
        """Load the shards whose partitions hold something."""
        for number in numbers:
            self._shard(number)

    def shard_of(self, group_id: str) -> Shard | ErrorCode:
        return self._shard(partition_for(group_id, self._shard_count))

    def _shard(self, number: int) -> Shard | ErrorCode:
        found = self.shards.get(number)
        if found is not None:
            return found
        partition = self._open_partition(number)
        if isinstance(partition, ErrorCode):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        shard = Shard(
            number,
            partition,
            self._config,
            self._syncer,
            self._now_ms,
            self._reopen,
            self._loop,
            self._arm,
        )
        self.shards[number] = shard
        shard.load()
        self._arm(shard)
        return shard

    def ask(
        self,
        group_id: str,
        request: Any,
        *,
        version: int,
        client: tuple[str | None, str],
        ticket: Ticket,
    ) -> None:
        """Give a request to the coordinator of its group; the ticket gets the reply."""
        shard = self.shard_of(group_id)
        if isinstance(shard, ErrorCode):
            ticket.reply(refusal(request, shard, version))
            return
        shard.handle(request, version=version, client=client, ticket=ticket)
        self._arm(shard)

    def topics_deleted(self, names: set[str]) -> Iterator[None]:
        for shard in list(self.shards.values()):
            yield from shard.topics_deleted(names)
            self._arm(shard)

    # --- time -----------------------------------------------------------------------------

    def _arm(self, shard: Shard) -> None:
        deadline = shard.coordinator.next_deadline()
        if deadline is not None and (self._armed_ms is None or deadline < self._armed_ms):
            self._set_timer(deadline)

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = deadline_ms
        delay = max(0, deadline_ms - self._now_ms()) / 1000.0
        self._timer = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = self._armed_ms = None
        self.tick(self._now_ms())

    def tick(self, now_ms: int) -> None:
        """Let every coordinator do what is due, and set the timer for what comes next."""
        for shard in self.shards.values():
            shard.tick(now_ms)
        deadline = self.next_deadline()
        if deadline is not None:
            self._set_timer(deadline)

    def next_deadline(self) -> int | None:
        deadlines = [shard.coordinator.next_deadline() for shard in self.shards.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
