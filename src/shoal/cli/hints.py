"""What to type next after a broker said no: the exact command, below its error.

Rule: a hint is added only where the error names no command yet.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from shoal.errors import BrokerError, ErrorCode, ShoalError

HINTS: Final[dict[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`shoal topic list` shows the topics",
    ErrorCode.INVALID_PARTITIONS: "a topic can only grow; `shoal topic describe {name}` shows it",
    ErrorCode.INVALID_REPLICATION_FACTOR: "`shoal cluster` shows how many brokers there are",
    ErrorCode.GROUP_ID_NOT_FOUND: "`shoal group list` shows the groups",
    ErrorCode.NON_EMPTY_GROUP: "`shoal group describe {name}` shows who is in it",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "`shoal transaction list` shows them",
    ErrorCode.SECURITY_DISABLED: "start the broker with `shoal serve --authorize`, or Apache "
    "Kafka with an authorizer",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "`shoal acl test PRINCIPAL OPERATION topic {name}` says "
    "which rule is missing",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "`shoal acl test PRINCIPAL OPERATION group {name}` says "
    "which rule is missing",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "`shoal acl test PRINCIPAL OPERATION cluster` says "
    "which rule is missing",
}


def with_hint(error: ShoalError) -> str:
    """The text of an error, and what to type next where that is known."""
    text = str(error)
    if not isinstance(error, BrokerError) or error.code not in HINTS or "`shoal " in text:
        return text
    hint = HINTS[error.code]
    return f"{text.rstrip('.')}; {hint.format(name=_name_in(error.detail))}"


def _name_in(detail: str) -> str:
    """The topic or group an error is about, ready for a shell: said in quotes, or first."""
    found = re.search(r"'([^']+)'", detail) or re.match(r"([\w.-]+): ", detail)
    return shlex.quote(found[1]) if found else "NAME"
