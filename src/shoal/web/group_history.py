"""What happened to each group: its rebalances as pages show them, and who owned what when.

Rule: bounded, and nothing is made up. Of a group the last ``REBALANCES_MAX`` are kept; where the
history has a hole the strip has one, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

from shoal.fleet.causes import FIRST_SEEN, SECOND_ROUND, Rebalance
from shoal.fleet.member_names import MemberIdentity, member_names
from shoal.web.rebalance_phases import MEMBERS_MAX as SHOWN_MEMBERS_MAX
from shoal.web.rebalance_phases import MOVING, by_member, phases

REBALANCES_MAX: Final = 100
MEMBERS_MAX: Final = 500
MOVES_MAX: Final = 200
MOVING_MAX: Final = 200
STORM_GAP_S: Final = 300.0
STORM_MIN: Final = 3


class RebalanceHistory:
    """The rebalances of one group, the oldest first."""

    def __init__(self) -> None:
        self._known: deque[Rebalance] = deque(maxlen=REBALANCES_MAX)
        self._identities: dict[str, MemberIdentity] = {}
        self._moving_ms: deque[int] = deque(maxlen=MOVING_MAX)

    def add(self, one: Rebalance) -> bool:
        """One more; whether it is new: what is there already is not told twice."""
        if self._known and _order(one) <= _order(self._known[-1]):
            return False
        self._known.append(one)
        for member in one.now.members.values():
            self._identities[member.member_id] = MemberIdentity(
                member.member_id, member.client_id, member.instance_id
            )
        while len(self._identities) > MEMBERS_MAX:
            del self._identities[next(iter(self._identities))]
        return True

    def look(self, state: str, at_ms: int) -> None:
        """What a look found: when a group is between two assignments, that is kept."""
        if state in MOVING:
            self._moving_ms.append(at_ms)

    def revise(self, one: Rebalance) -> Rebalance | None:
        """Add what became known later; the rebalance as it is now, if that changed anything."""
        for index in range(len(self._known) - 1, -1, -1):
            known = self._known[index]
            if _order(known) != _order(one):
                continue
            still = _longest(known.still_us, one.still_us)
            reached = {**one.reached_us, **known.reached_us}
            if (still, reached) == (known.still_us, known.reached_us):
                return None
            pause_us = max((known.pause_us or 0, one.pause_us or 0)) or None
            changed = replace(known, still_us=still, reached_us=reached, pause_us=pause_us)
            self._known[index] = changed
            return changed
        return None

    @property
    def last(self) -> Rebalance | None:
        """The last that was a rebalance; the first look at a group is none, and a second round
        has the cause of the first."""
        real = [one for one in self._known if is_real(one)]
        caused = [one for one in real if one.cause != SECOND_ROUND]
        return next(reversed(caused or real), None)

    def names(self) -> dict[str, str]:
        """What members are called, those that are gone too."""
        return member_names(self._identities.values())

    def shown(self, *, with_moves: bool = False) -> list[dict[str, Any]]:
        """As a page shows them, the newest first."""
        names = self.names()
        if not with_moves:
            return [shown(one, names) for one in reversed(self._known)]
        found = []
        before_ms = 0
        for index, one in enumerate(self._known):
            at_ms = one.now.at_us // 1000
            seen_ms = [at for at in self._moving_ms if before_ms < at <= at_ms]
            found.append(
                {
                    **shown(one, names, with_moves=True),
                    "phases": phases(
                        one, names, seen_ms=seen_ms, is_last=index == len(self._known) - 1
                    ),
                }
            )
            before_ms = at_ms
        return found[::-1]

    def rows(self, since_us: int) -> list[dict[str, Any]]:
        """What a diagnosis wants to know."""
        return [
            {"cause": one.cause, "expired": one.departures.expired}
            for one in self._known
            if one.now.at_us >= since_us
        ]

    def ownership(self, now_us: int) -> list[dict[str, Any]]:
        """Who owned each partition, from when to when; nobody is ``None``."""
        names = self.names()
        spans: dict[tuple[str, int], list[list[Any]]] = {}
        known = list(self._known)
        ends = [*(one.now.at_us for one in known[1:]), now_us]
        for one, end_us in zip(known, ends, strict=False):
            owners = one.now.owners
            for tp, member_id in owners.items():
                name = names.get(member_id, member_id)
                row = spans.setdefault((tp.topic, tp.partition), [])
                if row and row[-1][2] == name and row[-1][1] == one.now.at_us:
                    row[-1][1] = end_us
                else:
                    row.append([one.now.at_us, end_us, name])
        return [
            {
                "topic": topic,
                "partition": partition,
                "spans": [[begin // 1000, end // 1000, name] for begin, end, name in row],
            }
            for (topic, partition), row in sorted(spans.items())
        ]


def _longest(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {id_: max(one.get(id_, 0), other.get(id_, 0)) for id_ in {**one, **other}}


def _order(one: Rebalance) -> tuple[int, int]:
    return one.now.at_us, one.now.generation


def is_real(one: Rebalance) -> bool:
    """Whether the group changed, and was not only seen for the first time."""
    return one.is_rebalance and one.cause != FIRST_SEEN


def shown(one: Rebalance, names: dict[str, str], *, with_moves: bool = False) -> dict[str, Any]:
    """A rebalance as JSON."""

    def called(ids: Iterable[str]) -> list[str]:
        return [names.get(id_, id_) for id_ in ids]

    found: dict[str, Any] = {
        "group": one.now.group,
        "generation": one.now.generation,
        "protocol": one.now.protocol,
        "at_ms": one.now.at_us // 1000,
        "cause": one.cause,
        "certain": one.certain,
        "is_rebalance": is_real(one),
        "joined": called(one.joined),
        "left": called(one.departures.left),
        "expired": called(one.departures.expired),
        "gone": called(one.departures.gone),
        "restarted": called(one.restarted),
        "members": len(one.now.members),
        "partitions": len(one.now.owners),
        "moved": one.moved,
        "unassigned": len(one.withheld),
        "missed": one.missed,
        "assignor": one.now.assignor,
        "duration_ms": None if one.duration_us is None else one.duration_us // 1000,
        "pause_ms": None if one.pause_us is None else one.pause_us // 1000,
    }
    if with_moves:
        found["moves"] = [
            {
                "partition": str(move.topic_partition),
                "from": None if move.giver is None else names.get(move.giver, move.giver),
                "to": None if move.taker is None else names.get(move.taker, move.taker),
            }
            for move in one.moves[:MOVES_MAX]
        ]
        found["moves_left_out"] = max(0, len(one.moves) - MOVES_MAX)
        found["by_member"] = by_member(one, names)[:SHOWN_MEMBERS_MAX]
    return found


def storms(feed: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A feed, the newest first, with rebalances of a group that follow each other closely as one.

    At least ``STORM_MIN`` of them, each within five minutes of the next, are a storm.
    """
    by_group: dict[str, list[dict[str, Any]]] = {}
    for one in feed:
        by_group.setdefault(one["group"], []).append(one)
    found = []
    for group, ones in by_group.items():
        runs = [[ones[0]]]
        for later, earlier in pairwise(ones):
            if later["at_ms"] - earlier["at_ms"] <= STORM_GAP_S * 1000:
                runs[-1].append(earlier)
            else:
                runs.append([earlier])
        for run in runs:
            parts = [run] if len(run) >= STORM_MIN else [[one] for one in run]
            found += [{"group": group, "is_storm": len(p) >= STORM_MIN, "items": p} for p in parts]
    return sorted(found, key=lambda one: -int(one["items"][0]["at_ms"]))
