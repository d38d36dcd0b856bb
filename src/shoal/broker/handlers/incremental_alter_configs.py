"""IncrementalAlterConfigs: set, delete, append, subtract (KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shoal.broker.broker_configs import (
    GROUP_CONFIGS,
    check_broker_value,
    check_group_value,
)
from shoal.broker.handlers.list_config_resources import BROKER, GROUP, TOPIC
from shoal.broker.journal import Entry
from shoal.broker.slices import Turns
from shoal.broker.topic_configs import BROKER_NAMES, TOPIC_CONFIGS, ConfigType
from shoal.broker.topics import Refusal
from shoal.errors import ConfigError, ErrorCode
from shoal.wire.apis.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Answer = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
_Change = IncrementalAlterConfigsRequest.AlterableConfig
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3


async def handle(
    broker: Broker, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    keys = Counter((wanted.resource_type, wanted.resource_name) for wanted in request.resources)

    def decide(wanted: IncrementalAlterConfigsRequest.AlterConfigsResource) -> Entry | Refusal:
        kind, name = wanted.resource_type, wanted.resource_name
        if keys[kind, name] > 1:
            return ErrorCode.INVALID_REQUEST, "each resource must appear at most once"
        configs = own_configs(broker, kind, name)
        if isinstance(configs, dict):
            configs = _changed(broker, kind, configs, wanted.configs)
        return entry_for(broker, kind, name, configs) if isinstance(configs, dict) else configs

    return IncrementalAlterConfigsResponse(
        responses=await alter(broker, call, request, decide, _Answer)
    )


async def alter(
    broker: Broker, call: Call, request: Any, decide: Callable[[Any], Entry | Refusal], answer: Any
) -> list[Any]:
    """Decide about every resource, do what can be done; the answers."""
    turns = Turns()
    answers, entries, altered = [], [], []
    async with broker.changes.turn:
        for wanted in request.resources:
            await turns.pause()
            kind, name = wanted.resource_type, wanted.resource_name
            made = answer(resource_type=kind, resource_name=name)
            answers.append(made)
            decided = decide(wanted)
            if isinstance(decided, tuple):
                made.error_code, made.error_message = decided
            else:
                entries.append(decided)
                altered.append({"resource": name, "kind": kind})
        if entries and not request.validate_only:
            await broker.changes.commit(entries)
            for which in altered:
                await turns.pause()
                broker.audit("configuration altered", user=call.session.principal, **which)
    return answers


def own_configs(broker: Broker, kind: int, name: str) -> dict[str, str] | Refusal:
    """What is set on a resource now."""
    if kind == TOPIC:
        topic = broker.catalogue.get(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
        return dict(topic.configs)
    if kind == BROKER:
        if name not in ("", str(broker.node_id)):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id}, but received {name}",
            )
        return dict(broker.catalogue.broker_configs)
    if kind == GROUP:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Group name must not be empty"
        return dict(broker.catalogue.group_configs.get(name, {}))
    return ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}"


def entry_for(broker: Broker, kind: int, name: str, configs: dict[str, str]) -> Entry | Refusal:
    """The journal entry that sets exactly these configurations."""
    if kind == TOPIC:
        return broker.catalogue.decide_configs(name, configs)
    check = check_broker_value if kind == BROKER else check_group_value
    try:
        for key, value in configs.items():
            check(key, value)
    except ConfigError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    if kind == BROKER:
        return {"kind": "broker_configs", "configs": configs}
    return {"kind": "group_configs", "group": name, "configs": configs}


def _changed(
    broker: Broker, kind: int, configs: dict[str, str], changes: Any
) -> dict[str, str] | Refusal:
    names = Counter(change.name for change in changes)
    for change in changes:
        if names[change.name] > 1:
            return ErrorCode.INVALID_REQUEST, f"Error due to duplicate config keys: {change.name}"
        if change.config_operation == _DELETE:
            configs.pop(change.name, None)
            continue
        if change.value is None:
            return ErrorCode.INVALID_REQUEST, f"Null value not supported for: {change.name}"
        if change.config_operation == _SET:
            configs[change.name] = change.value
        elif change.config_operation in (_APPEND, _SUBTRACT):
            if not _is_list(kind, change.name):
                return (
                    ErrorCode.INVALID_CONFIG,
                    f"Can't APPEND or SUBTRACT: {change.name} is not a list",
                )
            configs[change.name] = _with_items(broker, kind, configs, change)
        else:
            return ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation}"
    return configs


def _is_list(kind: int, name: str) -> bool:
    if kind == GROUP:
        return name in GROUP_CONFIGS and GROUP_CONFIGS[name][1] is ConfigType.LIST
    entry = TOPIC_CONFIGS.get(BROKER_NAMES.get(name, name) if kind == BROKER else name)
    return entry is not None and entry.type is ConfigType.LIST


def _with_items(broker: Broker, kind: int, configs: dict[str, str], change: _Change) -> str:
    topic_name = BROKER_NAMES.get(change.name, change.name) if kind == BROKER else change.name
    present = configs.get(change.name)
    if present is None:
        present = broker.catalogue.default(topic_name)
    items = [item for item in present.split(",") if item]
    named = [item for item in (change.value or "").split(",") if item]
    if change.config_operation == _APPEND:
        items += [item for item in named if item not in items]
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)


def refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, version: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            _Answer(
                error_code=code,
                resource_type=wanted.resource_type,
                resource_name=wanted.resource_name,
            )
            for wanted in request.resources
        ]
    )
