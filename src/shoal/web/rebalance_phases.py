"""The phases of one rebalance, and what it meant for each member, as far as that is on record.

    classic     members join again (PreparingRebalance), the leader assigns (CompletingRebalance)
    consumer    (KIP-848) the broker assigns, members change over one by one

Rule: a time that nobody wrote down is ``None``, with a note that says why. Coordinators write when
the members are known and when they are assigned; of the beginning of a classic rebalance nothing
is written, so it is only known if this dashboard happened to look meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from shoal.fleet.causes import Rebalance

MOVING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
"""States of a group that is between two assignments."""
MEMBERS_MAX: Final = 50
UNWRITTEN: Final = "a classic group does not write down when this began, nor who was waited for"
OVERTAKEN: Final = "the next epoch came before all were done"


def phases(
    one: Rebalance,
    names: Mapping[str, str],
    *,
    seen_ms: Sequence[int] = (),
    is_last: bool = True,
) -> list[dict[str, Any]]:
    """What happened one after the other.

    Args:
        seen_ms: when a look found the group between its last assignment and this one.
        is_last: no rebalance of the group followed.
    """
    if not one.now.members:
        return []  # the last one is gone: nobody waits for anybody
    if one.now.protocol == "classic":
        return _classic(one, names, seen_ms)
    return _consumer(one, names, is_last=is_last)


def _classic(
    one: Rebalance, names: Mapping[str, str], seen_ms: Sequence[int]
) -> list[dict[str, Any]]:
    known_us, leader = one.now.began_us, one.now.leader
    known_ms = None if known_us is None else known_us // 1000
    at_ms = one.now.at_us // 1000
    first_ms = min((at for at in seen_ms if at <= (known_ms or at_ms)), default=None)
    return [
        _phase("Members join again", first_ms, known_ms, at_least=True, note=UNWRITTEN),
        _phase(
            "The leader assigns",
            known_ms,
            at_ms,
            waits_for=[] if leader is None else [names.get(leader, leader)],
        ),
    ]


def _consumer(one: Rebalance, names: Mapping[str, str], *, is_last: bool) -> list[dict[str, Any]]:
    began_us, at_us = one.now.began_us, one.now.at_us
    late = [id_ for id_ in one.now.members if id_ not in one.reached_us]
    end_us = None if late else max(one.reached_us.values(), default=at_us)
    return [
        _phase("The broker assigns", None if began_us is None else began_us // 1000, at_us // 1000),
        _phase(
            "Members change over",
            at_us // 1000,
            None if end_us is None else max(at_us, end_us) // 1000,
            waits_for=sorted(names.get(id_, id_) for id_ in late),
            note=OVERTAKEN if late and not is_last else "",
        ),
    ]


def _phase(
    name: str,
    begin_ms: int | None,
    end_ms: int | None,
    *,
    waits_for: Sequence[str] = (),
    at_least: bool = False,
    note: str = "",
) -> dict[str, Any]:
    return {
        "name": name,
        "begin_ms": begin_ms,
        "end_ms": end_ms,
        "at_least": at_least,
        "waits_for": list(waits_for),
        "note": note,
    }


def by_member(one: Rebalance, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """What it meant for each member; who stood still the longest comes first."""
    gets: dict[str, int] = {}
    gives: dict[str, int] = {}
    for move in one.moves:
        if move.taker is not None:
            gets[move.taker] = gets.get(move.taker, 0) + 1
        if move.giver is not None:
            gives[move.giver] = gives.get(move.giver, 0) + 1
    members = one.now.members
    rows = [
        {
            "member": names.get(id_, id_),
            "is_gone": id_ not in members,
            "has": len(members[id_].partitions) if id_ in members else 0,
            "gets": gets.get(id_, 0),
            "gives": gives.get(id_, 0),
            "still_ms": _ms(one.still_us.get(id_)),
            "done_ms": _ms(_after(one, id_)),
        }
        for id_ in (*members, *(giver for giver in gives if giver not in members))
    ]
    return sorted(rows, key=lambda row: (-(row["still_ms"] or 0), str(row["member"])))


def _after(one: Rebalance, member_id: str) -> int | None:
    """How long after the assignment a member was done with it."""
    reached_us = one.reached_us.get(member_id)
    return None if reached_us is None else max(0, reached_us - one.now.at_us)


def _ms(us: int | None) -> int | None:
    return None if us is None else us // 1000
