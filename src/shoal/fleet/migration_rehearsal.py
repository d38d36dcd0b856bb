"""Would a group move to the consumer protocol (KIP-848)? What blocks it, and what to know before.

The first member with ``group.protocol=consumer`` converts a group while it runs, unless its
coordinator refuses. What it goes by can be read beforehand: the group, and the broker's settings.

Rule: what cannot be known from outside (clients, patterns) is a note, never a verdict.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from shoal.client.group_admin import GroupDescription
from shoal.errors import counted
from shoal.fleet.diagnosis import Finding

POLICY: Final = "group.consumer.migration.policy"
MAX_SIZE: Final = "group.consumer.max.size"
SESSION: Final = "group.consumer.session.timeout.ms"
INTERVAL: Final = "group.consumer.heartbeat.interval.ms"
NOT_CONSUMERS: Final = "not consumers"
CUSTOM_ASSIGNOR: Final = "custom assignor"
_UPGRADES: Final = ("bidirectional", "upgrade")


def rehearse_migration(
    group: GroupDescription, settings: Mapping[str, str], *, is_offered: bool
) -> list[Finding]:
    """Problems are what its coordinator would refuse it for. ``settings`` are the broker's."""
    if group.protocol == "consumer":
        classic = sum(one.protocol == "classic" for one in group.members)
        if not classic:
            return [Finding("ok", "the group speaks the consumer protocol already")]
        return [
            Finding(
                "note",
                f"the group is on its way: {classic} of {len(group.members)} members are classic",
                "restart those with group.protocol=consumer",
            )
        ]
    blocked = migration_blocks(
        protocol_type=group.protocol_type,
        assignor=group.assignor,
        members=len(group.members),
        attached=sum(bool(one.attached) for one in group.members),
        settings=settings,
        is_offered=is_offered,
    )
    return [*(one.finding for one in blocked), *_notes(group, settings)]


class Blocked(NamedTuple):
    """Why a group cannot move: in a few words that are the same for every group, and in full."""

    reason: str
    finding: Finding


def migration_blocks(
    *,
    protocol_type: str,
    assignor: str,
    members: int,
    attached: int,
    settings: Mapping[str, str],
    is_offered: bool,
) -> list[Blocked]:
    """What a coordinator would refuse a classic group for.

    Args:
        attached: how many members have data of their assignor's attached to their assignments.
        settings: the broker's; what is not in there does not block.
    """
    found = []
    if not is_offered:
        found.append(
            Blocked(
                "protocol not offered",
                Finding(
                    "problem",
                    "the broker does not offer the protocol",
                    "Apache Kafka 4.0 or newer, with group.version 1: kafka-features.sh describe",
                ),
            )
        )
    policy = settings.get(POLICY, "bidirectional").lower()
    if members and policy not in _UPGRADES:
        found.append(
            Blocked(
                "migration policy",
                Finding(
                    "problem",
                    f"{POLICY} is {policy}: a group with members is not converted",
                    "set it to upgrade or bidirectional, or stop all members first",
                ),
            )
        )
    if protocol_type not in ("", "consumer"):
        what = f"its members speak {protocol_type!r}, not 'consumer': only consumers move"
        found.append(Blocked(NOT_CONSUMERS, Finding("problem", what)))
    limit = settings.get(MAX_SIZE, "")
    if limit.isdecimal() and members > int(limit):
        found.append(
            Blocked(
                "too many members",
                Finding(
                    "problem",
                    f"it has {counted(members, 'member')}, and {MAX_SIZE} is {limit}",
                    f"raise {MAX_SIZE}",
                ),
            )
        )
    if attached:
        found.append(
            Blocked(
                CUSTOM_ASSIGNOR,
                Finding(
                    "problem",
                    f"its assignor {assignor!r} attaches data to the assignments of "
                    f"{counted(attached, 'member')}, which would be lost",
                    "change to range, roundrobin or cooperative-sticky first",
                ),
            )
        )
    return found


def _notes(group: GroupDescription, settings: Mapping[str, str]) -> list[Finding]:
    found = [
        Finding(
            "note",
            "timeouts are the broker's from then on: "
            + ", ".join(
                f"{name} {settings[name]}" for name in (SESSION, INTERVAL) if name in settings
            ),
            "take session.timeout.ms, heartbeat.interval.ms and the assignors out of the settings "
            "of members; for this group alone, set consumer.session.timeout.ms on it",
        ),
        Finding(
            "note",
            "members must be Java 4.0, confluent-kafka 2.12, franz-go or Shoal, or newer; patterns "
            "that the broker matches are RE2 and match whole names; members need the right to "
            "DESCRIBE their topics",
        ),
    ]
    static = sum(one.group_instance_id is not None for one in group.members)
    if static:
        found.append(
            Finding(
                "note",
                f"{counted(static, 'static member')}: a second one with the same "
                "group.instance.id is refused as long as the first lives, "
                "instead of taking its place",
            )
        )
    return found
