"""Metadata: the one node, and the topics a client asks for.

Topics may be created here, by being asked for. The answer comes when they exist, so that the
first record of a new topic needs no retry.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from shoal.broker.slices import Turns
from shoal.broker.topics import Topic, name_problem
from shoal.errors import ErrorCode
from shoal.wire.apis.metadata import MetadataRequest, MetadataResponse
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

# Every operation Kafka knows for the resource, as bits: nobody is restricted yet.
TOPIC_OPERATIONS: Final = 0b1101_1111_1000
CLUSTER_OPERATIONS: Final = 0b1_1111_1010_0000
GROUP_OPERATIONS: Final = 0b1101_0100_1000
_PARTITIONS_AT_ONCE: Final = 100
_TOPICS_AT_ONCE: Final = 50

_Described = Generator[None, None, MetadataResponse.Topic]


def handle(
    broker: Broker, call: Call, request: MetadataRequest
) -> Generator[None, None, MetadataResponse | None]:
    missing = _to_create(broker, call, request)
    if missing:
        broker.changes.create_missing(missing, lambda: _answer_later(broker, call, request))
        return None
    return (yield from _answer(broker, call, request))


def _answer_later(broker: Broker, call: Call, request: MetadataRequest) -> None:
    """The topics that were missing are there now, or cannot be made."""

    async def answer() -> None:
        turns = Turns()
        steps = _answer(broker, call, request)
        try:
            while True:
                next(steps)
                await turns.pause()
        except StopIteration as finished:
            call.reply(finished.value)

    broker.spawn(answer())


def _wants_all(call: Call, request: MetadataRequest) -> bool:
    return request.topics is None or (call.api_version == 0 and not request.topics)


def _to_create(broker: Broker, call: Call, request: MetadataRequest) -> list[str]:
    if not broker.config.topics.auto_create or _wants_all(call, request):
        return []
    if call.api_version >= 4 and not request.allow_auto_topic_creation:
        return []
    return [
        topic.name
        for topic in request.topics or ()
        if topic.name and topic.name not in broker.catalogue and not name_problem(topic.name)
    ]


def _answer(
    broker: Broker, call: Call, request: MetadataRequest
) -> Generator[None, None, MetadataResponse]:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else -(1 << 31)
    if _wants_all(call, request):
        walks = (_described(broker, topic, operations) for topic in list(broker.catalogue))
    else:
        walks = (_wanted(broker, wanted, operations) for wanted in request.topics or ())
    topics: list[MetadataResponse.Topic] = []
    for walk in walks:
        described = yield from walk
        topics.append(described)
        if len(topics) % _TOPICS_AT_ONCE == 0:
            yield
    host, port = broker.advertised(call.connection)
    node = MetadataResponse.Broker(
        node_id=broker.node_id, host=host, port=port, rack=broker.config.rack
    )
    response = MetadataResponse(
        brokers=[node],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response


def _wanted(broker: Broker, wanted: MetadataRequest.Topic, operations: int) -> _Described:
    if wanted.name is None:
        topic = broker.catalogue.by_id(wanted.topic_id)
        if topic is None:
            return MetadataResponse.Topic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=wanted.topic_id
            )
        return (yield from _described(broker, topic, operations))
    topic = broker.catalogue.get(wanted.name)
    if topic is not None:
        return (yield from _described(broker, topic, operations))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    return MetadataResponse.Topic(
        error_code=invalid if name_problem(wanted.name) else unknown,
        name=wanted.name,
        topic_id=ZERO_UUID,
    )


def _described(broker: Broker, topic: Topic, operations: int) -> _Described:
    node = (broker.node_id,)
    partitions = []
    for index in range(topic.partition_count):
        if index % _PARTITIONS_AT_ONCE == _PARTITIONS_AT_ONCE - 1:
            yield
        partitions.append(
            MetadataResponse.Partition(
                partition_index=index,
                leader_id=broker.node_id,
                leader_epoch=broker.partitions.leader_epoch(topic.name, index),
                replica_nodes=node,
                isr_nodes=node,
            )
        )
    return MetadataResponse.Topic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        topic_authorized_operations=operations,
        partitions=partitions,
    )


def refuse(request: MetadataRequest, code: ErrorCode, version: int) -> MetadataResponse:
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponse.Topic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or ()
        ],
    )
