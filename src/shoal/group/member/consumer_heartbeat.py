"""What the coordinator of the new protocol (KIP-848) hears of a member: one heartbeat at a time.

Rule: this half of a member never waits for the user. It keeps the member's epoch, says in each
heartbeat what has changed since the last one that was answered, and takes the assignment out of
the answers; what happens to partitions is decided by the user's side (``consumer_member.py``).

A heartbeat is sent when the interval is over, which every answer sets, and at once when there is
something to say: a join, a finished reconciliation, a new subscription, a commit that was refused
for its epoch. After an error or a lost answer the next one says everything again, with the real
epoch: whether the coordinator has taken the last one is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from shoal.errors import ErrorCode, error_for
from shoal.group.member import reactions
from shoal.group.member.consumer_states import HEARTBEATING, MOVES, OUT, ConsumerMemberState
from shoal.group.member.coordinator_link import CoordinatorLink, MemberGeneration
from shoal.group.member.member_interface import CommitVerdict, MemberConfig, Output, Warn
from shoal.group.member.pacing import Backoff
from shoal.group.member.reactions import MemberReaction, reaction
from shoal.group.member.subscription import TopicInterest
from shoal.types import ConsumerGroupMetadata
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

Target: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Partitions by topic id, each list sorted and without doubles."""

_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2  # of a static member: its place is kept until its session ends
# Until the first answer says it. Also Kafka's default.
_INTERVAL_MS: Final = 5_000
# So many intervals without a good answer are a third of Kafka's session: somebody should know.
_PATIENCE_INTERVALS: Final = 3

_S = ConsumerMemberState


class _Told(NamedTuple):
    """What the coordinator knows of us."""

    names: tuple[str, ...]
    regex: str
    assignor: str | None
    rebalance_timeout_ms: int
    adoptions: int
    """Counts what the user's side has finished: each is told, even if it brings the same set."""


