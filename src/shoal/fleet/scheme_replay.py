"""A group's history under another way to rebalance: what would have stopped, moved and how often.

Who gets what is decided by the assignors themselves (``shoal.assign``), in the order of the
recorded changes. How long a partition stands still follows from how each protocol works:

    eager         who hears of a rebalance gives everything up and waits for the last to hear, so a
                  partition waits for half of that on average; then for the assignment
    cooperative   what moves is given up in a first round and handed out in a second: a whole round
    consumer      (KIP-848) what moves waits until its new owner's next heartbeat
    static        as its own protocol, but who is away for less than a session keeps its partitions;
                  they wait for it. Nobody says goodbye: who stays away is noticed a session later

Partitions of a member that died wait for its session to run out first. A group without members
reads nothing: that counts for as long as a session, whatever the protocol.

Rule: pure, and the same changes for every scheme.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from shoal.assign.loading import AssignorLike
from shoal.assign.plan import (
    ChangeAtOnce,
    GroupReplay,
    Join,
    Leave,
    PlannedMember,
    Resize,
    Resubscribe,
)
from shoal.fleet.group_changes import DepartedMember, GroupHistory, RecordedChange

EAGER, COOPERATIVE, CONSUMER = "eager", "cooperative", "consumer"
SESSION_S: Final = 45.0
"""Kafka's default, for members whose session no record tells."""
_US: Final = 1e6


@dataclass(frozen=True, slots=True)
class ReplayScheme:
    """A way to rebalance."""

    protocol: str
    assignor: AssignorLike
    is_static: bool = False
    session_max_s: float | None = None
    """No session is longer than this; ``None``: as recorded."""


@dataclass(frozen=True, slots=True)
class ReplayPace:
    """How long the steps of a rebalance take, in seconds."""

    joining_s: float = 3.0
    """Classic: until the last member has heard of a rebalance and joined."""
    assigning_s: float = 0.0
    """Classic: from then to the assignment."""
    classic_heartbeat_s: float = 3.0
    heartbeat_s: float = 5.0
    """Consumer protocol: between two heartbeats of a member."""
    session_s: float = SESSION_S
    """Consumer protocol: the broker's session timeout."""


@dataclass(slots=True)
class Replayed:
    """What a history came to."""

    rebalances: int = 0
    moved: int = 0
    stopped: int = 0
    """Partitions that stood still, each time counted."""
    stopped_s: float = 0.0
    """Partition-seconds."""
    longest_s: float = 0.0
    """The longest that one partition stood still."""
    expired: int = 0
    """Members whose session ran out."""
    returned: int = 0
    """Restarts that nobody noticed."""

    def stop(self, partitions: int, seconds: float, longest_s: float | None = None) -> None:
        if partitions > 0:
            self.stopped += partitions
            self.stopped_s += partitions * seconds
            self.longest_s = max(self.longest_s, seconds if longest_s is None else longest_s)


def replay(history: GroupHistory, scheme: ReplayScheme, pace: ReplayPace) -> Replayed:
    """Run the history through one scheme."""
    return _Run(history, scheme, pace).run()


@dataclass(slots=True)
class _Empty:
    """Nobody is in the group."""

    since_us: int
    partitions: int
    session_s: float
    waited_s: float


@dataclass(slots=True)
class _Departing:
    """What one rebalance takes from members that went."""

    names: list[str] = field(default_factory=list)
    partitions: list[tuple[int, float, float]] = field(default_factory=list)
    """How many, how long they were unread until somebody noticed, and the session."""

    @property
    def total(self) -> int:
        return sum(count for count, _, _ in self.partitions)


