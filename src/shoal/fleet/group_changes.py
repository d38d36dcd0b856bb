"""Rebalances of a group → what happened to it: who came and went, what they read, what grew.

What a group went through is the same whatever protocol it speaks; how often it rebalanced over it
is not. So the second round of a cooperative rebalance does not count as one, and neither does the
return of a static member. A member that goes and comes back soon, by its client id and host, is
told as one that was *away*: with a ``group.instance.id`` nobody would have noticed.

Rule: only what the records say. What they leave open (how a member went, topics by id) is counted,
so that whoever reads the result is told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from shoal.assign.plan import PlannedGroup, PlannedMember, PlannedTopic
from shoal.fleet.causes import SECOND_ROUND, Rebalance
from shoal.fleet.fold import RecordedGeneration, RecordedMember

AWAY_MAX_S: Final = 600.0
"""Who is back later than that was not restarted."""
_MEASURED_MIN: Final = 3
_GAP_MAX_S: Final = 2.0
"""Who commits less often than that may hide a pause between two commits."""
_US: Final = 1e6


@dataclass(frozen=True, slots=True)
class DepartedMember:
    """A member that went."""

    member_id: str
    how: str
    """``left``, ``expired``, or ``gone`` where nothing tells which."""
    session_s: float | None
    is_static: bool = False
    away_s: float | None = None
    """How long until it was back, if it came back. Zero: within the same rebalance."""
    back_as: str | None = None


@dataclass(frozen=True, slots=True)
class RecordedChange:
    """What happened between two generations; all of it empty: somebody only joined again."""

    at_us: int
    joined: Mapping[str, PlannedMember] = field(default_factory=dict)
    departed: Sequence[DepartedMember] = ()
    grown: Mapping[str, int] = field(default_factory=dict)
    resubscribed: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """A group as it was first seen, and everything that happened to it since."""

    group: str
    protocol: str
    protocol_type: str
    assignor: str | None
    start: PlannedGroup
    changes: Sequence[RecordedChange]
    observed_s: float
    rebalances: int
    """As recorded, after the first generation."""
    moved: int
    missed: int
    """Generations that compaction took."""
    members: int
    """At most, at one time."""
    partitions: int
    static: int
    """How many members of the last generation are static."""
    client_ids: Sequence[str]
    assigning_s: float | None = None
    """Usual time from the moment members are known to the assignment."""
    standing_s: float | None = None
    """Usual time without commits around an eager rebalance, beyond the usual."""
    topics_by_id: bool = False

    @property
    def unsure(self) -> int:
        """How many members went without a sign of how."""
        return sum(one.how == "gone" for change in self.changes for one in change.departed)


def group_histories(
    rebalances: Sequence[Rebalance], commit_gaps_us: Mapping[str, int] | None = None
) -> list[GroupHistory]:
    """The history of every group among ``rebalances``, which are in the order of the log.

    Groups that never had a member are left out, and what was before a group changed its protocol.
    """
    gaps = commit_gaps_us or {}
    by_group: dict[str, list[Rebalance]] = {}
    for one in rebalances:
        by_group.setdefault(one.now.group, []).append(one)
    told = [(name, _since_last_protocol(ours)) for name, ours in sorted(by_group.items())]
    return [_Reading(ours).history(gaps.get(name)) for name, ours in told if ours]


def _since_last_protocol(rebalances: Sequence[Rebalance]) -> list[Rebalance]:
    begin = 0
    last = rebalances[-1].now.protocol
    for index, one in enumerate(rebalances):
        if one.now.protocol != last or (index == begin and not one.now.members):
            begin = index + 1
    return list(rebalances[begin:])


class _Reading:
    """One group, generation by generation. Static members keep the id they were first seen with."""

    def __init__(self, rebalances: Sequence[Rebalance]) -> None:
        self._rebalances = rebalances
        self._topics = _Topics([one.now for one in rebalances])
        self._names: dict[str, str] = {}
        self._members: dict[str, RecordedMember] = {}
        self._counts: dict[str, int] = {}
        self._changes: list[RecordedChange] = []
        self._lost: list[tuple[int, int, RecordedMember]] = []
        """Change, place in it, and who went; not yet back."""

    def history(self, commit_gap_us: int | None) -> GroupHistory:
        first, last = self._rebalances[0].now, self._rebalances[-1].now
        start = self._begin(first)
        for one in self._rebalances[1:]:
            self._read(one)
        # The last one with members says how the group works; an empty one knows no assignor.
        now = next((one.now for one in reversed(self._rebalances) if one.now.members), last)
        return GroupHistory(
            group=first.group,
            protocol=now.protocol,
            protocol_type=now.protocol_type,
            assignor=now.assignor,
            start=start,
            changes=self._changes,
            observed_s=(last.at_us - first.at_us) / _US,
            rebalances=sum(one.is_rebalance for one in self._rebalances[1:]),
            moved=sum(one.moved for one in self._rebalances[1:]),
            missed=sum(one.missed for one in self._rebalances),
            members=max(len(one.now.members) for one in self._rebalances),
            partitions=sum(self._counts.values()),
            static=sum(one.instance_id is not None for one in now.members.values()),
            client_ids=sorted({one.client_id for one in now.members.values()})[:3],
            assigning_s=self._assigning_s(),
            standing_s=self._standing_s(commit_gap_us),
            topics_by_id=any(name.startswith("id:") for name in self._counts),
        )

    def _begin(self, first: RecordedGeneration) -> PlannedGroup:
        self._grow(first)
        self._members = dict(first.members)
        self._names = {name: name for name in first.members}
        topics = {name: PlannedTopic(count) for name, count in self._counts.items()}
        members = {name: self._planned(one) for name, one in first.members.items()}
        return PlannedGroup(topics, members, first.assignor, protocol=first.protocol)

    def _planned(self, member: RecordedMember) -> PlannedMember:
        return PlannedMember(self._topics.of(member), member.instance_id)

    def _grow(self, now: RecordedGeneration) -> dict[str, int]:
        """Topics that have more partitions than were seen before."""
        seen: dict[str, int] = {}
        for tp in now.owners:
            name = self._topics.name(tp.topic)
            seen[name] = max(seen.get(name, 0), tp.partition + 1)
        grown = {name: n for name, n in sorted(seen.items()) if n > self._counts.get(name, 0)}
        self._counts.update(grown)
        return grown

    def _read(self, one: Rebalance) -> None:
        now, known_us = one.now, _known_us(one.now)
        was = self._members
        statics = {m.instance_id: name for name, m in was.items() if m.instance_id is not None}
        back = {}
        for name, member in now.members.items():
            if name not in was and member.instance_id in statics:
                back[name] = statics[member.instance_id]
                self._names[name] = self._names[back[name]]
        absent = [name for name in was if name not in now.members and name not in back.values()]
        departed = [self._departed(was[name], one) for name in sorted(absent)]
        joined = {
            name: self._planned(member)
            for name, member in now.members.items()
            if name not in was and name not in back
        }
        resubscribed = {
            self._names[name]: self._topics.of(member)
            for name, member in now.members.items()
            if name not in joined
            and self._topics.of(member) != self._topics.of(was[back.get(name, name)])
        }
        grown = self._grow(now)
        nothing = not (departed or joined or resubscribed or grown)
        self._members = dict(now.members)
        if nothing and (back or one.cause == SECOND_ROUND or not one.is_rebalance):
            return
        place = len(self._changes)
        self._changes.append(RecordedChange(known_us, joined, departed, grown, resubscribed))
        self._lost += [(place, index, was[name]) for index, name in enumerate(sorted(absent))]
        for name in sorted(joined):
            self._names[name] = name
            self._welcome(now.members[name], known_us, was)
        self._lost = [
            lost
            for lost in self._lost
            if known_us - self._changes[lost[0]].at_us < AWAY_MAX_S * _US
        ]

    def _departed(self, member: RecordedMember, one: Rebalance) -> DepartedMember:
        how = "gone"
        if member.member_id in one.departures.left:
            how = "left"
        elif member.member_id in one.departures.expired:
            how = "expired"
        session = member.session_timeout_ms
        return DepartedMember(
            self._names[member.member_id],
            how,
            None if session is None else session / 1000,
            member.instance_id is not None,
        )

    def _welcome(
        self, member: RecordedMember, at_us: int, was: Mapping[str, RecordedMember]
    ) -> None:
        """Was it here before, under another id?"""
        clients = [one.client_id for one in was.values()]
        for index, (place, number, lost) in enumerate(self._lost):
            same_host = lost.host == member.host
            only_one = clients.count(lost.client_id) <= 1
            if lost.client_id != member.client_id or not (same_host or only_one):
                continue
            change = self._changes[place]
            away_s = (at_us - change.at_us) / _US
            departed = list(change.departed)
            departed[number] = replace(departed[number], away_s=away_s, back_as=member.member_id)
            self._changes[place] = replace(change, departed=departed)
            del self._lost[index]
            return

    def _assigning_s(self) -> float | None:
        found = [one.duration_us for one in self._rebalances if one.duration_us is not None]
        return median(found) / _US if found else None

    def _standing_s(self, commit_gap_us: int | None) -> float | None:
        """Only where everything stops: else the pause of the worst partition says little."""
        found = [
            one.pause_us
            for one in self._rebalances
            if one.pause_us is not None
            and one.now.protocol == "classic"
            and one.now.assignor in ("range", "roundrobin", "sticky")
        ]
        if commit_gap_us is None or len(found) < _MEASURED_MIN:
            return None
        standing_us = max(0.0, median(found) - commit_gap_us)
        if commit_gap_us > _GAP_MAX_S * _US and standing_us < commit_gap_us / 2:
            return None
        return standing_us / _US


def _known_us(now: RecordedGeneration) -> int:
    return now.at_us if now.began_us is None else now.began_us


class _Topics:
    """What members subscribe to. Groups of the new protocol name topics by id, or by a pattern;
    members that ask for the same read what one of them was given."""

    def __init__(self, generations: Sequence[RecordedGeneration]) -> None:
        self._given: dict[frozenset[str], set[str]] = {}
        self._by_id: dict[str, str] = {}
        self._known: dict[frozenset[str], tuple[str, ...]] = {}
        if generations[-1].protocol != "consumer":
            return
        for generation in generations:
            for member in generation.members.values():
                given = self._given.setdefault(member.topics, set())
                given.update(tp.topic for tp in member.partitions)
        for asked, given in self._given.items():
            names = [name for name in asked if not name.startswith("/")]
            ids = [name for name in given if name.startswith("id:")]
            if len(asked) == len(names) == len(ids) == len(given) == 1:
                self._by_id[ids[0]] = names[0]

    def name(self, topic: str) -> str:
        return self._by_id.get(topic, topic)

    def of(self, member: RecordedMember) -> tuple[str, ...]:
        known = self._known.get(member.topics)
        if known is None:
            given = self._given.get(member.topics)
            found = member.topics if given is None else {self.name(one) for one in given}
            known = self._known[member.topics] = tuple(sorted(found))
        return known
