"""DescribeAcls: the access rules that a filter names, by resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.access.rules import Acl, AclFilter, filter_problem
from shoal.broker.memory import TOO_MUCH, TOO_MUCH_TEXT
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_acls import DescribeAclsRequest, DescribeAclsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    if broker.acls is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED,
            error_message="No Authorizer is configured on the broker",
        )
    asked = AclFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.principal_filter,
        request.operation,
        request.permission_type,
        request.pattern_type_filter,
        request.host_filter,
    )
    if problem := filter_problem(asked):
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=problem)
    by_resource: dict[tuple[int, str, int], list[Acl]] = {}
    found = sorted(filter(asked.matches, broker.acls))
    if not call.spend(len(found)):
        return DescribeAclsResponse(error_code=TOO_MUCH, error_message=TOO_MUCH_TEXT)
    for acl in found:
        by_resource.setdefault((acl.resource, acl.name, acl.pattern), []).append(acl)
    return DescribeAclsResponse(
        error_message="",
        resources=[
            DescribeAclsResponse.Resource(
                resource_type=resource,
                resource_name=name,
                pattern_type=pattern,
                acls=[
                    DescribeAclsResponse.AclDescription(
                        principal=acl.principal,
                        host=acl.host,
                        operation=acl.operation,
                        permission_type=acl.permission,
                    )
                    for acl in acls
                ],
            )
            for (resource, name, pattern), acls in by_resource.items()
        ],
    )
