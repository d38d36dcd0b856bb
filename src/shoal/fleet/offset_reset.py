"""Where a reset would take a group, partition by partition, before it is done; and doing it.

Rule: what is done is what was planned. Offsets are worked out once, shown, and then committed as
they were shown; nothing is looked up again in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from shoal.errors import ConfigError
from shoal.fleet.moments import time_ms
from shoal.types import TopicPartition

if TYPE_CHECKING:
    from shoal.client.admin import Admin


@dataclass(frozen=True, slots=True)
class PlannedReset:
    """One partition: what is committed (``None``: nothing), and what would be. ``start`` and
    ``end`` are of the log at that moment."""

    tp: TopicPartition
    before: int | None
    after: int
    start: int
    end: int

    @property
    def moves_by(self) -> int:
        return self.after - (self.before or 0)

    @property
    def read_again(self) -> int:
        """Records that the group would get once more."""
        return 0 if self.before is None else max(0, self.before - max(self.after, self.start))

    @property
    def skipped(self) -> int:
        """Records that the group would never get."""
        return 0 if self.before is None else max(0, self.after - max(self.before, self.start))


def plan_reset(
    admin: Admin,
    group_id: str,
    to: str,
    *,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
) -> list[PlannedReset]:
    """What a reset to ``to`` means: earliest, latest, an offset, a time, or 15m (ago).

    Raises:
        ConfigError: nothing is left to reset, or ``to`` is none of these.
    """
    before = _committed(admin, group_id)
    tps = _partitions(admin, group_id, before, topics, partitions)
    logs = _logs(admin, tps)
    if to.isascii() and to.isdigit():
        after = {tp: _within(logs[tp], int(to)) for tp in tps}
    elif to in ("earliest", "latest"):
        after = {tp: logs[tp][0 if to == "earliest" else 1] for tp in tps}
    else:
        found = _listed(admin, tps, time_ms(to, "earliest, latest, an offset, "))
        after = {tp: logs[tp][1] if found[tp] is None else _at(found[tp]) for tp in tps}
    return [PlannedReset(tp, before.get(tp), after[tp], *logs[tp]) for tp in tps]


def plan_shift(
    admin: Admin,
    group_id: str,
    by: int,
    *,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
) -> list[PlannedReset]:
    """What ``by`` records on, or back if it is negative, means; no further than the log goes.

    Raises:
        ConfigError: nothing is left to reset, or nothing is committed to move from.
    """
    before = _committed(admin, group_id)
    tps = _partitions(admin, group_id, before, topics, partitions)
    return _plan(admin, before, {tp: _committed_in(before, tp) + by for tp in tps})


def plan_offsets(
    admin: Admin,
    group_id: str,
    wanted: Mapping[TopicPartition, int],
    *,
    topics: Sequence[str] | None = None,
    partitions: Sequence[int] | None = None,
) -> list[PlannedReset]:
    """What the offsets ``wanted`` mean, where they were saved before; no further than the log goes.

    Raises:
        ConfigError: nothing is left to reset.
    """
    tps = _narrowed(sorted(wanted), topics, partitions)
    return _plan(admin, _committed(admin, group_id), {tp: wanted[tp] for tp in tps})


def apply_reset(admin: Admin, group_id: str, planned: Sequence[PlannedReset]) -> None:
    """Do what was planned. The broker refuses it while the group has members."""
    admin.alter_group_offsets(group_id, {one.tp: one.after for one in planned})


def _plan(
    admin: Admin,
    before: Mapping[TopicPartition, int | None],
    wanted: Mapping[TopicPartition, int],
) -> list[PlannedReset]:
    logs = _logs(admin, list(wanted))
    return [
        PlannedReset(tp, before.get(tp), _within(logs[tp], offset), *logs[tp])
        for tp, offset in wanted.items()
    ]


def _committed(admin: Admin, group_id: str) -> dict[TopicPartition, int | None]:
    return {tp: one.committed for tp, one in admin.group_lag(group_id).items()}


def _committed_in(before: Mapping[TopicPartition, int | None], tp: TopicPartition) -> int:
    offset = before.get(tp)
    if offset is None:
        raise ConfigError(f"{tp} has nothing committed to move from; give --to earliest or latest")
    return offset


def _partitions(
    admin: Admin,
    group_id: str,
    committed: Mapping[TopicPartition, int | None],
    topics: Sequence[str] | None,
    partitions: Sequence[int] | None,
) -> list[TopicPartition]:
    if topics is None:
        if not committed:
            raise ConfigError(
                f"group {group_id!r} has committed nothing; name its topics with --topic"
            )
        tps = sorted(committed)
    else:
        found = admin.describe_topics(*topics)
        tps = sorted(
            TopicPartition(topic.name, one.partition)
            for topic in found.values()
            for one in topic.partitions
        )
    return _narrowed(tps, None, partitions)


def _narrowed(
    tps: Sequence[TopicPartition],
    topics: Sequence[str] | None,
    partitions: Sequence[int] | None,
) -> list[TopicPartition]:
    chosen = [
        tp
        for tp in tps
        if (not topics or tp.topic in topics) and (not partitions or tp.partition in partitions)
    ]
    if not chosen:
        raise ConfigError(
            "no partition matches --topic and --partition; `shoal group lag GROUP` shows them"
        )
    return chosen


def _logs(admin: Admin, tps: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Where each log starts and ends."""
    first, ends = _listed(admin, tps, "earliest"), _listed(admin, tps, "latest")
    return {tp: (_at(first[tp]), _at(ends[tp])) for tp in tps}


def _within(log: tuple[int, int], offset: int) -> int:
    """The offset, moved to the nearest end of the log where it is outside."""
    start, end = log
    return min(max(offset, start), end)


def _listed(admin: Admin, tps: list[TopicPartition], at: int | str) -> dict[TopicPartition, object]:
    return dict(admin.list_offsets(dict.fromkeys(tps, at)))


def _at(found: object) -> int:
    offset = getattr(found, "offset", 0)
    assert isinstance(offset, int)
    return offset
