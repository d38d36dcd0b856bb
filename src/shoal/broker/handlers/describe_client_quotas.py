"""DescribeClientQuotas: the quotas of the entities that fit what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.access.quotas import QuotaEntity
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_TYPES = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


def handle(
    broker: Broker, call: Call, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    code, text = _fault(request)
    if code is not ErrorCode.NONE:
        return DescribeClientQuotasResponse(error_code=code, error_message=text)
    entries = [
        DescribeClientQuotasResponse.EntryData(
            entity=[
                DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name)
                for kind, name in entity
            ],
            values=[
                DescribeClientQuotasResponse.ValueData(key=key, value=value)
                for key, value in values.items()
            ],
        )
        for entity, values in broker.quotas
        if _fits(request, entity)
    ]
    return DescribeClientQuotasResponse(error_message="", entries=entries)


def _fits(request: DescribeClientQuotasRequest, entity: QuotaEntity) -> bool:
    named = dict(entity)
    for component in request.components:
        if component.entity_type not in named:
            return False
        name = named[component.entity_type]
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name is not None:
            return False
    return not request.strict or len(request.components) == len(named)


def _fault(request: DescribeClientQuotasRequest) -> tuple[ErrorCode, str]:
    invalid = ErrorCode.INVALID_REQUEST
    seen: set[str] = set()
    for component in request.components:
        kind = component.entity_type
        if not kind:
            return invalid, "Invalid empty entity type."
        if kind in seen:
            return invalid, f"Entity type {kind} cannot appear more than once in the filter."
        if kind not in _TYPES:
            return ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}"
        if component.match_type not in (_EXACT, _DEFAULT, _SPECIFIED):
            return invalid, f"Unknown match type {component.match_type}"
        if (component.match is None) == (component.match_type == _EXACT):
            return invalid, "An exact match needs a name, and only an exact match may have one."
        seen.add(kind)
    if "ip" in seen and len(seen) > 1:
        return invalid, "An ip cannot be asked for together with a user or a client id."
    return ErrorCode.NONE, ""
