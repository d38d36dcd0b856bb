"""What a client must do about each error code, written down apart from the client's own table.

Apache Kafka's ``Errors`` says which codes its clients try again (those whose exception extends
``RetriableException``); the rest is what its consumer, producer and admin client do per request.
"""

from __future__ import annotations

from shoal.errors import ErrorCode

RETRIABLE = frozenset(
    {
        "CORRUPT_MESSAGE",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REQUEST_TIMED_OUT",
        "REPLICA_NOT_AVAILABLE",
        "NETWORK_EXCEPTION",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        "NOT_CONTROLLER",
        "CONCURRENT_TRANSACTIONS",
        "KAFKA_STORAGE_ERROR",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
        "LISTENER_NOT_FOUND",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "OFFSET_NOT_AVAILABLE",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "ELECTION_NOT_NEEDED",
        "UNSTABLE_OFFSET_COMMIT",
        "THROTTLING_QUOTA_EXCEEDED",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "FETCH_SESSION_TOPIC_ID_ERROR",
        "SHARE_SESSION_NOT_FOUND",
        "INVALID_SHARE_SESSION_EPOCH",
        "SHARE_SESSION_LIMIT_REACHED",
    }
)

# Beside the retriable ones: what is no error to the user of this request, and what is one still.
PASSES_TOO = {
    # Beyond the end or before the start: the position is reset. Anything the broker cannot name:
    # the next fetch may reach another replica.
    "Fetch": {"OFFSET_OUT_OF_RANGE", "UNKNOWN_SERVER_ERROR"},
    # Stored before, or the broker forgot the producer: an idempotent producer goes on by itself.
    "Produce": {
        "DUPLICATE_SEQUENCE_NUMBER",
        "OUT_OF_ORDER_SEQUENCE_NUMBER",
        "UNKNOWN_PRODUCER_ID",
        "INVALID_PRODUCER_EPOCH",
    },
    "Admin": {"BROKER_NOT_AVAILABLE"},
}
RAISES_TOO = {"Fetch": {"CORRUPT_MESSAGE"}}

ANOTHER_LEADER = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REPLICA_NOT_AVAILABLE",
        "KAFKA_STORAGE_ERROR",
        "LISTENER_NOT_FOUND",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "PREFERRED_LEADER_NOT_AVAILABLE",
        "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        "UNKNOWN_TOPIC_ID",
        "INCONSISTENT_TOPIC_ID",
        "NETWORK_EXCEPTION",
    }
)
"""Somebody else may lead the partition now: metadata is asked for before the next attempt."""

ANOTHER_COORDINATOR = frozenset(
    {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"}
)
"""Somebody else may coordinate the group now: the coordinator is looked up again."""


def passes(api: str, code: ErrorCode) -> bool:
    """Whether a call of the user succeeds though its first answer carried ``code``."""
    if code.name in RAISES_TOO.get(api, ()):
        return False
    return code.name in RETRIABLE or code.name in PASSES_TOO.get(api, ())
