"""What a transactional producer makes of every code, written down apart from its own table.

Read from Apache Kafka's TransactionManager and librdkafka's rdkafka_txnmgr; where they differ, as
Java has it.
"""

from __future__ import annotations

import pytest

from shoal.client.transaction_reactions import TABLE, TransactionReaction, transaction_reaction
from shoal.errors import ErrorCode

R = TransactionReaction
FENCED = {"INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED"}
MOVED = {
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "NETWORK_EXCEPTION",
}
LOST = {"INVALID_PRODUCER_ID_MAPPING", "UNKNOWN_PRODUCER_ID"}

EXPECTED = {
    "InitProducerId": {R.FENCED: FENCED, R.REDISCOVER: MOVED},
    "AddPartitionsToTxn": {
        R.FENCED: FENCED,
        R.REDISCOVER: MOVED,
        R.REINITIALIZE: LOST,
        R.ABORT: {"TRANSACTION_ABORTABLE", "TOPIC_AUTHORIZATION_FAILED", "OPERATION_NOT_ATTEMPTED"},
    },
    "AddOffsetsToTxn": {
        R.FENCED: FENCED,
        R.REDISCOVER: MOVED,
        R.REINITIALIZE: LOST,
        R.ABORT: {"TRANSACTION_ABORTABLE", "GROUP_AUTHORIZATION_FAILED"},
    },
    "TxnOffsetCommit": {
        R.FENCED: FENCED,
        R.REDISCOVER: MOVED,
        R.REINITIALIZE: {"INVALID_PRODUCER_ID_MAPPING"},
        R.ABORT: {
            "TRANSACTION_ABORTABLE",
            "ILLEGAL_GENERATION",
            "UNKNOWN_MEMBER_ID",
            "STALE_MEMBER_EPOCH",
            "FENCED_INSTANCE_ID",
            "REBALANCE_IN_PROGRESS",
            "GROUP_AUTHORIZATION_FAILED",
            "TOPIC_AUTHORIZATION_FAILED",
            "GROUP_ID_NOT_FOUND",
            "INVALID_GROUP_ID",
            "OFFSET_METADATA_TOO_LARGE",
            "INVALID_COMMIT_OFFSET_SIZE",
        },
    },
    "EndTxn": {
        R.FENCED: FENCED,
        R.REDISCOVER: MOVED,
        R.REINITIALIZE: LOST,
        R.ABORT: {"TRANSACTION_ABORTABLE"},
    },
}


@pytest.mark.parametrize("api", EXPECTED)
@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_means_what_it_means_in_kafka(api, code):
    listed = [reaction for reaction, names in EXPECTED[api].items() if code.name in names]
    otherwise = R.RETRY if code.retriable else R.FATAL
    expected = R.ACCEPT if code is ErrorCode.NONE else listed[0] if listed else otherwise
    assert transaction_reaction(api, code) is expected


def test_a_failed_produce_can_be_aborted_save_where_the_producer_itself_is_refused():
    fatal = {
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_VERSION",
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    }
    plain = {"INVALID_TXN_STATE", "TRANSACTION_ABORTABLE", "TOPIC_AUTHORIZATION_FAILED"}
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        expected = R.ABORT_AND_BUMP
        if code.name in fatal:
            expected = R.FATAL
        elif code.name in plain:
            expected = R.ABORT
        elif code is ErrorCode.PRODUCER_FENCED:
            expected = R.FENCED
        assert transaction_reaction("Produce", code) is expected, code


@pytest.mark.parametrize("api", TABLE)
def test_a_code_from_the_future_is_never_taken_for_success(api):
    for code in (9999, -77):
        assert transaction_reaction(api, code) in (R.FATAL, R.ABORT_AND_BUMP)
