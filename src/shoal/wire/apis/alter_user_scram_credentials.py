"""AlterUserScramCredentials (51): passwords of users are set and removed (KIP-554).

The password itself never travels: the client salts it.
"""

from __future__ import annotations

from shoal.wire.apis.registry import ApiKey
from shoal.wire.schema import Array, Bytes, Int8, Int16, Int32, Message, Request, String, Struct


class AlterUserScramCredentialsRequest(
    Request["AlterUserScramCredentialsResponse"],
    api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    versions=(0, 0),
    flexible=0,
):
    class ScramCredentialDeletion(Struct):
        name: String
        mechanism: Int8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512

    class ScramCredentialUpsertion(Struct):
        name: String
        mechanism: Int8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
        iterations: Int32
        salt: Bytes
        salted_password: Bytes

    deletions: Array[ScramCredentialDeletion]
    upsertions: Array[ScramCredentialUpsertion]


class AlterUserScramCredentialsResponse(
    Message, api_key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0, 0), flexible=0
):
    class Result(Struct):
        user: String
        error_code: Int16 = 0
        error_message: String | None = None

    throttle_time_ms: Int32 = 0
    results: Array[Result] = ()
