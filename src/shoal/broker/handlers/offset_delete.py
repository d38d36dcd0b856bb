"""OffsetDelete: the group's coordinator decides (``group/``), this file about the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.broker.catalogue import Topic
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import Gathering, ask
from shoal.errors import ErrorCode
from shoal.wire.apis.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


def handle(broker: Broker, call: Call, request: OffsetDeleteRequest) -> Deferred:
    """Positions in partitions that do not exist are refused one by one, as they are committed."""
    found = {topic.name: call.topic(topic.name) for topic in request.topics}
    known = OffsetDeleteRequest(
        group_id=request.group_id,
        topics=[
            OffsetDeleteRequest.Topic(name=topic.name, partitions=partitions)
            for topic in request.topics
            if (partitions := [p for p in topic.partitions if _exists(found[topic.name], p)])
        ],
    )

    def finish(replies: list[Any]) -> None:
        call.reply(_merged(request, replies[0], found))

    gathering = Gathering(call, finish)
    ask(broker, call, request.group_id, known, gathering.ticket())
    return gathering.close()


def _exists(topic: Topic | ErrorCode, wanted: OffsetDeleteRequest.Partition) -> bool:
    return isinstance(topic, Topic) and 0 <= wanted.partition_index < topic.partition_count


def _merged(
    asked: OffsetDeleteRequest,
    answer: OffsetDeleteResponse,
    found: dict[str, Topic | ErrorCode],
) -> OffsetDeleteResponse:
    """The coordinator's answers, and for what it was not asked why not."""
    if answer.error_code:
        return answer
    codes = {
        (topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }

    def fault(name: str) -> ErrorCode:
        topic = found[name]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return topic if isinstance(topic, ErrorCode) else unknown

    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponse.Topic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponse.Partition(
                        partition_index=each.partition_index,
                        error_code=codes.get((topic.name, each.partition_index), fault(topic.name)),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in asked.topics
            if topic.partitions
        ]
    )
