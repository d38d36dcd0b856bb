"""CreateAcls: access rules, in force for the next request. One that exists is made again: success.

A bad rule is refused alone; all good ones of a request are stored together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.access.rules import Acl, acl_problem
from shoal.broker.door import REFUSAL_TEXTS
from shoal.errors import ErrorCode
from shoal.wire.apis.create_acls import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

ACLS_MAX: Final = 200_000
_DISABLED: Final = "No Authorizer is configured."
_Result = CreateAclsResponse.AclCreationResult


async def handle(broker: Broker, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    if broker.acls is None:
        return refuse(request, ErrorCode.SECURITY_DISABLED, call.api_version)
    results: list[_Result] = []
    async with broker.changes.turn:
        added: dict[Acl, None] = {}
        for creation in request.creations:
            acl = Acl(
                creation.resource_type,
                creation.resource_name,
                creation.principal,
                creation.operation,
                creation.permission_type,
                creation.resource_pattern_type,
                creation.host,
            )
            if problem := acl_problem(acl):
                results.append(_Result(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
            elif broker.acls.count + len(added) >= ACLS_MAX and acl not in broker.acls:
                full = f"there may be {ACLS_MAX:,} rules, not more; use prefixes"
                results.append(_Result(error_code=ErrorCode.POLICY_VIOLATION, error_message=full))
            else:
                results.append(_Result(error_message=""))
                if acl not in broker.acls:
                    added[acl] = None
        if added:
            await broker.changes.commit([{"kind": "acls", "added": list(added), "removed": []}])
    for acl in added:
        broker.audit("access rule added", user=call.session.principal, rule=acl.text)
    return CreateAclsResponse(results=results)


def refuse(request: CreateAclsRequest, code: ErrorCode, version: int) -> CreateAclsResponse:
    why = _DISABLED if code is ErrorCode.SECURITY_DISABLED else REFUSAL_TEXTS.get(code)
    return CreateAclsResponse(
        results=[_Result(error_code=code, error_message=why) for _ in request.creations]
    )
