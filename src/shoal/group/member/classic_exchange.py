"""What the coordinator knows of a member: joining, syncing, heartbeating, leaving.

Rule: this half of a member never waits for the user. It runs the exchange with the coordinator
from the JoinGroup on which the user's side (``classic_member.py``) has prepared, up to an
assignment in bytes, and keeps the session alive meanwhile; what happens to partitions is not
decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final

from shoal.assign.model import Assignor, Subscription
from shoal.errors import ErrorCode, InvalidAssignmentError, error_for
from shoal.group.member import leadership, reactions
from shoal.group.member.coordinator_link import NO_GENERATION, CoordinatorLink, MemberGeneration
from shoal.group.member.member_interface import (
    CommitVerdict,
    MemberAnswer,
    MemberConfig,
    MemberState,
    Output,
    RefreshMetadata,
    Warn,
)
from shoal.group.member.pacing import Backoff, HeartbeatClocks
from shoal.group.member.reactions import MemberReaction, reaction
from shoal.group.member.subscription import TopicInterest
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.leave_group import LeaveGroupRequest
from shoal.wire.apis.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_TYPE: Final = "consumer"

# The coordinator may hold a JoinGroup for the whole rebalance timeout; the rest is for the way.
_JOIN_GRACE_MS: Final = 5_000
_REASON_LENGTH_MAX: Final = 255


class ExchangeProgress(Enum):
    """How far the exchange with the coordinator has come."""

    NONE = "nothing is under way"
    DUE = "JoinGroup is sent as soon as it may be"
    STALLED = "JoinGroup waits for the user to come back to poll"
    JOINING = "JoinGroup is on its way"
    LEADING = "we assign, and wait for metadata of the group's topics"
    SYNCING = "SyncGroup is on its way"
    SYNCED = "the assignment is here and waits to be adopted"


# Tuples: of a few members of an enum, looking is faster than hashing.
_HEARTBEATING: Final = (MemberState.STABLE, MemberState.COMPLETING)
REBALANCING: Final = (MemberState.PREPARING, MemberState.COMPLETING)


class GroupSession:
    """A member as its coordinator sees it."""

    def __init__(
        self,
        config: MemberConfig,
        assignors: Sequence[Assignor],
        interest: TopicInterest,
        chance: Callable[[], float],
    ) -> None:
        self._config = config
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._interest = interest
        self._clocks = HeartbeatClocks(config, chance)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self.link = CoordinatorLink(config, chance)

        self.state = MemberState.UNJOINED
        self.generation = NO_GENERATION
        self.progress = ExchangeProgress.NONE
        self.is_leader = False
        self.owned: tuple[TopicPartition, ...] = ()
        """What this member claims when it joins; the user's side changes it."""
        self.assignment = b""
        """What SyncGroup brought, while ``progress`` is SYNCED."""

        self.rejoin_reason: str | None = "first join"
        """Why this member must join again; ``None``: it need not."""
        self.is_prepared = False
        """Whether the user's side has done what must be done before this join."""
        self.failure: Exception | None = None
        """What the user must hear at the next poll."""
        self.is_fenced = False

        self._join_at_ms = 0
        self._subscriptions: dict[str, Subscription] = {}  # while LEADING
        self._skips_assignment = False

    def next_deadline(self) -> int | None:
        deadline = self.link.next_deadline()
        is_known = self.link.is_known
        if self.state in _HEARTBEATING:
            clocks = self._clocks
            due_ms = clocks.poll_ends_ms
            if is_known:
                due_ms = min(due_ms, clocks.send_at_ms, clocks.session_ends_ms)
            if deadline is None or due_ms < deadline:
                deadline = due_ms
        if (
            is_known
            and self.progress is ExchangeProgress.DUE
            and (deadline is None or self._join_at_ms < deadline)
        ):
            deadline = self._join_at_ms
        return deadline

    def polled(self, now_ms: int, out: list[Output]) -> None:
        """The user is here: the poll interval starts again."""
        self._clocks.polled(now_ms)
        self.link.look_up(now_ms, out)
        if self.progress is ExchangeProgress.STALLED:
            self.join(now_ms, out)

    # --- joining -------------------------------------------------------------------------------

    def join(self, now_ms: int, out: list[Output], *, after_ms: int = 0) -> None:
        """Send JoinGroup as soon as there is a coordinator and the wait is over."""
        self.progress = ExchangeProgress.DUE
        self._join_at_ms = now_ms + after_ms
        self._try_join(now_ms, out)

    def _try_join(self, now_ms: int, out: list[Output]) -> None:
        if (
            self.progress is not ExchangeProgress.DUE
            or not self.link.is_known
            or now_ms < self._join_at_ms
        ):
            return
        if now_ms >= self._clocks.poll_ends_ms:
            # Joining for a user who is not there would only delay the group.
            self.progress = ExchangeProgress.STALLED
            return
        self.progress = ExchangeProgress.JOINING
        self.state = MemberState.PREPARING
        self._interest.joined = self._interest.topics
        wait_ms = max(
            self._config.request_timeout_ms, self._config.max_poll_interval_ms + _JOIN_GRACE_MS
        )
        self.link.send(self._join_request(), self.generation, now_ms + wait_ms, out)

    def _join_request(self) -> JoinGroupRequest:
        config = self._config
        reason = self.rejoin_reason or ""
        return JoinGroupRequest(
            group_id=config.group_id,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.max_poll_interval_ms,
            member_id=self.generation.member_id,
            group_instance_id=config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequest.Protocol(
                    name=name, metadata=leadership.write_subscription(self._subscription(assignor))
                )
                for name, assignor in self._assignors.items()
            ],
            reason=reason[:_REASON_LENGTH_MAX],
        )

    def _subscription(self, assignor: Assignor) -> Subscription:
        topics = sorted(self._interest.topics)
        generation_id = self.generation.generation_id
        return Subscription(
            topics=topics,
            user_data=assignor.subscription_user_data(topics),
            owned_partitions=self.owned,
            generation_id=generation_id if generation_id >= 0 else None,
            rack_id=self._config.client_rack or None,
        )

    def _on_join(
        self, answer: JoinGroupResponse, sent: MemberGeneration, now_ms: int, out: list[Output]
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE and answer.protocol_type not in (None, PROTOCOL_TYPE):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is ErrorCode.NONE and answer.protocol_name not in self._assignors:
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        match reaction(reactions.JOIN_GROUP, code):
            case MemberReaction.GO_ON:
                self._joined(answer, now_ms, out)
            case MemberReaction.TAKE_ID:
                self.generation = MemberGeneration(-1, answer.member_id, None)
                self.join(now_ms, out)
            case other:
                self._rebalance_failed(other, code, sent, now_ms, out)

    def _joined(self, answer: JoinGroupResponse, now_ms: int, out: list[Output]) -> None:
        self.state = MemberState.COMPLETING
        self.generation = MemberGeneration(
            answer.generation_id, answer.member_id, answer.protocol_name
        )
        self._clocks.joined(now_ms)
        if answer.leader != answer.member_id:
            self._sync([], now_ms, out)
            return
        self.is_leader = True
        self._subscriptions = leadership.read_subscriptions(answer.members)
        self._skips_assignment = answer.skip_assignment
        self._interest.lead(leadership.topics_of(self._subscriptions))
        self.progress = ExchangeProgress.LEADING
        if self._knows_enough():
            self._assign(now_ms, out)
        else:
            out.append(RefreshMetadata(self._interest.wanted_topics))

    def _assign(self, now_ms: int, out: list[Output]) -> None:
        assert self.generation.protocol_name is not None
        assignor = self._assignors[self.generation.protocol_name]
        subscriptions, self._subscriptions = self._subscriptions, {}
        plan = leadership.LeaderPlan([])
        if not self._skips_assignment:
            try:
                plan = leadership.assign(assignor, self._interest.cluster(), subscriptions)
            except InvalidAssignmentError as error:
                self._give_up(error)
                return
        if plan.warning is not None:
            out.append(Warn(f"group {self._config.group_id!r}: {plan.warning}"))
        self._interest.remember_assigned()
        if self.link.is_known:
            self._sync(plan.assignments, now_ms, out)
        else:
            self.join(now_ms, out, after_ms=self._backoff.next_ms())

    def _sync(
        self, plan: list[SyncGroupRequest.Assignment], now_ms: int, out: list[Output]
    ) -> None:
        self.progress = ExchangeProgress.SYNCING
        request = SyncGroupRequest(
            group_id=self._config.group_id,
            generation_id=self.generation.generation_id,
            member_id=self.generation.member_id,
            group_instance_id=self._config.group_instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.generation.protocol_name,
            assignments=plan,
        )
        deadline_ms = now_ms + self._config.request_timeout_ms
        self.link.send(request, self.generation, deadline_ms, out)

    def _on_sync(
        self, answer: SyncGroupResponse, sent: MemberGeneration, now_ms: int, out: list[Output]
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE and (
            answer.protocol_type not in (None, PROTOCOL_TYPE)
            or answer.protocol_name not in (None, sent.protocol_name)
        ):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        react = reaction(reactions.SYNC_GROUP, code)
        if react is MemberReaction.GO_ON:
            self.state = MemberState.STABLE
            self.progress = ExchangeProgress.SYNCED
            self.assignment = answer.assignment
            self.rejoin_reason = None
            self.is_prepared = False
            self._backoff.reset()
        else:
            self._rebalance_failed(react, code, sent, now_ms, out)

    def _rebalance_failed(
        self,
        react: MemberReaction,
        code: ErrorCode,
        sent: MemberGeneration,
        now_ms: int,
        out: list[Output],
    ) -> None:
        """JoinGroup or SyncGroup was answered with an error."""
        self.rejoin_reason = f"rebalance failed due to {code.name}"
        match react:
            case MemberReaction.REJOIN:
                self.join(now_ms, out)
            case MemberReaction.RETRY:
                self.join(now_ms, out, after_ms=self._backoff.next_ms())
            case MemberReaction.REDISCOVER:
                self.join(now_ms, out, after_ms=self._backoff.next_ms())
                self.lose_coordinator(now_ms, out, disconnect=True)
            case MemberReaction.RESET_GENERATION | MemberReaction.RESET_MEMBER:
                assert sent == self.generation, "a reset voids the tickets of the join"
                self.reset(code.name, keeps_id=react is MemberReaction.RESET_GENERATION)
            case _:
                self.is_fenced = react is MemberReaction.FENCED
                self._give_up(error_for(code))

    def _give_up(self, failure: Exception) -> None:
        """The user must hear of this; their poll after that one starts again with JoinGroup."""
        self.failure = failure
        self.progress = ExchangeProgress.NONE
        self.rejoin_reason = self.rejoin_reason or "the last rebalance failed"

    # --- being thrown out, and leaving ---------------------------------------------------------

    def reset(self, reason: str, *, keeps_id: bool) -> None:
        """Not in the generation any more; the next poll tells the user what was lost."""
        self.state = MemberState.UNJOINED
        self.generation = MemberGeneration(-1, self.generation.member_id if keeps_id else "", None)
        self.rejoin_reason = reason
        self.is_prepared = False
        self.progress = ExchangeProgress.NONE
        self.link.void(JoinGroupRequest, SyncGroupRequest)

    def leave(self, reason: str, now_ms: int, out: list[Output]) -> None:
        """One LeaveGroup, never repeated. A static member stays until its session ends."""
        if (
            self._config.group_instance_id is None
            and self.link.is_known
            and self.state is not MemberState.UNJOINED
            and self.generation.member_id
        ):
            leaving = LeaveGroupRequest.MemberIdentity(
                member_id=self.generation.member_id, reason=reason[:_REASON_LENGTH_MAX]
            )
            request = LeaveGroupRequest(group_id=self._config.group_id, members=[leaving])
            deadline_ms = now_ms + self._config.request_timeout_ms
            self.link.send(request, self.generation, deadline_ms, out)
        self.reset(reason, keeps_id=False)

    # --- staying -------------------------------------------------------------------------------

    def tick(self, now_ms: int, out: list[Output]) -> None:
        if self.link.is_overdue(now_ms):
            self.lose_coordinator(now_ms, out, disconnect=True)
        self.link.look_up(now_ms, out)
        if self.state in _HEARTBEATING:
            self._heartbeat(now_ms, out)
        self._try_join(now_ms, out)

    def _heartbeat(self, now_ms: int, out: list[Output]) -> None:
        if now_ms >= self._clocks.poll_ends_ms:
            self.leave("consumer poll timeout has expired", now_ms, out)
        elif not self.link.is_known:
            return
        elif now_ms >= self._clocks.session_ends_ms:
            self.lose_coordinator(now_ms, out, disconnect=True)
        elif now_ms >= self._clocks.send_at_ms:
            self._clocks.sent(now_ms)
            request = HeartbeatRequest(
                group_id=self._config.group_id,
                generation_id=self.generation.generation_id,
                member_id=self.generation.member_id,
                group_instance_id=self._config.group_instance_id,
            )
            deadline_ms = now_ms + self._config.request_timeout_ms
            self.link.send(request, self.generation, deadline_ms, out)

    def receive(self, ticket: int, answer: MemberAnswer, now_ms: int, out: list[Output]) -> None:
        flight = self.link.take(ticket)
        if flight is None:
            return  # it comes too late: nobody waits for it
        if isinstance(answer, HeartbeatResponse):
            self._on_heartbeat(answer, flight.generation, now_ms, out)
        elif isinstance(answer, JoinGroupResponse):
            self._on_join(answer, flight.generation, now_ms, out)
        elif isinstance(answer, SyncGroupResponse):
            self._on_sync(answer, flight.generation, now_ms, out)
        # LeaveGroup: whatever it says, we are gone

    def _on_heartbeat(
        self, answer: HeartbeatResponse, sent: MemberGeneration, now_ms: int, out: list[Output]
    ) -> None:
        if sent != self.generation:
            self._clocks.answered(now_ms)  # of a generation that is over (KAFKA-9823)
            return
        code = ErrorCode.of(answer.error_code)
        match reaction(reactions.HEARTBEAT, code):
            case MemberReaction.GO_ON:
                self._clocks.answered(now_ms)
            case MemberReaction.REJOIN:
                # The session goes on meanwhile; and while we rejoin already this is no news.
                self._clocks.answered(now_ms)
                if self.state is MemberState.STABLE:
                    self.rejoin_reason = "group is already rebalancing"
            case MemberReaction.RESET_GENERATION:
                self.reset(f"heartbeat: {code.name}", keeps_id=True)
            case MemberReaction.RESET_MEMBER:
                self.reset(f"heartbeat: {code.name}", keeps_id=False)
            case MemberReaction.FENCED:
                self.reset(f"heartbeat: {code.name}", keeps_id=False)
                self.failure = error_for(code)
                self.is_fenced = True
            case MemberReaction.REDISCOVER:
                self._clocks.failed(now_ms)
                self.lose_coordinator(now_ms, out, disconnect=True)
            case MemberReaction.RAISE:
                self._clocks.failed(now_ms)
                self.failure = error_for(code)
            case _:
                self._clocks.failed(now_ms)

    def lose_coordinator(self, now_ms: int, out: list[Output], *, disconnect: bool) -> None:
        for flight in self.link.lose(now_ms, out, disconnect=disconnect):
            if isinstance(flight.request, HeartbeatRequest):
                self._clocks.failed(now_ms)
            elif isinstance(flight.request, JoinGroupRequest | SyncGroupRequest):
                # The generation stays: whether the coordinator took the request is not known.
                self.rejoin_reason = self.rejoin_reason or "the connection was lost"
                self.join(now_ms, out, after_ms=self._backoff.next_ms())

    def coordinator_found(self, now_ms: int, out: list[Output]) -> None:
        self.link.found()
        self._clocks.coordinator_found(now_ms)
        self._try_join(now_ms, out)

    def metadata_came(self, now_ms: int, out: list[Output]) -> None:
        if self.progress is ExchangeProgress.LEADING and self._knows_enough():
            self._assign(now_ms, out)

    def _knows_enough(self) -> bool:
        return self._interest.covers(leadership.topics_of(self._subscriptions))

    def coordinator_not_found(self, code: ErrorCode, now_ms: int) -> None:
        self.link.not_found(now_ms)
        if reaction(reactions.FIND_COORDINATOR, code) is MemberReaction.RAISE:
            self.failure = error_for(code)

    # --- commits -------------------------------------------------------------------------------

    def commit_as(self) -> ConsumerGroupMetadata | CommitVerdict:
        """Whom to name in OffsetCommit, or why none can be sent now (REBALANCING, REFUSED)."""
        if not self._interest.is_subscribed:
            # Partitions assigned by hand: no member, so no instance id either (KAFKA-14201).
            return ConsumerGroupMetadata(self._config.group_id)
        if self.state is MemberState.STABLE:
            return self.identity(self.generation)
        if self.state in REBALANCING:
            return CommitVerdict.REBALANCING
        return CommitVerdict.REFUSED

    def identity(self, generation: MemberGeneration) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(
            self._config.group_id,
            generation.generation_id,
            generation.member_id,
            self._config.group_instance_id,
        )

    def commit_answered(
        self, code: ErrorCode, sent_as: ConsumerGroupMetadata, now_ms: int, out: list[Output]
    ) -> CommitVerdict:
        generation_id, member_id, _ = self.generation
        is_current = (sent_as.generation_id, sent_as.member_id) == (generation_id, member_id)
        react = reaction(reactions.OFFSET_COMMIT, code)
        match react:
            case MemberReaction.GO_ON:
                verdict = CommitVerdict.DONE
            case MemberReaction.RETRY:
                verdict = CommitVerdict.RETRY
            case MemberReaction.REDISCOVER:
                self.lose_coordinator(now_ms, out, disconnect=True)
                verdict = CommitVerdict.RETRY
            case MemberReaction.RAISE:
                verdict = CommitVerdict.ERROR
            case _ if not is_current or not sent_as.member_id:
                is_rebalancing = self.state in REBALANCING
                verdict = CommitVerdict.REBALANCING if is_rebalancing else CommitVerdict.REFUSED
            case MemberReaction.REJOIN:
                self.rejoin_reason = "offset commit failed since group is already rebalancing"
                verdict = CommitVerdict.REBALANCING
            case MemberReaction.FENCED:
                self.failure = error_for(code)
                self.is_fenced = True
                verdict = CommitVerdict.ERROR
            case _:
                keeps_id = react is MemberReaction.RESET_GENERATION
                self.reset(f"offset commit: {code.name}", keeps_id=keeps_id)
                verdict = CommitVerdict.REFUSED
        return verdict
