"""What a member does about each error code, as tables.

Rule: every code of the protocol has a reaction to every request, those of tomorrow included: a
code that is not listed is retried if it says it may be, and raised to the user otherwise.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from shoal.errors import ErrorCode


class MemberReaction(Enum):
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
    JOIN_ANEW = "out of the group with nothing; joins again as the same member (KIP-848)"
    ASK_EPOCH = "the coordinator's epoch is another: a heartbeat at once, then again (KIP-848)"
    FATAL = "tell the user at every poll, until they subscribe again (KIP-848)"


_E = ErrorCode

# UNSUPPORTED_VERSION comes from a broker too old for group_instance_id.
JOIN_GROUP: Final = {
    _E.NONE: MemberReaction.GO_ON,
    _E.MEMBER_ID_REQUIRED: MemberReaction.TAKE_ID,
    _E.UNKNOWN_MEMBER_ID: MemberReaction.RESET_MEMBER,
    _E.REBALANCE_IN_PROGRESS: MemberReaction.REJOIN,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MemberReaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: MemberReaction.REDISCOVER,
    _E.NOT_COORDINATOR: MemberReaction.REDISCOVER,
    _E.FENCED_INSTANCE_ID: MemberReaction.FENCED,
    _E.INCONSISTENT_GROUP_PROTOCOL: MemberReaction.RAISE,
    _E.INVALID_SESSION_TIMEOUT: MemberReaction.RAISE,
    _E.INVALID_GROUP_ID: MemberReaction.RAISE,
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.GROUP_MAX_SIZE_REACHED: MemberReaction.RAISE,
    _E.UNSUPPORTED_VERSION: MemberReaction.RAISE,
}

# REBALANCE_IN_PROGRESS keeps the generation: resetting it there made cooperative members lose
# partitions they still owned (KAFKA-13891, taken back).
SYNC_GROUP: Final = {
    _E.NONE: MemberReaction.GO_ON,
    _E.REBALANCE_IN_PROGRESS: MemberReaction.REJOIN,
    _E.UNKNOWN_MEMBER_ID: MemberReaction.RESET_MEMBER,
    _E.ILLEGAL_GENERATION: MemberReaction.RESET_GENERATION,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MemberReaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: MemberReaction.REDISCOVER,
    _E.NOT_COORDINATOR: MemberReaction.REDISCOVER,
    _E.FENCED_INSTANCE_ID: MemberReaction.FENCED,
    _E.INCONSISTENT_GROUP_PROTOCOL: MemberReaction.RAISE,
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
}

HEARTBEAT: Final = {
    _E.NONE: MemberReaction.GO_ON,
    _E.REBALANCE_IN_PROGRESS: MemberReaction.REJOIN,
    _E.UNKNOWN_MEMBER_ID: MemberReaction.RESET_MEMBER,
    _E.ILLEGAL_GENERATION: MemberReaction.RESET_GENERATION,
    _E.COORDINATOR_NOT_AVAILABLE: MemberReaction.REDISCOVER,
    _E.NOT_COORDINATOR: MemberReaction.REDISCOVER,
    _E.FENCED_INSTANCE_ID: MemberReaction.FENCED,
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
}

OFFSET_COMMIT: Final = {
    _E.NONE: MemberReaction.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MemberReaction.RETRY,
    _E.UNKNOWN_TOPIC_OR_PARTITION: MemberReaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: MemberReaction.REDISCOVER,
    _E.NOT_COORDINATOR: MemberReaction.REDISCOVER,
    _E.REQUEST_TIMED_OUT: MemberReaction.REDISCOVER,
    _E.REBALANCE_IN_PROGRESS: MemberReaction.REJOIN,
    _E.UNKNOWN_MEMBER_ID: MemberReaction.RESET_MEMBER,
    _E.ILLEGAL_GENERATION: MemberReaction.RESET_GENERATION,
    _E.FENCED_INSTANCE_ID: MemberReaction.FENCED,
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.TOPIC_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.OFFSET_METADATA_TOO_LARGE: MemberReaction.RAISE,
    _E.INVALID_COMMIT_OFFSET_SIZE: MemberReaction.RAISE,
}

# The new protocol. Where Kafka's client gives up for good and asking again may help, the user hears
# of it and heartbeats go on: the place of a static member is free again after its session
# (UNRELEASED_INSTANCE_ID), a group gets smaller, an ACL is added, an assignor is mended
# (UNKNOWN_SERVER_ERROR). GROUP_ID_NOT_FOUND to somebody who joins: a classic group that may not be
# converted; to a member it is as UNKNOWN_MEMBER_ID.
CONSUMER_GROUP_HEARTBEAT: Final = {
    _E.NONE: MemberReaction.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MemberReaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: MemberReaction.REDISCOVER,
    _E.NOT_COORDINATOR: MemberReaction.REDISCOVER,
    _E.UNKNOWN_MEMBER_ID: MemberReaction.JOIN_ANEW,
    _E.FENCED_MEMBER_EPOCH: MemberReaction.JOIN_ANEW,
    _E.UNRELEASED_INSTANCE_ID: MemberReaction.RAISE,
    _E.GROUP_MAX_SIZE_REACHED: MemberReaction.RAISE,
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.TOPIC_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.GROUP_ID_NOT_FOUND: MemberReaction.RAISE,
    _E.UNKNOWN_SERVER_ERROR: MemberReaction.RAISE,
    _E.FENCED_INSTANCE_ID: MemberReaction.FATAL,
    _E.INVALID_REQUEST: MemberReaction.FATAL,
    _E.INVALID_REGULAR_EXPRESSION: MemberReaction.FATAL,
    _E.UNSUPPORTED_ASSIGNOR: MemberReaction.FATAL,
    _E.UNSUPPORTED_VERSION: MemberReaction.FATAL,
}

CONSUMER_OFFSET_COMMIT: Final = {
    _E.NONE: MemberReaction.GO_ON,
    _E.COORDINATOR_LOAD_IN_PROGRESS: MemberReaction.RETRY,
    _E.UNKNOWN_TOPIC_OR_PARTITION: MemberReaction.RETRY,
    _E.COORDINATOR_NOT_AVAILABLE: MemberReaction.REDISCOVER,
    _E.NOT_COORDINATOR: MemberReaction.REDISCOVER,
    _E.REQUEST_TIMED_OUT: MemberReaction.REDISCOVER,
    _E.STALE_MEMBER_EPOCH: MemberReaction.ASK_EPOCH,
    _E.UNKNOWN_MEMBER_ID: MemberReaction.JOIN_ANEW,
    _E.FENCED_MEMBER_EPOCH: MemberReaction.JOIN_ANEW,
    _E.GROUP_ID_NOT_FOUND: MemberReaction.JOIN_ANEW,
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.TOPIC_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.OFFSET_METADATA_TOO_LARGE: MemberReaction.RAISE,
    _E.INVALID_COMMIT_OFFSET_SIZE: MemberReaction.RAISE,
}

FIND_COORDINATOR: Final = {
    _E.GROUP_AUTHORIZATION_FAILED: MemberReaction.RAISE,
    _E.INVALID_GROUP_ID: MemberReaction.RAISE,
}


def reaction(table: dict[ErrorCode, MemberReaction], code: ErrorCode) -> MemberReaction:
    """The table's word, or the default for a code it does not list."""
    listed = table.get(code)
    if listed is not None:
        return listed
    # A failed heartbeat costs nothing as long as the session lasts, whatever the reason.
    if code.retriable or table is HEARTBEAT:
        return MemberReaction.RETRY
    return MemberReaction.RAISE
