"""Every code has a reaction for every request, and the ones that matter have the right one."""

from __future__ import annotations

import pytest

from shoal.client.reactions import TABLE, RequestReaction, reaction
from shoal.errors import ErrorCode


@pytest.mark.parametrize("api", TABLE)
def test_every_code_known_or_not_has_a_reaction(api):
    for code in [*ErrorCode, 9999, -77]:
        assert isinstance(reaction(api, code), RequestReaction)
    assert reaction(api, 0) is RequestReaction.ACCEPT
    assert reaction(api, 9999) in (RequestReaction.RAISE, RequestReaction.SKIP)


@pytest.mark.parametrize("api", TABLE)
def test_no_request_hides_a_missing_right(api):
    for code in (
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    ):
        assert reaction(api, code) is RequestReaction.RAISE


@pytest.mark.parametrize("api", TABLE)
def test_what_the_protocol_calls_retriable_is_never_raised_at_once(api):
    raised_on_purpose = {("Fetch", ErrorCode.CORRUPT_MESSAGE)}
    for code in ErrorCode:
        if code.retriable and (api, code) not in raised_on_purpose:
            assert reaction(api, code) is not RequestReaction.RAISE, code


@pytest.mark.parametrize("api", ["Fetch", "Produce", "ListOffsets", "DeleteRecords"])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_a_moved_leader_is_looked_for(api, code):
    assert reaction(api, code) is RequestReaction.REFRESH
