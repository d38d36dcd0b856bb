"""IncrementalAlterConfigs: set, delete, append, subtract (KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from shoal.broker.broker_configs import (
    GROUP_CONFIGS,
    broker_fault,
    check_group_values,
)
from shoal.broker.catalogue import Refusal
from shoal.broker.door import REFUSAL_TEXTS
from shoal.broker.handlers.list_config_resources import (
    BROKER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    authorized_name,
    resource_of,
)
from shoal.broker.journal import Entry
from shoal.broker.slices import Turns
from shoal.broker.telemetry_subscriptions import subscription_fault
from shoal.broker.topic_configs import (
    BROKER_NAMES,
    CLUSTER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigType,
    segment_fault,
)
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
TWICE: Final = (ErrorCode.INVALID_REQUEST, "each resource must appear at most once")
DUPLICATE_KEYS: Final = (ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def null_value(name: str) -> Refusal:
    return ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}"


async def handle(
    broker: Broker, call: Call, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    keys = Counter((wanted.resource_type, wanted.resource_name) for wanted in request.resources)

    def decide(wanted: IncrementalAlterConfigsRequest.AlterConfigsResource) -> Entry | Refusal:
        kind, name = wanted.resource_type, wanted.resource_name
        if keys[kind, name] > 1:
            return TWICE
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
            refused = call.check(resource_of(kind), authorized_name(kind, name))
            decided = (
                decide(wanted) if refused is ErrorCode.NONE else (refused, REFUSAL_TEXTS[refused])
            )
            if isinstance(decided, tuple):
                made.error_code, made.error_message = decided[0], decided[1] or None
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
        return {} if topic is None else dict(topic.configs)
    if kind == BROKER:
        if name not in ("", str(broker.node_id)):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id}, but received {name}",
            )
        catalogue = broker.catalogue
        return dict(catalogue.broker_configs if name else catalogue.cluster_configs)
    if kind == GROUP:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Group name must not be empty"
        return dict(broker.catalogue.group_configs.get(name, {}))
    if kind == CLIENT_METRICS:
        return dict(broker.catalogue.client_metrics.get(name, {}))
    return ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}"


def entry_for(broker: Broker, kind: int, name: str, configs: dict[str, str]) -> Entry | Refusal:
    """The journal entry that sets exactly these configurations."""
    if kind == TOPIC:
        return broker.catalogue.decide_configs(name, configs)
    if kind == BROKER:
        return _broker_entry(broker, name, configs)
    if kind == CLIENT_METRICS:
        fault = subscription_fault(name, configs)
        return fault or {"kind": "client_metrics", "name": name, "configs": configs}
    try:
        check_group_values(configs, broker.config.groups)
    except ConfigError as error:
        return ErrorCode.INVALID_CONFIG, str(error)
    return {"kind": "group_configs", "group": name, "configs": configs}


def _broker_entry(broker: Broker, name: str, configs: dict[str, str]) -> Entry | Refusal:
    for key, value in configs.items():
        least = broker.config.limits.segment_bytes_min
        if fault := broker_fault(key, value) or segment_fault(key, value, least):
            return ErrorCode.INVALID_REQUEST, fault
    kept = next(iter(CLUSTER_CONFIGS))
    if name and kept in configs:
        return ErrorCode.INVALID_CONFIG, f"Broker-level {kept} cannot be altered."
    if not name and kept not in configs:
        return ErrorCode.INVALID_CONFIG, f"Cluster-level {kept} cannot be removed."
    return {"kind": "broker_configs" if name else "cluster_configs", "configs": configs}


def _changed(
    broker: Broker, kind: int, configs: dict[str, str], changes: Any
) -> dict[str, str] | Refusal:
    names = Counter(change.name for change in changes)
    for change in changes:
        if names[change.name] > 1:
            return DUPLICATE_KEYS
        if change.config_operation == _DELETE:
            configs.pop(change.name, None)
            continue
        if change.value is None:
            return null_value(change.name)
        if change.config_operation == _SET:
            configs[change.name] = change.value
        elif change.config_operation in (_APPEND, _SUBTRACT):
            if not _is_list(kind, change.name):
                return (
                    ErrorCode.INVALID_CONFIG,
                    f"Can't APPEND or SUBTRACT: {change.name} is not a list",
                )
            if change.config_operation == _APPEND and not change.value:
                return ErrorCode.INVALID_CONFIG, f"{change.name}: an item must not be empty"
            configs[change.name] = _with_items(broker, kind, configs, change)
        else:
            if kind == BROKER:
                return ErrorCode.INVALID_REQUEST, f"Unknown operation {change.config_operation}"
            # Kafka's controller trips over it.
            return ErrorCode.UNKNOWN_SERVER_ERROR, ""
    return configs


def _is_list(kind: int, name: str) -> bool:
    if kind == CLIENT_METRICS:
        return name in ("match", "metrics")
    if kind == GROUP:
        return name in GROUP_CONFIGS and GROUP_CONFIGS[name].type is ConfigType.LIST
    entry = TOPIC_CONFIGS.get(BROKER_NAMES.get(name, name) if kind == BROKER else name)
    return entry is not None and entry.type is ConfigType.LIST


def _with_items(broker: Broker, kind: int, configs: dict[str, str], change: _Change) -> str:
    topic_name = BROKER_NAMES.get(change.name, change.name) if kind == BROKER else change.name
    present = configs.get(change.name)
    if present is None and kind == CLIENT_METRICS:
        present = ""
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
