"""One member of a group of the new protocol (KIP-848), without sockets, clocks or threads.

Rule: as for ``classic_member.py``, beside which it stands behind ``GroupMember`` (see
``member_interface.py`` for how to drive either). The coordinator says what this member should own;
from one poll to the next the user's side gets there: commit and give up what is not ours any more,
take over what is, and then tell the coordinator, which waits with the next owner until it hears.

Where it differs from Kafka's Java client, for the user's sake: a listener that raises does not
stop the reconciliation (the user hears of it, as in a classic group); positions are committed
before partitions are given up, and not when some only come; a topic that was deleted and recreated
is given up and taken over, though it has the same name; and most refusals are told and tried again,
where Java's consumer has to be recreated (see ``reactions.py``).

What it says in the same words as ``classic_member.py`` (short answers, subscribing, the order of
callbacks) stands in both on purpose: it hangs on the phases, which differ, and what does not is
shared already (``rebalance_steps.py``, ``subscription.py``, ``coordinator_link.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final, NamedTuple

from shoal.errors import ErrorCode
from shoal.group.member.consumer_heartbeat import HeartbeatExchange, Target
from shoal.group.member.consumer_states import HEARTBEATING, OUT, ConsumerMemberState
from shoal.group.member.member_interface import (
    Assigned,
    ClusterTopics,
    CommitVerdict,
    Failed,
    Lost,
    MemberAnswer,
    MemberConfig,
    Output,
    RefreshMetadata,
    Revoked,
    Warn,
)
from shoal.group.member.rebalance_steps import CallbackRun, CallbackStep, PositionCommit
from shoal.group.member.subscription import TopicInterest
from shoal.group.member.topic_ids import TopicIds
from shoal.types import ConsumerGroupMetadata, TopicPartition
from shoal.wire.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

_S = ConsumerMemberState


class _Phase(Enum):
    """How far the user's side has come."""

    IDLE = "nothing to do until the coordinator wants something and the user polls"
    REFRESHING = "a pattern is matched against fresh metadata before joining"
    SAVING = "the shell commits positions before partitions are given up"
    GIVING_UP = "the user's callback runs for what is not ours any more"
    ADOPTING = "the user's callback runs for what is"
    LOSING = "the user's callback runs for what was lost"
    LEAVING = "the user's callback runs before the member leaves"


class _Adoption(NamedTuple):
    """What the coordinator assigned, as far as its topics have names."""

    target: Target
    partitions: tuple[TopicPartition, ...]
    ids: dict[str, bytes]


_NOTHING: Final = _Adoption({}, (), {})


