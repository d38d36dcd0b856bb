"""OffsetCommit: the coordinator decides about the group, this file about the partitions.

A position in a partition that does not exist is refused here, one by one; the rest goes to the
coordinator. Since v10 topics come by id; coordinators know names.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.broker.catalogue import Topic
from shoal.broker.handlers import Deferred
from shoal.broker.handlers.group_request import ask, ask_each
from shoal.errors import ErrorCode
from shoal.group.coordinator.refusals import refusal
from shoal.wire.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call


# A commit of more is decided and journaled in parts, and the loop is given away between them.
_PARTITIONS_AT_ONCE: Final = 500

_Asked = OffsetCommitRequest.Topic
_Topic = OffsetCommitResponse.Topic
_Partition = OffsetCommitResponse.Partition

refuse = refusal


def handle(
    broker: Broker, call: Call, request: OffsetCommitRequest
) -> Generator[None, None, Deferred]:
    refused: dict[tuple[int, int], ErrorCode] = {}
    asked = request.topics
    accepted = yield from _accepted(call, asked, refused)
    parts = list(_parts(accepted))
    if len(parts) == 1 and not refused:
        return ask(broker, call, request.group_id, request)

    def part(topics: list[_Asked]) -> tuple[str, OffsetCommitRequest]:
        alone = OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )
        return request.group_id, alone

    return (
        yield from ask_each(
            broker,
            call,
            map(part, parts),
            lambda replies: call.answer(_merged(asked, refused, replies)),
        )
    )


def _accepted(
    call: Call,
    asked: Sequence[_Asked],
    refused: dict[tuple[int, int], ErrorCode],
) -> Generator[None, None, list[_Asked]]:
    """What the coordinator is asked about; the others are noted in ``refused``."""
    by_id = call.api_version >= 10
    accepted = []
    seen = 0
    for number, topic in enumerate(asked):
        known = call.topic(topic.topic_id if by_id else topic.name)
        if isinstance(known, Topic):
            topic.name = known.name
        kept = []
        for each in topic.partitions:
            fault = _fault(known, each.partition_index)
            if fault is ErrorCode.NONE:
                kept.append(each)
            else:
                refused[number, each.partition_index] = fault
            seen += 1
            if seen % _PARTITIONS_AT_ONCE == 0:
                yield
        if kept:
            accepted.append(_Asked(name=topic.name, topic_id=topic.topic_id, partitions=kept))
    return accepted


def _parts(topics: Sequence[_Asked]) -> Iterator[list[_Asked]]:
    """The topics in lists of a bounded number of partitions; one empty list if there are none."""
    part: list[_Asked] = []
    room = _PARTITIONS_AT_ONCE
    for topic in topics:
        rest = topic.partitions
        while rest:
            taken, rest = rest[:room], rest[room:]
            part.append(_Asked(name=topic.name, topic_id=topic.topic_id, partitions=taken))
            room -= len(taken)
            if not room:
                yield part
                part, room = [], _PARTITIONS_AT_ONCE
    if part or not topics:
        yield part


def _merged(
    asked: Sequence[_Asked], refused: dict[tuple[int, int], ErrorCode], replies: list[Any]
) -> OffsetCommitResponse:
    """The coordinator's answers between the refusals made before, in the order of the request."""
    answers = {
        (topic.name, each.partition_index): each.error_code
        for reply in replies
        for topic in reply.topics
        for each in topic.partitions
    }
    return OffsetCommitResponse(
        topics=[
            _Topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    _Partition(
                        partition_index=each.partition_index,
                        error_code=refused.get((number, each.partition_index))
                        or answers[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for number, topic in enumerate(asked)
        ]
    )


def _fault(topic: Topic | ErrorCode, index: int) -> ErrorCode:
    if isinstance(topic, ErrorCode):
        return topic
    if not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE
