"""One member of a classic consumer group, without sockets, clocks or threads.

Rule: every call takes ``now_ms`` and returns what the shell has to do, in order; nothing happens
between calls. A callback never runs beside user code, and auto-commit never commits a record the
user has not come back for. It is a ``GroupMember``: see ``member_interface.py`` for how to drive
it.

Two things differ from Kafka's Java client. A late answer to a commit of an *older* generation
never throws a member out of its new one. And a fenced static member raises at every poll: joining
again would fence the process which took its place, back and forth.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final

from shoal.assign.loading import common_protocol
from shoal.assign.model import Assignment, Assignor, RebalanceProtocol
from shoal.errors import ConfigError, ErrorCode, InvalidAssignmentError, InvalidFrameError
from shoal.group.member import leadership
from shoal.group.member.classic_exchange import REBALANCING, ExchangeProgress, GroupSession
from shoal.group.member.coordinator_link import NO_GENERATION, MemberGeneration
from shoal.group.member.member_interface import (
    Assigned,
    ClusterTopics,
    CommitVerdict,
    Failed,
    Lost,
    MemberAnswer,
    MemberConfig,
    MemberState,
    Output,
    RefreshMetadata,
    Revoked,
)
from shoal.group.member.rebalance_steps import Adoption, CallbackRun, CallbackStep, PositionCommit
from shoal.group.member.subscription import TopicInterest
from shoal.types import ConsumerGroupMetadata, TopicPartition


class _Phase(Enum):
    """How far the user's side of a rebalance has come."""

    IDLE = "nothing to do until a trigger fires and the user polls"
    REFRESHING = "a pattern is matched against fresh metadata before joining"
    COMMITTING = "the shell commits positions; when it has, the next poll revokes"
    REVOKING = "the user's callback runs before the join"
    JOINING = "the session joins and syncs; when it has, the next poll adopts"
    SAVING = "the shell commits what the new assignment takes away; then the next poll revokes it"
    GIVING_UP = "the user's callback runs for what the new assignment takes away"
    ADOPTING = "the user's callback runs for what it brings"
    LEAVING = "the user's callback runs before LeaveGroup"


_COMMITS: Final = (_Phase.COMMITTING, _Phase.SAVING)


class ClassicMember:
    """The state machine. See the module's docstring for how to drive it."""

    def __init__(
        self,
        config: MemberConfig,
        *,
        assignors: Sequence[Assignor],
        chance: Callable[[], float],
    ) -> None:
        """``assignors`` in order of preference; ``chance`` gives [0, 1) for the jitter of waits."""
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self.protocol = common_protocol(assignors)
        self._interest = TopicInterest(
            watches_racks=bool(config.client_rack),
            excludes_internal=config.exclude_internal_topics,
        )
        self._session = GroupSession(config, assignors, self._interest, chance)
        self._commit = PositionCommit(config, chance)
        self._callbacks = CallbackRun()
        self._group_metadata = self._session.identity(NO_GENERATION)
        self.is_closed = False

        self._phase = _Phase.IDLE
        self._is_fresh = False  # a pattern was matched since the last JoinGroup
        self._is_wanted_again = False  # subscribed anew before an interrupted leave was over
        self._adopted = Adoption(Assignment(), (), NO_GENERATION)

    # --- what can be asked at any time ---------------------------------------------------------

    @property
    def state(self) -> MemberState:
        return self._session.state

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """Sorted; what the last completed ``Assigned``, ``Revoked`` or ``Lost`` left."""
        return self._session.owned

    @property
    def generation(self) -> MemberGeneration:
        return self._session.generation

    @property
    def is_in_group(self) -> bool:
        return self._session.state is MemberState.STABLE

    @property
    def is_leader(self) -> bool:
        return self._session.is_leader

    @property
    def is_subscribed(self) -> bool:
        return self._interest.is_subscribed

    @property
    def topics(self) -> frozenset[str]:
        """The subscription: the listed topics, or those that match the pattern now."""
        return self._interest.topics

    @property
    def knows_coordinator(self) -> bool:
        return self._session.link.is_known

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member was when it last adopted an assignment."""
        return self._group_metadata

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics to keep metadata of; ``None``: all (a pattern is subscribed to)."""
        return self._interest.wanted_topics

    @property
    def held(self) -> tuple[TopicPartition, ...]:
        """From a ``CommitPositions`` to the revocation: return no records of these."""
        return self._commit.held if self._phase in _COMMITS else ()

    @property
    def has_left(self) -> bool:
        """Closed, and nothing is on its way any more."""
        return self.is_closed and self._session.link.is_idle and self._phase is not _Phase.LEAVING

    @property
    def wants_poll(self) -> bool:
        """Whether ``poll`` would do something: wake up a user who waits in poll."""
        if self.is_closed or not self._interest.is_subscribed:
            return False
        if self._session.failure is not None or self._callbacks.is_interrupted:
            return True
        match self._phase:
            case _Phase.IDLE:
                return self._must_rejoin() and self._may_prepare()
            case _Phase.COMMITTING | _Phase.SAVING:
                return self._commit.wants_poll
            case _Phase.JOINING:
                return self._session.progress in (ExchangeProgress.SYNCED, ExchangeProgress.STALLED)
            case _:
                return False

    def next_deadline(self) -> int | None:
        """When ``tick`` is due; ``None``: only another input can change anything."""
        session_ms = self._session.next_deadline()
        if self._phase not in _COMMITS:
            return session_ms
        both = (session_ms, self._commit.next_deadline())
        return min((each for each in both if each is not None), default=None)

    # --- calls for the user's thread -----------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[Output]:
        """Want these topics, instead of whatever was wanted before. No topic is a ValueError."""
        wanted = frozenset(topics)
        if not wanted:
            raise ValueError("subscribe needs at least one topic; use unsubscribe to leave")
        self._interest.subscribe(wanted)
        out: list[Output] = []
        if not self._interest.covers(wanted):
            out.append(RefreshMetadata(self._interest.wanted_topics))
        return self._subscribed(now_ms, out)

    def subscribe_pattern(self, pattern: re.Pattern[str], now_ms: int) -> list[Output]:
        """Want every topic whose whole name matches, now and whenever metadata comes."""
        self._interest.subscribe_pattern(pattern)
        self._is_fresh = False
        return self._subscribed(now_ms, [])

    def subscribe_regex(self, regex: str, now_ms: int) -> list[Output]:
        """Refused: in a classic group nobody but the members matches topics."""
        del now_ms
        raise ConfigError(
            f"pattern={regex!r} is matched by the broker, in groups of the new protocol only "
            '(group_protocol="consumer"); re.compile(...) works in every group'
        )

    def _subscribed(self, now_ms: int, out: list[Output]) -> list[Output]:
        assert not self.is_closed
        self._is_wanted_again = self._phase is _Phase.LEAVING
        if self._phase is _Phase.REFRESHING:
            self._phase = _Phase.IDLE
        self._session.link.want(now_ms, out)
        return out

    def unsubscribe(self, now_ms: int) -> list[Output]:
        """Give up everything: a revoked or lost step, then LeaveGroup after ``callback_done``.

        A callback which gives partitions up may call this: it does not hear of them again.
        """
        self._is_wanted_again = False
        out: list[Output] = []
        session = self._session
        session.failure = None
        session.is_fenced = False
        told = set(self._callbacks.being_given_up)
        left = tuple(tp for tp in session.owned if tp not in told)
        if left:
            # In the middle of a rebalance others may have been given them already.
            is_lost = session.generation.is_reset or session.state in REBALANCING
            self._run(Lost(left) if is_lost else Revoked(left), _Phase.LEAVING, out)
        else:
            self._callbacks.drop()
            self._left(now_ms, out)
        return out

    def close(self, now_ms: int) -> list[Output]:
        """Like ``unsubscribe``, and forever."""
        self.is_closed = True
        return self.unsubscribe(now_ms)

    def _left(self, now_ms: int, out: list[Output]) -> None:
        self._phase = _Phase.IDLE
        self._session.owned = ()
        why = "the consumer is being closed" if self.is_closed else "the consumer unsubscribed"
        self._session.leave(why, now_ms, out)
        if not self._is_wanted_again:
            self._interest.clear()
            self._session.link.unwant()

    def enforce_rebalance(self, reason: str) -> list[Output]:
        """The next ``poll`` rejoins, though nothing has changed."""
        self._session.rejoin_reason = reason or "rebalance enforced by user"
        return []

    def poll(self, now_ms: int) -> list[Output]:
        """The user is here: callbacks may run, and the poll interval starts again."""
        if self.is_closed or not self._interest.is_subscribed:
            return []
        out: list[Output] = []
        session = self._session
        session.polled(now_ms, out)
        self._settled(out)
        if session.failure is not None:
            out.append(Failed(session.failure))
            if not session.is_fenced:
                session.failure = None
        elif self._callbacks.is_interrupted:
            self._callbacks.again(out)
        else:
            self._go_on(now_ms, out)
        return out

    def _go_on(self, now_ms: int, out: list[Output]) -> None:
        match self._phase:
            case _Phase.IDLE if self._must_rejoin() and self._may_prepare():
                self._begin(now_ms, out)
            case _Phase.COMMITTING if self._commit.is_over:
                self._revoke(now_ms, out)
            case _Phase.SAVING if self._commit.is_over:
                self._reconcile(now_ms, out, is_saved=True)
            case _Phase.COMMITTING | _Phase.SAVING:
                self._commit.poll(out)
            case _Phase.JOINING if self._session.progress is ExchangeProgress.SYNCED:
                self._adopt(now_ms, out)

    def callback_done(self, now_ms: int, error: Exception | None = None) -> list[Output]:
        """The callback of the last step has run; gives what comes next."""
        step = self._callbacks.done(error)
        if step is None:  # the callback itself unsubscribed: its step is void
            return []
        out: list[Output] = []
        if not isinstance(step, Assigned):
            gone = set(step.partitions)
            self._session.owned = tuple(tp for tp in self._session.owned if tp not in gone)
        match self._phase:
            case _Phase.REVOKING:
                self._prepared(now_ms, out)
            case _Phase.GIVING_UP:
                self._take_over(out)
            case _Phase.ADOPTING:
                self._phase = _Phase.IDLE
            case _:
                self._left(now_ms, out)
        self._callbacks.tell(out)
        return out

    def callback_interrupted(self) -> None:
        """A wakeup cut the callback short: the next ``poll`` gives the same step again."""
        self._callbacks.interrupt()

    def _run(self, step: CallbackStep, phase: _Phase, out: list[Output]) -> None:
        self._phase = phase
        self._callbacks.start(step, out)

    # --- before joining ------------------------------------------------------------------------

    def _must_rejoin(self) -> bool:
        return (
            self._session.rejoin_reason is not None
            or self._interest.cluster_changed
            or self._interest.has_changed_since_join
        )

    def _may_prepare(self) -> bool:
        # What is lost is lost, coordinator or not; but who is in the group keeps its partitions
        # until the coordinator can hear that they were given up.
        return self._session.link.is_known or self._session.generation.is_reset

    def _begin(self, now_ms: int, out: list[Output]) -> None:
        """Take the next step towards JoinGroup that is still to be taken."""
        session = self._session
        # From here on there is no way back, even if what changed changes back.
        session.rejoin_reason = session.rejoin_reason or self._interest.what_changed
        if not session.is_prepared and session.generation.is_reset and session.owned:
            self._revoke(now_ms, out)
        elif self._interest.has_pattern and not self._is_fresh:
            self._phase = _Phase.REFRESHING
            out.append(RefreshMetadata(None))
        elif session.is_prepared:
            self._phase = _Phase.JOINING
            self._is_fresh = False
            session.join(now_ms, out)
        else:
            can_commit = session.state is MemberState.STABLE and bool(session.owned)
            if self._config.auto_commit and can_commit:
                self._phase = _Phase.COMMITTING
                step = self._step_before_join()
                self._commit.start(() if step is None else step.partitions, now_ms, out)
            else:
                self._revoke(now_ms, out)

    def positions_committed(self, verdict: CommitVerdict, now_ms: int) -> None:
        """The commit asked for by ``CommitPositions`` was answered.

        RETRY makes the member ask again, until the rebalance timeout; anything else goes on.
        """
        self._commit.answered(verdict, now_ms)

    def _revoke(self, now_ms: int, out: list[Output]) -> None:
        self._session.is_prepared = True
        step = self._step_before_join()
        if step is None:
            self._prepared(now_ms, out)
        else:
            self._run(step, _Phase.REVOKING, out)

    def _step_before_join(self) -> Revoked | Lost | None:
        owned = self._session.owned
        if self._session.generation.is_reset:
            return Lost(owned) if owned else None
        if self.protocol is RebalanceProtocol.EAGER:
            return Revoked(owned)
        unwanted = tuple(tp for tp in owned if tp.topic not in self._interest.topics)
        return Revoked(unwanted) if unwanted else None

    def _prepared(self, now_ms: int, out: list[Output]) -> None:
        session = self._session
        session.is_leader = False
        self._interest.forget_leadership()
        # Not prepared after all: thrown out of the group while the callback ran. What is left
        # must be given up as lost first.
        if session.is_prepared:
            session.state = MemberState.PREPARING
        self._begin(now_ms, out)

    # --- after syncing -------------------------------------------------------------------------

    def _adopt(self, now_ms: int, out: list[Output]) -> None:
        session = self._session
        session.progress = ExchangeProgress.NONE
        self._phase = _Phase.IDLE
        try:
            assignment = leadership.read_assignment(session.assignment)
        except InvalidFrameError as error:
            session.rejoin_reason = "the assignment cannot be read"
            name = session.generation.protocol_name or ""
            reason = f"the leader sent {len(session.assignment)} bytes for this member: {error}"
            out.append(Failed(InvalidAssignmentError(name, reason)))
            return
        partitions = tuple(sorted(set(assignment.partitions)))
        self._adopted = Adoption(assignment, partitions, session.generation)
        self._reconcile(now_ms, out, is_saved=not self._config.auto_commit)

    def _reconcile(self, now_ms: int, out: list[Output], *, is_saved: bool) -> None:
        """From what is owned to what was assigned.

        Records were returned since the commit before the join, for cooperative members read on:
        what is given up is committed once more, or its next owner would read them again. (Kafka's
        client leaves that to the listener.) The group waits for nobody meanwhile.
        """
        session, partitions = self._session, self._adopted.partitions
        self._phase = _Phase.IDLE
        if not self._interest.fits(partitions):
            # The subscription has changed since JoinGroup (KAFKA-7961): nobody hears of this.
            session.rejoin_reason = "received assignment does not match the current subscription"
            self._go_on(now_ms, out)
            return
        kept = set(partitions)
        given_up = tuple(tp for tp in session.owned if tp not in kept)
        if not given_up:
            self._take_over(out)
        elif is_saved:
            assert self.protocol is RebalanceProtocol.COOPERATIVE
            session.rejoin_reason = "need to revoke partitions and re-join"
            self._run(Revoked(given_up), _Phase.GIVING_UP, out)
        else:
            self._phase = _Phase.SAVING
            self._commit.start(given_up, now_ms, out)

    def _take_over(self, out: list[Output]) -> None:
        assignment, partitions, generation = self._adopted
        self._interest.adopt(partitions)
        self._group_metadata = self._session.identity(generation)
        try:
            self._assignors[generation.protocol_name or ""].on_assignment(
                assignment, self._group_metadata
            )
        except Exception as error:  # noqa: BLE001 - user code: anything may come out of it
            self._callbacks.note(error)
        before = set(self._session.owned)
        added = tuple(tp for tp in partitions if tp not in before)
        self._session.owned = partitions
        self._run(Assigned(added, partitions), _Phase.ADOPTING, out)

    # --- calls for the engine ------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Output]:
        """Do what time asks for: heartbeats, retries, giving up on silence."""
        out: list[Output] = []
        self._commit.tick(now_ms)
        self._session.tick(now_ms, out)
        return self._settled(out)

    def receive(self, ticket: int, answer: MemberAnswer, now_ms: int) -> list[Output]:
        """An answer to a ``Send``. One that comes too late changes nothing."""
        out: list[Output] = []
        self._session.receive(ticket, answer, now_ms, out)
        return self._settled(out)

    def connection_lost(self, now_ms: int) -> list[Output]:
        """The connection to the coordinator broke: nothing asked on it will be answered."""
        out: list[Output] = []
        self._session.lose_coordinator(now_ms, out, disconnect=False)
        return self._settled(out)

    def need_coordinator(self, now_ms: int) -> list[Output]:
        """Someone wants to commit or to fetch offsets: look the coordinator up if need be."""
        out: list[Output] = []
        self._session.link.want(now_ms, out)
        return out

    def coordinator_found(self, now_ms: int) -> list[Output]:
        """``FindCoordinator`` succeeded, and the shell will connect to it."""
        out: list[Output] = []
        self._session.coordinator_found(now_ms, out)
        return out

    def coordinator_not_found(self, code: ErrorCode, now_ms: int) -> list[Output]:
        """It failed; NETWORK_EXCEPTION if no broker answered."""
        self._session.coordinator_not_found(code, now_ms)
        return []

    def update_metadata(self, answer: ClusterTopics, now_ms: int) -> list[Output]:
        """A Metadata response came, asked for or not."""
        out: list[Output] = []
        self._interest.update(answer)
        if self._phase is _Phase.REFRESHING and answer.asked is None:
            self._is_fresh = True
            self._phase = _Phase.IDLE
        self._session.metadata_came(now_ms, out)
        return self._settled(out)

    def _settled(self, out: list[Output]) -> list[Output]:
        """The session may have been thrown out of the group, or have given a join up."""
        if self._phase is _Phase.IDLE:
            return out
        session = self._session
        is_out = session.generation.is_reset and not session.is_prepared
        match self._phase:
            case _Phase.JOINING if session.progress is ExchangeProgress.NONE:
                self._phase = _Phase.IDLE
            # Lost partitions wait neither for metadata nor for a callback to be run again.
            case _Phase.REFRESHING | _Phase.COMMITTING | _Phase.SAVING if is_out and session.owned:
                self._phase = _Phase.IDLE
            case _Phase.REVOKING | _Phase.GIVING_UP if is_out and self._callbacks.is_interrupted:
                self._phase = _Phase.IDLE
                self._callbacks.drop()
        return out

    # --- commits -------------------------------------------------------------------------------

    def commit_as(self) -> ConsumerGroupMetadata | CommitVerdict:
        """Whom to name in OffsetCommit, or why none can be sent now (REBALANCING, REFUSED)."""
        return self._session.commit_as()

    def commit_answered(
        self, code: ErrorCode, sent_as: ConsumerGroupMetadata, now_ms: int
    ) -> tuple[CommitVerdict, list[Output]]:
        """What an answer (the first error of its partitions, or NONE) means."""
        out: list[Output] = []
        verdict = self._session.commit_answered(code, sent_as, now_ms, out)
        return verdict, self._settled(out)