class ConsumerMember:
    """The state machine; a ``GroupMember``."""

    def __init__(
        self, config: MemberConfig, *, member_id: str, chance: Callable[[], float]
    ) -> None:
        """``member_id`` is this member's for life; ``chance`` gives [0, 1) for the jitter."""
        assert member_id
        self._config = config
        self._interest = TopicInterest(
            watches_racks=False, excludes_internal=config.exclude_internal_topics
        )
        self._session = HeartbeatExchange(config, member_id, self._interest, chance)
        self._ids = TopicIds(config, chance)
        self._commit = PositionCommit(config, chance)
        self._callbacks = CallbackRun()
        self.is_closed = False
        self._phase = _Phase.IDLE
        self._is_fresh = False  # a pattern was matched since the last join
        self._is_wanted_again = False  # subscribed anew before an interrupted leave was over
        self._owned = _NOTHING
        self._coming = _NOTHING  # while SAVING, GIVING_UP and ADOPTING

    # --- what can be asked at any time ---------------------------------------------------------

    @property
    def state(self) -> ConsumerMemberState:
        return self._session.state

    @property
    def member_epoch(self) -> int:
        return self._session.epoch

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """Sorted; what the last completed ``Assigned``, ``Revoked`` or ``Lost`` left."""
        return self._owned.partitions

    @property
    def is_subscribed(self) -> bool:
        return self._interest.is_subscribed

    @property
    def is_in_group(self) -> bool:
        return self._session.epoch > 0

    @property
    def topics(self) -> frozenset[str]:
        """The listed topics, or those that match a pattern of ours now; of a pattern of the
        broker's those we have partitions of, for it alone knows the others."""
        if self._session.regex:
            return frozenset(self._owned.ids)
        return self._interest.topics

    @property
    def knows_coordinator(self) -> bool:
        return self._session.link.is_known

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Who this member is now: a commit in a transaction names the newest epoch."""
        return self._session.identity()

    @property
    def wanted_topics(self) -> frozenset[str] | None:
        """Topics to keep metadata of; ``None``: all (a pattern is matched here)."""
        wanted = self._interest.wanted_topics
        if wanted is None or wanted.issuperset(self._owned.ids):
            return wanted
        return wanted.union(self._owned.ids)

    @property
    def held(self) -> tuple[TopicPartition, ...]:
        """From a ``CommitPositions`` to the revocation: return no records of these."""
        return self._commit.held if self._phase is _Phase.SAVING else ()

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
        if self._phase is _Phase.SAVING:
            return self._commit.wants_poll
        if self._phase is not _Phase.IDLE:
            return False
        if self._session.state is _S.RECONCILING:
            return self._has_work()
        return self._session.state in OUT and self._session.state is not _S.FATAL

    def next_deadline(self) -> int | None:
        """When ``tick`` is due; ``None``: only another input can change anything."""
        deadline = self._session.next_deadline()
        if self._session.state in HEARTBEATING:
            deadline = _earlier(deadline, self._ids.next_deadline())
        if self._phase is _Phase.SAVING:
            deadline = _earlier(deadline, self._commit.next_deadline())
        return deadline

    # --- calls for the user's thread -----------------------------------------------------------

    def subscribe(self, topics: Iterable[str], now_ms: int) -> list[Output]:
        """Want these topics, instead of whatever was wanted before. No topic is a ValueError."""
        wanted = frozenset(topics)
        if not wanted:
            raise ValueError("subscribe needs at least one topic; use unsubscribe to leave")
        self._interest.subscribe(wanted)
        self._session.regex = ""
        out: list[Output] = []
        if not self._interest.covers(wanted):
            out.append(RefreshMetadata(self._interest.wanted_topics))
        return self._subscribed(now_ms, out)

    def subscribe_pattern(self, pattern: re.Pattern[str], now_ms: int) -> list[Output]:
        """Want every topic whose whole name matches here, now and whenever metadata comes."""
        self._interest.subscribe_pattern(pattern)
        self._session.regex = ""
        self._is_fresh = False
        out: list[Output] = []
        if self._session.state in HEARTBEATING:
            out.append(RefreshMetadata(None))
        return self._subscribed(now_ms, out)

    def subscribe_regex(self, regex: str, now_ms: int) -> list[Output]:
        """Want every topic the broker matches, in RE2's syntax. An empty one is a ValueError."""
        if not regex:
            raise ValueError("subscribe needs a pattern that is not empty")
        self._interest.subscribe(())
        self._session.regex = regex
        return self._subscribed(now_ms, [])

    def _subscribed(self, now_ms: int, out: list[Output]) -> list[Output]:
        assert not self.is_closed
        self._is_wanted_again = self._phase is _Phase.LEAVING
        if self._phase is _Phase.REFRESHING:
            self._phase = _Phase.IDLE
        self._session.forgive()
        self._session.link.want(now_ms, out)
        if self._session.state in HEARTBEATING - {_S.PREPARE_LEAVING}:
            self._session.hurry(now_ms, out)
        return out

    def unsubscribe(self, now_ms: int) -> list[Output]:
        """Give up everything: a revoked or lost step, then good-bye after ``callback_done``.

        A callback which gives partitions up may call this: it does not hear of them again.
        """
        self._is_wanted_again = False
        out: list[Output] = []
        session = self._session
        session.failure = None
        told = set(self._callbacks.being_given_up)
        left = tuple(tp for tp in self.owned if tp not in told)
        if left:
            is_lost = not session.epoch
            if session.state in HEARTBEATING and session.state is not _S.PREPARE_LEAVING:
                session.move(_S.PREPARE_LEAVING)
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
        self._owned = _NOTHING
        self._session.leave(now_ms, out, then=_S.UNSUBSCRIBED)
        if not self._is_wanted_again:
            self._interest.clear()
            self._session.regex = ""
            self._session.link.unwant()

    def enforce_rebalance(self, reason: str) -> list[Output]:
        """There is no such thing here: the coordinator assigns when it sees a need."""
        del reason
        text = "enforce_rebalance does nothing in a group of the new protocol"
        return [Warn(f"group {self._config.group_id!r}: {text}")]

    def poll(self, now_ms: int) -> list[Output]:
        """The user is here: callbacks may run, and the poll interval starts again."""
        if self.is_closed or not self._interest.is_subscribed:
            return []
        out: list[Output] = []
        session = self._session
        session.polled(now_ms, out)
        self._settled(now_ms, out)
        if self._callbacks.is_interrupted:
            self._callbacks.again(out)
        elif self._phase is _Phase.IDLE and session.state in OUT and self.owned:
            self._run(Lost(self.owned), _Phase.LOSING, out)
        elif session.failure is not None:
            out.append(Failed(session.failure))
            if session.state is not _S.FATAL:
                session.failure = None
        else:
            self._go_on(now_ms, out)
        return out

    def _go_on(self, now_ms: int, out: list[Output]) -> None:
        match self._phase:
            case _Phase.IDLE if self._session.state is _S.RECONCILING:
                self._reconcile(now_ms, out)
            case _Phase.IDLE if self._session.state in OUT:
                self._join(now_ms, out)
            case _Phase.SAVING if self._commit.is_over:
                self._give_up(out)
            case _Phase.SAVING:
                self._commit.poll(out)

    def callback_done(self, now_ms: int, error: Exception | None = None) -> list[Output]:
        """The callback of the last step has run; gives what comes next."""
        step = self._callbacks.done(error)
        if step is None:  # the callback itself unsubscribed: its step is void
            return []
        out: list[Output] = []
        if not isinstance(step, Assigned):
            self._forget(step.partitions)
        phase, self._phase = self._phase, _Phase.IDLE
        match phase:
            case _Phase.GIVING_UP if self._session.state not in OUT:
                self._take_over(out)
            case _Phase.ADOPTING if self._session.state not in OUT:
                self._session.acknowledge(self._owned.target, now_ms, out)
            case _Phase.LEAVING:
                self._left(now_ms, out)
            case _:
                # Lost: join again, without a poll more if the user hears nothing else.
                if self._session.failure is None and not self.owned:
                    self._join(now_ms, out)
        self._callbacks.tell(out)
        return out

    def callback_interrupted(self) -> None:
        """A wakeup cut the callback short: the next ``poll`` gives the same step again."""
        self._callbacks.interrupt()

    def _run(self, step: CallbackStep, phase: _Phase, out: list[Output]) -> None:
        self._phase = phase
        self._callbacks.start(step, out)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        left = tuple(tp for tp in self.owned if tp not in gone)
        topics = {tp.topic for tp in left}
        ids = {name: topic_id for name, topic_id in self._owned.ids.items() if name in topics}
        self._owned = _Adoption(_by_id(left, ids), left, ids)

    # --- joining -------------------------------------------------------------------------------

    def _join(self, now_ms: int, out: list[Output]) -> None:
        if self._session.state not in OUT or self._session.state is _S.FATAL:
            return
        if self._interest.has_pattern and not self._is_fresh:
            self._phase = _Phase.REFRESHING
            out.append(RefreshMetadata(None))
        else:
            self._is_fresh = False
            self._session.join(now_ms, out)

    # --- from what is owned to what is assigned ------------------------------------------------

    def _assigned(self) -> _Adoption:
        """The coordinator's target, as far as it has names and is wanted."""
        found: dict[str, bytes] = {}
        partitions: list[TopicPartition] = []
        target: dict[bytes, tuple[int, ...]] = {}
        for topic_id, numbers in self._session.target.items():
            name = self._ids.name(topic_id)
            # Of a topic unsubscribed from since: nobody hears of it (KAFKA-7961).
            if name is None or not (self._session.regex or name in self._interest.topics):
                continue
            found[name] = topic_id
            target[topic_id] = numbers
            partitions += [TopicPartition(name, number) for number in numbers]
        return _Adoption(target, tuple(sorted(partitions)), found)

    def _has_work(self) -> bool:
        """Not if what is assigned and not adopted has no names yet, nor while the coordinator may
        be told what was owned before."""
        if self._session.is_claim_unanswered:
            return False
        assigned = self._assigned().target
        if self._session.adopted is None:
            return bool(assigned) or not self._session.target
        return assigned != self._session.adopted

    def _reconcile(self, now_ms: int, out: list[Output]) -> None:
        if not self._has_work():
            return
        self._coming = self._assigned()
        self._session.adopting = _both(self._owned.target, self._coming.target)
        given_up = self._given_up()
        if given_up and self._config.auto_commit:
            self._phase = _Phase.SAVING
            self._commit.start(given_up, now_ms, out)
        else:
            self._give_up(out)

    def _given_up(self) -> tuple[TopicPartition, ...]:
        kept, ids = set(self._coming.partitions), self._coming.ids
        return tuple(
            tp for tp in self.owned if tp not in kept or ids[tp.topic] != self._owned.ids[tp.topic]
        )

    def _give_up(self, out: list[Output]) -> None:
        given_up = self._given_up()
        if given_up:
            self._run(Revoked(given_up), _Phase.GIVING_UP, out)
        else:
            self._take_over(out)

    def _take_over(self, out: list[Output]) -> None:
        before = set(self.owned)
        self._owned = self._coming
        self._session.adopting = self._owned.target
        added = tuple(tp for tp in self.owned if tp not in before)
        self._run(Assigned(added, self.owned), _Phase.ADOPTING, out)

    def positions_committed(self, verdict: CommitVerdict, now_ms: int) -> None:
        """The commit asked for by ``CommitPositions`` was answered.

        RETRY makes the member ask again, until the rebalance timeout; anything else goes on.
        """
        self._commit.answered(verdict, now_ms)

    # --- calls for the engine ------------------------------------------------------------------

    def tick(self, now_ms: int) -> list[Output]:
        """Do what time asks for: heartbeats, retries, giving up on silence."""
        out: list[Output] = []
        self._commit.tick(now_ms)
        self._session.tick(now_ms, out)
        return self._settled(now_ms, out)

    def receive(self, ticket: int, answer: MemberAnswer, now_ms: int) -> list[Output]:
        """An answer to a ``Send``. One that comes too late changes nothing."""
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        out: list[Output] = []
        self._session.receive(ticket, answer, now_ms, out)
        return self._settled(now_ms, out)

    def connection_lost(self, now_ms: int) -> list[Output]:
        """The connection to the coordinator broke: nothing asked on it will be answered."""
        out: list[Output] = []
        self._session.lose_coordinator(now_ms, out, disconnect=False)
        return self._settled(now_ms, out)

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
        return self._settled(now_ms, [])

    def update_metadata(self, answer: ClusterTopics, now_ms: int) -> list[Output]:
        """A Metadata response came, asked for or not."""
        out: list[Output] = []
        before = self._interest.topics
        self._interest.update(answer)
        self._ids.update(answer)
        if self._phase is _Phase.REFRESHING and answer.asked is None:
            self._is_fresh = True
            self._phase = _Phase.IDLE
            self._join(now_ms, out)
        elif self._interest.topics != before and self._session.state in HEARTBEATING:
            self._session.hurry(now_ms, out)  # other topics match the pattern now
        return self._settled(now_ms, out)

    def _settled(self, now_ms: int, out: list[Output]) -> list[Output]:
        """The session may have been thrown out of the group, or have been told of new topics."""
        session = self._session
        if session.state in HEARTBEATING:
            self._ids.need(session.target, now_ms, out)
        elif session.state in OUT:
            match self._phase:
                case _Phase.SAVING:
                    self._phase = _Phase.IDLE
                case _Phase.GIVING_UP | _Phase.ADOPTING if self._callbacks.is_interrupted:
                    self._phase = _Phase.IDLE
                    self._callbacks.drop()
            if session.state is _S.FENCED and self._phase is _Phase.IDLE and not self.owned:
                self._join(now_ms, out)  # nobody has to hear of it first
        return out

    # --- commits -------------------------------------------------------------------------------

    def commit_as(self) -> ConsumerGroupMetadata | CommitVerdict:
        """Whom to name in OffsetCommit, or why none can be sent now (REBALANCING, REFUSED)."""
        if not self._interest.is_subscribed:
            # Partitions assigned by hand: no member, so no instance id either (KAFKA-14201).
            return ConsumerGroupMetadata(self._config.group_id)
        return self._session.commit_as()

    def commit_answered(
        self, code: ErrorCode, sent_as: ConsumerGroupMetadata, now_ms: int
    ) -> tuple[CommitVerdict, list[Output]]:
        """What an answer (the first error of its partitions, or NONE) means."""
        del sent_as  # a heartbeat tells whether a refusal is true of who we are by now
        out: list[Output] = []
        verdict = self._session.commit_answered(code, now_ms, out)
        return verdict, self._settled(now_ms, out)


def _earlier(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)


def _both(one: Target, other: Target) -> Target:
    return {
        topic_id: tuple(sorted({*one.get(topic_id, ()), *other.get(topic_id, ())}))
        for topic_id in {**one, **other}
    }


def _by_id(partitions: Iterable[TopicPartition], ids: dict[str, bytes]) -> Target:
    numbers: dict[bytes, list[int]] = {}
    for tp in partitions:
        numbers.setdefault(ids[tp.topic], []).append(tp.partition)
    return {topic_id: tuple(sorted(those)) for topic_id, those in numbers.items()}