class _Run:
    def __init__(self, history: GroupHistory, scheme: ReplayScheme, pace: ReplayPace) -> None:
        self._scheme, self._pace = scheme, pace
        start = history.start
        if scheme.is_static:
            members = {name: _static(name, one) for name, one in start.members.items()}
            start = replace(start, members=members)
        self._changes = history.changes
        self._group = GroupReplay(start, scheme.assignor)
        self._present = set(start.members)
        self._known_as: dict[str, str] = {}
        """Members under a new id, by the one they are known by here."""
        self._empty: _Empty | None = None
        self._found = Replayed()

    def run(self) -> Replayed:
        self._group.start()
        for change in self._changes:
            self._apply(change)
        self._end_empty(None)
        return self._found

    def _apply(self, change: RecordedChange) -> None:
        going = self._going(change)
        joining = {
            name: _static(name, one) if self._scheme.is_static else one
            for name, one in change.joined.items()
            if name not in self._known_as
        }
        steps: list[ChangeAtOnce] = []
        if change.grown:
            steps.append(Resize(change.grown))
        if going.names:
            steps.append(Leave(going.names))
        if joining:
            steps.append(Join(joining))
        gone = set(going.names)
        wishes = {self._known_as.get(name, name): w for name, w in change.resubscribed.items()}
        wishes = {name: w for name, w in wishes.items() if name in self._present - gone}
        if wishes:
            steps.append(Resubscribe(wishes))
        self._present = (self._present - gone) | joining.keys()
        is_empty_change = not (change.joined or change.departed or change.grown)
        if not steps and (not is_empty_change or self._scheme.protocol == CONSUMER):
            return  # nobody noticed, or there was nothing to decide
        if joining:
            self._end_empty(change.at_us)
        before = sum(map(len, self._group.owned.values()))
        step = self._group.rebalance("", steps)
        self._found.rebalances += step.rounds
        self._found.moved += step.moved
        if not self._present:
            self._begin_empty(change.at_us, before, going)
            return
        self._stop(step.stopped, going)

    def _going(self, change: RecordedChange) -> _Departing:
        going = _Departing()
        for one in change.departed:
            name = self._known_as.get(one.member_id, one.member_id)
            if name not in self._present:
                continue
            session_s = self._session_s(one)
            held = len(self._group.owned.get(name, ()))
            if self._is_back(one, session_s):
                assert one.back_as is not None
                assert one.away_s is not None
                self._known_as[one.back_as] = name
                self._found.returned += 1
                # Back within one rebalance: nobody knows when, but it took no longer than that.
                self._found.stop(held, one.away_s or self._pace.joining_s)
                continue
            waits = self._is_unannounced(one)
            self._found.expired += waits
            going.names.append(name)
            going.partitions.append(
                (held, self._unnoticed_s(session_s) if waits else 0.0, session_s)
            )
        return going

    def _is_back(self, one: DepartedMember, session_s: float) -> bool:
        is_static = self._scheme.is_static or one.is_static
        # Whose session ran out was away for at least that long.
        return (
            is_static
            and one.away_s is not None
            and one.how != "expired"
            and one.away_s <= session_s
        )

    def _is_unannounced(self, one: DepartedMember) -> bool:
        if one.is_static:
            return one.how != "left"
        return one.how == "expired" or self._scheme.is_static

    def _unnoticed_s(self, session_s: float) -> float:
        """A session counts from the last heartbeat, which was half an interval ago on average."""
        is_new = self._scheme.protocol == CONSUMER
        interval_s = self._pace.heartbeat_s if is_new else self._pace.classic_heartbeat_s
        return max(0.0, session_s - interval_s / 2)

    def _session_s(self, one: DepartedMember) -> float:
        if self._scheme.protocol == CONSUMER:
            session_s = self._pace.session_s
        else:
            session_s = SESSION_S if one.session_s is None else one.session_s
        cap_s = self._scheme.session_max_s
        return session_s if cap_s is None else min(session_s, cap_s)

    def _stop(self, stopped: int, going: _Departing) -> None:
        """Count what one rebalance stopped: what was left behind, and what members gave up."""
        pace, protocol = self._pace, self._scheme.protocol
        whole_s = pace.joining_s + pace.assigning_s
        if protocol == CONSUMER:
            average_s, longest_s = pace.heartbeat_s / 2, pace.heartbeat_s
        elif protocol == COOPERATIVE:
            average_s = longest_s = whole_s
        else:
            average_s, longest_s = pace.joining_s / 2 + pace.assigning_s, whole_s
        self._found.stop(stopped - going.total, average_s, longest_s)
        for count, wait_s, _ in going.partitions:
            if protocol == CONSUMER:
                self._found.stop(count, wait_s + average_s, wait_s + longest_s)
            else:
                self._found.stop(count, wait_s + whole_s)

    def _begin_empty(self, at_us: int, before: int, going: _Departing) -> None:
        waited_s = min((wait_s for _, wait_s, _ in going.partitions), default=0.0)
        session_s = max((session_s for _, _, session_s in going.partitions), default=SESSION_S)
        for count, wait_s, _ in going.partitions:
            self._found.stop(count, wait_s)
        # What nobody read any more counts once: here, and how much longer when somebody comes.
        self._empty = _Empty(at_us, before, session_s, waited_s)

    def _end_empty(self, at_us: int | None) -> None:
        empty, self._empty = self._empty, None
        if empty is None:
            return
        lasted_s = empty.session_s
        if at_us is not None:
            lasted_s = min(lasted_s, (at_us - empty.since_us) / _US)
        more_s = max(0.0, lasted_s - empty.waited_s)
        self._found.stopped_s += empty.partitions * more_s
        self._found.longest_s = max(self._found.longest_s, empty.waited_s + more_s)


def _static(name: str, member: PlannedMember) -> PlannedMember:
    return member if member.instance_id else replace(member, instance_id=name)
