"""What the client does about each error code, per kind of request, as one table.

Rule: no other module of the client decides by itself whether a code is retried. The group's
requests (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit) are not here: their answers
are judged by ``shoal.group.member``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from shoal.errors import ErrorCode as E


class Reaction(Enum):
    """The possible consequences of an error code."""

    ACCEPT = "treat it as success"
    RETRY = "send the same again after a pause"
    REFRESH = "refresh metadata, then send to whoever leads now"
    REDISCOVER = "look the coordinator up again, then send to it"
    RESET_POSITION = "the offset is outside the log: apply auto_offset_reset"
    NEW_SESSION = "start a new fetch session"
    NEW_EPOCH = "the broker lost track of our sequence: count anew in the next producer epoch"
    SPLIT = "the batch is too large: halve it"
    SKIP = "leave the partition for the next round; log it"
    RAISE = "give it to the user"


_LEADER_MOVED: Final = dict.fromkeys(
    (
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.LEADER_NOT_AVAILABLE,
        E.NOT_LEADER_OR_FOLLOWER,
        E.REPLICA_NOT_AVAILABLE,
        E.KAFKA_STORAGE_ERROR,
        E.LISTENER_NOT_FOUND,
        E.FENCED_LEADER_EPOCH,
        E.UNKNOWN_LEADER_EPOCH,
        E.PREFERRED_LEADER_NOT_AVAILABLE,
        E.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        E.UNKNOWN_TOPIC_ID,
        E.INCONSISTENT_TOPIC_ID,
        E.NETWORK_EXCEPTION,
    ),
    Reaction.REFRESH,
)
_COORDINATOR_MOVED: Final = dict.fromkeys(
    (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION),
    Reaction.REDISCOVER,
)

TABLE: Final[Mapping[str, Mapping[E, Reaction]]] = {
    # Topics are created while we ask for them, so "unknown" is a state, not an end.
    "Metadata": _LEADER_MOVED | {E.INVALID_TOPIC_EXCEPTION: Reaction.RAISE},
    "FindCoordinator": {E.COORDINATOR_NOT_AVAILABLE: Reaction.RETRY},
    "ListOffsets": _LEADER_MOVED
    | {E.OFFSET_NOT_AVAILABLE: Reaction.RETRY, E.UNSUPPORTED_FOR_MESSAGE_FORMAT: Reaction.RAISE},
    "OffsetForLeaderEpoch": _LEADER_MOVED | {E.OFFSET_NOT_AVAILABLE: Reaction.RETRY},
    "Fetch": _LEADER_MOVED
    | {
        E.OFFSET_OUT_OF_RANGE: Reaction.RESET_POSITION,
        E.OFFSET_NOT_AVAILABLE: Reaction.RETRY,
        E.FETCH_SESSION_ID_NOT_FOUND: Reaction.NEW_SESSION,
        E.INVALID_FETCH_SESSION_EPOCH: Reaction.NEW_SESSION,
        E.FETCH_SESSION_TOPIC_ID_ERROR: Reaction.NEW_SESSION,
        # Kafka's consumer goes on as well: the next fetch may reach another replica.
        E.UNKNOWN_SERVER_ERROR: Reaction.SKIP,
        E.CORRUPT_MESSAGE: Reaction.RAISE,
    },
    "Produce": _LEADER_MOVED
    | {
        E.DUPLICATE_SEQUENCE_NUMBER: Reaction.ACCEPT,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER: Reaction.NEW_EPOCH,
        E.UNKNOWN_PRODUCER_ID: Reaction.NEW_EPOCH,
        E.INVALID_PRODUCER_EPOCH: Reaction.NEW_EPOCH,
        E.MESSAGE_TOO_LARGE: Reaction.SPLIT,
        E.RECORD_LIST_TOO_LARGE: Reaction.SPLIT,
    },
    "InitProducerId": _COORDINATOR_MOVED,
    "OffsetFetch": _COORDINATOR_MOVED | {E.UNSTABLE_OFFSET_COMMIT: Reaction.RETRY},
    # Without membership: the simple commits of Admin and of assign-mode consumers.
    "OffsetCommit": _COORDINATOR_MOVED | {E.UNKNOWN_TOPIC_OR_PARTITION: Reaction.RETRY},
    "Group": _COORDINATOR_MOVED,
    "Admin": dict.fromkeys((E.NOT_CONTROLLER, E.BROKER_NOT_AVAILABLE), Reaction.REFRESH),
    "DeleteRecords": _LEADER_MOVED,
}

# Answers to Produce after which the records are not in the log for sure. After any other error
# they may be: a leader can lose its place, or its disk, while it waits for others to follow.
NOT_STORED: Final = frozenset(
    (
        E.OUT_OF_ORDER_SEQUENCE_NUMBER,
        E.UNKNOWN_PRODUCER_ID,
        E.INVALID_PRODUCER_EPOCH,
        E.MESSAGE_TOO_LARGE,
        E.RECORD_LIST_TOO_LARGE,
        E.CORRUPT_MESSAGE,
        E.INVALID_RECORD,
        E.INVALID_TIMESTAMP,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        E.NOT_ENOUGH_REPLICAS,
        E.UNKNOWN_TOPIC_ID,
        E.TOPIC_AUTHORIZATION_FAILED,
        E.POLICY_VIOLATION,
    )
)


def reaction(api: str, code: int) -> Reaction:
    """What to do about ``code`` in an answer to ``api``. NONE is ACCEPT, an unknown code RAISE."""
    known = E.of(code)
    if known is E.NONE:
        return Reaction.ACCEPT
    listed = TABLE[api].get(known)
    if listed is not None:
        return listed
    return Reaction.RETRY if known.retriable else Reaction.RAISE
