"""What must hold at every moment of a simulation, whatever goes wrong.

The watcher sees what the coordinator decides, what members are told and what consumers do, and
keeps a model of its own that is much simpler than either side: the last generation that was
written, who got what in it, how far each partition was processed. It shares no code with what it
watches, so a bug has to be made twice to go unseen.

    G1  one owner of a partition in a generation, and only partitions that exist
    G2  only a current member of the current generation commits and heartbeats
    G3  a rebuilt coordinator equals the living one; acknowledged commits survive
    G4  a generation is given out once, and numbers only grow
    G5  a committed offset lies inside the log
    G6  who is silent is removed in time, who is not is not
    G7  a join is answered within the rebalance timeout
    G8  after the last fault the group becomes stable, and stays so
    G9  a static member that comes back does not disturb a stable group
    G10 nobody takes over what another member of the generation still owns
    G11 nothing is left of members that are gone
    G12 offsets of a group that is used are never expired
    G14 compaction never brings an older commit back
    C1  what is returned has no gap and no repetition within an assignment
    C2  only what was processed is committed
    C3  nobody commits what another member was given
    C4  reading starts at the committed offset
    C5  a call takes no longer than it was given (with whole clients)
    C6  who does not poll leaves
    C7  a commit fails only in ways that are told (with whole clients)
    C8  no request is waited for forever, and no deadline lies in the past
    C9  a bad batch is named, and reading goes on (with whole clients)
    C10 what producers were told holds (with whole clients; ``producer_invariants.py``)
    C11 callbacks come in order, with the right sets
    C12 a lost coordinator is not hammered

G13 is about groups of the new protocol: ``consumer_group_invariants.py``.

Rule: an invariant is checked where the state it speaks of changes; ``check`` looks at the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.config import GroupConfig
from shoal.group.coordinator.coordinator import Coordinator
from shoal.group.coordinator.decision import EventKind, GroupDecision
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
)
from shoal.group.coordinator.states import GroupState
from shoal.group.member.classic_member import ClassicMember
from shoal.machine.decision import Ticket
from shoal.testing.simulation.group_model import GroupModel, assigned
from shoal.testing.simulation.simulated_offsets import fetched_offsets
from shoal.types import TopicPartition
from shoal.wire import consumer_protocol
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from shoal.wire.apis.sync_group import SyncGroupRequest

if TYPE_CHECKING:
    from shoal.testing.simulation.simulated_cluster import SimulatedTopics

_SLACK_MS: Final = 1_500
"""A pulse of the coordinator, and a little."""

_ALIVE: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


class Violation(AssertionError):  # noqa: N818 (a finding, not a mistake of the caller)
    """An invariant was broken."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        super().__init__(invariant, text)

    def __str__(self) -> str:
        return ": ".join(self.args)


def demand(holds: bool, invariant: str, text: str) -> None:
    if not holds:
        raise Violation(invariant, text)


class Claims(Protocol):
    """What a consumer said about itself when it joined."""

    claimed_generation: int


class GroupConsumer(Protocol):
    """As much of a consumer as is watched."""

    @property
    def label(self) -> str: ...
    @property
    def member(self) -> ClassicMember: ...
    @property
    def engine(self) -> Claims: ...


class Moment(NamedTuple):
    """A time on the coordinator's side: how long it has run, and how often it stood still."""

    alive_ms: int
    pauses: int
    has_jumped: bool = False
    """Whether its wall clock ever did."""
    was_set_back: bool = False
    """Whether that was backwards, at least once."""


