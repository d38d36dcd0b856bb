"""What if: a live group and changes a browser chose, through the planner.

Rule: an assignor is named from a list. What the planner can load by a path in a program, it must
never load by a path from a browser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from shoal.assign.loading import BUILT_IN
from shoal.assign.plan import (
    Change,
    Join,
    Leave,
    PlannedGroup,
    PlannedMember,
    Resize,
    Restart,
    Switch,
    plan,
)
from shoal.assign.plan_picture import as_json
from shoal.errors import ConfigError
from shoal.fleet.live_group import live_group
from shoal.web.cluster_watch import ClusterWatch

ADDED_MAX: Final = 50
PARTITIONS_MAX: Final = 2_000
PROTOCOLS: Final = ("classic", "consumer")


def what_if(watch: ClusterWatch, given: Mapping[str, Any]) -> dict[str, Any]:
    """The outcomes of the changes, one for each assignor.

    Raises:
        ConfigError: the changes do not fit the group, or are none.
    """
    group_id = given.get("group")
    if not isinstance(group_id, str):
        raise ConfigError("name a group")
    group = live_group(watch.admin, group_id)
    protocol = given.get("protocol") or group.protocol
    if protocol not in PROTOCOLS:
        raise ConfigError(f"protocol is one of {', '.join(PROTOCOLS)}")
    group = replace(group, protocol=protocol)
    try:
        planned = plan(group, changes_of(group, given))
    except ValueError as error:
        raise ConfigError(str(error)) from None
    return {
        **as_json(planned),
        "members": list(group.members),
        "topics": {name: topic.partitions for name, topic in group.topics.items()},
        "assignor": group.assignor,
        "protocol": group.protocol,
    }


def changes_of(group: PlannedGroup, given: Mapping[str, Any]) -> list[Change]:
    """What a browser asked for, as the planner's changes."""
    changes: list[Change] = []
    sizes = given.get("partitions", {})
    if not isinstance(sizes, dict) or not all(
        name in group.topics and type(size) is int and 1 <= size <= PARTITIONS_MAX
        for name, size in sizes.items()
    ):
        raise ConfigError(f"a topic of the group gets 1 to {PARTITIONS_MAX} partitions")
    if sizes:
        changes.append(Resize(sizes))
    leaving = given.get("leave", [])
    if not isinstance(leaving, list) or not all(isinstance(one, str) for one in leaving):
        raise ConfigError("leave is a list of members")
    if leaving:
        changes.append(Leave(leaving))
    joining = given.get("join", 0)
    if type(joining) is not int or not 0 <= joining <= ADDED_MAX:
        raise ConfigError(f"join is a number up to {ADDED_MAX}")
    if joining:
        one = PlannedMember(tuple(group.topics))
        changes.append(Join({f"new-{number + 1}": one for number in range(joining)}))
    assignor = given.get("assignor")
    if assignor is not None:
        if not isinstance(assignor, str) or assignor not in BUILT_IN:
            raise ConfigError(f"an assignor is one of {', '.join(BUILT_IN)}")
        changes.append(Switch(assignor))
    restart = given.get("restart")
    if restart not in (None, "static", "dynamic"):
        raise ConfigError("restart is static or dynamic")
    if restart is not None:
        changes.append(Restart(static=restart == "static"))
    return changes
