"""OffsetFetch: of one group (to v7), or of several (from v8), each by its coordinator.

Since v10 topics go by id; the names coordinators know are put in before, the ids after.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import ask, ask_each
from shoal.errors import ErrorCode
from shoal.group.refusals import refusal
from shoal.wire.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


refuse = refusal


def handle(broker: Broker, call: Call, request: OffsetFetchRequest) -> Generator[None, None, None]:
    if call.api_version < 8:
        ask(broker, call, request.group_id, request)
        return
    by_id = call.api_version >= 10

    def part(group: OffsetFetchRequest.Group) -> tuple[str, OffsetFetchRequest]:
        if by_id and group.topics is not None:
            for topic in group.topics:
                known = broker.catalogue.by_id(topic.topic_id)
                topic.name = known.name if known is not None else ""
        alone = OffsetFetchRequest(groups=[group], require_stable=request.require_stable)
        return group.group_id, alone

    def finish(replies: list[Any]) -> None:
        groups = [group for reply in replies for group in reply.groups]
        if by_id:
            for group in groups:
                _put_ids(broker, group)
        call.answer(OffsetFetchResponse(groups=groups))

    yield from ask_each(broker, call, map(part, request.groups), finish)


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
