"""What the client does about each error code, per kind of request, as one table.

Rule: no other module of the client decides by itself whether a code is retried. The group's
requests (JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat, and a member's
OffsetCommit) are not here: their answers are judged by the member (``shoal.group.member``). The
OffsetCommit in the table is that of Admin and of consumers without a group's partitions.
Transactions have a table of their own in ``transaction_reactions.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from shoal.errors import ErrorCode as E


class RequestReaction(Enum):
    """The possible consequences of an error code."""

    ACCEPT = "treat it as success"
    RETRY = "send the same again after a pause"
    REFRESH = "refresh metadata, then send to whoever leads now"
    REDISCOVER = "look the coordinator up again, then send to it"
    RESET_POSITION = "the offset is outside the log: apply auto_offset_reset"
    NEW_SESSION = "start a new fetch session"
    NEW_EPOCH = "the broker lost track of our sequence: count again in the next producer epoch"
    SPLIT = "the batch is too large: halve it"
    SKIP = "leave the partition for the next round; log it"
    RAISE = "give it to the user"


_LEADER_MOVED: Final[dict[E, RequestReaction]] = dict.fromkeys(
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
    RequestReaction.REFRESH,
)
_COORDINATOR_MOVED: Final[dict[E, RequestReaction]] = dict.fromkeys(
    (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION),
    RequestReaction.REDISCOVER,
)

TABLE: Final[Mapping[str, Mapping[E, RequestReaction]]] = {
    # Topics are created while we ask for them, so "unknown" is a state, not an end.
    "Metadata": _LEADER_MOVED | {E.INVALID_TOPIC_EXCEPTION: RequestReaction.RAISE},
    "FindCoordinator": {E.COORDINATOR_NOT_AVAILABLE: RequestReaction.RETRY},
    "ListOffsets": _LEADER_MOVED
    | {
        E.OFFSET_NOT_AVAILABLE: RequestReaction.RETRY,
        E.UNSUPPORTED_FOR_MESSAGE_FORMAT: RequestReaction.RAISE,
    },
    "OffsetForLeaderEpoch": _LEADER_MOVED | {E.OFFSET_NOT_AVAILABLE: RequestReaction.RETRY},
    "Fetch": _LEADER_MOVED
    | {
        E.OFFSET_OUT_OF_RANGE: RequestReaction.RESET_POSITION,
        E.OFFSET_NOT_AVAILABLE: RequestReaction.RETRY,
        E.FETCH_SESSION_ID_NOT_FOUND: RequestReaction.NEW_SESSION,
        E.INVALID_FETCH_SESSION_EPOCH: RequestReaction.NEW_SESSION,
        E.FETCH_SESSION_TOPIC_ID_ERROR: RequestReaction.NEW_SESSION,
        # Kafka's consumer goes on as well: the next fetch may reach another replica.
        E.UNKNOWN_SERVER_ERROR: RequestReaction.SKIP,
        E.CORRUPT_MESSAGE: RequestReaction.RAISE,
    },
    "Produce": _LEADER_MOVED
    | {
        E.DUPLICATE_SEQUENCE_NUMBER: RequestReaction.ACCEPT,
        E.OUT_OF_ORDER_SEQUENCE_NUMBER: RequestReaction.NEW_EPOCH,
        E.UNKNOWN_PRODUCER_ID: RequestReaction.NEW_EPOCH,
        E.INVALID_PRODUCER_EPOCH: RequestReaction.NEW_EPOCH,
        E.MESSAGE_TOO_LARGE: RequestReaction.SPLIT,
        E.RECORD_LIST_TOO_LARGE: RequestReaction.SPLIT,
    },
    "InitProducerId": _COORDINATOR_MOVED,
    "OffsetFetch": _COORDINATOR_MOVED | {E.UNSTABLE_OFFSET_COMMIT: RequestReaction.RETRY},
    # Without membership: the simple commits of Admin and of assign-mode consumers.
    "OffsetCommit": _COORDINATOR_MOVED | {E.UNKNOWN_TOPIC_OR_PARTITION: RequestReaction.RETRY},
    "Group": _COORDINATOR_MOVED,
    # Of Admin; a producer's own transactions are in transaction_reactions.py.
    "Transaction": _COORDINATOR_MOVED,
    "DescribeProducers": _LEADER_MOVED,
    "WriteTxnMarkers": _LEADER_MOVED,
    "Admin": dict.fromkeys((E.NOT_CONTROLLER, E.BROKER_NOT_AVAILABLE), RequestReaction.REFRESH),
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


def reaction(api: str, code: int) -> RequestReaction:
    """What to do about ``code`` in an answer to ``api``. NONE is ACCEPT, an unknown code RAISE."""
    known = E.of(code)
    if known is E.NONE:
        return RequestReaction.ACCEPT
    listed = TABLE[api].get(known)
    if listed is not None:
        return listed
    return RequestReaction.RETRY if known.retriable else RequestReaction.RAISE
