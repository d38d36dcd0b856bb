"""Administration of access rules: one coroutine per question."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.access.rules import Acl, AclFilter
from shoal.client.cluster import Cluster
from shoal.client.deadlines import Deadline
from shoal.client.topic_admin import ask_controller
from shoal.wire.apis.create_acls import CreateAclsRequest
from shoal.wire.apis.delete_acls import DeleteAclsRequest
from shoal.wire.apis.describe_acls import DescribeAclsRequest


async def describe_acls(cluster: Cluster, asked: AclFilter, deadline: Deadline) -> list[Acl]:
    request = DescribeAclsRequest(
        resource_type_filter=asked.resource,
        resource_name_filter=asked.name,
        pattern_type_filter=asked.pattern,
        principal_filter=asked.principal,
        host_filter=asked.host,
        operation=asked.operation,
        permission_type=asked.permission,
    )

    async def attempt() -> list[Acl]:
        answer = await cluster.ask(request, deadline=deadline)
        cluster.check("Admin", answer.error_code, answer.error_message or "access rules")
        return sorted(
            Acl(
                resource.resource_type,
                resource.resource_name,
                one.principal,
                one.operation,
                one.permission_type,
                resource.pattern_type,
                one.host,
            )
            for resource in answer.resources
            for one in resource.acls
        )

    return await cluster.retrying(attempt, deadline)


async def create_acls(cluster: Cluster, acls: Sequence[Acl], deadline: Deadline) -> None:
    request = CreateAclsRequest(
        creations=[
            CreateAclsRequest.AclCreation(
                resource_type=acl.resource,
                resource_name=acl.name,
                resource_pattern_type=acl.pattern,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )

    async def attempt() -> None:
        answer = await ask_controller(cluster, request, deadline)
        for acl, one in zip(acls, answer.results, strict=True):
            what = f"{acl.text}: {one.error_message}" if one.error_message else acl.text
            cluster.check("Admin", one.error_code, what)

    await cluster.retrying(attempt, deadline)


async def delete_acls(
    cluster: Cluster, filters: Sequence[AclFilter], deadline: Deadline
) -> list[Acl]:
    """The rules that are gone."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsRequest.Filter(
                resource_type_filter=asked.resource,
                resource_name_filter=asked.name,
                pattern_type_filter=asked.pattern,
                principal_filter=asked.principal,
                host_filter=asked.host,
                operation=asked.operation,
                permission_type=asked.permission,
            )
            for asked in filters
        ]
    )
    gone: set[Acl] = set()

    async def attempt() -> None:
        answer = await ask_controller(cluster, request, deadline)
        for result in answer.filter_results:
            cluster.check("Admin", result.error_code, result.error_message or "access rules")
            for one in result.matching_acls:
                cluster.check("Admin", one.error_code, one.error_message or one.resource_name)
                gone.add(
                    Acl(
                        one.resource_type,
                        one.resource_name,
                        one.principal,
                        one.operation,
                        one.permission_type,
                        one.pattern_type,
                        one.host,
                    )
                )

    await cluster.retrying(attempt, deadline)
    return sorted(gone)
