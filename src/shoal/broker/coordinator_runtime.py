"""The shell around journaled machines: a log partition each, ordered replies, timers, reloading.

Rule: a machine decides; this file appends what it decided, lets it replay that, and sends its
replies in order once everything appended before them is stored. It reads the clock and sets the
timers, and it knows nothing about groups or transactions (``shoal.machine.interface``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from shoal.broker.partitions import Partition
from shoal.errors import ErrorCode
from shoal.log.durability import Syncer
from shoal.log.partition import Origin
from shoal.machine.decision import Caller, Decision, Reply
from shoal.machine.interface import Machine
from shoal.machine.internal_topic import partition_for

logger = logging.getLogger("shoal.broker.coordinators")

RecordT = TypeVar("RecordT")
EventT = TypeVar("EventT")
RecordIn = TypeVar("RecordIn", contravariant=True)
EventIn = TypeVar("EventIn", contravariant=True)
MachineT = TypeVar("MachineT", bound=Machine[Any, Any])

_BROKER = Origin.BROKER
_RETRY_LOAD_SECONDS = 1.0
_REPLIES_AT_ONCE = 200


class Ticket(Protocol):
    """Where a reply goes: a call, or somebody who gathers the replies of several machines."""

    def reply(self, response: Any, /) -> None: ...


class JournalFormat(Protocol[MachineT, RecordIn, EventIn]):
    """What distinguishes one kind of coordinator from another, seen from its log."""

    def new_machine(self, number: int) -> MachineT:
        """A machine for this partition that knows nothing yet."""
        ...

    def batch(self, records: Sequence[RecordIn], now_ms: int) -> bytes:
        """The records of one decision as one batch."""
        ...

    def load(self, partition: Partition, machine: MachineT) -> None:
        """Replay what the log holds."""
        ...

    def refusal(self, request: Any, error: ErrorCode, version: int) -> Any:
        """The answer to a request for which there is no machine."""
        ...

    def tell(self, events: Sequence[EventIn]) -> None:
        """What one decision says: into the log of the process."""
        ...


class RuntimeParts:
    """What every runtime of a broker shares."""

    __slots__ = ("loop", "now_ms", "reopen", "syncer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        syncer: Syncer,
        now_ms: Callable[[], int],
        reopen: Callable[[Partition], Partition],
    ) -> None:
        self.loop = loop
        self.syncer = syncer
        self.now_ms = now_ms
        self.reopen = reopen


class CoordinatorRuntime(Generic[MachineT, RecordT, EventT]):
    """One partition of an internal topic: its log and its machine."""

    def __init__(
        self,
        number: int,
        partition: Partition,
        journal_format: JournalFormat[MachineT, RecordT, EventT],
        around: RuntimeParts,
        loaded_again: Callable[[CoordinatorRuntime[MachineT, RecordT, EventT]], None],
    ) -> None:
        self.number = number
        self.partition = partition
        self._format = journal_format
        self._around = around
        self._loaded_again = loaded_again
        self._failed = False
        self.machine = journal_format.new_machine(number)

    def load(self) -> None:
        """Replay the log and begin to serve."""
        self._format.load(self.partition, self.machine)
        now_ms = self._around.now_ms()
        self.settle(self.machine.loaded(now_ms), now_ms)

    def handle(self, request: Any, caller: Caller) -> None:
        now_ms = self._around.now_ms()
        self.settle(self.machine.handle(request, caller, now_ms), now_ms)

    def tick(self, now_ms: int) -> None:
        """Everything that is due, one journal at a time."""
        while (deadline := self.machine.next_deadline()) is not None and deadline <= now_ms:
            self.settle(self.machine.tick(now_ms), now_ms)

    def settle(self, decision: Decision[RecordT, EventT], now_ms: int) -> bool:
        """Do what was decided. False: its records could not be written, nothing has changed."""
        is_written = True
        if decision.journal:
            is_written, decision = self._append(decision, now_ms)
        if decision.events:
            self._format.tell(decision.events)
        if decision.replies:
            self._send_when_stored(decision.replies)
        return is_written

    def _append(
        self, decision: Decision[RecordT, EventT], now_ms: int
    ) -> tuple[bool, Decision[RecordT, EventT]]:
        batch = self._format.batch(decision.journal, now_ms)
        result = self.partition.append(bytearray(batch), now_ms, origin=_BROKER)
        if result.error:
            logger.error("cannot write to %s: %s", self.partition.topic_partition, result.detail)
            if self.partition.log.fenced is not None:
                # It takes nothing more until it is opened again.
                self._around.loop.call_soon(self._fail)
            return False, self.machine.append_failed(decision, result.error, now_ms)
        self.machine.replay_all(decision.journal, result.base_offset)
        return True, decision

    def _send_when_stored(self, replies: tuple[Reply, ...]) -> None:
        log = self.partition.log
        if log.high_watermark >= log.end_offset and log.fenced is None:
            self._send(replies)
            return

        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._send(replies)
                return
            for reply in replies:
                reply.ticket.reply(self.machine.refuse(reply.response, error))
            self._fail()

        self._around.syncer.register(log, log.end_offset, stored)

    def _send(self, replies: tuple[Reply, ...]) -> None:
        """Everybody's reply to a rebalance may be thousands: others have a turn between them."""
        for reply in replies[:_REPLIES_AT_ONCE]:
            reply.ticket.reply(reply.response)
        if len(replies) > _REPLIES_AT_ONCE:
            self._around.loop.call_soon(self._send, replies[_REPLIES_AT_ONCE:])

    def _fail(self) -> None:
        """A record is not stored after all: memory is ahead of the disk, so start over."""
        if self._failed:
            return
        self._failed = True
        decision = self.machine.unload(self._around.now_ms())
        for reply in decision.replies:
            reply.ticket.reply(reply.response)
        self._around.loop.call_later(_RETRY_LOAD_SECONDS, self._load_again)

    def _load_again(self) -> None:
        try:
            self.partition = self._around.reopen(self.partition)
        except OSError as error:
            logger.error("cannot open %s again: %s", self.partition.topic_partition, error)
            self._around.loop.call_later(_RETRY_LOAD_SECONDS, self._load_again)
            return
        self.machine = self._format.new_machine(self.number)
        self.load()
        self._failed = False
        self._loaded_again(self)