class Watcher:
    """Keeps the model of one group and raises ``Violation``."""

    def __init__(self, group_id: str, topics: SimulatedTopics, config: GroupConfig) -> None:
        self._group_id = group_id
        self._topics = topics
        self._config = config
        self.model = GroupModel()
        self.committed: dict[TopicPartition, tuple[int, int]] = {}
        """The offset, and where in the journal it was written."""
        self._written: dict[TopicPartition, Moment] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._removed: dict[TopicPartition, int] = {}
        self._misled_ms = -1
        """When a coordinator with a wrong clock was loaded, or stood still without noticing it:
        what was written before looks older than it is."""
        self._told_generation = -1
        self._new_generation: int | None = None
        self._unsent: dict[Ticket, list[tuple[TopicPartition, int]]] = {}
        self._waiting: dict[Ticket, tuple[Any, Moment]] = {}
        self._heartbeats: dict[str, Moment] = {}
        """When a member certainly renewed its session."""
        self._heard: dict[str, Moment] = {}
        """When it did so at the latest: also by a request that was parked."""
        self._adopted: dict[tuple[int, TopicPartition], str] = {}
        self.processed: dict[TopicPartition, int] = {}
        self.generations = 0
        """How many were started."""

    # --- the journal ---------------------------------------------------------------------------

    def appended(
        self,
        records: Iterable[JournalRecord],
        base: int,
        request: Any,
        ticket: Ticket,
        now: Moment,
        state: GroupState | None,
    ) -> None:
        """Records were written because of ``request``, or because of the time (``None``).

        ``state`` is what the group was in before.
        """
        if isinstance(request, OffsetCommitRequest):
            is_early = state is GroupState.COMPLETING_REBALANCE
            demand(not is_early, "G2", f"{request.member_id} committed between join and sync")
        for offset, record in enumerate(records, base):
            match record:
                case GroupRecord():
                    self._group_written(record, now)
                case OffsetRecord():
                    self._offset_written(record, offset, request, ticket, now)
                case OffsetTombstone():
                    tp = TopicPartition(record.topic, record.partition)
                    self._offset_removed(tp, now)
                    self._removed[tp] = offset
                case GroupTombstone():
                    is_unused = not self.model.members and not self.committed
                    demand(is_unused, "G12", "a group with members or offsets was removed")
                    self.model = GroupModel()
                    self._told_generation = -1  # the next group of this name counts anew
                    self._adopted.clear()

    def _group_written(self, record: GroupRecord, now: Moment) -> None:
        before = self.model.generation
        number = record.generation
        if number != before:
            self.generations += 1
            demand(number > before, "G4", f"generation {number} after {before}")
            demand(record.leader is None, "G4", f"{number} was not written before it was given out")
            self._new_generation = number
            # A new generation renews the session of static members that were not there, too.
            self._heard.update((each.member_id, now) for each in record.members)
        if record.leader is not None:
            demand(record.leader in {each.member_id for each in record.members}, "G1", "no leader")
            # Later records of a generation are about static members that came back; what those
            # subscribe to now is for the next generation (KAFKA-12759).
            self._plan_written(record, is_new=not self.model.has_leader)
        self.model.adopt(record)

    def append_failed(self, group: Group | None, now: Moment) -> None:
        """A generation that could not be started has renewed the sessions all the same."""
        if isinstance(group, ClassicGroup):
            self._heard.update((member_id, now) for member_id in group.members)

    def _plan_written(self, record: GroupRecord, *, is_new: bool) -> None:
        owners: dict[TopicPartition, str] = {}
        for member in record.members:
            topics = consumer_protocol.subscribed_topics(member.subscription)
            for tp in assigned(member):
                other = owners.setdefault(tp, member.member_id)
                both = f"{other} and {member.member_id} in {record.generation}"
                demand(other == member.member_id, "G1", f"{tp} went to {both}")
                asked = tp.topic in topics or not is_new
                demand(asked, "G1", f"{member.member_id} never asked for {tp}")
                count = self._topics.most.get(tp.topic, 0)
                demand(tp.partition < count, "G1", f"{tp} was assigned and never existed")

    def _offset_written(
        self, record: OffsetRecord, offset: int, request: Any, ticket: Ticket, now: Moment
    ) -> None:
        assert isinstance(request, OffsetCommitRequest)
        tp = TopicPartition(record.topic, record.partition)
        self._check_committer(tp, request, ticket)
        if tp.topic not in self._topics.recreated:
            done, end = self.processed.get(tp, 0), self._topics.ends.get(tp, 0)
            at = f"{tp} was committed at {record.offset}"
            demand(record.offset <= done, "C2", f"{at}, processed up to {done}")
            demand(record.offset <= end, "G5", f"{at}, its log ends at {end}")
        self.committed[tp] = (record.offset, offset)
        self._written[tp] = now
        self._unsent.setdefault(ticket, []).append((tp, offset))

    def _check_committer(
        self, tp: TopicPartition, request: OffsetCommitRequest, ticket: Ticket
    ) -> None:
        del ticket
        generation_id = request.generation_id_or_member_epoch
        sender = f"{request.member_id} of {generation_id}"
        self._is_current(request.member_id, request.group_instance_id, generation_id, "a commit")
        owner = self.model.owners.get(tp, request.member_id)
        demand(owner == request.member_id, "C3", f"{sender} committed {tp} of {owner}")

    def _offset_removed(self, tp: TopicPartition, now: Moment) -> None:
        """Only with its topic, or when nobody has wanted it for as long as offsets are kept."""
        if tp.topic in self._topics.counts:
            is_used = any(tp.topic in topics for topics in self.model.subscriptions.values())
            demand(not is_used, "G12", f"the offset of {tp} was removed, it is in use")
            since = self._written.get(tp, Moment(0, 0))
            unused_ms = now.alive_ms - since.alive_ms
            allowed_ms = _SLACK_MS * (1 + now.pauses - since.pauses)
            is_due = unused_ms >= self._config.offsets_retention_ms - allowed_ms
            # After a restart nobody can tell a clock that jumped from a long downtime; and what
            # was written while a clock was behind looks old when it is right again.
            was_misled = since.alive_ms <= self._misled_ms
            is_due = is_due or was_misled or now.was_set_back
            demand(is_due, "G12", f"{tp} was removed after {unused_ms} ms")
        self.committed.pop(tp, None)
        self._acknowledged.pop(tp, None)

    def paused_unnoticed(self, now: Moment) -> None:
        """The coordinator stands still while nobody is in its group whose silence it would time."""
        self._misled_ms = now.alive_ms

    def _is_current(
        self, member_id: str, instance_id: str | None, generation_id: int, what: str
    ) -> None:
        model = self.model
        demand(
            generation_id == model.generation
            and member_id in model.members
            and instance_id == model.members[member_id],
            "G2",
            f"{what} of {member_id} in {generation_id} was accepted in {model.generation}, "
            f"whose members are {list(model.members)}",
        )

    def loaded(self, entries: Iterable[tuple[int, JournalRecord]], now: Moment) -> None:
        """The coordinator died and was loaded from what was left of the journal."""
        self.model = GroupModel()
        self.committed = {}
        for offset, record in entries:
            match record:
                case GroupRecord():
                    self.model.adopt(record)
                case OffsetRecord():
                    tp = TopicPartition(record.topic, record.partition)
                    self.committed[tp] = (record.offset, offset)
                case OffsetTombstone():
                    self.committed.pop(TopicPartition(record.topic, record.partition), None)
                case GroupTombstone():
                    self.model = GroupModel()
        number, told = self.model.generation, self._told_generation
        demand(number >= told, "G4", f"generation {told} was given out, {number} was loaded")
        for tp, written in self._acknowledged.items():
            known = self.committed.get(tp)
            survived = known is not None and known[1] >= written
            demand(survived, "G3", f"the acknowledged commit {written} of {tp} was lost: {known}")
        if now.has_jumped:
            self._misled_ms = now.alive_ms
        self._unsent.clear()
        self._waiting.clear()
        self._heartbeats = dict.fromkeys(self.model.members, now)
        self._heard = dict(self._heartbeats)

    def compared(self, living: Coordinator, rebuilt: Coordinator) -> None:
        """Both were made from the same records."""
        demand(living.durable() == rebuilt.durable(), "G3", "a rebuilt coordinator differs")
        for tp, (offset, _) in self.committed.items():
            known = rebuilt.offsets.get(self._group_id, tp)
            same = known is not None and known.offset == offset
            demand(same, "G14", f"{tp} was committed at {offset}, now it is {known}")

    # --- requests and replies ------------------------------------------------------------------

    def comes_back(self, group: Group | None, request: Any) -> bool:
        """Whether this is a static member's return to a stable group, which changes nothing."""
        if type(request) is not JoinGroupRequest or not isinstance(group, ClassicGroup):
            return False
        old = group.members.get(group.static_ids.get(request.group_instance_id or "", ""))
        return (
            old is not None
            and not request.member_id
            and group.state is GroupState.STABLE
            and all(
                [name for name, _ in member.protocols] == [each.name for each in request.protocols]
                for member in group.members.values()
            )
        )

    def came_back(self, group: Group | None, generation: int) -> None:
        assert isinstance(group, ClassicGroup)
        is_calm = group.state is GroupState.STABLE and group.generation == generation
        demand(is_calm, "G9", "the return of a static member disturbed the group")

    def asked(self, request: Any, ticket: Ticket, now: Moment) -> None:
        if isinstance(request, JoinGroupRequest | SyncGroupRequest):
            self._waiting[ticket] = (request, now)

    def decided(self, request: Any, decision: GroupDecision, now: Moment) -> None:
        """What the coordinator decided, before any of it is sent."""
        kind = type(request)
        for event in decision.events:
            if event.kind is EventKind.MEMBER_EXPIRED and "no heartbeat" in event.cause:
                self._expired(event.member_id or "", now)
        for reply in decision.replies:
            answer = reply.response
            waiting = self._waiting.pop(reply.ticket, None)
            if waiting is not None:
                self._answered(waiting[0], answer, now)
            elif kind is HeartbeatRequest and answer.error_code in _ALIVE:
                self._is_current(
                    request.member_id,
                    request.group_instance_id,
                    request.generation_id,
                    "a heartbeat",
                )
                self._heartbeats[request.member_id] = self._heard[request.member_id] = now
            elif kind is OffsetFetchRequest:
                self._fetched(answer)
        if kind is OffsetCommitRequest:
            # One without offsets renews the session too, and leaves no record to tell.
            self._heard[request.member_id] = now
            if decision.journal:
                self._heartbeats[request.member_id] = now
        if self._new_generation is not None:
            self._generation_started(decision)

    def _generation_started(self, decision: GroupDecision) -> None:
        """Who is in it has just been told so, the leader too; only static members may be away."""
        number, self._new_generation = self._new_generation, None
        told = {
            reply.response.member_id: reply.response.leader
            for reply in decision.replies
            if isinstance(reply.response, JoinGroupResponse)
            and reply.response.error_code == ErrorCode.NONE
        }
        for member_id, leader in told.items():
            demand(leader in told, "G1", f"{member_id} waits for {leader}, who is not there")
        for member_id, instance_id in self.model.members.items():
            is_there = member_id in told or instance_id is not None
            demand(is_there, "G1", f"{member_id} is in {number} and does not know it")

    def _answered(self, request: Any, answer: Any, now: Moment) -> None:
        self._heard[request.member_id] = now
        if answer.error_code != ErrorCode.NONE:
            return
        member_id = answer.member_id if isinstance(answer, JoinGroupResponse) else request.member_id
        self._heard[member_id] = now
        if isinstance(answer, JoinGroupResponse):
            number = answer.generation_id
            expected = self.model.generation
            demand(number == expected, "G4", f"{member_id} was told {number}, not {expected}")
            demand(member_id in self.model.members, "G1", f"{member_id} is not in {number}")
            listed = [each.member_id for each in answer.members]
            everybody = list(self.model.members) if answer.leader == member_id else []
            demand(sorted(listed) == sorted(everybody), "G1", f"the leader was told of {listed}")
        else:
            self._is_current(
                member_id, request.group_instance_id, request.generation_id, "a SyncGroup"
            )
            given = consumer_protocol.ConsumerProtocolAssignment.decode(
                answer.assignment
            ).partitions
            planned = [tp for tp, owner in self.model.owners.items() if owner == member_id]
            demand(sorted(given) == sorted(planned), "G1", f"{member_id} got {given}")

    def _fetched(self, answer: OffsetFetchResponse) -> None:
        for tp, answered in fetched_offsets(answer):
            offset, _ = self.committed.get(tp, (-1, -1))
            demand(answered == offset, "C4", f"{tp} is at {offset}, answered {answered}")

    def sent(self, ticket: Ticket, answer: Any) -> None:
        """A reply left the coordinator: from now on it must hold, whatever happens."""
        for tp, offset in self._unsent.pop(ticket, ()):
            if offset > self._removed.get(tp, -1):
                self._acknowledged[tp] = max(offset, self._acknowledged.get(tp, -1))
        if type(answer) is JoinGroupResponse and answer.error_code == ErrorCode.NONE:
            self._told_generation = max(self._told_generation, answer.generation_id)

    def refused(self, tickets: Iterable[Ticket]) -> None:
        """Replies were taken back before they left."""
        for ticket in tickets:
            self._unsent.pop(ticket, None)

    def _expired(self, member_id: str, now: Moment) -> None:
        """Before its last request is answered; while that waits, silence means nothing."""
        waits = any(request.member_id == member_id for request, _ in self._waiting.values())
        demand(not waits, "G6", f"{member_id} was removed while its request was parked")
        heard = self._heartbeats.get(member_id)
        if heard is None:
            return
        silent_ms = now.alive_ms - heard.alive_ms
        allowed_ms = 2 * _SLACK_MS * (now.pauses - heard.pauses)
        least_ms = self._config.group_min_session_timeout_ms - allowed_ms
        demand(silent_ms >= least_ms, "G6", f"{member_id} was removed after {silent_ms} ms")

    def check(self, group: Group | None, now: Moment) -> None:
        """What must hold of the coordinator between two calls."""
        if not isinstance(group, ClassicGroup):
            return
        rebalance = group.rebalance
        if rebalance is not None and not rebalance.initial and group.members:
            is_missed = [each for each in group.members.values() if each.joining is None]
            goes_on = bool(is_missed or group.pending_ids)
            demand(goes_on, "G7", "everybody has joined, and the rebalance does not go on")
        longest_ms = group.rebalance_timeout_ms + self._config.group_initial_rebalance_delay_ms
        for request, since in self._waiting.values():
            waited_ms = now.alive_ms - since.alive_ms
            allowed_ms = longest_ms + _SLACK_MS * (1 + now.pauses - since.pauses)
            kind = type(request).__name__
            demand(waited_ms <= allowed_ms, "G7", f"a {kind} has waited for {waited_ms} ms")
        for member in group.members.values():
            if member.is_new or member.joining is not None or member.syncing is not None:
                continue
            heard = self._heard.setdefault(member.member_id, now)
            silent_ms = now.alive_ms - heard.alive_ms
            allowed_ms = member.session_timeout_ms
            allowed_ms += _SLACK_MS * (1 + now.pauses - heard.pauses)
            name = member.member_id
            demand(silent_ms <= allowed_ms, "G6", f"{name} has been silent for {silent_ms} ms")

    # --- consumers -----------------------------------------------------------------------------

    def adopted(self, consumer: GroupConsumer, others: Iterable[GroupConsumer]) -> None:
        """A consumer has taken over an assignment."""
        if consumer.member.generation.member_id not in self.model.members:
            return  # too late: thrown out before it knew what it got
        generation_id = consumer.member.group_metadata.generation_id
        for tp in consumer.member.owned:
            is_wanted = tp.topic in consumer.member.topics or self._is_given_up(consumer, tp)
            demand(is_wanted, "C11", f"{consumer.label} took {tp}, which it does not want")
            owner = self._adopted.setdefault((generation_id, tp), consumer.label)
            demand(owner == consumer.label, "G1", f"{owner} and {consumer.label} own {tp}")
        mine = set(consumer.member.owned)
        for other in others:
            # One that claimed its partitions in time keeps them until it has given them up.
            if (
                other is not consumer
                and other.label != consumer.label
                and other.member.generation.generation_id == generation_id
                and other.engine.claimed_generation == generation_id - 1
            ):
                shared = mine.intersection(other.member.owned)
                both = f"{consumer.label} and {other.label}"
                demand(not shared, "G10", f"{both} own {sorted(shared)} in {generation_id}")

    def _is_given_up(self, consumer: GroupConsumer, tp: TopicPartition) -> bool:
        """Whether it takes what is gone, as Kafka's member does, and rejoins without it at once.

        A topic that a pattern matched at JoinGroup may be deleted before the assignment comes.
        """
        member = consumer.member
        by_pattern = member.wanted_topics is None
        rejoins = member.wants_poll or not member.knows_coordinator
        return by_pattern and rejoins and tp.topic in self._topics.recreated

    def was_processed(self, tp: TopicPartition, start: int, end: int) -> None:
        if tp.topic in self._topics.recreated:
            return
        done = self.processed.get(tp, 0)
        if start > done:
            text = f"{tp} was read from {start}, but only {done} were processed"
            raise Violation("C1", text)
        if end > done:
            self.processed[tp] = end
