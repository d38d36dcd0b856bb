"""One group as its page shows it: what is known from sweeps, and two questions asked now.

Rule: ``group_view`` reads what the watch knows; only open transactions are asked about, because
they change from second to second. Offsets are text: a browser's numbers end at 2^53.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from shoal.errors import ShoalError
from shoal.fleet.diagnosis import diagnose, diagnose_history, worst_first
from shoal.fleet.open_transactions import (
    diagnose_pending_commits,
    diagnose_transactions,
    look_for_pending_commits,
    look_for_transactions,
)
from shoal.fleet.snapshots import MemberView, Snapshot, owners
from shoal.types import TopicPartition
from shoal.web.cluster_watch import HISTORY_S, ClusterWatch, FleetState, exact
from shoal.web.lag_history import LagSeries

if TYPE_CHECKING:
    from shoal.client.group_admin import GroupDescription
    from shoal.fleet.collector import GroupFacts

PARTITIONS_MAX: Final = 2_000
STRIP_ROWS_MAX: Final = 60


class NotThereError(Exception):
    """What was asked for does not exist, as far as the last sweep knows."""


def group_view(watch: ClusterWatch, group_id: str) -> dict[str, Any]:
    """Everything about one group.

    Raises:
        NotThereError: there is no such group.
    """
    state = watch.state
    facts = _facts(state, group_id)
    looks = watch.looks(group_id)
    history, lags = watch.history(group_id), watch.lags(group_id)
    now_ms = time.time_ns() // 1_000_000
    last = looks[-1] if looks else None
    strip = [] if history is None or watch.blind else history.ownership(now_ms * 1000)
    return {
        "version": state.version,
        "row": state.rows[group_id],
        "swept_ms": int(state.swept_at_s * 1000),
        "now_ms": now_ms,
        "findings": [asdict(one) for one in _findings(watch, group_id, looks, now_ms)],
        "about": _about(None if last is None else last.source, facts),
        "members": _members(last),
        "partitions": _partitions(facts, last)[:PARTITIONS_MAX],
        "partitions_left_out": max(0, len(facts.positions) - PARTITIONS_MAX),
        "lag": {} if lags is None else {n: _series(one) for n, one in lags.topics.items()},
        "blind": watch.blind,
        "rebalances": [] if history is None or watch.blind else history.shown(with_moves=True),
        "strip": strip[:STRIP_ROWS_MAX],
        "strip_left_out": max(0, len(strip) - STRIP_ROWS_MAX),
    }


def _facts(state: FleetState, group_id: str) -> GroupFacts:
    if state.facts is not None:
        for one in state.facts.groups:
            if one.group_id == group_id:
                return one
    raise NotThereError(f"there is no group {group_id!r}")


def _findings(watch: ClusterWatch, group_id: str, looks: list[Snapshot], now_ms: int) -> list[Any]:
    """The verdict of ``shoal why``, by the looks of the last minute."""
    if not looks:
        return []
    try:
        held = look_for_transactions(watch.admin, looks[-1], now_ms)
        pending = look_for_pending_commits(watch.admin, group_id, looks[-1], now_ms)
    except ShoalError:
        held, pending = [], None  # the cluster is away; the status of the page says so
    history = watch.history(group_id)
    rows = [] if history is None else history.rows(int((now_ms / 1000 - HISTORY_S) * 1e6))
    return worst_first(
        [
            *diagnose(looks, {one.topic_partition for one in held if one.holds}),
            *diagnose_transactions(held),
            *diagnose_pending_commits(pending),
            *diagnose_history(rows, HISTORY_S / 3600),
        ]
    )


def _about(described: GroupDescription | None, facts: GroupFacts) -> dict[str, Any]:
    found: dict[str, Any] = {"coordinator": facts.coordinator_id, "protocol": facts.protocol}
    if described is not None:
        found |= {
            "assignor": described.assignor,
            "group_epoch": described.group_epoch,
            "assignment_epoch": described.assignment_epoch,
            "assignor_fault": described.assignor_fault,
            "is_joined": bool(described.protocol_type),
        }
    return found


def _members(last: Snapshot | None) -> list[dict[str, Any]]:
    if last is None or last.source is None:
        return []
    described = {one.member_id: one for one in last.source.members}
    return [_member(last, view, described.get(id_)) for id_, view in last.members.items()]


def _member(last: Snapshot, view: MemberView, told: Any) -> dict[str, Any]:
    target = view.target
    return {
        "name": view.name,
        "member_id": view.member_id,
        "instance": view.group_instance_id,
        "client": "" if told is None else told.client_id,
        "host": view.host,
        "topics": sorted(view.topics),
        "partitions": _ranges(view.partitions),
        "count": len(view.partitions),
        "lag": exact(last.lag_of(view)),
        "epoch": None if told is None else told.member_epoch,
        "gives_up": _ranges(view.to_give_up),
        "waits_for": [] if target is None else _ranges(target - view.partitions),
    }


def _ranges(tps: frozenset[TopicPartition]) -> list[list[Any]]:
    """Topic by topic the numbers of its partitions."""
    found: dict[str, list[int]] = {}
    for tp in sorted(tps):
        found.setdefault(tp.topic, []).append(tp.partition)
    return [[topic, numbers] for topic, numbers in found.items()]


def _partitions(facts: GroupFacts, last: Snapshot | None) -> list[dict[str, Any]]:
    readers = {} if last is None else owners(last)
    ends = {} if last is None else last.ends
    rows = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": str(one.committed),
            "end": str(ends[tp]) if tp in ends else None,
            "lag": exact(one.lag),
            "behind_s": round(one.behind_s, 1),
            "at_least": one.at_least,
            "member": readers[tp].name if tp in readers else None,
        }
        for tp, one in facts.positions.items()
    ]
    rows += [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": None,
            "end": str(ends[tp]) if tp in ends else None,
            "lag": None,
            "behind_s": None,
            "at_least": False,
            "member": member.name,
        }
        for tp, member in readers.items()
        if tp not in facts.positions
    ]
    return sorted(rows, key=lambda row: (str(row["topic"]), row["partition"]))


def _series(one: LagSeries) -> dict[str, Any]:
    return {
        "at_ms": [int(at * 1000) for at in one.times],
        "lag": [exact(lag) for lag in one.lags],
        "behind_s": [round(seconds, 1) for seconds in one.behind_s],
    }
