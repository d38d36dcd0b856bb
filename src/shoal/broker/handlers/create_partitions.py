"""CreatePartitions: partitions only ever grow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from shoal.broker.catalogue import Refusal
from shoal.broker.journal import Entry
from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = CreatePartitionsResponse.TopicResult


async def handle(
    broker: Broker, call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    names = Counter(topic.name for topic in request.topics)
    turns = Turns()
    results = []
    entries = []
    added = 0
    async with broker.changes.turn:
        # One that is named twice is refused once.
        for topic in {topic.name: topic for topic in request.topics}.values():
            await turns.pause()
            if names[topic.name] > 1:
                decided: Entry | Refusal = ErrorCode.INVALID_REQUEST, "Duplicate topic in request."
            elif (found := call.topic(topic.name)) is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                decided = found, ""
            else:
                decided = _decide(broker, topic, beside=added)
            counts = call.throttling is not None and not request.validate_only
            if not isinstance(decided, tuple) and counts:
                assert call.throttling is not None
                more = decided["partitions"] - _count(broker, topic.name)
                throttled = call.throttling.charge_mutations(call, more)
                if throttled is not ErrorCode.NONE:
                    decided = throttled, "The throttling quota has been exceeded."
            if isinstance(decided, tuple):
                code, text = decided
                result = _Result(name=topic.name, error_code=code)
                if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    result.error_message = text or None
                results.append(result)
                continue
            entries.append(decided)
            added += decided["partitions"] - _count(broker, topic.name)
            results.append(_Result(name=topic.name))
        if entries and not request.validate_only:
            await broker.changes.commit(entries)
            for entry in entries:
                await turns.pause()
                broker.audit(
                    "partitions added",
                    user=call.session.principal,
                    topic=entry["name"],
                    partitions=entry["partitions"],
                )
    return CreatePartitionsResponse(results=results)


def _count(broker: Broker, name: str) -> int:
    topic = broker.catalogue.get(name)
    assert topic is not None
    return topic.partition_count


def _decide(
    broker: Broker, wanted: CreatePartitionsRequest.Topic, *, beside: int
) -> Entry | Refusal:
    decided = broker.catalogue.decide_partitions(wanted.name, wanted.count, beside=beside)
    if isinstance(decided, tuple) or wanted.assignments is None:
        return decided
    added = wanted.count - _count(broker, wanted.name)
    if len(wanted.assignments) != added:
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} partitions with {len(wanted.assignments)} assignments.",
        )
    if any(list(item.broker_ids) != [broker.node_id] for item in wanted.assignments):
        return (
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"this broker is one node, {broker.node_id}; it holds the only replica.",
        )
    return decided


def refuse(
    request: CreatePartitionsRequest, code: ErrorCode, version: int
) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[_Result(name=topic.name, error_code=code) for topic in request.topics]
    )
