"""DeleteTopics: by name or by id (v6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.broker.journal import Entry
from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DeleteTopicsResponse.DeletableTopicResult


async def handle(broker: Broker, call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    turns = Turns()
    async with broker.changes.turn:
        entries: dict[str, Entry | None] = {}
        results = []
        for name, topic_id in _wanted(request, call.api_version):
            await turns.pause()
            results.append(_decide(broker, name, topic_id, entries))
        doomed = [entry for entry in entries.values() if entry is not None]
        if doomed:
            await broker.changes.commit(doomed)
            for entry in doomed:
                await turns.pause()
                broker.audit("topic deleted", user=call.session.principal, topic=entry["name"])
    return DeleteTopicsResponse(responses=results)


def _decide(
    broker: Broker, name: str | None, topic_id: bytes, entries: dict[str, Entry | None]
) -> _Result:
    """The answer; ``entries`` are those of the topics named so far, None for one that stays."""
    topic = broker.catalogue.get(name) if name is not None else broker.catalogue.by_id(topic_id)
    result = _Result(name=name, topic_id=topic_id)
    if topic is None and name is None:
        result.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        return result
    full_name = topic.name if topic is not None else (name or "")
    if full_name in entries:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = "Duplicate topic name."
        return result
    decided = broker.catalogue.decide_delete(full_name)
    if isinstance(decided, tuple):
        entries[full_name] = None
        result.error_code, result.error_message = decided
        return result
    assert topic is not None
    result.name, result.topic_id = topic.name, topic.id
    entries[full_name] = decided
    return result


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
