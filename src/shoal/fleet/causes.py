"""Two generations of a group → why it rebalanced, who came and went, and what moved.

The records do not say why; they say who was there before and after, and when offsets were
committed. What follows from that for sure is ``certain``; the rest is the likeliest reading:

- A member that is new *joined*; a static one that came back under a new id *restarted*.
- A member that is gone *left* for sure if its partitions were committed less than a session ago:
  its session cannot have run out (a commit counts as a heartbeat). If they had been committed
  regularly and then were not for a whole session, it *expired*, most likely. Otherwise it is
  *gone*: nothing tells which.
- The same members with other topics: *subscription changed*, or a pattern found a new topic.
- The same members and topics, and partitions nobody had: *topic grew*, or, if they were taken
  from somebody in the generation before, the *second round* of a cooperative rebalance.

Rule: pure; a cause is decided here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from shoal.fleet.fold import RecordedGeneration, RecordedMember
from shoal.types import TopicPartition

STARTED = "group started"
FIRST_SEEN = "first seen"
UNKNOWN = "unknown"
SECOND_ROUND = "second round of a cooperative rebalance"


class Commits(Protocol):
    """When a group committed."""

    def last_two(self, tps: Iterable[TopicPartition], at_us: int) -> tuple[int | None, int | None]:
        """The last commit of any of the partitions before a time, and the one before it."""
        ...

    def gaps(self, tps: Iterable[TopicPartition], at_us: int) -> dict[TopicPartition, int]:
        """How long each of the partitions was without a commit, around a moment; those without
        one on both sides are left out."""
        ...


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """A partition that has another owner; ``None`` is nobody."""

    topic_partition: TopicPartition
    giver: str | None
    taker: str | None


@dataclass(frozen=True, slots=True)
class Departures:
    """Members that are not there any more, by what is known of how they went."""

    left: Sequence[str] = ()
    expired: Sequence[str] = ()
    gone: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Rebalance:
    """The way from one generation to the next."""

    now: RecordedGeneration
    cause: str
    certain: bool
    joined: Sequence[str] = ()
    departures: Departures = Departures()
    restarted: Sequence[str] = ()
    moves: Sequence[PartitionMove] = ()
    missed: int = 0
    pause_us: int | None = None
    is_rebalance: bool = True
    still_us: Mapping[str, int] = field(default_factory=dict)
    """By member: the longest that a partition it has was without a commit around this. Only
    members of which that is on record."""
    reached_us: Mapping[str, int] = field(default_factory=dict)
    """By member of a group of the new protocol: when it had nothing left to do for this epoch."""

    @property
    def duration_us(self) -> int | None:
        """From the moment the members were known to the moment the assignment was written."""
        began = self.now.began_us
        return None if began is None or not self.is_rebalance else self.now.at_us - began

    @property
    def moved(self) -> int:
        return sum(one.taker is not None for one in self.moves)

    @property
    def withheld(self) -> frozenset[TopicPartition]:
        """What somebody had and nobody has now."""
        return frozenset(one.topic_partition for one in self.moves if one.taker is None)


def explain(
    before: RecordedGeneration | None,
    now: RecordedGeneration,
    commits: Commits,
    withheld: frozenset[TopicPartition] = frozenset(),
) -> Rebalance:
    """Why ``now`` followed ``before``.

    Args:
        before: the generation before; ``None`` if the history begins here.
        withheld: what ``before`` had taken from its owners and given to nobody.
    """
    if before is None:
        is_first = now.generation == 1 and bool(now.members)
        joined = sorted(now.members) if is_first else []
        return Rebalance(now, STARTED if is_first else FIRST_SEEN, is_first, joined)
    restarted = _restarted(before, now)
    joined = sorted(now.members.keys() - before.members.keys() - set(restarted.values()))
    absent = sorted(before.members.keys() - now.members.keys() - restarted.keys())
    departures = _departures([before.members[name] for name in absent], now, commits)
    parts = _coming_and_going(joined, departures, restarted)
    parts += _what_else(before, now, withheld, is_alone=not parts)
    missed = max(0, now.generation - before.generation - 1 - now.unfinished)
    gaps = _gaps(before, now, commits, withheld)
    unsure = bool(departures.expired or departures.gone or missed or UNKNOWN in parts)
    return Rebalance(
        now,
        " and ".join(parts),
        not unsure,
        joined,
        departures,
        sorted(restarted.values()),
        _moves(before, now, restarted),
        missed,
        max((gap for tp, gap in gaps.items() if tp in before.owners), default=None),
        is_rebalance=now.generation != before.generation,
        still_us=_still(now, gaps),
    )


def _restarted(before: RecordedGeneration, now: RecordedGeneration) -> dict[str, str]:
    """Static members under a new id: old id → new id."""
    ids = {one.instance_id: one.member_id for one in now.members.values() if one.instance_id}
    return {
        old.member_id: ids[old.instance_id]
        for old in before.members.values()
        if old.instance_id in ids and ids[old.instance_id] != old.member_id
    }


def _departures(
    absent: Sequence[RecordedMember], now: RecordedGeneration, commits: Commits
) -> Departures:
    left, expired, gone = [], [], []
    known_us = now.at_us if now.began_us is None else now.began_us
    for member in absent:
        session_ms = member.session_timeout_ms
        last, previous = commits.last_two(member.partitions, known_us)
        if session_ms is None or last is None:
            gone.append(member.member_id)
            continue
        # It may also have been sent away because it did not rejoin in time.
        shortest_us = 1000 * min(session_ms, member.rebalance_timeout_ms or session_ms)
        if known_us - last < shortest_us:
            left.append(member.member_id)
        elif previous is not None and 2 * (last - previous) < session_ms * 1000:
            expired.append(member.member_id)
        else:
            gone.append(member.member_id)
    return Departures(left, expired, gone)


def _coming_and_going(
    joined: Sequence[str], departures: Departures, restarted: dict[str, str]
) -> list[str]:
    named = {
        "{} joined": joined,
        "{} left": departures.left,
        "{} expired": departures.expired,
        "{} left or expired": departures.gone,
        "static {} restarted": list(restarted),
    }
    return [
        text.format("member" if len(who) == 1 else f"{len(who)} members")
        for text, who in named.items()
        if who
    ]


def _what_else(
    before: RecordedGeneration,
    now: RecordedGeneration,
    withheld: frozenset[TopicPartition],
    *,
    is_alone: bool,
) -> list[str]:
    """Causes that show in topics and partitions; ``is_alone``: nobody came or went."""
    parts = []
    common = before.members.keys() & now.members.keys()
    if any(before.members[name].topics != now.members[name].topics for name in common):
        parts.append("subscription changed")
    had, has = set(before.owners), set(now.owners)
    new = has - had - withheld
    if {tp.topic for tp in new} & {tp.topic for tp in had | withheld}:
        parts.append("topic grew")
    if parts or not is_alone:
        return parts
    if before.assignor != now.assignor and now.assignor is not None:
        return ["assignor changed"]
    if withheld & has:
        return [SECOND_ROUND]
    if had and not has & had:
        return ["topics gone"] if now.members else [UNKNOWN]
    return [UNKNOWN]


def _moves(
    before: RecordedGeneration, now: RecordedGeneration, restarted: dict[str, str]
) -> list[PartitionMove]:
    had = {tp: restarted.get(owner, owner) for tp, owner in before.owners.items()}
    has = now.owners
    return [
        PartitionMove(tp, had.get(tp), has.get(tp))
        for tp in sorted(had.keys() | has.keys())
        if had.get(tp) != has.get(tp)
    ]


def handed_on(
    before: RecordedGeneration, now: RecordedGeneration, withheld: frozenset[TopicPartition]
) -> AbstractSet[TopicPartition]:
    """What somebody has now and had before, or had to give up in the round before."""
    return (before.owners.keys() | withheld) & now.owners.keys()


def _gaps(
    before: RecordedGeneration,
    now: RecordedGeneration,
    commits: Commits,
    withheld: frozenset[TopicPartition],
) -> dict[TopicPartition, int]:
    # Around the assignment, not since the rebalance began: while they wait for it, members of the
    # new protocol read on and commit, and in a classic group nobody may.
    return commits.gaps(handed_on(before, now, withheld), now.at_us)


def _still(now: RecordedGeneration, gaps: Mapping[TopicPartition, int]) -> dict[str, int]:
    owners = now.owners
    found: dict[str, int] = {}
    for tp, gap_us in gaps.items():
        found[owners[tp]] = max(gap_us, found.get(owners[tp], 0))
    return found
