"""OffsetCommit: the coordinator decides about the group, this file about the partitions.

A position in a partition that does not exist is refused here, one by one; the rest goes to the
coordinator. Since v10 topics come by id; coordinators know names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shoal.broker.handlers.group_request import ask
from shoal.broker.topics import Topic
from shoal.errors import ErrorCode
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


_Topic = OffsetCommitResponse.Topic
_Partition = OffsetCommitResponse.Partition


class _Merge:
    """Puts the coordinator's answers between the refusals made before."""

    def __init__(self, call: Call, refused: dict[tuple[int, int], ErrorCode], asked: Any) -> None:
        self._call = call
        self._refused = refused
        self._asked = asked

    def reply(self, response: OffsetCommitResponse) -> None:
        answers = {
            (topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        self._call.reply(
            OffsetCommitResponse(
                topics=[
                    _Topic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            _Partition(
                                partition_index=each.partition_index,
                                error_code=self._refused.get((number, each.partition_index))
                                or answers[topic.name, each.partition_index],
                            )
                            for each in topic.partitions
                        ],
                    )
                    for number, topic in enumerate(self._asked)
                ]
            )
        )


def handle(broker: Broker, call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    by_id = call.api_version >= 10
    refused: dict[tuple[int, int], ErrorCode] = {}
    asked = request.topics
    accepted = []
    for number, topic in enumerate(asked):
        known = (
            broker.catalogue.by_id(topic.topic_id) if by_id else broker.catalogue.get(topic.name)
        )
        if known is not None:
            topic.name = known.name
        kept = []
        for each in topic.partitions:
            fault = _fault(known, each.partition_index, by_id=by_id)
            if fault is ErrorCode.NONE:
                kept.append(each)
            else:
                refused[number, each.partition_index] = fault
        if kept:
            accepted.append(
                OffsetCommitRequest.Topic(name=topic.name, topic_id=topic.topic_id, partitions=kept)
            )
    ticket: Any = call
    if refused:
        request.topics = accepted
        ticket = _Merge(call, refused, asked)
    error = ask(broker, call, request.group_id, request, ticket)
    return refuse(request, error, call.api_version) if error else None


def _fault(topic: Topic | None, index: int, *, by_id: bool) -> ErrorCode:
    if topic is None and by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if topic is None or not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def refuse(request: OffsetCommitRequest, code: ErrorCode, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            _Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _Partition(partition_index=each.partition_index, error_code=code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
