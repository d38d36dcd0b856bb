"""AlterUserScramCredentials: users by the API.

Clients send a salted password, never the password.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from shoal.broker.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISM_CODES,
    credential_from_salted,
)
from shoal.errors import ErrorCode
from shoal.wire.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = AlterUserScramCredentialsResponse.Result


async def handle(
    broker: Broker, call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    async with broker.changes.turn:
        faults = _faults(broker, request)
        await broker.loop.run_in_executor(None, _store, broker, request, faults)
    results = []
    for name in dict.fromkeys(item.name for item in _items(request)):
        code, text = faults.get(name, (ErrorCode.NONE, None))
        results.append(_Result(user=name, error_code=code, error_message=text))
        broker.audit("user altered", user=call.session.principal, target=name, result=code.name)
    return AlterUserScramCredentialsResponse(results=results)


def _items(request: AlterUserScramCredentialsRequest) -> list[Any]:
    return [*request.deletions, *request.upsertions]


def _faults(
    broker: Broker, request: AlterUserScramCredentialsRequest
) -> dict[str, tuple[ErrorCode, str]]:
    """Why users stay as they are."""
    faults: dict[str, tuple[ErrorCode, str]] = {}
    items = _items(request)
    keys = Counter((item.name, item.mechanism) for item in items)
    for item in items:
        if not item.name:
            faults[item.name] = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
        elif item.mechanism not in MECHANISM_CODES:
            faults[item.name] = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
        elif keys[item.name, item.mechanism] > 1:
            faults[item.name] = (
                ErrorCode.DUPLICATE_RESOURCE,
                "A user credential cannot be altered twice in the same request",
            )
    for deletion in request.deletions:
        mechanism = MECHANISM_CODES.get(deletion.mechanism, "")
        if deletion.name not in faults and broker.users.lookup(deletion.name, mechanism) is None:
            faults[deletion.name] = (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    for upsertion in request.upsertions:
        if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
            faults.setdefault(
                upsertion.name,
                (
                    ErrorCode.UNACCEPTABLE_CREDENTIAL,
                    f"Iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}",
                ),
            )
    return faults


def _store(broker: Broker, request: AlterUserScramCredentialsRequest, faults: Any) -> None:
    for deletion in request.deletions:
        if deletion.name not in faults:
            broker.users.remove(deletion.name, MECHANISM_CODES[deletion.mechanism])
    for upsertion in request.upsertions:
        if upsertion.name not in faults:
            broker.users.put(
                upsertion.name,
                credential_from_salted(
                    MECHANISM_CODES[upsertion.mechanism],
                    bytes(upsertion.salted_password),
                    bytes(upsertion.salt),
                    upsertion.iterations,
                ),
            )


def refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, version: int
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(item.name for item in _items(request))
    return AlterUserScramCredentialsResponse(
        results=[_Result(user=name, error_code=code) for name in names]
    )
