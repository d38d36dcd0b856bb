"""What a transactional producer does about each error code, per kind of request, as one table.

Kafka's own clients agree on nearly all of it; where they differ, this is Java's. A code that is not
listed is retried if the protocol calls it so, and fatal if not: who goes on after an answer it does
not understand may commit half of a transaction.

Rule: whether a transaction can still be saved is decided here and nowhere else. Produce is in it
only for failures that are final: what is sent again is in ``reactions.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from shoal.errors import ErrorCode as E


class TransactionReaction(Enum):
    """The possible consequences of an error code."""

    ACCEPT = "treat it as success"
    RETRY = "send the same again after a pause"
    REDISCOVER = "look the coordinator up again, then send to it"
    ABORT = "this transaction must be aborted"
    ABORT_AND_BUMP = "it must be aborted, and the next needs a new producer epoch (KIP-360)"
    REINITIALIZE = "the coordinator forgot our producer id: ask for another instead of aborting"
    FENCED = "another producer has our transactional id: the end"
    FATAL = "this producer can have no more transactions"


R = TransactionReaction

_COORDINATOR: Final = dict.fromkeys(
    (E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.REQUEST_TIMED_OUT, E.NETWORK_EXCEPTION),
    R.REDISCOVER,
)
_COMMON: Final = _COORDINATOR | {
    E.INVALID_PRODUCER_EPOCH: R.FENCED,
    E.PRODUCER_FENCED: R.FENCED,
    E.TRANSACTION_ABORTABLE: R.ABORT,
}

TABLE: Final[Mapping[str, Mapping[E, TransactionReaction]]] = {
    # There is no transaction to abort before there is a producer.
    "InitProducerId": _COMMON | {E.TRANSACTION_ABORTABLE: R.FATAL},
    "AddPartitionsToTxn": _COMMON
    | {
        E.INVALID_PRODUCER_ID_MAPPING: R.REINITIALIZE,
        E.UNKNOWN_PRODUCER_ID: R.REINITIALIZE,
        E.TOPIC_AUTHORIZATION_FAILED: R.ABORT,
        E.OPERATION_NOT_ATTEMPTED: R.ABORT,
    },
    "AddOffsetsToTxn": _COMMON
    | {
        E.INVALID_PRODUCER_ID_MAPPING: R.REINITIALIZE,
        E.UNKNOWN_PRODUCER_ID: R.REINITIALIZE,
        E.GROUP_AUTHORIZATION_FAILED: R.ABORT,
    },
    "TxnOffsetCommit": _COMMON
    | {
        E.INVALID_PRODUCER_ID_MAPPING: R.REINITIALIZE,
        # The group went on without this consumer: its offsets are no longer its own to commit.
        E.ILLEGAL_GENERATION: R.ABORT,
        E.UNKNOWN_MEMBER_ID: R.ABORT,
        E.STALE_MEMBER_EPOCH: R.ABORT,
        E.FENCED_INSTANCE_ID: R.ABORT,
        E.REBALANCE_IN_PROGRESS: R.ABORT,
        E.GROUP_AUTHORIZATION_FAILED: R.ABORT,
        E.TOPIC_AUTHORIZATION_FAILED: R.ABORT,
        E.GROUP_ID_NOT_FOUND: R.ABORT,
        E.INVALID_GROUP_ID: R.ABORT,
        E.OFFSET_METADATA_TOO_LARGE: R.ABORT,
        E.INVALID_COMMIT_OFFSET_SIZE: R.ABORT,
    },
    "EndTxn": _COMMON
    | {
        E.INVALID_PRODUCER_ID_MAPPING: R.REINITIALIZE,
        E.UNKNOWN_PRODUCER_ID: R.REINITIALIZE,
    },
    # KIP-588: a partition that knows a newer epoch of ours may only have seen the coordinator
    # abort us. Whether somebody else has our id, InitProducerId or EndTxn will tell.
    "Produce": dict.fromkeys(E, R.ABORT_AND_BUMP)
    | dict.fromkeys(
        (
            E.INVALID_TXN_STATE,
            E.TRANSACTION_ABORTABLE,
            E.TOPIC_AUTHORIZATION_FAILED,
        ),
        R.ABORT,
    )
    | dict.fromkeys(
        (
            E.CLUSTER_AUTHORIZATION_FAILED,
            E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            E.UNSUPPORTED_VERSION,
            E.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ),
        R.FATAL,
    )
    | {E.PRODUCER_FENCED: R.FENCED},
}


def transaction_reaction(api: str, code: int) -> TransactionReaction:
    """What to do about ``code`` in an answer to ``api``."""
    known = E.of(code)
    if known is E.NONE:
        return R.ACCEPT
    listed = TABLE[api].get(known)
    if listed is not None:
        return listed
    return R.RETRY if known.retriable else R.FATAL
