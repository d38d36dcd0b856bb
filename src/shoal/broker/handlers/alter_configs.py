"""AlterConfigs: replaces all configurations of a resource (the old way)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal.broker.catalogue import Refusal
from shoal.broker.handlers.incremental_alter_configs import (
    DUPLICATE_KEYS,
    TWICE,
    alter,
    entry_for,
    null_value,
    own_configs,
)
from shoal.broker.journal import Entry
from shoal.errors import ErrorCode
from shoal.wire.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Answer = AlterConfigsResponse.ResourceResponse


async def handle(broker: Broker, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    keys = Counter((wanted.resource_type, wanted.resource_name) for wanted in request.resources)

    def decide(wanted: AlterConfigsRequest.Resource) -> Entry | Refusal:
        kind, name = wanted.resource_type, wanted.resource_name
        if keys[kind, name] > 1:
            return TWICE
        known = own_configs(broker, kind, name)
        if isinstance(known, tuple):
            return known
        if len({item.name for item in wanted.configs}) < len(wanted.configs):
            return DUPLICATE_KEYS
        configs = {}
        for item in wanted.configs:
            if item.value is None:
                return null_value(item.name)
            configs[item.name] = item.value
        return entry_for(broker, kind, name, configs)

    return AlterConfigsResponse(responses=await alter(broker, call, request, decide, _Answer))


def refuse(request: AlterConfigsRequest, code: ErrorCode, version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            _Answer(
                error_code=code,
                resource_type=wanted.resource_type,
                resource_name=wanted.resource_name,
            )
            for wanted in request.resources
        ]
    )
