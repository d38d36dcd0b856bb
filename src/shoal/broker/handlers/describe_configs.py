"""DescribeConfigs: of topics, of this broker, of groups.

A topic shows ``min.insync.replicas`` as set although nobody set it: so do Kafka's topics since
KIP-966, and tools compare.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from shoal.broker.broker_configs import Shown, broker_rows, default_synonyms, group_rows
from shoal.broker.handlers.list_config_resources import (
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    GROUP,
    TOPIC,
)
from shoal.broker.topic_configs import TOPIC_CONFIGS, ConfigSource
from shoal.broker.topics import Topic, name_problem
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
    for wanted in request.resources:
        results.append(_describe(broker, wanted, request))
        yield
    return DescribeConfigsResponse(results=results)


def _describe(
    broker: Broker, wanted: DescribeConfigsRequest.Resource, request: DescribeConfigsRequest
) -> _Result:
    found = _rows(broker, wanted.resource_type, wanted.resource_name)
    result = _Result(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    if isinstance(found, tuple):
        result.error_code, result.error_message = found
        return result
    keys = wanted.configuration_keys
    result.configs = [
        _Row(
            name=row.name,
            value=row.value,
            read_only=row.read_only,
            config_source=row.source,
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
        if not keys or row.name in keys
    ]
    return result


def _rows(broker: Broker, kind: int, name: str) -> list[Shown] | tuple[ErrorCode, str]:
    if kind == TOPIC:
        topic = broker.catalogue.get(name)
        if topic is None:
            invalid = name_problem(name)
            if invalid:
                return ErrorCode.INVALID_TOPIC_EXCEPTION, invalid
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic '{name}' does not exist."
        return [_topic_row(broker, topic, config) for config in TOPIC_CONFIGS]
    if kind in (BROKER, BROKER_LOGGER):
        if name not in ("", str(broker.node_id)):
            return (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.node_id}, but received {name}",
            )
        if kind == BROKER_LOGGER:
            return []
        rows = broker_rows(broker)
        # The resource without a name stands for all brokers: what was set, nothing else.
        return rows if name else []
    if kind == GROUP:
        if not name:
            return ErrorCode.INVALID_REQUEST, "Group name must not be empty"
        return group_rows(broker, name)
    if kind == CLIENT_METRICS:
        return []
    return ErrorCode.INVALID_REQUEST, f"Unsupported resource type {kind}"


def _topic_row(broker: Broker, topic: Topic, name: str) -> Shown:
    entry = TOPIC_CONFIGS[name]
    synonyms = default_synonyms(broker, name)
    own = topic.configs.get(name)
    if own is None and name == "min.insync.replicas":
        own = synonyms[0][1]
    if own is not None:
        source = ConfigSource.DYNAMIC_TOPIC_CONFIG
        return Shown(
            name, own, entry.type, source, False, entry.about, ((name, own, source), *synonyms)
        )
    _, value, source = synonyms[0]
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
