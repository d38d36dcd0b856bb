"""AlterUserScramCredentials: users by the API.

Clients send a salted password, never the password.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from shoal.broker.sasl import ANONYMOUS
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


# Nobody needs more, and everybody pays for it at each change.
_AT_ONCE_MAX: Final = 1_000
_CREDENTIALS_MAX: Final = 20_000
_LENGTH_MAX: Final = 256

_Result = AlterUserScramCredentialsResponse.Result
_TWICE = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)


async def handle(
    broker: Broker, call: Call, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    if may_not_touch_users(broker, call):
        return refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, call.api_version)
    async with broker.changes.turn:
        faults = _faults(broker, request)
        await broker.loop.run_in_executor(None, _store, broker, request, faults)
    results = []
    for name in dict.fromkeys(item.name for item in _items(request)):
        code, text = faults.get(name, (ErrorCode.NONE, None))
        results.append(_Result(user=name, error_code=code, error_message=text or None))
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
    if len(items) > _AT_ONCE_MAX:
        too_many = f"One request may alter {_AT_ONCE_MAX} credentials, not more"
        return {item.name: (ErrorCode.INVALID_REQUEST, too_many) for item in items}
    if len(broker.users) + len(request.upsertions) > _CREDENTIALS_MAX:
        full = f"There may be {_CREDENTIALS_MAX} credentials, not more"
        faults.update(
            (item.name, (ErrorCode.POLICY_VIOLATION, full)) for item in request.upsertions
        )
    keys = Counter((item.name, item.mechanism) for item in items)
    for item in items:
        if not item.name:
            faults[item.name] = ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
        elif item.mechanism not in MECHANISM_CODES:
            faults[item.name] = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
        elif keys[item.name, item.mechanism] > 1:
            faults[item.name] = _TWICE
    for deletion in request.deletions:
        mechanism = MECHANISM_CODES.get(deletion.mechanism, "")
        known = deletion.name not in faults or faults[deletion.name] == _TWICE
        if known and broker.users.lookup(deletion.name, mechanism) is None:
            faults[deletion.name] = (
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
    for upsertion in request.upsertions:
        if not upsertion.salted_password:
            # Kafka fails on it, without a word.
            faults.setdefault(upsertion.name, (ErrorCode.UNKNOWN_SERVER_ERROR, ""))
        if not ITERATIONS_MIN <= upsertion.iterations <= ITERATIONS_MAX:
            faults.setdefault(
                upsertion.name,
                (
                    ErrorCode.UNACCEPTABLE_CREDENTIAL,
                    f"Iterations must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}",
                ),
            )
        longest = max(len(upsertion.salt), len(upsertion.salted_password), len(upsertion.name))
        if longest > _LENGTH_MAX:
            faults.setdefault(
                upsertion.name,
                (
                    ErrorCode.UNACCEPTABLE_CREDENTIAL,
                    f"Name, salt and salted password may have {_LENGTH_MAX} bytes each",
                ),
            )
    return faults


def _store(broker: Broker, request: AlterUserScramCredentialsRequest, faults: Any) -> None:
    removed = [
        (deletion.name, MECHANISM_CODES[deletion.mechanism])
        for deletion in request.deletions
        if deletion.name not in faults
    ]
    put = {
        (upsertion.name, MECHANISM_CODES[upsertion.mechanism]): credential_from_salted(
            MECHANISM_CODES[upsertion.mechanism],
            bytes(upsertion.salted_password),
            bytes(upsertion.salt),
            upsertion.iterations,
        )
        for upsertion in request.upsertions
        if upsertion.name not in faults
    }
    if removed or put:
        broker.users.change(put, removed)


def may_not_touch_users(broker: Broker, call: Call) -> bool:
    """Whether this is somebody without a name, and users are what other listeners trust in."""
    is_nobody = call.session.principal == ANONYMOUS
    return is_nobody and any(listener.sasl for listener in broker.config.listeners)


def refuse(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, version: int
) -> AlterUserScramCredentialsResponse:
    names = dict.fromkeys(item.name for item in _items(request))
    return AlterUserScramCredentialsResponse(
        results=[_Result(user=name, error_code=code) for name in names]
    )
