"""What the dashboard can change: offsets of groups without members, and nothing else.

Rule: whether anything may be changed is asked here, where it is done, whoever called and by
whatever way; the gate before the pages asks the same, but this does not rely on it. What is done is
a plan that was shown: by its number, for the group whose name was typed, and only if nothing has
changed since.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from shoal.errors import ConfigError, counted
from shoal.fleet.offset_reset import PlannedReset, apply_reset, plan_reset
from shoal.types import TopicPartition
from shoal.web.cluster_watch import ClusterWatch, exact
from shoal.web.reset_times import reset_times

AUDIT: Final = logging.getLogger("shoal.web.audit")
PLANS_MAX: Final = 32
PLAN_LIFE_S: Final = 600.0
READ_ONLY: Final = "this dashboard only looks: start it with --allow-writes"
QUIET: Final = ("Empty", "Dead")
"""States in which a group has no members, and its offsets may be moved."""


@dataclass(frozen=True)
class _Shown:
    cluster: str
    group_id: str
    rows: Sequence[PlannedReset]
    at_s: float


class Actions:
    """Changes, if they are allowed at all."""

    def __init__(self, *, allow_writes: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.allow_writes = allow_writes
        self._clock = clock
        self._plans: dict[str, _Shown] = {}

    def preview(
        self, watch: ClusterWatch, group_id: str, to: str, topics: Sequence[str] | None
    ) -> dict[str, Any]:
        """What a reset would do, partition by partition. Changes nothing."""
        rows = plan_reset(watch.admin, group_id, to, topics=topics)
        described = watch.admin.describe_group(group_id)
        times, times_unknown = reset_times(watch.settings, rows)
        number = secrets.token_urlsafe(12)
        while len(self._plans) >= PLANS_MAX:
            del self._plans[next(iter(self._plans))]
        self._plans[number] = _Shown(watch.name, group_id, rows, self._clock())
        return {
            "plan": number,
            "group": group_id,
            "state": described.state,
            "members": len(described.members),
            "obstacle": self._obstacle(described.state, len(described.members)),
            "times_unknown": times_unknown,
            "rows": [
                {
                    "topic": one.tp.topic,
                    "partition": one.tp.partition,
                    "from": None if one.before is None else str(one.before),
                    "from_ms": None if one.before is None else times.get((one.tp, one.before)),
                    "to": str(one.after),
                    "to_ms": times.get((one.tp, one.after)),
                    "start": str(one.start),
                    "end": str(one.end),
                    "skipped": exact(one.skipped),
                    "read_again": exact(one.read_again),
                }
                for one in rows
            ],
        }

    def reset(self, watch: ClusterWatch, number: str, confirmed: str) -> dict[str, Any]:
        """Do what was shown.

        Raises:
            PermissionError: this dashboard only looks.
            ConfigError: the plan is old or unknown, the name is not the group's, the group has
                members, or it has committed since.
        """
        self._check_allowed()
        shown = self._plans.get(number)
        if shown is None or self._clock() - shown.at_s > PLAN_LIFE_S:
            raise ConfigError("this preview is too old; look at a new one")
        if shown.cluster != watch.name or confirmed != shown.group_id:
            raise ConfigError("the name that was typed is not the group's")
        described = watch.admin.describe_group(shown.group_id)
        if obstacle := self._obstacle(described.state, len(described.members)):
            raise ConfigError(obstacle)
        self._check_unchanged(watch, shown)
        del self._plans[number]
        apply_reset(watch.admin, shown.group_id, shown.rows)
        AUDIT.warning(
            "offsets of group %r on %s were reset in %d partitions",
            shown.group_id,
            watch.name,
            len(shown.rows),
        )
        return {"group": shown.group_id, "partitions": len(shown.rows)}

    def _check_allowed(self) -> None:
        if not self.allow_writes:
            raise PermissionError(READ_ONLY)

    def _obstacle(self, state: str, members: int) -> str:
        if members or state not in QUIET:
            return (
                f"the group is live ({state}, {counted(members, 'member')}): stop its members first"
            )
        return (
            "" if self.allow_writes else "this dashboard only looks: start it with --allow-writes"
        )

    def _check_unchanged(self, watch: ClusterWatch, shown: _Shown) -> None:
        tps: list[TopicPartition] = [one.tp for one in shown.rows]
        now = watch.admin.group_offsets(shown.group_id, tps)
        for one in shown.rows:
            found = now.get(one.tp)
            if (None if found is None else found.offset) != one.before:
                raise ConfigError(f"{one.tp} was committed since the preview; look at a new one")
