"""The group coordinator of one partition of ``__consumer_offsets``.

A machine as ``shoal.machine.interface`` describes it: a call returns a decision, its records are
appended and replayed, its replies leave when they are durable. Durable state (groups, generations,
members, offsets) changes in ``replay`` alone; what is parked, pending or timed is volatile.

Time. ``now_ms`` is the wall clock, for timestamps in records. Timers run on the coordinator's own
time (``shoal.machine.own_time``): a pause of the process expires nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from enum import Enum
from typing import Any, Final

from shoal.errors import ErrorCode
from shoal.group.coordinator import offset_requests
from shoal.group.coordinator.cluster_image import ClusterImage
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.decision import (
    Draft,
    EventKind,
    GroupDecision,
    GroupEvent,
    Sight,
    TimerName,
)
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.group_kinds import ends_group
from shoal.group.coordinator.group_shard import GroupShard
from shoal.group.coordinator.journal import (
    JournalRecord,
    KindRecord,
    TransactionMarker,
)
from shoal.group.coordinator.offset_store import OffsetStore
from shoal.group.coordinator.presence import Presence, member_heard
from shoal.group.coordinator.refusals import refusal, refuse, response_error
from shoal.group.coordinator.requests import answer
from shoal.group.coordinator.target_orders import TargetAnswer, TargetOrder, TargetOrders
from shoal.machine.decision import Caller, Decision, Reply, Response, Ticket
from shoal.machine.own_time import OwnTime
from shoal.machine.timers import Timers

EXPIRY_TIMER: Final[TimerName] = ("expiry", "", "")
_GONE: Final = "gone"
EXPIRY_RECORDS_MAX: Final = 1_000
"""Tombstones of one decision, about. The rest follows in the next."""

_UNDONE_BY_A_FAILED_APPEND: Final = frozenset(
    {
        EventKind.GENERATION_STARTED,
        EventKind.EPOCH_BUMPED,
        EventKind.TARGET_COMPUTED,
        EventKind.PROTOCOL_CHANGED,
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
        self,
        config: GroupConfig | None = None,
        *,
        new_id: Callable[[], str],
        partition: int = 0,
        image: ClusterImage | None = None,
        assignors: Ticket = None,
    ) -> None:
        """``new_id`` makes the unique part of member ids, a UUID outside of tests.

        ``image`` is shared, and changes between calls; see ``topics_changed``. ``assignors`` gets
        the orders to compute targets, as replies.
        """
        self.config = config or GroupConfig()
        self._image = image if image is not None else ClusterImage()
        self.partition = partition
        self.phase = Phase.LOADING
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._new_id = new_id
        self._shard = GroupShard()
        self._presence = Presence()
        self._orders = TargetOrders(assignors)
        self._sights: dict[str, Sight] = {}
        self._unsettled: tuple[JournalRecord, ...] = ()
        self._replayed = 0
        self._timers: Timers[TimerName] = Timers()
        self._time = OwnTime(self.config.coordinator_pulse_interval_ms)

    # --- Loading and unloading -----------------------------------------------------------------

    def load(self, records: Iterable[tuple[int, JournalRecord]], now_ms: int) -> GroupDecision:
        """Replay a journal, given as (offset, record), and begin to serve."""
        for offset, record in records:
            self.replay(record, offset)
        return self.loaded(now_ms)

    def loaded(self, now_ms: int) -> GroupDecision:
        """Begin to serve after the last ``replay`` of the journal."""
        assert self.phase is Phase.LOADING
        self.phase = Phase.ACTIVE
        self._time.begin(now_ms)
        draft = self._draft(now_ms)
        draft.arm(EXPIRY_TIMER, self.config.offsets_retention_check_interval_ms)
        for group in self._shard.groups.values():
            group.loaded(draft)
        return self._decide(draft)

    def unload(self, now_ms: int, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> GroupDecision:
        """Stop serving: answer whoever is parked, and everybody from now on, with ``error``."""
        draft = self._new_draft(now_ms, now_ms)
        for group in self._shard.groups.values():
            group.abandon(draft, error)
            group.bury()
        self.phase = Phase.UNLOADED
        self._refusal = error
        self._shard = GroupShard()
        self._timers = Timers()
        self._orders = TargetOrders(self._orders.ticket)
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
            if isinstance(record, KindRecord) and ends_group(record):
                self._cancel_timers(record.group_id)
        self._shard.replay(record, offset, live=live)

    def replay_all(self, records: Iterable[JournalRecord], base_offset: int) -> None:
        """Apply the records of a decision, appended from ``base_offset`` on."""
        for offset, record in enumerate(records, base_offset):
            self.replay(record, offset)

    def _cancel_timers(self, group_id: str) -> None:
        """A group that goes is Empty, but ids may have been given out."""
        group = self._shard.groups.get(group_id)
        for name in group.timers() if group is not None else ():
            self._timers.cancel(name)

    def durable(self) -> object:
        """Equal for coordinators built from the same records. Compare it, do not keep it."""
        return self._shard.durable()

    # --- Requests ------------------------------------------------------------------------------

    def handle(self, request: Any, caller: Caller, now_ms: int) -> GroupDecision:
        """Decide about one request; without a reply for its ticket it is parked."""
        if self.phase is not Phase.ACTIVE:
            reply = Reply(caller.ticket, refusal(request, self._refusal, caller.version))
            return Decision(replies=(reply,))
        draft = self._draft(now_ms)
        if self.config.dead_connection_grace_ms is not None:
            self._note_presence(draft, request, caller)
        draft.sees = caller.sees
        answer(self._shard, draft, request, caller)
        return self._decide(draft)

    def _note_presence(self, draft: Draft, request: Any, caller: Caller) -> None:
        heard = member_heard(request)
        group = self._shard.groups.get(heard[0]) if heard is not None else None
        if heard is not None and group is not None and heard[1] in group.members:
            self._presence.heard(heard, caller.connection)
            draft.cancel((_GONE, *heard))

    def connection_closed(self, connection: Hashable) -> None:
        """Whoever was last heard on it has a moment to be heard on another one."""
        grace_ms = self.config.dead_connection_grace_ms
        for member in self._presence.closed(connection):
            assert grace_ms is not None
            self._timers.arm((_GONE, *member), self._time.last_clock_ms + grace_ms)

    # --- Other things that happen --------------------------------------------------------------

    def end_transaction(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        now_ms: int,
        ticket: Ticket = None,
    ) -> GroupDecision:
        """A transaction ends: its staged offsets count from now on, or are forgotten.

        The ticket is told an ``ErrorCode``.
        """
        if self.phase is not Phase.ACTIVE:
            return Decision(replies=() if ticket is None else (Reply(ticket, self._refusal),))
        draft = self._draft(now_ms)
        draft.write(TransactionMarker(producer_id, producer_epoch, commit))
        if ticket is not None:
            draft.reply(ticket, ErrorCode.NONE)
        return self._decide(draft)

    def topics_changed(self, names: Collection[str]) -> None:
        """The image has just changed in these. What follows is decided at the next heartbeats."""
        changed = frozenset(names)
        for group in self._shard.groups.values():
            group.topics_changed(changed)

    def settings_changed(self, group_id: str) -> None:
        """The image has just changed in what is set on a group."""
        group = self._shard.groups.get(group_id)
        if group is not None:
            group.settings_changed()

    def target_answered(
        self, order: TargetOrder, answered: TargetAnswer, now_ms: int
    ) -> GroupDecision:
        """What has become of an order."""
        if self.phase is not Phase.ACTIVE or not self._orders.end(order):
            return Decision()
        draft = self._draft(now_ms)
        group = self._shard.groups.get(order.group_id)
        if group is not None:
            group.target_answered(draft, order, answered)
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
    ) -> GroupDecision:
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

    def append_failed(
        self, decision: GroupDecision, error: ErrorCode, now_ms: int
    ) -> GroupDecision:
        """Nothing of the decision's journal was written. What to answer instead."""
        assert decision.journal
        assert decision.journal is self._unsettled
        assert self._replayed == 0, "a batch is appended whole or not at all"
        self._unsettled = ()
        draft = self._draft(now_ms)
        told = response_error(error)
        about = (each.group_id for each in decision.journal if isinstance(each, KindRecord))
        for group_id in dict.fromkeys(about):
            self._undo(draft, group_id, error)
        draft.arm(EXPIRY_TIMER, self.config.offsets_retention_check_interval_ms)
        kept = [each for each in decision.events if each.kind not in _UNDONE_BY_A_FAILED_APPEND]
        decision = decision._replace(replies=self._without_orders(decision.replies))
        refused = [Reply(each.ticket, refuse(each.response, told)) for each in decision.replies]
        draft.events[:0] = kept
        draft.replies[:0] = refused
        assert not draft.journal
        return self._decide(draft)

    def _without_orders(self, replies: tuple[Reply, ...]) -> tuple[Reply, ...]:
        """Orders about what was not written are none."""
        for each in replies:
            if isinstance(each.response, TargetOrder):
                self._orders.end(each.response)
        return tuple(each for each in replies if not isinstance(each.response, TargetOrder))

    def refuse(self, response: Response, error: ErrorCode) -> Response:
        """In place of a reply whose records turned out not to be durable."""
        if isinstance(response, TargetOrder):
            return error  # whoever carries orders out has nothing to do
        return refuse(response, response_error(error))

    def _undo(self, draft: Draft, group_id: str, error: ErrorCode) -> None:
        forming, self._shard.forming = self._shard.forming, None
        if forming is not None:
            forming.abandon(draft, response_error(error))
        elif group_id in self._shard.groups:
            self._shard.groups[group_id].append_failed(draft, error)

    # --- Time ----------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> GroupDecision:
        """Do what is due. It stops after the first thing that writes: call until nothing is."""
        if self.phase is not Phase.ACTIVE:
            return Decision()
        draft = self._draft(now_ms)
        while not draft.journal and self._time.may_be_due(draft.clock_ms):
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
        # More than the expiry of offsets, which can wait.
        return self._time.deadline_ms(deadline, pulses=len(self._timers) > 1)

    def _due(self, draft: Draft, name: TimerName) -> None:
        kind, group_id, member_id = name
        if kind == "expiry":
            self._expire(draft)
            return
        # Timers of a group go with it; those of one that was never written stay.
        group = self._shard.groups.get(group_id)
        if group is None:
            self._sights.pop(group_id, None)
            return
        if kind == _GONE:
            grace_ms = self.config.dead_connection_grace_ms
            cause = f"the connection of member {member_id} broke {grace_ms} ms ago"
            group.member_lost(draft, member_id, cause)
        else:
            group.timer_due(draft, kind, member_id)

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
        paused_ms = self._time.advance(now_ms)
        clock_ms = self._time.clock_ms(now_ms)
        draft = self._new_draft(now_ms, clock_ms)
        if paused_ms:
            cause = f"the coordinator was not called for {paused_ms} ms; sessions go on from there"
            draft.tell(GroupEvent(EventKind.PAUSED, "", -1, cause, duration_ms=paused_ms))
        return draft

    def _new_draft(self, now_ms: int, clock_ms: int) -> Draft:
        return Draft(
            self.config,
            self._timers,
            self._new_id,
            self._image,
            self._orders,
            self._sights,
            now_ms=now_ms,
            clock_ms=clock_ms,
        )

    def _decide(self, draft: Draft) -> GroupDecision:
        decision = draft.decision()
        self._unsettled = decision.journal
        self._replayed = 0
        deadline = self.next_deadline()
        assert deadline is not None, "the expiry timer always runs"
        self._time.promise(deadline)
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
