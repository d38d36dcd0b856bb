"""What a member does about each error code, as tables.

Rule: every code of the protocol has a reaction to every request, those of tomorrow included: a
code that is not listed is retried if it says it may be, and raised to the user otherwise.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from shoal.errors import ErrorCode


class Reaction(Enum):
    """The moves a member has."""

    GO_ON = "no error"
    RETRY = "the same again, after a backoff"
    REJOIN = "join again at once; the generation stays"
    TAKE_ID = "join again at once with the member id in the answer"
    RESET_GENERATION = "out of the generation; the member id may still be good"
    RESET_MEMBER = "out of the group; a new member id is needed"
    REDISCOVER = "another broker coordinates the group now"
    RAISE = "tell the user; the next poll may try again"
    FENCED = "tell the user at every poll: another process took this member's place"


_E = ErrorCode

# UNSUPPORTED_VERSION comes from a broker too old for group_instance_id.
JOIN_GROUP: Final = {
    _E.NONE: Reaction.GO_ON,
    _E.MEMBER_ID_REQUIRED: Reaction.TAKE_ID,
    _E.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    _E.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    _E.NOT_COORDINATOR: Reaction.REDISCOVER,
    _E.FENCED_INSTANCE_ID: Reaction.FENCED,
    _E.INCONSISTENT_GROUP_PROTOCOL: Reaction.RAISE,
    _E.INVALID_SESSION_TIMEOUT: Reaction.RAISE,
    _E.INVALID_GROUP_ID: Reaction.RAISE,
    _E.GROUP_AUTHORIZATION_FAILED: Reaction.RAISE,
    _E.GROUP_MAX_SIZE_REACHED: Reaction.RAISE,
    _E.UNSUPPORTED_VERSION: Reaction.RAISE,
}

# REBALANCE_IN_PROGRESS keeps the generation: resetting it there made cooperative members lose
# partitions they still owned (KAFKA-13891, taken back).
SYNC_GROUP: Final = {
    _E.NONE: Reaction.GO_ON,
    _E.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    _E.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    _E.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    _E.NOT_COORDINATOR: Reaction.REDISCOVER,
    _E.FENCED_INSTANCE_ID: Reaction.FENCED,
    _E.INCONSISTENT_GROUP_PROTOCOL: Reaction.RAISE,
    _E.GROUP_AUTHORIZATION_FAILED: Reaction.RAISE,
}

HEARTBEAT: Final = {
    _E.NONE: Reaction.GO_ON,
    _E.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    _E.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    _E.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    _E.NOT_COORDINATOR: Reaction.REDISCOVER,
    _E.FENCED_INSTANCE_ID: Reaction.FENCED,
    _E.GROUP_AUTHORIZATION_FAILED: Reaction.RAISE,
}

OFFSET_COMMIT: Final = {
    _E.NONE: Reaction.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: Reaction.RETRY,
    _E.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: Reaction.REDISCOVER,
    _E.NOT_COORDINATOR: Reaction.REDISCOVER,
    _E.REQUEST_TIMED_OUT: Reaction.REDISCOVER,
    _E.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
    _E.UNKNOWN_MEMBER_ID: Reaction.RESET_MEMBER,
    _E.ILLEGAL_GENERATION: Reaction.RESET_GENERATION,
    _E.FENCED_INSTANCE_ID: Reaction.FENCED,
    _E.GROUP_AUTHORIZATION_FAILED: Reaction.RAISE,
    _E.TOPIC_AUTHORIZATION_FAILED: Reaction.RAISE,
    _E.OFFSET_METADATA_TOO_LARGE: Reaction.RAISE,
    _E.INVALID_COMMIT_OFFSET_SIZE: Reaction.RAISE,
}

FIND_COORDINATOR: Final = {
    _E.GROUP_AUTHORIZATION_FAILED: Reaction.RAISE,
    _E.INVALID_GROUP_ID: Reaction.RAISE,
}


def reaction(table: dict[ErrorCode, Reaction], code: ErrorCode) -> Reaction:
    """The table's word, or the default for a code it does not list."""
    listed = table.get(code)
    if listed is not None:
        return listed
    # A failed heartbeat costs nothing as long as the session lasts, whatever the reason.
    if code.retriable or table is HEARTBEAT:
        return Reaction.RETRY
    return Reaction.RAISE
