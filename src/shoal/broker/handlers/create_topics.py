"""CreateTopics: one journal entry per topic, answered when they are stored.

One node holds one replica: a replication factor above 1 is refused as Kafka refuses it when
there are too few brokers.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from shoal.access.resources import Operation, ResourceType
from shoal.broker.broker_configs import default_source
from shoal.broker.catalogue import Refusal
from shoal.broker.journal import Entry
from shoal.broker.slices import Turns
from shoal.broker.topic_configs import TOPIC_CONFIGS, ConfigSource
from shoal.errors import ErrorCode
from shoal.wire.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = CreateTopicsResponse.CreatableTopicResult

# Kafka's limit, so that one request does not stop everybody else's.
AT_ONCE_MAX: Final = 10_000


async def handle(broker: Broker, call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    names = Counter(topic.name for topic in request.topics)
    turns = Turns()
    results = []
    entries: list[Entry] = []
    partitions = 0
    async with broker.changes.turn:
        # One that is named twice is refused once.
        for topic in {topic.name: topic for topic in request.topics}.values():
            await turns.pause()
            if names[topic.name] > 1:
                decided: Entry | Refusal = (
                    ErrorCode.INVALID_REQUEST,
                    f"Duplicate topic name: {topic.name}",
                )
            elif (refused := call.check(ResourceType.TOPIC, topic.name)) is not ErrorCode.NONE:
                decided = refused, "Authorization failed."
            else:
                decided = _decide(broker, topic, beside=(len(entries), partitions))
            if not isinstance(decided, tuple) and partitions + decided["partitions"] > AT_ONCE_MAX:
                decided = (
                    ErrorCode.POLICY_VIOLATION,
                    f"One request may create {AT_ONCE_MAX} partitions, not more.",
                )
            counts = call.throttling is not None and not request.validate_only
            if not isinstance(decided, tuple) and counts:
                assert call.throttling is not None
                throttled = call.throttling.charge_mutations(call, decided["partitions"])
                if throttled is not ErrorCode.NONE:
                    decided = throttled, "The throttling quota has been exceeded."
            if isinstance(decided, tuple):
                code, text = decided
                results.append(_Result(name=topic.name, error_code=code, error_message=text))
                continue
            entries.append(decided)
            partitions += decided["partitions"]
            results.append(_created(broker, call, decided))
        if not request.validate_only and entries:
            await broker.changes.commit(entries)
            for entry in entries:
                await turns.pause()
                broker.audit("topic created", user=call.session.principal, topic=entry["name"])
    call.is_large = turns.taken > 0
    return CreateTopicsResponse(topics=results)


def _decide(
    broker: Broker, topic: CreateTopicsRequest.CreatableTopic, *, beside: tuple[int, int]
) -> Entry | Refusal:
    configs = {item.name: item.value for item in topic.configs}
    if any(value is None for value in configs.values()):
        return ErrorCode.INVALID_CONFIG, "a configuration value must not be null"
    partitions = topic.num_partitions
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            return (
                ErrorCode.INVALID_REQUEST,
                "Both the replica assignment and a count or factor were given.",
            )
        if fault := _assignment_fault(broker, topic):
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault
        partitions = len(topic.assignments)
    elif topic.replication_factor not in (-1, 1):
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {topic.replication_factor} time(s): "
            "this broker is one node without replication.",
        )
    elif partitions == -1:
        partitions = broker.config.topics.partitions
    plain = {name: value for name, value in configs.items() if value is not None}
    return broker.changes.decide_create(topic.name, partitions, plain, beside=beside)


def _assignment_fault(broker: Broker, topic: CreateTopicsRequest.CreatableTopic) -> str:
    indexes = sorted(item.partition_index for item in topic.assignments)
    if indexes != list(range(len(indexes))):
        return "partitions should be a consecutive 0-based integer sequence."
    if any(list(item.broker_ids) != [broker.node_id] for item in topic.assignments):
        return f"this broker is one node, {broker.node_id}; it holds the only replica."
    return ""


def _created(broker: Broker, call: Call, entry: Entry) -> _Result:
    if not call.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, entry["name"]):
        return _Result(
            name=entry["name"],
            topic_id=bytes.fromhex(entry["id"]),
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    return _Result(
        name=entry["name"],
        topic_id=bytes.fromhex(entry["id"]),
        num_partitions=entry["partitions"],
        replication_factor=1,
        configs=[
            CreateTopicsResponse.CreatableTopicConfigs(
                name=name,
                value=entry["configs"].get(name, broker.catalogue.default(name)),
                config_source=ConfigSource.DYNAMIC_TOPIC_CONFIG
                if name in entry["configs"]
                else default_source(broker, name),
            )
            for name in TOPIC_CONFIGS
        ],
    )


def refuse(request: CreateTopicsRequest, code: ErrorCode, version: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[_Result(name=topic.name, error_code=code) for topic in request.topics]
    )
