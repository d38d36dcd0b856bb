"""DescribeUserScramCredentials: which mechanisms and how many iterations, never keys."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

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
    names = [user.name for user in request.users] if request.users else broker.users.names()
    return DescribeUserScramCredentialsResponse(
        results=[_describe(broker, name, count > 1) for name, count in Counter(names).items()]
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
        credential_infos=[
            _Info(mechanism=_CODES[c.mechanism], iterations=c.iterations) for c in found
        ],
    )
