"""DeleteTopics: by name or by id (v6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DeleteTopicsResponse.DeletableTopicResult


async def handle(broker: Broker, call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    wanted = _wanted(request, call.api_version)
    results = []
    entries = []
    named: set[str] = set()
    turns = Turns()
    for name, topic_id in wanted:
        await turns.pause()
        topic = broker.catalogue.get(name) if name is not None else broker.catalogue.by_id(topic_id)
        result = _Result(name=name, topic_id=topic_id)
        results.append(result)
        if topic is None and name is None:
            result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            continue
        full_name = topic.name if topic is not None else (name or "")
        if full_name in named:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "Duplicate topic name."
            continue
        named.add(full_name)
        decided = broker.catalogue.decide_delete(full_name)
        if isinstance(decided, tuple):
            result.error_code, result.error_message = decided
            continue
        assert topic is not None
        result.name, result.topic_id = topic.name, topic.id
        entries.append(decided)
    if entries:
        await broker.changes.commit(entries)
        for entry in entries:
            await turns.pause()
            broker.audit("topic deleted", user=call.session.principal, topic=entry["name"])
    return DeleteTopicsResponse(responses=results)


def _wanted(request: DeleteTopicsRequest, version: int) -> list[tuple[str | None, bytes]]:
    if version < 6:
        return [(name, ZERO_UUID) for name in request.topic_names]
    return [(topic.name, topic.topic_id) for topic in request.topics]


def refuse(request: DeleteTopicsRequest, code: ErrorCode, version: int) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            _Result(name=name, topic_id=topic_id, error_code=code)
            for name, topic_id in _wanted(request, version)
        ]
    )
