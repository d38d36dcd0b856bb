"""What to type next after a broker said no: the exact command, below its error.

Rule: a hint is added only where the error names no command yet.
"""

from __future__ import annotations

from typing import Final

from shoal.errors import BrokerError, ErrorCode, ShoalError

HINTS: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`shoal topic list` shows the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`shoal topic alter` changes one",
    ErrorCode.INVALID_PARTITIONS: "a topic can only grow; `shoal topic describe` shows it",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`shoal cluster` shows how many brokers there are",
    ErrorCode.GROUP_ID_NOT_FOUND: "`shoal group list` shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "`shoal group describe` shows who is in it",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`shoal transaction list` shows them",
    ErrorCode.SECURITY_DISABLED: "start the broker with `shoal serve --authorize`, or Apache "
    "Kafka with an authorizer",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "`shoal acl test PRINCIPAL OPERATION topic NAME` says "
    "which rule is missing",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "`shoal acl test PRINCIPAL OPERATION group NAME` says "
    "which rule is missing",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "`shoal acl test PRINCIPAL OPERATION cluster` says "
    "which rule is missing",
}


def with_hint(error: ShoalError) -> str:
    """The text of an error, and what to type next where that is known."""
    text = str(error)
    hint = HINTS.get(error.code) if isinstance(error, BrokerError) else None
    return text if hint is None or "`shoal " in text else f"{text.rstrip('.')}; {hint}"
