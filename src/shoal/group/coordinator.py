"""The group coordinator of one partition of ``__consumer_offsets``.

Decide, then replay. A call returns a ``Decision``; the shell does what it says::

    decision = coordinator.handle(request, version=…, ticket=…, now_ms=…, …)
    if decision.journal:
        try:
            offset = append(decision.journal)              # one batch: all of it or nothing
        except CannotAppend as fault:
            decision = coordinator.append_failed(decision, fault.code, now_ms)
        else:
            coordinator.replay_all(decision.journal, offset)
    queue(decision.replies)                                # sent in order, see below

Two rules for the shell (and ``journal.producer_of`` says which records make a transactional batch):

* *Settle at once.* A journal is appended and replayed, or has failed, before the next call. How
  long it takes to become durable is another matter: many appends may be under way to the disk.
* *Replies leave in order, each after every record appended before it is durable.* A reply may
  tell of state that an earlier, still undurable record made: a heartbeat's NONE, an assignment, a
  fetched offset. If a record turns out not to be durable after all (fsync failed), the state here
  is ahead of the disk: answer what is queued with ``refuse``, ``unload``, and load anew.

``tick`` is called when ``next_deadline`` has come, again and again until that is in the future.

Durable state (groups, generations, members, offsets) changes in ``replay`` alone, so loading
after a crash and running are one code path, and a coordinator rebuilt from its records equals the
one that wrote them (``durable()``). What is parked, pending or timed is volatile.

Time. ``now_ms`` is the wall clock. Timers run on the coordinator's own time, which stands still
while nobody calls: ``next_deadline`` is never further away than a pulse while sessions run, so a
call that comes much later shows that the process was paused. Members could not be heard
meanwhile, so the pause does not count, and for one pulse after it nothing is due: what waits in
the sockets is heard first. A clock that jumps is the same to us.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, Final

from shoal.errors import ErrorCode
from shoal.group import classic_rebalance, offset_requests
from shoal.group.config import GroupConfig
from shoal.group.decision import (
    Caller,
    Decision,
    Draft,
    EventKind,
    GroupEvent,
    Reply,
    Ticket,
    TimerName,
)
from shoal.group.java_hash import partition_for
from shoal.group.journal import GroupRecord, GroupTombstone, JournalRecord, TransactionMarker
from shoal.group.model import Group
from shoal.group.offsets import OffsetStore
from shoal.group.refusals import refusal, refuse, response_error
from shoal.group.requests import answer
from shoal.group.shard import Shard
from shoal.group.timers import Timers

__all__ = ["Coordinator", "Phase", "partition_for"]

EXPIRY_TIMER: Final[TimerName] = ("expiry", "", "")
EXPIRY_RECORDS_MAX: Final = 1_000
"""Tombstones of one decision, about. The rest follows in the next."""

_UNDONE_BY_A_FAILED_APPEND: Final = frozenset(
    {
        EventKind.GENERATION_STARTED,
        EventKind.STABLE,
        EventKind.EMPTY,
        EventKind.MEMBER_REPLACED,
        EventKind.GROUP_REMOVED,
        EventKind.OFFSETS_EXPIRED,
    }
)


class Phase(Enum):
    """Of a coordinator; a group has a state."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


