"""DeleteAcls: the access rules that filters name go, all of them together or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from shoal.access.rules import Acl, AclFilter, filter_problem
from shoal.broker.door import REFUSAL_TEXTS
from shoal.broker.memory import TOO_MUCH, TOO_MUCH_TEXT
from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.delete_acls import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_DISABLED: Final = "No Authorizer is configured."
_Result = DeleteAclsResponse.FilterResult


async def handle(broker: Broker, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    if broker.acls is None:
        return refuse(request, ErrorCode.SECURITY_DISABLED, call.api_version)
    results: list[_Result] = []
    turns = Turns()
    async with broker.changes.turn:
        removed: dict[Acl, None] = {}
        for each in request.filters:
            asked = AclFilter(
                each.resource_type_filter,
                each.resource_name_filter,
                each.principal_filter,
                each.operation,
                each.permission_type,
                each.pattern_type_filter,
                each.host_filter,
            )
            if problem := filter_problem(asked):
                results.append(_Result(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
                continue
            found = sorted(filter(asked.matches, broker.acls))
            await turns.pause()
            if not call.spend(1 + len(found)):
                results.append(_Result(error_code=TOO_MUCH, error_message=TOO_MUCH_TEXT))
                continue
            removed.update(dict.fromkeys(found))
            results.append(_Result(matching_acls=[_described(acl) for acl in found]))
        if removed:
            await broker.changes.commit([{"kind": "acls", "added": [], "removed": list(removed)}])
    for acl in removed:
        broker.audit("access rule removed", user=call.session.principal, rule=acl.text)
    return DeleteAclsResponse(filter_results=results)


def _described(acl: Acl) -> DeleteAclsResponse.MatchingAcl:
    return DeleteAclsResponse.MatchingAcl(
        resource_type=acl.resource,
        resource_name=acl.name,
        pattern_type=acl.pattern,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )


def refuse(request: DeleteAclsRequest, code: ErrorCode, version: int) -> DeleteAclsResponse:
    why = _DISABLED if code is ErrorCode.SECURITY_DISABLED else REFUSAL_TEXTS.get(code)
    return DeleteAclsResponse(
        filter_results=[_Result(error_code=code, error_message=why) for _ in request.filters]
    )
