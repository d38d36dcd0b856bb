"""The states of a classic consumer group and every move between them.

Rule: whether a group *may* change state is decided in this file and nowhere else; the
``classic_*`` modules decide *when*. ``mermaid()`` draws the same table for the docs, so the
picture cannot drift from the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final


class GroupType(Enum):
    """Which protocol a group speaks. Values are the ones ListGroups v5 reports."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class GroupState(Enum):
    """Values are Kafka's own spellings, as DescribeGroups and ListGroups report them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_EMPTY = GroupState.EMPTY
_PREPARING = GroupState.PREPARING_REBALANCE
_COMPLETING = GroupState.COMPLETING_REBALANCE
_STABLE = GroupState.STABLE
_DEAD = GroupState.DEAD

MOVES: Final[Mapping[GroupState, Mapping[GroupState, str]]] = MappingProxyType(
    {
        _EMPTY: {
            _PREPARING: "a member joins; the initial delay runs",
            _DEAD: "deleted, its offsets expired, or unloaded",
        },
        _PREPARING: {
            _COMPLETING: "all have joined, or the rebalance timeout; a new generation",
            # Every member left, or none rejoined in time.
            _EMPTY: "nobody is left",
            _DEAD: "unloaded",
        },
        _COMPLETING: {
            _STABLE: "the leader's assignment is stored",
            # KAFKA-12890: a member that never syncs must not hold the others for ever.
            _PREPARING: "join, leave, expiry, no SyncGroup in time; or it is not stored",
            _DEAD: "unloaded",
        },
        _STABLE: {
            _PREPARING: "join, leave, expiry, or the leader asks for it",
            _DEAD: "unloaded",
        },
        _DEAD: {},
    }
)
"""From where to where, and what causes it."""

assert MOVES.keys() == set(GroupState), "every state has a row"


def may_move(old: GroupState, new: GroupState) -> bool:
    """Staying is always allowed: a record may confirm the state a group is in."""
    return old is new or new in MOVES[old]


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {_EMPTY.value}: first JoinGroup or OffsetCommit"]
    for old, targets in MOVES.items():
        # A semicolon ends a statement in Mermaid.
        lines += [
            f"    {old.value} --> {new.value}: {why.replace(';', ',')}"
            for new, why in targets.items()
        ]
    lines.append(f"    {_DEAD.value} --> [*]")
    return "\n".join(lines) + "\n"