class Coordinator:
    """All groups of one partition, and their offsets."""

    def __init__(
        self, config: GroupConfig | None = None, *, new_id: Callable[[], str], partition: int = 0
    ) -> None:
        """``new_id`` makes the unique part of member ids, a UUID outside of tests."""
        self.config = config or GroupConfig()
        self.partition = partition
        self.phase = Phase.LOADING
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._new_id = new_id
        self._shard = Shard()
        self._unsettled: tuple[JournalRecord, ...] = ()
        self._replayed = 0
        self._timers: Timers[TimerName] = Timers()
        self._stood_still_ms = 0
        self._last_call_ms = 0
        self._promised_ms = 0
        self._listen_until_ms = 0
        """On our own clock: until then nothing is due, after a pause."""

    # --- Loading and unloading -----------------------------------------------------------------

    def load(self, records: Iterable[tuple[int, JournalRecord]], now_ms: int) -> Decision:
        """Replay a journal, given as (offset, record), and begin to serve."""
        for offset, record in records:
            self.replay(record, offset)
        return self.loaded(now_ms)

    def loaded(self, now_ms: int) -> Decision:
        """Begin to serve after the last ``replay`` of the journal."""
        assert self.phase is Phase.LOADING
        self.phase = Phase.ACTIVE
        self._last_call_ms = self._promised_ms = now_ms
        draft = self._draft(now_ms)
        draft.arm(EXPIRY_TIMER, self.config.offsets_retention_check_interval_ms)
        for group in self._shard.classic_groups():
            classic_rebalance.loaded(draft, group)
        return self._decide(draft)

    def unload(self, now_ms: int, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> Decision:
        """Stop serving: answer whoever is parked, and everybody from now on, with ``error``."""
        draft = Draft(self.config, self._timers, self._new_id, now_ms=now_ms, clock_ms=now_ms)
        for group in self._shard.classic_groups():
            classic_rebalance.abandon(draft, group, error)
            group.bury()
        self.phase = Phase.UNLOADED
        self._refusal = error
        self._shard = Shard()
        self._timers = Timers()
        self._unsettled = ()
        return draft.decision()

    # --- Replay --------------------------------------------------------------------------------

    def replay(self, record: JournalRecord, offset: int) -> None:
        """Apply one record that stands in the journal at ``offset``.

        The only place where durable state changes: while loading, and for what was decided.
        """
        assert self.phase is not Phase.UNLOADED
        live = self.phase is Phase.ACTIVE
        if live:
            decided = self._unsettled[self._replayed]
            assert record is decided or record == decided, "replay what was decided, in order"
            self._replayed += 1
            if self._replayed == len(self._unsettled):
                self._unsettled = ()
            if isinstance(record, GroupTombstone):
                self._cancel_pending(record.group_id)
        self._shard.replay(record, offset, live=live)

    def replay_all(self, records: Iterable[JournalRecord], base_offset: int) -> None:
        """Apply the records of a decision, appended from ``base_offset`` on."""
        for offset, record in enumerate(records, base_offset):
            self.replay(record, offset)

    def _cancel_pending(self, group_id: str) -> None:
        """A group that goes is Empty, but ids may have been given out."""
        group = self._shard.classic(group_id)
        for member_id in group.pending_ids if group else ():
            self._timers.cancel(("session", group_id, member_id))

    def durable(self) -> object:
        """Equal for coordinators built from the same records. Compare it, do not keep it."""
        return self._shard.durable()

    # --- Requests ------------------------------------------------------------------------------

    def handle(
        self,
        request: Any,
        *,
        version: int,
        client_id: str | None,
        client_host: str,
        ticket: Ticket,
        now_ms: int,
    ) -> Decision:
        """Decide about one request of ``shoal.wire.apis``.

        If the decision holds no reply for the ticket, the request is parked and a later one does.
        """
        if self.phase is not Phase.ACTIVE:
            reply = Reply(ticket, refusal(request, self._refusal, version))
            return Decision(replies=(reply,))
        draft = self._draft(now_ms)
        caller = Caller(version, client_id or "", client_host, ticket)
        answer(self._shard, draft, request, caller)
        return self._decide(draft)

    # --- Other things that happen --------------------------------------------------------------

    def end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool, now_ms: int
    ) -> Decision:
        """A transaction ends: its staged offsets count from now on, or are forgotten."""
        draft = self._draft(now_ms)
        draft.write(TransactionMarker(producer_id, producer_epoch, commit))
        return self._decide(draft)

    def groups_with_offsets(self) -> list[str]:
        return list(self._shard.offsets.groups())

    def topics_deleted(
        self,
        names: Collection[str],
        now_ms: int,
        *,
        group_id: str | None = None,
        limit: int | None = None,
    ) -> Decision:
        """Positions in a log that is gone must not survive into one that has its name.

        With a group and a limit, so many of that group: ask again until fewer are decided.
        """
        draft = self._draft(now_ms)
        for each in self.groups_with_offsets() if group_id is None else [group_id]:
            gone = offset_requests.tombstones(
                self._shard.offsets, each, wanted=lambda tp: tp.topic in names, limit=limit
            )
            draft.write_all(gone)
        return self._decide(draft)

    def append_failed(self, decision: Decision, error: ErrorCode, now_ms: int) -> Decision:
        """Nothing of the decision's journal was written. What to answer instead."""
        assert decision.journal
        assert decision.journal is self._unsettled
        assert self._replayed == 0, "a batch is appended whole or not at all"
        self._unsettled = ()
        draft = self._draft(now_ms)
        told = response_error(error)
        for record in decision.journal:
            if isinstance(record, GroupRecord):
                self._undo(draft, record, error)
        draft.arm(EXPIRY_TIMER, self.config.offsets_retention_check_interval_ms)
        kept = [each for each in decision.events if each.kind not in _UNDONE_BY_A_FAILED_APPEND]
        refused = [Reply(each.ticket, refuse(each.response, told)) for each in decision.replies]
        draft.events[:0] = kept
        draft.replies[:0] = refused
        assert not draft.journal
        return self._decide(draft)

    def _undo(self, draft: Draft, record: GroupRecord, error: ErrorCode) -> None:
        forming, self._shard.forming = self._shard.forming, None
        if forming is not None:
            classic_rebalance.abandon(draft, forming, response_error(error))
            return
        group = self._shard.classic(record.group_id)
        assert group is not None
        classic_rebalance.append_failed(draft, group, error)

    # --- Time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> Decision:
        """Do what is due. It stops after the first thing that writes: call until nothing is."""
        if self.phase is not Phase.ACTIVE:
            return Decision()
        draft = self._draft(now_ms)
        while not draft.journal and draft.clock_ms >= self._listen_until_ms:
            name = self._timers.pop_due(draft.clock_ms)
            if name is None:
                break
            self._due(draft, name)
        return self._decide(draft)

    def next_deadline(self) -> int | None:
        """When ``tick`` must be called at the latest, on the clock of ``now_ms``."""
        deadline = self._timers.next_deadline()
        if deadline is None:
            return None
        deadline = max(deadline, self._listen_until_ms) + self._stood_still_ms
        if len(self._timers) > 1:  # More than the expiry of offsets, which can wait.
            pulse = self._last_call_ms + self.config.coordinator_pulse_interval_ms
            deadline = min(deadline, pulse)
        return max(deadline, self._last_call_ms)

    def _due(self, draft: Draft, name: TimerName) -> None:
        kind, group_id, member_id = name
        if kind == "expiry":
            self._expire(draft)
            return
        group = self._shard.classic(group_id)
        assert group is not None, "timers of a group go with it"
        if kind == "session":
            classic_rebalance.session_expired(draft, group, member_id)
        elif kind == "join":
            classic_rebalance.join_timer_due(draft, group)
        else:
            classic_rebalance.sync_expired(draft, group)

    def _expire(self, draft: Draft) -> None:
        # A clock that jumped must not expire anything, whichever way it went.
        now_ms = min(draft.now_ms, draft.clock_ms)
        for group in self._shard.groups.values():
            offset_requests.expire(draft, self._shard.offsets, group, now_ms)
            if len(draft.journal) >= EXPIRY_RECORDS_MAX:
                draft.arm(EXPIRY_TIMER, 0)
                return
        draft.arm(EXPIRY_TIMER, self.config.offsets_retention_check_interval_ms)

    # --- Drafting ------------------------------------------------------------------------------

    def _draft(self, now_ms: int) -> Draft:
        assert not self._unsettled, "append and replay a decision before the next call"
        paused_ms = self._advance(now_ms)
        clock_ms = now_ms - self._stood_still_ms
        draft = Draft(self.config, self._timers, self._new_id, now_ms=now_ms, clock_ms=clock_ms)
        if paused_ms:
            cause = f"the coordinator was not called for {paused_ms} ms; sessions go on from there"
            draft.tell(GroupEvent(EventKind.PAUSED, "", -1, cause, duration_ms=paused_ms))
        return draft

    def _advance(self, now_ms: int) -> int:
        """Notice a pause, and return its length."""
        pulse_ms = self.config.coordinator_pulse_interval_ms
        late_ms = now_ms - self._promised_ms
        paused_ms = 0
        if now_ms < self._last_call_ms:
            self._stood_still_ms += now_ms - self._last_call_ms
        elif late_ms > pulse_ms:
            paused_ms = late_ms
            last_clock_ms = self._last_call_ms - self._stood_still_ms
            self._stood_still_ms += late_ms
            if last_clock_ms >= self._listen_until_ms:
                # What came meanwhile is still in the sockets: hear it before anybody expires.
                # Not twice in a row, or who is always late would never expire anybody.
                self._listen_until_ms = now_ms - self._stood_still_ms + pulse_ms
        self._last_call_ms = now_ms
        return paused_ms

    def _decide(self, draft: Draft) -> Decision:
        decision = draft.decision()
        self._unsettled = decision.journal
        self._replayed = 0
        deadline = self.next_deadline()
        assert deadline is not None, "the expiry timer always runs"
        self._promised_ms = deadline
        return decision

    # --- Questions -----------------------------------------------------------------------------

    def group(self, group_id: str) -> Group | None:
        return self._shard.groups.get(group_id)

    @property
    def groups(self) -> Collection[Group]:
        return self._shard.groups.values()

    @property
    def offsets(self) -> OffsetStore:
        """To read."""
        return self._shard.offsets
