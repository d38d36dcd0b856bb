"""DescribeUserScramCredentials (50): which users have which SCRAM mechanisms (KIP-554)."""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Int8, Int16, Int32, Message, Request, String, Struct


class DescribeUserScramCredentialsRequest(
    Request["DescribeUserScramCredentialsResponse"],
    api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    flexible=0,
):
    class UserName(Struct):
        name: String

    users: Array[UserName] | None


class DescribeUserScramCredentialsResponse(
    Message, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0
):
    class CredentialInfo(Struct):
        mechanism: Int8 = 0  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
        iterations: Int32 = 0

    class Result(Struct):
        user: String
        error_code: Int16 = 0
        error_message: String | None = None
        credential_infos: Array[DescribeUserScramCredentialsResponse.CredentialInfo] = ()

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: Array[Result] = ()
