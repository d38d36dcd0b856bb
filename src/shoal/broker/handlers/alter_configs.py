"""AlterConfigs: replaces all configurations of a resource (the old way)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.incremental_alter_configs import entry_for, own_configs
from shoal.errors import ErrorCode
from shoal.wire.apis.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Answer = AlterConfigsResponse.ResourceResponse


async def handle(broker: Broker, call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    answers = []
    for wanted in request.resources:
        configs = {item.name: item.value for item in wanted.configs}
        kind, name = wanted.resource_type, wanted.resource_name
        decided: Any = own_configs(broker, kind, name)
        if isinstance(decided, dict):
            if any(value is None for value in configs.values()):
                decided = ErrorCode.INVALID_REQUEST, "a configuration value must not be null"
            else:
                decided = entry_for(broker, kind, name, configs)  # type: ignore[arg-type]  # no value is None here
        answer = _Answer(resource_type=kind, resource_name=name)
        if isinstance(decided, tuple):
            answer.error_code, answer.error_message = decided
        elif not request.validate_only:
            await broker.changes.commit([decided])
            broker.audit(
                "configuration altered", user=call.session.principal, resource=name, kind=kind
            )
        answers.append(answer)
    return AlterConfigsResponse(responses=answers)


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
