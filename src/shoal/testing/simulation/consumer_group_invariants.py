"""What must hold in a group of the new protocol (KIP-848), whatever goes wrong.

    E1  a partition is held, or being given up, by one member
    E2  no member is ahead of the target, and no target ahead of the group
    E3  who is giving something up says so; what was given was given at an epoch the member has
        had, and keeps that for as long as the member keeps it
    E4  a target gives each partition that is subscribed to, to one member that wants it, and
        nothing else; whoever is at the target's epoch holds nothing that is another's
    E5  a member's epoch falls on neither side, but to nothing
    E6  a partition has one owner at an epoch, over all time
    E7  a stable group is where its target is, and who waits for something lacks something
    E8  an epoch that somebody was told survives every crash
    E9  a heartbeat is answered as its epoch and the member's claims say: nobody is fenced but for
        a reason
    E10 commits are taken from an epoch that had the partition, and from no other (KIP-1251)
    E11 no two processes that the coordinator takes for members own a partition
    E12 who is silent, or does not give up, is removed in time and not before
    E13 an expression matches the topics that it says
    E14 targets are computed no more often than once in the assignment interval
    E15 a static member that is away keeps what it has, and disturbs nobody when it comes back

What is said of commits, offsets and records in ``invariants.py`` holds here too (G3, G5, G12, G14,
C1, C2, C4); a group of classic members alone is watched in its own simulation, and here by E1, E5,
E6, E8, E10 and E11.

Rule: as there: the model is simpler than what it is compared with, and made of the journal alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from shoal.errors import ErrorCode
from shoal.group.coordinator.classic_group import ClassicGroup
from shoal.group.coordinator.consumer_group import ConsumerGroup
from shoal.group.coordinator.consumer_journal import (
    ConsumerGroupTombstone,
    ConsumerMemberMetadata,
    CurrentAssignment,
    ReconciliationState,
    ResolvedRegex,
    TargetEpoch,
)
from shoal.group.coordinator.decision import EventKind, GroupDecision, GroupEvent
from shoal.group.coordinator.group_interface import Group
from shoal.group.coordinator.journal import (
    GroupRecord,
    GroupTombstone,
    JournalRecord,
    OffsetRecord,
    OffsetTombstone,
)
from shoal.group.coordinator.states import GroupState
from shoal.machine.decision import Ticket
from shoal.testing.simulation.consumer_group_model import AWAY, ConsumerGroupModel, Partition
from shoal.testing.simulation.group_model import GroupModel
from shoal.testing.simulation.invariants import Moment, Watcher, demand
from shoal.types import TopicPartition
from shoal.wire import consumer_protocol
from shoal.wire.apis.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from shoal.wire.apis.heartbeat import HeartbeatRequest
from shoal.wire.apis.join_group import JoinGroupRequest, JoinGroupResponse
from shoal.wire.apis.offset_commit import OffsetCommitRequest
from shoal.wire.apis.offset_fetch import OffsetFetchRequest
from shoal.wire.apis.sync_group import SyncGroupRequest

_SLACK_MS: Final = 1_500
"""A pulse of the coordinator, and a little."""
_REFUSED: Final = object()
"""A commit that must not be taken."""

_REFUSALS: Final = {
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
}

_STABLE: Final = ReconciliationState.STABLE
_UNREVOKED: Final = ReconciliationState.UNREVOKED_PARTITIONS
_UNRELEASED: Final = ReconciliationState.UNRELEASED_PARTITIONS


class ConsumerGroupWatcher(Watcher):
    """Keeps the model of one group, whichever kind it is at the moment."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.group: ConsumerGroupModel | None = None
        """``None`` while it is a classic one, or none at all."""
        self._owners: dict[tuple[Partition, int], str] = {}
        self._told_epoch = -1
        self._to_tell: dict[Ticket, tuple[str, int, frozenset[Partition]]] = {}
        self._expected: dict[Ticket, ErrorCode | object | None] = {}
        self._unrevoked: dict[str, Moment] = {}
        self._misled: set[str] = set()
        """Of whom the coordinator believes what is not so: something old of theirs arrived late,
        they came back under an id that was forgotten, or their group went back to the classic
        protocol, which gives everybody its target, and was converted again before a leader had
        assigned (all as in Kafka)."""
        self._misled_until: dict[str, int] = {}
        """The last request of the shell of each that is misled no more: what it sent until then may
        still be on its way."""
        self.to_sync: set[str] = set()
        """Classic members whose JoinGroup was answered. Who does not sync in time is removed, also
        if it has joined and synced since that was sent (it came late: as in Kafka)."""
        self._append_failed = False
        self._plan_is_known = True
        """Whether classic members have what the journal says, and not what it wants them to."""
        self._seen_image = -1

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
        del state
        written = tuple(records)
        before = dict(self.group.current) if self.group is not None else {}
        target_ms = self.group.target_ms if self.group is not None else 0
        generation, had_members = self.model.generation, bool(self.model.members)
        for offset, record in enumerate(written, base):
            match record:
                case OffsetRecord():
                    self._offset_written(record, offset, request, ticket, now)
                case OffsetTombstone():
                    tp = TopicPartition(record.topic, record.partition)
                    self._offset_removed(tp, now)
                    self._removed[tp] = offset
                case _:
                    self._adopt(record)
        if self.group is not None and not self._is_old_news(written):
            self._plan_is_known = True
            self._sync_model(self.group)
            self._check_members(self.group, before, now)
            self._check_batch(self.group, written, target_ms)
        if self.model.generation < generation:
            # A group without members may be forgotten, and begin anew as one of any kind.
            fell = f"from {generation} to {self.model.generation}, with members"
            demand(not had_members, "E5", fell)
            self._told_epoch = -1
            self._owners.clear()
            self._to_tell.clear()  # replies that are still on their way tell of the one before

    def _is_old_news(self, written: Iterable[JournalRecord]) -> bool:
        """Most batches are commits: what was found of group and topics before holds after them."""
        image = self._topics.image.version
        is_known, self._seen_image = image == self._seen_image, image
        return is_known and all(type(each) is OffsetRecord for each in written)

    def _known(self) -> ConsumerGroupModel | None:
        return self.group

    def _adopt(self, record: JournalRecord) -> None:
        """One record about the group; it may change its kind, or end it."""
        match record:
            case GroupRecord():
                demand(
                    record.generation >= self.model.generation,
                    "E5",
                    f"generation {record.generation} after {self.model.generation}",
                )
                self.generations += record.generation != self.model.generation
                self.group = None
                self.model.adopt(record)
                is_new = not any(each.assignment for each in record.members)
                self._plan_is_known |= self.model.has_leader or is_new
            case GroupTombstone():
                self.model = GroupModel()
            case _:
                if self.group is None:
                    if isinstance(record, ConsumerGroupTombstone):
                        return
                    self.group = ConsumerGroupModel()
                if isinstance(record, ConsumerMemberMetadata):
                    self._note_conversion(record)
                epoch = self.group.epoch
                if not self.group.adopt(record):
                    # What comes now counts anew, unless the group only changes its kind.
                    self._plan_is_known = False
                    self.group = None
                    self.model = GroupModel()
                    return
                self.generations += self.group.epoch != epoch

    def _note_conversion(self, member: ConsumerMemberMetadata) -> None:
        if member.classic is not None and not self._plan_is_known:
            self._misled.add(member.member_id)

    def _sync_model(self, group: ConsumerGroupModel) -> None:
        """What the checks that all groups share look at."""
        self.model.generation = group.epoch
        self.model.members = {one: each.instance_id for one, each in group.members.items()}
        self.model.subscriptions = {one: group.subscribed(one) for one in group.members}
        names = {topic_id: name for name, topic_id in self._topics.ids.items()}
        self.model.owners = {
            TopicPartition(names[topic_id], number): member_id
            for member_id in group.members
            for topic_id, number in group.held(member_id)
            if topic_id in names
        }

    def _check_members(
        self, group: ConsumerGroupModel, before: dict[str, CurrentAssignment], now: Moment
    ) -> None:
        owners: dict[Partition, str] = {}
        for member_id, current in group.current.items():
            epoch = current.member_epoch
            for one in group.held(member_id):
                other = owners.setdefault(one, member_id)
                demand(other == member_id, "E1", f"{other} and {member_id} hold {one}")
            ahead = f"{member_id} is at {epoch}, the target at {group.target_epoch}"
            demand(epoch <= group.target_epoch, "E2", ahead)
            demand(
                not current.pending_revocation or current.state is _UNREVOKED,
                "E3",
                f"{member_id} gives something up and is {current.state.name}",
            )
            for part in (current.assigned, current.pending_revocation):
                given = max((max(each.values(), default=0) for each in part.values()), default=0)
                demand(given <= max(epoch, 0), "E3", f"{member_id} at {epoch} was given at {given}")
            self._check_step(group, member_id, current)
            old = before.get(member_id)
            if old is not current:
                self._moved(group, member_id, old, current, now)
        for member_id in self._unrevoked.keys() - group.current.keys():
            del self._unrevoked[member_id]

    def _check_step(
        self, group: ConsumerGroupModel, member_id: str, current: CurrentAssignment
    ) -> None:
        target, assigned = group.targets.get(member_id, frozenset()), group.assigned(member_id)
        at_target = current.member_epoch == group.target_epoch
        if at_target and current.state is not _UNREVOKED:
            extra = assigned - target
            demand(not extra, "E4", f"{member_id} is at the target and holds {sorted(extra)}")
        if at_target and current.state is _UNRELEASED:
            demand(bool(target - assigned), "E7", f"{member_id} waits for nothing")

    def _moved(
        self,
        group: ConsumerGroupModel,
        member_id: str,
        old: CurrentAssignment | None,
        current: CurrentAssignment,
        now: Moment,
    ) -> None:
        epoch = current.member_epoch
        if old is not None and epoch == AWAY:
            same = {each: set(held) for each, held in old.assigned.items()}
            left = {each: set(held) for each, held in current.assigned.items()}
            demand(left == same, "E15", f"{member_id} is away and has {left}, not {same}")
        if old is not None and old.member_epoch > 0 and epoch > 0:
            fell = f"{member_id} went from epoch {old.member_epoch} to {epoch}"
            demand(epoch >= old.member_epoch, "E5", fell)
            for topic_id, epochs in current.assigned.items():
                known = old.assigned.get(topic_id, {})
                same_since = all(known.get(one, since) == since for one, since in epochs.items())
                demand(same_since, "E3", f"{member_id} has had {known} since {epochs}")
        is_classic = group.members[member_id].classic is not None
        if current.state is _UNREVOKED and epoch > 0 and not is_classic:
            self._unrevoked[member_id] = now
        else:
            self._unrevoked.pop(member_id, None)

    def _check_batch(
        self,
        group: ConsumerGroupModel,
        records: Iterable[JournalRecord],
        target_ms: int,
    ) -> None:
        epochs = f"the target is of {group.target_epoch}, the group at {group.epoch}"
        demand(group.target_epoch <= group.epoch, "E2", epochs)
        for record in records:
            if isinstance(record, TargetEpoch) and record.timestamp_ms:
                self._check_target(group)
                apart_ms = record.timestamp_ms - target_ms
                is_soon = 0 <= apart_ms < self._config.consumer.assignment_interval_ms
                demand(not (target_ms and is_soon), "E14", f"a target after {apart_ms} ms")
            elif isinstance(record, ResolvedRegex):
                self._check_regex(record)
        states = {(each.state, each.member_epoch) for each in group.current.values()}
        if group.epoch == group.target_epoch and states == {(_STABLE, group.epoch)}:
            for member_id in group.members:
                wanted = self._wanted(group, member_id, group.targets.get(member_id, frozenset()))
                held = self._wanted(group, member_id, group.held(member_id))
                demand(held == wanted, "E7", f"stable, and {member_id} lacks {wanted - held}")

    def _wanted(
        self, group: ConsumerGroupModel, member_id: str, partitions: frozenset[Partition]
    ) -> frozenset[Partition]:
        """Of topics that are there and subscribed to: a target may be older than both."""
        ids = {self._topics.ids.get(name) for name in group.subscribed(member_id)}
        return frozenset(one for one in partitions if one[0] in ids)

    def _check_target(self, group: ConsumerGroupModel) -> None:
        given: dict[Partition, str] = {}
        wanted: set[Partition] = set()
        for member_id in group.members:
            topics = {
                self._topics.ids[name]: self._topics.counts[name]
                for name in group.subscribed(member_id)
                if name in self._topics.ids
            }
            wanted |= {(each, number) for each, count in topics.items() for number in range(count)}
            for one in group.targets.get(member_id, frozenset()):
                other = given.setdefault(one, member_id)
                demand(other == member_id, "E4", f"{one} is to go to {other} and {member_id}")
                demand(one[0] in topics, "E4", f"{member_id} never asked for {one}")
        demand(given.keys() == wanted, "E4", f"the target differs by {given.keys() ^ wanted}")

    def _check_regex(self, record: ResolvedRegex) -> None:
        image = self._topics.image
        if record.version == image.version:
            found = frozenset(name for name in image.names() if re.fullmatch(record.regex, name))
            demand(record.topics == found, "E13", f"{record.regex} matched {record.topics}")

    def append_failed(self, group: Group | None, now: Moment) -> None:
        self._append_failed = True
        if group is not None:
            self._heard.update((member_id, now) for member_id in group.members)
        self._unrevoked.update((member_id, now) for member_id in self._unrevoked)

    def loaded(self, entries: Iterable[tuple[int, JournalRecord]], now: Moment) -> None:
        read = list(entries)
        self.group = None
        self._told_generation = -1
        super().loaded([each for each in read if _is_offset(each[1])], now)
        for _, record in read:
            if not _is_offset(record):
                self._adopt(record)
        group = self._known()
        # Whether nobody has assigned yet because it was another kind of group is not told.
        self._plan_is_known = group is not None or self.model.has_leader
        if group is not None:
            self._sync_model(group)
            self._check_members(group, {}, now)
        if now.pauses:
            # Commits are dated by the wall clock, which went on; who is loaded cannot know.
            self._misled_ms = now.alive_ms
        number, told = self.model.generation, self._told_epoch
        demand(number >= told, "E8", f"epoch {told} was told, {number} was loaded")
        self._to_tell.clear()
        self._expected.clear()
        self.to_sync.clear()
        self._heartbeats = dict.fromkeys(self.model.members, now)
        self._heard = dict(self._heartbeats)
        self._unrevoked = dict.fromkeys(self._unrevoked, now)

    # --- requests and replies ------------------------------------------------------------------

    def comes_back(self, group: Group | None, request: Any) -> bool:
        """Whether a static member returns to a group at rest, with the subscription it had."""
        if (
            not isinstance(request, ConsumerGroupHeartbeatRequest)
            or not isinstance(group, ConsumerGroup)
            or request.member_epoch != 0
            or request.instance_id is None
            or group.metadata_known_for is None
            # An epoch that could not be written is known to nobody: topics are looked at again.
            or group.epoch < group.metadata_known_for
            or group.epoch != group.target_epoch
        ):
            return False
        holder = group.static_member(request.instance_id)
        return (
            holder is not None
            and holder.is_away
            and frozenset(request.subscribed_topic_names or ()) == holder.metadata.topics
            and (request.subscribed_topic_regex or "") == holder.metadata.regex
        )

    def came_back(self, group: Group | None, generation: int) -> None:
        assert isinstance(group, ConsumerGroup)
        demand(group.epoch == generation, "E15", "the return of a static member bumped the epoch")

    def asked(self, request: Any, ticket: Ticket, now: Moment) -> None:
        del now
        self._append_failed = False
        kind = type(request)
        is_late = not ticket[0].is_open
        if kind is ConsumerGroupHeartbeatRequest:
            if is_late and request.topic_partitions is not None:
                self._misled.add(request.member_id)
            if self.group is not None:
                self._expected[ticket] = self.group.heartbeat_error(request)
        elif kind is JoinGroupRequest and (is_late or self._is_forgotten(request.member_id)):
            self._misled.add(request.member_id)
        elif kind is OffsetCommitRequest:
            self._expected[ticket] = _REFUSED if self._is_refused(request) else None

    def _is_forgotten(self, member_id: str) -> bool:
        """Thrown out, and about to be let in again without a word: a group of this kind, here and
        in Apache Kafka, takes the id of a classic member as it comes. Until it has adopted what it
        is given it believes, and commits, that it owns what others were given since."""
        return self.group is not None and member_id not in self.group.members

    def _is_refused(self, request: OffsetCommitRequest) -> bool:
        epoch = request.generation_id_or_member_epoch
        if self.group is None:
            is_member = request.member_id in self.model.members
            return bool(self.model.members) and not (is_member and epoch == self.model.generation)
        partitions = [
            (self._topics.ids[topic.name], each.partition_index)
            if topic.name in self._topics.ids
            else None
            for topic in request.topics
            for each in topic.partitions
        ]
        return self.group.commit_error(request.member_id, epoch, partitions)

    def decided(self, request: Any, decision: GroupDecision, now: Moment) -> None:
        kind = type(request)
        for event in decision.events:
            if event.kind is EventKind.MEMBER_EXPIRED:
                self._gone(event, now)
        for reply in decision.replies:
            answer = reply.response
            expected = self._expected.pop(reply.ticket, None)
            if self._append_failed:
                continue
            if kind is ConsumerGroupHeartbeatRequest:
                self._beat(request, reply.ticket, answer, expected, now)
            elif kind is OffsetCommitRequest and self.group is not None and expected is None:
                codes = {each.error_code for topic in answer.topics for each in topic.partitions}
                refused = codes & _REFUSALS
                demand(not refused, "E10", f"a commit of {request.member_id} got {refused}")
            elif kind is SyncGroupRequest and answer.error_code == ErrorCode.NONE:
                self._synced(request, reply.ticket, answer)
            elif kind is OffsetFetchRequest:
                self._fetched(answer)
            elif isinstance(answer, JoinGroupResponse):
                self._hear(answer.member_id, now)
                if self.group is not None and answer.error_code == ErrorCode.NONE:
                    self.to_sync.add(answer.member_id)
        if kind in (HeartbeatRequest, SyncGroupRequest, JoinGroupRequest):
            self._hear(request.member_id, now)

    def _hear(self, member_id: str, now: Moment) -> None:
        """Classic members are heard in many ways; that they are is watched elsewhere."""
        self._heard[member_id] = now
        self._heartbeats.pop(member_id, None)

    def _beat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        ticket: Ticket,
        answer: ConsumerGroupHeartbeatResponse,
        expected: object,
        now: Moment,
    ) -> None:
        code = ErrorCode.of(answer.error_code)
        said = f"{request.member_id} at {request.member_epoch} was answered {code.name}"
        if isinstance(expected, ErrorCode):
            demand(code is expected, "E9", f"{said}, not {expected.name}")
        if code is not ErrorCode.NONE or request.member_epoch < 0:
            return
        assert self.group is not None
        member_id = answer.member_id or ""
        demand(answer.member_epoch > 0, "E9", f"{said} and {answer.member_epoch}")
        demand(answer.heartbeat_interval_ms > 0, "E9", f"{said}, without an interval")
        same = answer.member_epoch == self.group.member_epoch(member_id)
        demand(same, "E5", f"{said} with {answer.member_epoch}, which it has not")
        self._heartbeats[member_id] = self._heard[member_id] = now
        held = self.group.assigned(member_id)
        if answer.assignment is not None:
            told = [
                (bytes(topic.topic_id), number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            ]
            demand(sorted(told) == sorted(held), "E1", f"{member_id} was told {told}, has {held}")
        self._to_tell[ticket] = (self.group.label(member_id), answer.member_epoch, held)

    def _synced(self, request: SyncGroupRequest, ticket: Ticket, answer: Any) -> None:
        if self.group is None:
            return
        self.to_sync.discard(request.member_id)
        given = consumer_protocol.ConsumerProtocolAssignment.decode(answer.assignment).partitions
        ids = self._topics.ids
        told = frozenset((ids[tp.topic], tp.partition) for tp in given if tp.topic in ids)
        held = self.group.assigned(request.member_id)
        demand(told <= held, "E1", f"{request.member_id} was given {told - held}")
        self._to_tell[ticket] = (self.group.label(request.member_id), request.generation_id, told)

    def sent(self, ticket: Ticket, answer: Any) -> None:
        super().sent(ticket, answer)
        label, epoch, held = self._to_tell.pop(ticket, ("", -1, frozenset()))
        self._told_epoch = max(self._told_epoch, epoch)
        for one in held:
            owner = self._owners.setdefault((one, epoch), label)
            demand(owner == label, "E6", f"{owner} and {label} own {one} at {epoch}")

    def refused(self, tickets: Iterable[Ticket]) -> None:
        taken_back = list(tickets)
        super().refused(taken_back)
        for ticket in taken_back:
            self._to_tell.pop(ticket, None)

    def _check_committer(
        self, tp: TopicPartition, request: OffsetCommitRequest, ticket: Ticket
    ) -> None:
        sender = f"{request.member_id} of {request.generation_id_or_member_epoch}"
        refused = self._expected.get(ticket) is _REFUSED
        demand(not refused, "E10", f"{sender} committed {tp} in {self.model.generation}")
        owner = self.model.owners.get(tp, request.member_id)
        # What is late may speak of what was given up since, at the same epoch.
        is_ours = owner == request.member_id or not ticket[0].is_open
        # Of one that was deleted and made anew there are two, of one name.
        is_ours = is_ours or tp.topic in self._topics.recreated
        is_ours = is_ours or self._was_misled(request.member_id, ticket)
        demand(is_ours or self.group is None, "C3", f"{sender} committed {tp} of {owner}")

    def _was_misled(self, member_id: str, ticket: Ticket) -> bool:
        """When it sent this."""
        return member_id in self._misled or ticket[1] >= self._misled_until.get(member_id, 0)

    # --- silence -------------------------------------------------------------------------------

    def _gone(self, event: GroupEvent, now: Moment) -> None:
        member_id = event.member_id or ""
        if "no heartbeat" in event.cause:
            heard, limit_ms = self._heartbeats.get(member_id), self._session_ms()
        elif "did not give up" in event.cause:
            heard, limit_ms = self._unrevoked.get(member_id), self._rebalance_ms(member_id)
        else:
            return
        # What could not be written has armed every timer anew, also the one that came just now.
        if heard is not None and not self._append_failed:
            silent_ms = now.alive_ms - heard.alive_ms
            allowed_ms = 2 * _SLACK_MS * (now.pauses - heard.pauses)
            early = f"{event.cause}: that was {silent_ms} ms"
            demand(silent_ms >= limit_ms - allowed_ms, "E12", early)

    def _session_ms(self) -> int:
        return self._config.consumer.session_timeout_ms

    def _rebalance_ms(self, member_id: str) -> int:
        known = self.group.members.get(member_id) if self.group is not None else None
        return known.rebalance_timeout_ms if known is not None else 0

    def check(self, group: Group | None, now: Moment) -> None:
        if self.group is None or isinstance(group, ClassicGroup) or group is None:
            return
        for member_id, metadata in self.group.members.items():
            if metadata.classic is not None:
                continue
            heard = self._heard.setdefault(member_id, now)
            self._in_time(member_id, "silent", heard, self._session_ms(), now)
        for member_id, since in self._unrevoked.items():
            limit_ms = self._rebalance_ms(member_id)
            self._in_time(member_id, "giving up", since, limit_ms, now)

    def _in_time(
        self, member_id: str, what: str, since: Moment, limit_ms: int, now: Moment
    ) -> None:
        waited_ms = now.alive_ms - since.alive_ms
        allowed_ms = limit_ms + _SLACK_MS * (1 + now.pauses - since.pauses)
        demand(waited_ms <= allowed_ms, "E12", f"{member_id} is {what} for {waited_ms} ms")

    # --- consumers -----------------------------------------------------------------------------

    def adopted(self, consumer: Any, others: Iterable[Any]) -> None:
        """A consumer has taken over an assignment."""
        # A topic that was deleted and made anew is two topics of one name.
        mine = {tp for tp in consumer.member.owned if tp.topic not in self._topics.recreated}
        if not self._is_member(consumer):
            return  # too late: thrown out before it knew what it got
        self._set_right(consumer, mine)
        for other in others:
            if (
                other is not consumer
                and other.is_alive
                and other.label != consumer.label
                and _identity(other)[0] not in self._misled
                and self._is_member(other)
                and self._claimed_in_time(other)
            ):
                shared = sorted(mine.intersection(other.member.owned))
                demand(not shared, "E11", f"{consumer.label} and {other.label} own {shared}")

    def _set_right(self, consumer: Any, mine: Iterable[TopicPartition]) -> None:
        """It owns what the journal says: nobody is misled any more.

        Unless it took over an answer that is older than the request that misled the coordinator.
        Then it owns what that gave away, and hears of it with its next assignment.
        """
        member_id, _ = _identity(consumer)
        if member_id in self._misled and all(self.model.owners.get(tp) == member_id for tp in mine):
            self._misled.remove(member_id)
            self._misled_until[member_id] = consumer.engine.last_ticket

    def _is_member(self, consumer: Any) -> bool:
        """At the epoch at which the coordinator has it: older ones are told so when they speak."""
        member_id, epoch = _identity(consumer)
        if self.group is None:
            return member_id in self.model.members and epoch == self.model.generation
        return member_id in self.group.members and epoch == self.group.member_epoch(member_id)

    def _claimed_in_time(self, consumer: Any) -> bool:
        """A classic member of a classic group keeps what it claimed in the last rebalance."""
        claimed: int | None = getattr(consumer.engine, "claimed_generation", None)
        return self.group is not None or claimed == self.model.generation - 1


def _identity(consumer: Any) -> tuple[str, int]:
    identity = consumer.member.group_metadata
    return identity.member_id, identity.generation_id


def _is_offset(record: JournalRecord) -> bool:
    return isinstance(record, OffsetRecord | OffsetTombstone)