class HeartbeatExchange:
    """A member as its coordinator sees it."""

    def __init__(
        self,
        config: MemberConfig,
        member_id: str,
        interest: TopicInterest,
        chance: Callable[[], float],
    ) -> None:
        self._config = config
        self._interest = interest
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self.link = CoordinatorLink(config, chance)

        self.member_id = member_id
        self.state = _S.UNSUBSCRIBED
        self.epoch = 0
        """0: not in the group, or on the way into it."""
        self.regex = ""
        """What the broker is to match topics with; empty: nothing."""
        self.target: Target = {}
        """What the coordinator wants this member to own."""
        self.adopted: Target | None = None
        """What the user's side owns of it; ``None``: nothing was adopted since the join."""
        self.adopting: Target | None = None
        """What it may own before its callbacks have run. Whoever asks is told of it already, or the
        coordinator could give a part of it to somebody else before it was let go of."""
        self.is_claim_unanswered = False
        """The coordinator may still hear what was owned when that was sent: until it has answered,
        nothing more may be owned, or it would believe that it was let go of."""
        self.failure: Exception | None = None
        """What the user must hear at the next poll."""

        self._adoptions = 0
        self._told: _Told | None = None
        self._may_be_known = False  # a join was sent: the coordinator may have us as a member
        self._interval_ms = _INTERVAL_MS
        self._send_at_ms = 0
        self._not_before_ms = 0  # the wait after a failure, which nobody's hurry cuts short
        self._is_hurried = False
        self._poll_ends_ms = 0
        self._doubted_at_ms = 0
        self._trouble = ""
        self._is_told_of_trouble = False
        self._remark: str | None = None

    def move(self, to: ConsumerMemberState) -> None:
        assert to in MOVES[self.state], f"{self.state} -> {to}"
        self.state = to

    def next_deadline(self) -> int | None:
        link = self.link
        deadline = link.next_deadline()
        if self.state not in HEARTBEATING:
            return deadline
        if link.is_known and link.is_idle and (deadline is None or self._send_at_ms < deadline):
            deadline = self._send_at_ms
        if not self._is_told_of_trouble and (deadline is None or self._doubted_at_ms < deadline):
            deadline = self._doubted_at_ms
        if self.state is _S.PREPARE_LEAVING:
            return deadline
        return self._poll_ends_ms if deadline is None else min(deadline, self._poll_ends_ms)

    def polled(self, now_ms: int, out: list[Output]) -> None:
        """The user is here: the poll interval starts again."""
        self._poll_ends_ms = now_ms + self._config.max_poll_interval_ms
        self.link.look_up(now_ms, out)

    # --- what the user's side orders -----------------------------------------------------------

    def join(self, now_ms: int, out: list[Output]) -> None:
        """Into the group with nothing: epoch 0, and everything is said."""
        self.move(_S.JOINING)
        self.epoch = 0
        self.adopted = self.adopting = None
        self.target = {}
        self._told = None
        self._doubt_later(now_ms)
        self.hurry(now_ms, out)

    def acknowledge(self, adopted: Target, now_ms: int, out: list[Output]) -> None:
        """The user's side owns ``adopted`` now: say so at once."""
        self.adopted, self.adopting = adopted, None
        self._adoptions += 1
        if self.state is _S.STABLE:
            # While the user's callbacks ran, the coordinator took back what they were about.
            self.move(_S.RECONCILING)
        self.move(_S.ACKNOWLEDGING)
        self.hurry(now_ms, out)

    def hurry(self, now_ms: int, out: list[Output]) -> None:
        """There is something to say, or to ask: the next heartbeat goes as soon as it may."""
        self._is_hurried = not self.link.is_idle
        self._send_at_ms = max(now_ms, self._not_before_ms)
        self._try_send(now_ms, out)

    def leave(self, now_ms: int, out: list[Output], *, then: ConsumerMemberState) -> None:
        """Say good-bye once, if the coordinator may know us; whatever it answers, we are gone."""
        is_known_there = self.state in HEARTBEATING and (self.epoch > 0 or self._may_be_known)
        if self.state in HEARTBEATING:
            self.move(_S.LEAVING)
        self._forget_requests()
        if is_known_there and self.link.is_known:
            is_static = self._config.group_instance_id is not None
            request = ConsumerGroupHeartbeatRequest(
                group_id=self._config.group_id,
                member_id=self.member_id,
                member_epoch=_LEAVE_FOR_A_WHILE if is_static else _LEAVE,
                instance_id=self._config.group_instance_id,
            )
            self._send(request, now_ms, out)
        self._out(then)

    def fail(self, error: Exception) -> None:
        """Refused for good."""
        self.failure = error
        self._forget_requests()
        self._out(_S.UNSUBSCRIBED if self.state is _S.PREPARE_LEAVING else _S.FATAL)

    def forgive(self) -> None:
        """The user subscribes again: what was refused may be no more."""
        self.failure = None
        if self.state is _S.FATAL:
            self.move(_S.UNSUBSCRIBED)

    def _fence(self) -> None:
        self._forget_requests()
        self._out(_S.UNSUBSCRIBED if self.state is _S.PREPARE_LEAVING else _S.FENCED)

    def _out(self, state: ConsumerMemberState) -> None:
        if self.state is not state:
            self.move(state)
        self.epoch = 0
        self._told = None
        self._may_be_known = False
        self.is_claim_unanswered = False

    def _forget_requests(self) -> None:
        self.link.void(ConsumerGroupHeartbeatRequest)

    # --- sending -------------------------------------------------------------------------------

    def tick(self, now_ms: int, out: list[Output]) -> None:
        if self.link.is_overdue(now_ms):
            self._trouble = f"no answer within {self._config.request_timeout_ms} ms"
            self.lose_coordinator(now_ms, out, disconnect=True)
        self.link.look_up(now_ms, out)
        if self.state not in HEARTBEATING:
            return
        if now_ms >= self._poll_ends_ms and self.state is not _S.PREPARE_LEAVING:
            out.append(
                Warn(
                    f"group {self._config.group_id!r}: left, because there was no poll for "
                    f"{self._config.max_poll_interval_ms} ms (max_poll_interval_ms); the next "
                    "poll joins again"
                )
            )
            self.leave(now_ms, out, then=_S.STALE)
            return
        if now_ms >= self._doubted_at_ms and not self._is_told_of_trouble:
            self._is_told_of_trouble = True
            out.append(Warn(self._in_trouble()))
        self._try_send(now_ms, out)

    def _in_trouble(self) -> str:
        why = self._trouble or "its coordinator is not found"
        waits_ms = _PATIENCE_INTERVALS * self._interval_ms
        return (
            f"group {self._config.group_id!r}: no heartbeat succeeded for {waits_ms} ms ({why}); "
            "others may be given this member's partitions"
        )

    def _try_send(self, now_ms: int, out: list[Output]) -> None:
        if (
            self.state not in HEARTBEATING
            or not self.link.is_known
            or not self.link.is_idle
            or now_ms < self._send_at_ms
        ):
            return
        self._is_hurried = False
        self._send_at_ms = now_ms + self._interval_ms
        request = self._request()
        self.is_claim_unanswered |= request.topic_partitions is not None
        self._send(request, now_ms, out)
        self._may_be_known = True
        if self.state is _S.ACKNOWLEDGING:
            self._reconciled()

    def _send(self, request: ConsumerGroupHeartbeatRequest, now_ms: int, out: list[Output]) -> None:
        sent_as = MemberGeneration(request.member_epoch, self.member_id, None)
        self.link.send(request, sent_as, now_ms + self._config.request_timeout_ms, out)

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        config, is_joining, before = self._config, self.state is _S.JOINING, self._told
        told = self._told = _Told(
            tuple(sorted(self._interest.topics)),
            self.regex,
            config.group_remote_assignor,
            config.max_poll_interval_ms,
            self._adoptions,
        )
        request = ConsumerGroupHeartbeatRequest(
            group_id=config.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=config.group_instance_id,
        )
        if is_joining:
            request.rack_id = config.client_rack or None
        if before is None or before.rebalance_timeout_ms != told.rebalance_timeout_ms:
            request.rebalance_timeout_ms = told.rebalance_timeout_ms
        if before is None or before.names != told.names:
            request.subscribed_topic_names = list(told.names)
        # Empty takes an earlier one back; before that there is none, which old brokers also know.
        if told.regex != ("" if before is None else before.regex):
            request.subscribed_topic_regex = told.regex
        if before is None:
            request.server_assignor = told.assignor
        claimed = self.adopted if self.adopting is None else self.adopting
        if before is None or before.adoptions != told.adoptions:
            request.topic_partitions = [
                ConsumerGroupHeartbeatRequest.TopicPartitions(
                    topic_id=topic_id, partitions=list(numbers)
                )
                for topic_id, numbers in sorted((claimed or {}).items())
            ]
        return request

    # --- answers -------------------------------------------------------------------------------

    def receive(
        self, ticket: int, answer: ConsumerGroupHeartbeatResponse, now_ms: int, out: list[Output]
    ) -> None:
        flight = self.link.take(ticket)
        if flight is None or flight.generation.generation_id < 0:
            return  # too late, or to a good-bye: we are gone, whatever it says
        assert self.state in HEARTBEATING, "who is out has voided its tickets"
        code = ErrorCode.of(answer.error_code)
        sent_epoch = flight.generation.generation_id
        if code is ErrorCode.GROUP_ID_NOT_FOUND and sent_epoch > 0:
            # The coordinator has lost the group. Kafka's clients die of it; to join again heals.
            code = ErrorCode.UNKNOWN_MEMBER_ID
        react = reaction(reactions.CONSUMER_GROUP_HEARTBEAT, code)
        if react is MemberReaction.GO_ON:
            self._accepted(answer, now_ms, out)
        else:
            self._refused(react, answer, now_ms, out)

    def _accepted(
        self, answer: ConsumerGroupHeartbeatResponse, now_ms: int, out: list[Output]
    ) -> None:
        if answer.member_epoch <= 0:
            self._trouble = f"answered with epoch {answer.member_epoch}"
            self._again(now_ms)  # to go on with it would say good-bye
            return
        if self._is_told_of_trouble:
            out.append(Warn(f"group {self._config.group_id!r}: heartbeats succeed again"))
        if answer.error_message and answer.error_message != self._remark:
            # No error, and worth knowing: an assignor of the broker's failed.
            out.append(Warn(f"group {self._config.group_id!r}: {answer.error_message}"))
        self._remark = answer.error_message
        if answer.heartbeat_interval_ms > 0:
            self._interval_ms = answer.heartbeat_interval_ms
        self._backoff.reset()
        self._doubt_later(now_ms)
        self.is_claim_unanswered = False
        self._send_at_ms = now_ms if self._is_hurried else now_ms + self._interval_ms
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.target = _target(answer.assignment)
        if self.state is _S.JOINING:
            self.move(_S.RECONCILING)
        elif self.state in (_S.STABLE, _S.RECONCILING):
            self._reconciled()
        self._try_send(now_ms, out)

    def _reconciled(self) -> None:
        """Where the member stands once nothing is left to be told."""
        state = _S.STABLE if self.adopted == self.target else _S.RECONCILING
        if self.state is not state:
            self.move(state)

    def _refused(
        self,
        react: MemberReaction,
        answer: ConsumerGroupHeartbeatResponse,
        now_ms: int,
        out: list[Output],
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        error = error_for(answer.error_code, answer.error_message or "")
        self._trouble = code.name
        match react:
            case MemberReaction.JOIN_ANEW:
                if not self.epoch:
                    # Refused while joining, by a coordinator which has us as a member already
                    # (KAFKA-19233, before 4.2): not as fast as it can be asked.
                    self._again(now_ms)
                self._fence()
            case MemberReaction.REDISCOVER:
                self._again(now_ms)
                self.lose_coordinator(now_ms, out, disconnect=True)
            case MemberReaction.FATAL:
                self.fail(error)
            case MemberReaction.RAISE:
                self.failure = error
                self._again(now_ms)
            case _:
                self._again(now_ms)

    def _again(self, now_ms: int) -> None:
        """Everything again, after a wait."""
        self._told = None
        self._is_hurried = False
        self._send_at_ms = self._not_before_ms = now_ms + self._backoff.next_ms()

    def _doubt_later(self, now_ms: int) -> None:
        self._doubted_at_ms = now_ms + _PATIENCE_INTERVALS * self._interval_ms
        self._is_told_of_trouble = False
        self._trouble = ""

    # --- the coordinator -----------------------------------------------------------------------

    def lose_coordinator(self, now_ms: int, out: list[Output], *, disconnect: bool) -> None:
        if self.link.lose(now_ms, out, disconnect=disconnect):
            self._again(now_ms)

    def coordinator_found(self, now_ms: int, out: list[Output]) -> None:
        self.link.found()
        self._try_send(now_ms, out)

    def coordinator_not_found(self, code: ErrorCode, now_ms: int) -> None:
        self.link.not_found(now_ms)
        self._trouble = code.name
        if code is ErrorCode.UNSUPPORTED_VERSION:
            lacks = " or takes no pattern" if self.regex else ""
            why = f'the broker has no group_protocol="consumer"{lacks}; use "auto" or "classic"'
            self.fail(error_for(code, why))
        elif reaction(reactions.FIND_COORDINATOR, code) is MemberReaction.RAISE:
            self.failure = error_for(code)

    # --- commits -------------------------------------------------------------------------------

    def commit_as(self) -> ConsumerGroupMetadata | CommitVerdict:
        """Whom to name in OffsetCommit, or why none can be sent now (REBALANCING, REFUSED)."""
        if self.epoch > 0:
            return self.identity()
        return CommitVerdict.REFUSED if self.state in OUT else CommitVerdict.REBALANCING

    def identity(self) -> ConsumerGroupMetadata:
        return ConsumerGroupMetadata(
            self._config.group_id,
            self.epoch if self.epoch > 0 else -1,
            self.member_id if self.epoch > 0 else "",
            self._config.group_instance_id,
        )

    def commit_answered(self, code: ErrorCode, now_ms: int, out: list[Output]) -> CommitVerdict:
        match reaction(reactions.CONSUMER_OFFSET_COMMIT, code):
            case MemberReaction.GO_ON:
                return CommitVerdict.DONE
            case MemberReaction.RETRY:
                return CommitVerdict.RETRY
            case MemberReaction.REDISCOVER:
                self.lose_coordinator(now_ms, out, disconnect=True)
                return CommitVerdict.RETRY
            case MemberReaction.ASK_EPOCH:
                self.hurry(now_ms, out)
                return CommitVerdict.STALE if self.epoch > 0 else CommitVerdict.REFUSED
            case MemberReaction.JOIN_ANEW:
                # A heartbeat hears it too, if it is true of who we are by now.
                self.hurry(now_ms, out)
                return CommitVerdict.REFUSED
            case _:
                return CommitVerdict.ERROR


def _target(assignment: ConsumerGroupHeartbeatResponse.Assignment) -> Target:
    found: dict[bytes, set[int]] = {}
    for topic in assignment.topic_partitions:
        numbers = found.setdefault(bytes(topic.topic_id), set())
        numbers.update(number for number in topic.partitions if number >= 0)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in found.items() if numbers}
