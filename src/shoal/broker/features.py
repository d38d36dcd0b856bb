"""Kafka's features with levels: which there are, and the levels in force.

Rule: a level is a promise to clients about requests, so the table stands here and nowhere else.
``transaction.version`` tells clients which flow to follow (KIP-890); the broker serves both at any
level, for the request's version says which one its sender follows. So this one can be changed, to
see how clients follow the other flow; the others are what this release has.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Feature(NamedTuple):
    """Levels a feature may have, and the one it has."""

    low: int
    high: int
    level: int


METADATA_VERSION: Final = "metadata.version"
GROUP_VERSION: Final = "group.version"
TRANSACTION_VERSION: Final = "transaction.version"

FEATURES: Final[dict[str, Feature]] = {
    # Which of Kafka's requests are known.
    METADATA_VERSION: Feature(7, 30, 30),
    # That groups may speak the consumer protocol.
    GROUP_VERSION: Feature(0, 1, 1),
    TRANSACTION_VERSION: Feature(0, 2, 2),
}
CHANGEABLE: Final = (TRANSACTION_VERSION,)

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


def level_of(name: str, changed: Mapping[str, int]) -> int:
    """The level in force; ``changed`` are those that somebody has set."""
    return changed.get(name, FEATURES[name].level)


def update_fault(name: str, level: int, upgrade_type: int, changed: Mapping[str, int]) -> str:
    """Why a feature cannot be brought to this level, or nothing."""
    feature = FEATURES.get(name)
    if feature is None:
        return f"Invalid update version for feature {name}: it is not supported here."
    invalid = f"Invalid update version {level} for feature {name}"
    now = level_of(name, changed)
    if name not in CHANGEABLE and level != now:
        return f"{invalid}: it stays at {now}."
    if not feature.low <= level <= feature.high:
        return f"{invalid}. Levels are from {feature.low} to {feature.high}."
    if level < now and upgrade_type == UPGRADE:
        return (
            f"{invalid}. A downgrade from {now} needs the upgrade type of a safe or unsafe "
            "downgrade."
        )
    if level > now and upgrade_type != UPGRADE:
        return f"{invalid}. It is not a downgrade from {now}."
    return ""
