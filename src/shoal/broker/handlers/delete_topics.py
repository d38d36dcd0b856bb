"""DeleteTopics: by name or by id (v6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from shoal.access.resources import Operation, ResourceType
from shoal.broker.catalogue import Topic
from shoal.broker.journal import Entry
from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Result = DeleteTopicsResponse.DeletableTopicResult
_Wanted = tuple[str | None, bytes]
"""Name and id, as they were asked for."""


async def handle(broker: Broker, call: Call, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    turns = Turns()
    async with broker.changes.turn:
        entries: list[Entry] = []
        results = []
        for wanted in _plausible(broker, call, _wanted(request, call.api_version)):
            await turns.pause()
            results.append(_decide(broker, call, wanted, entries))
        if entries:
            await broker.changes.commit(entries)
            for entry in entries:
                await turns.pause()
                broker.audit("topic deleted", user=call.session.principal, topic=entry["name"])
    return DeleteTopicsResponse(responses=results)


def _plausible(broker: Broker, call: Call, wanted: list[_Wanted]) -> Iterator[_Result]:
    """One answer for each topic. One that is named twice, or by name and by id, stays."""

    def own_topic(name: str) -> Topic | None:
        """What a name stands for; nothing, for those who may not delete it."""
        return broker.catalogue.get(name) if call.shows(ResourceType.TOPIC, name) else None

    counts = Counter(wanted)
    by_id = {topic_id for name, topic_id in counts if name is None}
    by_name = {
        topic.id
        for (name, topic_id), count in counts.items()
        if name is not None and topic_id == ZERO_UUID and count == 1
        if (topic := own_topic(name)) is not None
    }
    for (name, topic_id), count in counts.items():
        is_named, has_id = name is not None, topic_id != ZERO_UUID
        own = own_topic(name) if name is not None else None
        if is_named and has_id:
            refused = [
                _refused(name, topic_id, "You may not specify both topic name and topic id.")
            ]
            yield from refused * count
        elif not is_named and not has_id:
            refused = [_refused(name, topic_id, "Neither topic name nor id were specified.")]
            yield from refused * count
        elif count > 1:
            kind = "name" if is_named else "id"
            yield _refused(name, topic_id, f"Duplicate topic {kind}.")
        elif own is not None and own.id in by_id:
            text = "The provided topic name maps to an ID that was already supplied."
            yield _refused(name, own.id, text)
        elif topic_id not in by_name:  # else its name has the answer
            yield _Result(name=name, topic_id=topic_id)


def _refused(name: str | None, topic_id: bytes, text: str) -> _Result:
    code = ErrorCode.INVALID_REQUEST
    return _Result(name=name, topic_id=topic_id, error_code=code, error_message=text)


def _decide(broker: Broker, call: Call, result: _Result, entries: list[Entry]) -> _Result:
    """The answer; what is to be done about it is added to ``entries``."""
    if result.error_code:
        return result
    topic = call.topic(result.topic_id if result.name is None else result.name)
    if isinstance(topic, ErrorCode) and (
        result.name is None or topic is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    ):
        result.error_code = topic
        if topic is ErrorCode.TOPIC_AUTHORIZATION_FAILED and result.name is None:
            result.name = _told_name(broker, call, result.topic_id)
        return result
    decided = broker.catalogue.decide_delete(
        topic.name if isinstance(topic, Topic) else result.name or ""
    )
    if isinstance(decided, tuple):
        result.error_code, result.error_message = decided
        return result
    assert isinstance(topic, Topic)
    if call.throttling is not None:
        throttled = call.throttling.charge_mutations(call, topic.partition_count)
        if throttled is not ErrorCode.NONE:
            result.error_code = throttled
            result.error_message = "The throttling quota has been exceeded."
            return result
    result.name, result.topic_id = topic.name, topic.id
    entries.append(decided)
    return result


def _told_name(broker: Broker, call: Call, topic_id: bytes) -> str | None:
    """The name behind an id, for those who may see it."""
    topic = broker.catalogue.by_id(topic_id)
    if topic is None or not call.may(Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        return None
    return topic.name


def _wanted(request: DeleteTopicsRequest, version: int) -> list[_Wanted]:
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