class Coordinators(Generic[MachineT, RecordT, EventT]):
    """Every runtime of one internal topic, made when first used, and the timer that wakes them."""

    def __init__(
        self,
        journal_format: JournalFormat[MachineT, RecordT, EventT],
        around: RuntimeParts,
        *,
        count: int,
        open_partition: Callable[[int], Partition | ErrorCode],
    ) -> None:
        self._format = journal_format
        self._around = around
        self._count = count
        self._open_partition = open_partition
        self.runtimes: dict[int, CoordinatorRuntime[MachineT, RecordT, EventT]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms: int | None = None

    def load(self, numbers: Iterable[int]) -> None:
        """Load those whose partitions hold something."""
        for number in numbers:
            self.runtime(number)

    def runtime_of(self, key: str) -> CoordinatorRuntime[MachineT, RecordT, EventT] | ErrorCode:
        """Of a group id or a transactional id."""
        number = partition_for(key, self._count)
        return self.runtimes.get(number) or self.runtime(number)

    def number_of(self, key: str) -> int:
        """The partition that holds what is known of an id."""
        return partition_for(key, self._count)

    def runtime(self, number: int) -> CoordinatorRuntime[MachineT, RecordT, EventT] | ErrorCode:
        """Of a partition of the topic."""
        found = self.runtimes.get(number)
        if found is not None:
            return found
        partition = self._open_partition(number)
        if isinstance(partition, ErrorCode):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        made = CoordinatorRuntime(number, partition, self._format, self._around, self.loaded_again)
        self.runtimes[number] = made
        made.load()
        self.arm(made)
        return made

    def ask(self, key: str, request: Any, caller: Caller) -> None:
        """Give a request to the coordinator of a key; the caller's ticket gets the reply."""
        runtime = self.runtime_of(key)
        if isinstance(runtime, ErrorCode):
            caller.ticket.reply(self._format.refusal(request, runtime, caller.version))
            return
        runtime.handle(request, caller)
        self.arm(runtime)
        self.asked(key, runtime)

    def asked(self, key: str, runtime: CoordinatorRuntime[MachineT, RecordT, EventT]) -> None:
        """Something was asked about ``key``; for those who count what came of it."""

    def loaded_again(self, runtime: CoordinatorRuntime[MachineT, RecordT, EventT]) -> None:
        """After a failure. Nobody may ever ask again, and members must still expire."""
        self.arm(runtime)

    def now_ms(self) -> int:
        return self._around.now_ms()

    # --- time -----------------------------------------------------------------------------

    def arm(self, runtime: CoordinatorRuntime[MachineT, RecordT, EventT]) -> None:
        """After any call of a machine: wake it when something of it is due."""
        deadline = runtime.machine.next_deadline()
        if deadline is not None and (self._armed_ms is None or deadline < self._armed_ms):
            self._set_timer(deadline)

    def _set_timer(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = deadline_ms
        delay = max(0, deadline_ms - self._around.now_ms()) / 1000.0
        self._timer = self._around.loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._timer = self._armed_ms = None
        self.tick(self._around.now_ms())

    def tick(self, now_ms: int) -> None:
        """Let every coordinator do what is due, and set the timer for what comes next."""
        for runtime in self.runtimes.values():
            runtime.tick(now_ms)
        deadline = self.next_deadline()
        if deadline is not None:
            self._set_timer(deadline)

    def next_deadline(self) -> int | None:
        deadlines = [each.machine.next_deadline() for each in self.runtimes.values()]
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
