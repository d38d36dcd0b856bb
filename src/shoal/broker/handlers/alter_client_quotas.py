"""AlterClientQuotas: quotas are not enforced here, so setting one is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.errors import ErrorCode
from shoal.wire.apis.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Entity = AlterClientQuotasResponse.EntityData


def handle(
    broker: Broker, call: Call, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)


def refuse(
    request: AlterClientQuotasRequest, code: ErrorCode, version: int
) -> AlterClientQuotasResponse:
    return AlterClientQuotasResponse(
        entries=[
            AlterClientQuotasResponse.EntryData(
                error_code=code,
                error_message="this broker enforces no quotas",
                entity=[
                    _Entity(entity_type=item.entity_type, entity_name=item.entity_name)
                    for item in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )
