"""CreateAcls: there is no authorizer yet, which Kafka calls SECURITY_DISABLED."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.create_acls import CreateAclsRequest, CreateAclsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    return refuse(request, ErrorCode.SECURITY_DISABLED, call.api_version)


def refuse(request: CreateAclsRequest, code: ErrorCode, version: int) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[
            CreateAclsResponse.AclCreationResult(
                error_code=code, error_message="No Authorizer is configured."
            )
            for _ in request.creations
        ]
    )
