"""OffsetFetch: of one group (to v7), or of several (from v8), each by its coordinator.

Since v10 topics go by id; the names coordinators know are put in before, the ids after.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from shoal.access.resources import ResourceType
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import Gathering, ask, ask_each, in_elements
from shoal.errors import ErrorCode
from shoal.group.coordinator.refusals import refusal
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


refuse = refusal

_SEVERAL_FROM: Final = 8
_BY_ID_FROM: Final = 10


def handle(
    broker: Broker, call: Call, request: OffsetFetchRequest
) -> Generator[None, None, Deferred]:
    if call.api_version < _SEVERAL_FROM:
        return _ask_one(broker, call, request)
    by_id = call.api_version >= _BY_ID_FROM
    refused: list[OffsetFetchResponse.Group] = []
    wants_all = {group.group_id for group in request.groups if group.topics is None}

    def is_allowed(group: OffsetFetchRequest.Group) -> bool:
        code = call.check(ResourceType.GROUP, group.group_id)
        if code is not ErrorCode.NONE:
            refused.append(OffsetFetchResponse.Group(group_id=group.group_id, error_code=code))
        return code is ErrorCode.NONE

    def part(group: OffsetFetchRequest.Group) -> tuple[str, OffsetFetchRequest]:
        if by_id and group.topics is not None:
            for topic in group.topics:
                known = broker.catalogue.by_id(topic.topic_id)
                topic.name = known.name if known is not None else ""
        alone = OffsetFetchRequest(groups=[group], require_stable=request.require_stable)
        return group.group_id, alone

    def finish(replies: list[Any]) -> None:
        groups = [group for reply in replies for group in reply.groups]
        for group in groups:
            group.topics = _covered(call, group.topics, of_all=group.group_id in wants_all)
            if by_id:
                _put_ids(broker, group)
        call.answer(OffsetFetchResponse(groups=groups + refused))

    asked = filter(is_allowed, _each_once(request.groups))
    return (yield from ask_each(broker, call, map(part, asked), finish, _weight))


def _weight(response: OffsetFetchResponse) -> int:
    return sum(
        len(topic.partitions)
        + in_elements(sum(len(each.metadata or "") for each in topic.partitions))
        for group in response.groups
        for topic in group.topics
    ) + len(response.groups)


def _ask_one(broker: Broker, call: Call, request: OffsetFetchRequest) -> Deferred:
    def finish(replies: list[Any]) -> None:
        (reply,) = replies
        reply.topics = _covered(call, reply.topics, of_all=request.topics is None)
        call.answer(reply)

    gathering = Gathering(call, finish)
    ask(broker, call, request.group_id, request, gathering.ticket())
    return gathering.close()


def _covered(call: Call, topics: Iterable[Any], *, of_all: bool) -> list[Any]:
    """The answer without what this client may not see: left out, or as codes if it was named."""
    if of_all:
        return [topic for topic in topics if call.shows(ResourceType.TOPIC, topic.name)]
    told = list(topics)
    for topic in told:
        # One without a name is an id that stands for nothing.
        code = call.check(ResourceType.TOPIC, topic.name) if topic.name else ErrorCode.NONE
        if code is not ErrorCode.NONE:
            for each in topic.partitions:
                each.committed_offset, each.committed_leader_epoch = -1, -1
                each.metadata, each.error_code = "", code
    return told


def _each_once(groups: Iterable[OffsetFetchRequest.Group]) -> Iterator[OffsetFetchRequest.Group]:
    """All offsets of a group are told once, however often a few bytes ask for them."""
    told = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in told:
                continue
            told.add(group.group_id)
        yield group


def _put_ids(broker: Broker, group: OffsetFetchResponse.Group) -> None:
    kept = []
    for topic in group.topics:
        known = broker.catalogue.get(topic.name)
        if known is not None:
            topic.topic_id = known.id
        elif topic.name:
            # Offsets of a topic that is gone: an id cannot name it any more.
            continue
        else:
            for each in topic.partitions:
                each.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        kept.append(topic)
    group.topics = kept
