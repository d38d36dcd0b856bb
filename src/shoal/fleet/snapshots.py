"""A group at one moment, and what happened between two.

Rule: everything here works on values; ``take`` is the only function that asks a cluster. So what
``group watch`` says can be tested without waiting for a rebalance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from shoal.errors import counted
from shoal.fleet.member_names import MemberIdentity, member_names
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin
    from shoal.client.group_admin import GroupDescription
    from shoal.client.survey import ClusterSurvey, SurveyedGroup

REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


@dataclass(frozen=True)
class MemberView:
    """One member as seen from outside; ``name`` is for people, and another member may have it at
    another time."""

    member_id: str
    name: str
    host: str
    group_instance_id: str | None
    topics: frozenset[str]
    partitions: frozenset[TopicPartition]
    target: frozenset[TopicPartition] | None = None
    """What its coordinator wants it to have, in a group of the new protocol (KIP-848)."""

    @property
    def to_give_up(self) -> frozenset[TopicPartition]:
        """What others wait for."""
        return frozenset() if self.target is None else self.partitions - self.target

    @property
    def identity(self) -> tuple[str, str]:
        """Who it is: a static member is the same after a restart, under another member id."""
        if self.group_instance_id is not None:
            return "instance", self.group_instance_id
        return "member", self.member_id


@dataclass(frozen=True)
class Snapshot:
    """A group at one moment. ``lags`` holds ``None`` where nothing is committed.

    ``is_joined``: it has members, or had: its coordinator remembers a protocol. A group that is
    only committed to, by Spark or by consumers that assign their partitions themselves, has none.
    """

    at_s: float
    state: str
    assignor: str
    members: Mapping[str, MemberView]
    lags: Mapping[TopicPartition, int | None]
    ends: Mapping[TopicPartition, int]
    is_joined: bool = True
    assignor_fault: str | None = None
    """Why the broker has no new target for it (KIP-848)."""
    source: GroupDescription | None = None
    """What it was made from, if a survey saw it."""

    @property
    def lag(self) -> int:
        return sum(lag or 0 for lag in self.lags.values())

    def lag_of(self, member: MemberView) -> int:
        """How far behind the member's partitions are."""
        return sum(self.lags.get(tp) or 0 for tp in member.partitions)


@dataclass(frozen=True)
class GroupChange:
    """Something that happened between two looks."""

    at_s: float
    kind: str
    text: str


def take(admin: Admin, group_id: str, at_s: float) -> Snapshot:
    """Look at a group."""
    found = admin.describe_group(group_id)
    lags = admin.group_lag(group_id)
    return Snapshot(
        at_s,
        found.state,
        found.assignor,
        _views(found),
        {tp: one.lag for tp, one in lags.items()},
        {tp: one.end for tp, one in lags.items()},
        is_joined=bool(found.protocol_type),
        assignor_fault=found.assignor_fault,
    )


def surveyed(
    group: SurveyedGroup, found: ClusterSurvey, at_s: float, last: Snapshot | None = None
) -> Snapshot | None:
    """A group as a survey saw it; ``None`` if it could not be looked at.

    ``last``: the look before. Names of members that are all still there are not made again.
    """
    described = group.description
    if described is None:
        return None
    before = None if last is None else last.source
    if last is not None and before is not None and before.members == described.members:
        views = last.members
    else:
        views = _views(described)
    lags: dict[TopicPartition, int | None] = {}
    for tp, committed in group.committed.items():
        end = found.ends.get(tp)
        if end is not None:
            lags[tp] = max(0, end - max(committed, found.starts.get(tp, 0)))
    for view in views.values():
        for tp in view.partitions:
            if tp in found.ends:
                lags.setdefault(tp, None)
    return Snapshot(
        at_s,
        described.state,
        described.assignor,
        views,
        lags,
        {tp: found.ends[tp] for tp in lags},
        is_joined=bool(described.protocol_type),
        assignor_fault=described.assignor_fault,
        source=described,
    )


def _views(found: GroupDescription) -> dict[str, MemberView]:
    names = member_names(
        MemberIdentity(one.member_id, one.client_id, one.group_instance_id) for one in found.members
    )
    return {
        one.member_id: MemberView(
            one.member_id,
            names[one.member_id],
            one.host,
            one.group_instance_id,
            frozenset(one.topics),
            frozenset(one.assignment),
            None if one.target is None else frozenset(one.target),
        )
        for one in found.members
    }


class Observer:
    """Turns looks at a group into events; remembers when a rebalance began."""

    def __init__(self) -> None:
        self._last: Snapshot | None = None
        self._stable: Snapshot | None = None
        self._began_s: float | None = None

    def look(self, now: Snapshot) -> list[GroupChange]:
        """What happened since the last look."""
        events: list[GroupChange] = []
        before = self._last
        if before is not None:
            events += _membership(before, now)
            if now.state != before.state:
                events.append(GroupChange(now.at_s, "state", f"{before.state} → {now.state}"))
        if now.state in REBALANCING and self._began_s is None:
            self._began_s = now.at_s
        if now.state not in REBALANCING:
            events += self._settled(now)
        self._last = now
        return events

    def _settled(self, now: Snapshot) -> list[GroupChange]:
        events: list[GroupChange] = []
        moved = moves(self._stable, now) if self._stable is not None else []
        if self._began_s is not None:
            took = now.at_s - self._began_s
            text = f"rebalanced in about {took:.1f} s, {counted(len(moved), 'partition')} moved"
            events.append(GroupChange(now.at_s, "rebalanced", text))
            self._began_s = None
        for tp, old, new in moved[:20]:
            events.append(GroupChange(now.at_s, "moved", f"{tp}: {_called(old)} → {_called(new)}"))
        self._stable = now
        return events


def _membership(before: Snapshot, now: Snapshot) -> list[GroupChange]:
    old = {one.identity: one for one in before.members.values()}
    new = {one.identity: one for one in now.members.values()}
    happened = [("joined", new[one]) for one in new.keys() - old.keys()]
    happened += [("left", old[one]) for one in old.keys() - new.keys()]
    happened += [
        ("restarted", new[one])
        for one in old.keys() & new.keys()
        if old[one].member_id != new[one].member_id
    ]
    happened.sort(key=lambda one: (one[0], one[1].name))
    return [GroupChange(now.at_s, kind, f"{one.name} ({one.host})") for kind, one in happened]


def owners(snapshot: Snapshot) -> dict[TopicPartition, MemberView]:
    """Who reads what."""
    return {tp: member for member in snapshot.members.values() for tp in member.partitions}


def moves(
    before: Snapshot, now: Snapshot
) -> list[tuple[TopicPartition, MemberView | None, MemberView | None]]:
    """Partitions with another owner than before: partition, old owner, new owner."""
    old, new = owners(before), owners(now)
    return [
        (tp, old.get(tp), new.get(tp))
        for tp in sorted(old.keys() | new.keys())
        if _identity(old.get(tp)) != _identity(new.get(tp))
    ]


def _identity(member: MemberView | None) -> tuple[str, str] | None:
    return None if member is None else member.identity


def _called(member: MemberView | None) -> str:
    return "nobody" if member is None else member.name
