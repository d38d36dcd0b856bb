"""DescribeConfigs: of topics, of this broker, of groups.

The message beside a good answer is empty, not null, as Kafka's is.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.broker.broker_configs import (
    Shown,
    broker_rows,
    cluster_rows,
    default_source,
    default_synonyms,
    group_rows,
)
from shoal.broker.catalogue import Topic, name_problem
from shoal.broker.door import REFUSAL_TEXTS
from shoal.broker.handlers.list_config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
    authorized_name,
    resource_of,
)
from shoal.broker.memory import TOO_MUCH, TOO_MUCH_TEXT
from shoal.broker.telemetry_subscriptions import subscription_rows
from shoal.broker.topic_configs import TOPIC_CONFIGS, ConfigSource
from shoal.errors import ErrorCode
from shoal.wire.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DescribeConfigsResponse.Result
_Row = DescribeConfigsResponse.ResourceResult


def handle(
    broker: Broker, call: Call, request: DescribeConfigsRequest
) -> Generator[None, None, DescribeConfigsResponse]:
    results = []
    for (kind, name), keys in _asked(request).items():
        refused = call.check(resource_of(kind), authorized_name(kind, name))
        if refused is ErrorCode.NONE:
            result = _describe(broker, kind, name, keys, request)
        else:
            result = _Result(resource_type=kind, resource_name=name, error_code=refused)
            result.error_message = REFUSAL_TEXTS[refused]
        if not call.spend(1 + sum(1 + len(row.synonyms) for row in result.configs)):
            result = _Result(resource_type=kind, resource_name=name)
            result.error_code, result.error_message = TOO_MUCH, TOO_MUCH_TEXT
        results.append(result)
        yield
    return DescribeConfigsResponse(results=results)


def _asked(request: DescribeConfigsRequest) -> dict[tuple[int, str], set[str] | None]:
    """Each resource once, with all keys that are asked of it; None stands for every key."""
    asked: dict[tuple[int, str], set[str] | None] = {}
    for wanted in request.resources:
        resource = wanted.resource_type, wanted.resource_name
        keys = wanted.configuration_keys
        known = asked.setdefault(resource, set())
        asked[resource] = known.union(keys) if keys and known is not None else None
    return asked


def _describe(
    broker: Broker, kind: int, name: str, keys: set[str] | None, request: DescribeConfigsRequest
) -> _Result:
    found = _rows(broker, kind, name)
    result = _Result(resource_type=kind, resource_name=name)
    if isinstance(found, tuple):
        result.error_code, result.error_message = found
        return result
    result.error_message = ""
    result.configs = [
        _Row(
            name=row.name,
            value=row.value,
            read_only=row.read_only,
            config_source=row.source,
            is_sensitive=row.is_sensitive,
            synonyms=[
                DescribeConfigsResponse.Synonym(name=name, value=value, source=source)
                for name, value, source in row.synonyms
            ]
            if request.include_synonyms
            else (),
            config_type=row.type,
            documentation=row.about if request.include_documentation else None,
        )
        for row in found
        if keys is None or row.name in keys
    ]
    return result


def _rows(broker: Broker, kind: int, name: str) -> list[Shown] | tuple[ErrorCode, str]:
    if kind == TOPIC:
        topic = broker.catalogue.get(name)
        if topic is None:
            invalid = name_problem(name)
            if invalid:
                return ErrorCode.INVALID_TOPIC_EXCEPTION, invalid
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""
        return [_topic_row(broker, topic, config) for config in TOPIC_CONFIGS]
    if kind in (BROKER, BROKER_LOGGER):
        if name not in ("", str(broker.node_id)):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id}, but received {name}",
            )
        if kind == BROKER_LOGGER:
            return []
        # The resource without a name stands for all brokers.
        return broker_rows(broker) if name else cluster_rows(broker)
    if kind == GROUP:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Group name must not be empty"
        return group_rows(broker, name)
    if kind == CLIENT_METRICS:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
        return subscription_rows(broker.catalogue.client_metrics.get(name, {}))
    return ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}"


def _topic_row(broker: Broker, topic: Topic, name: str) -> Shown:
    entry = TOPIC_CONFIGS[name]
    synonyms = default_synonyms(broker, name)
    own = topic.configs.get(name)
    if own is not None:
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        return Shown(
            name, own, entry.type, source, False, entry.about, ((name, own, source), *synonyms)
        )
    source = default_source(broker, name)
    value = broker.catalogue.default(name)
    return Shown(name, value, entry.type, source, False, entry.about, synonyms)


def refuse(
    request: DescribeConfigsRequest, code: ErrorCode, version: int
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            _Result(
                error_code=code,
                resource_type=wanted.resource_type,
                resource_name=wanted.resource_name,
            )
            for wanted in request.resources
        ]
    )
