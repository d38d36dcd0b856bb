"""DeleteAcls: there is no authorizer yet, which Kafka calls SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.delete_acls import DeleteAclsRequest, DeleteAclsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    return refuse(request, ErrorCode.SECURITY_DISABLED, call.api_version)


def refuse(request: DeleteAclsRequest, code: ErrorCode, version: int) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsResponse.FilterResult(
                error_code=code, error_message="No Authorizer is configured."
            )
            for _ in request.filters
        ]
    )
