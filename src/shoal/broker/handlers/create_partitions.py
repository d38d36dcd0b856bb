"""CreatePartitions: partitions only ever grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.journal import Entry
from shoal.broker.topics import Refusal
from shoal.errors import ErrorCode
from shoal.wire.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = CreatePartitionsResponse.TopicResult


async def handle(
    broker: Broker, call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    results = []
    entries = []
    names = [topic.name for topic in request.topics]
    for topic in request.topics:
        if names.count(topic.name) > 1:
            decided: Entry | Refusal = ErrorCode.INVALID_REQUEST, "Duplicate topic in request."
        else:
            decided = _decide(broker, topic)
        if isinstance(decided, tuple):
            results.append(
                _Result(name=topic.name, error_code=decided[0], error_message=decided[1])
            )
        else:
            entries.append(decided)
            results.append(_Result(name=topic.name))
    if entries and not request.validate_only:
        await broker.changes.commit(entries)
    return CreatePartitionsResponse(results=results)


def _decide(broker: Broker, wanted: CreatePartitionsRequest.Topic) -> Entry | Refusal:
    decided = broker.catalogue.decide_partitions(wanted.name, wanted.count)
    if isinstance(decided, tuple) or wanted.assignments is None:
        return decided
    topic = broker.catalogue.get(wanted.name)
    assert topic is not None
    added = wanted.count - topic.partition_count
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
