"""DescribeUserScramCredentials: which mechanisms and how many iterations, never keys."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal.broker.handlers.alter_user_scram_credentials import may_not_touch_users
from shoal.broker.scram import MECHANISM_CODES
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DescribeUserScramCredentialsResponse.Result
_Info = DescribeUserScramCredentialsResponse.CredentialInfo
_CODES = {name: code for code, name in MECHANISM_CODES.items()}


def handle(
    broker: Broker, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    if may_not_touch_users(broker, call):
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            error_message="Only who has logged in is told of users",
        )
    names = [user.name for user in request.users] if request.users else broker.users.names()
    # Kafka's answer to a good question has an empty message, not none.
    return DescribeUserScramCredentialsResponse(
        error_message="",
        results=[_describe(broker, name, count > 1) for name, count in Counter(names).items()],
    )


def _describe(broker: Broker, name: str, twice: bool) -> _Result:
    if twice:
        return _Result(
            user=name,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message=f"Cannot describe SCRAM credentials for the same user twice: {name}",
        )
    found = broker.users.of(name)
    if not found:
        return _Result(
            user=name,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {name}",
        )
    return _Result(
        user=name,
        error_message="",
        credential_infos=[
            _Info(mechanism=_CODES[c.mechanism], iterations=c.iterations) for c in found
        ],
    )
