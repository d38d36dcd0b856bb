"""Metadata: the one node, and the topics a client asks for.

Topics may be created here, by being asked for. The answer comes when they exist, so that the
first record of a new topic needs no retry.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from shoal.access.resources import Operation, ResourceType
from shoal.broker.catalogue import Topic, name_problem
from shoal.broker.handlers import LATER, Deferred
from shoal.broker.memory import TOO_MUCH
from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.wire.apis.metadata import MetadataRequest, MetadataResponse
from shoal.wire.schema import ZERO_UUID

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_NOT_ASKED_FOR: Final = -(1 << 31)
_PARTITIONS_AT_ONCE: Final = 100
_TOPICS_AT_ONCE: Final = 50
_BY_ID_FROM: Final = 12

_Described = Generator[None, None, MetadataResponse.Topic]


def handle(
    broker: Broker, call: Call, request: MetadataRequest
) -> Generator[None, None, MetadataResponse | Deferred]:
    topics = request.topics or ()
    if any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics):
        if call.api_version < _BY_ID_FROM:
            return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
        if any(topic.name is None and topic.topic_id == ZERO_UUID for topic in topics):
            # Kafka trips over these, and so that is what clients know.
            return refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, call.api_version)
    missing = _to_create(broker, call, request)
    if missing:
        broker.changes.create_missing(missing, lambda: _answer_later(broker, call, request))
        return LATER
    return (yield from _answer(broker, call, request))


def _answer_later(broker: Broker, call: Call, request: MetadataRequest) -> None:
    """The topics that were missing are there now, or cannot be made."""

    async def answer() -> None:
        turns = Turns()
        steps = _answer(broker, call, request)
        with call.answered_or_cut():
            try:
                while True:
                    next(steps)
                    await turns.pause()
            except StopIteration as finished:
                call.reply(finished.value)

    broker.spawn(answer())


def _wants_all(call: Call, request: MetadataRequest) -> bool:
    return request.topics is None or (call.api_version == 0 and not request.topics)


def _creates(broker: Broker, call: Call, request: MetadataRequest) -> bool:
    """Whether the request creates what it asks for."""
    if not broker.config.topics.auto_create or _wants_all(call, request):
        return False
    return call.api_version < 4 or request.allow_auto_topic_creation


def _to_create(broker: Broker, call: Call, request: MetadataRequest) -> list[str]:
    if not _creates(broker, call, request):
        return []
    return [
        name
        for name in _asked(request)
        if isinstance(name, str)
        and name not in broker.catalogue
        and not name_problem(name)
        and call.shows(ResourceType.TOPIC, name)
        and call.may(Operation.CREATE, ResourceType.TOPIC, name)
    ]


def _asked(request: MetadataRequest) -> list[str] | list[bytes]:
    """Names or ids, each once. If there are ids, they alone count, as in Kafka."""
    topics = request.topics or ()
    ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
    names = dict.fromkeys(topic.name or "" for topic in topics)
    return list(ids) or list(names)


def _answer(
    broker: Broker, call: Call, request: MetadataRequest
) -> Generator[None, None, MetadataResponse]:
    if _wants_all(call, request):
        walks = (
            _described(broker, call, request, topic)
            for topic in list(broker.catalogue)
            if call.shows(ResourceType.TOPIC, topic.name)
        )
    else:
        walks = (_wanted(broker, call, request, wanted) for wanted in _asked(request))
    topics: list[MetadataResponse.Topic] = []
    for walk in walks:
        described = yield from walk
        if not call.spend(1 + len(described.partitions)):
            described.error_code, described.partitions = TOO_MUCH, ()
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
        response.cluster_authorized_operations = call.operations(ResourceType.CLUSTER)
    return response


def _wanted(
    broker: Broker, call: Call, request: MetadataRequest, wanted: str | bytes
) -> _Described:
    topic = call.topic(wanted)
    if isinstance(topic, Topic):
        return (yield from _described(broker, call, request, topic))
    if isinstance(wanted, bytes):
        return MetadataResponse.Topic(error_code=topic, name=None, topic_id=wanted)
    described = MetadataResponse.Topic(error_code=topic, name=wanted, topic_id=ZERO_UUID)
    if topic is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return described
    if name_problem(wanted):
        described.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif _creates(broker, call, request) and not call.may(
        Operation.CREATE, ResourceType.TOPIC, wanted
    ):
        described.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return described
    described.topic_authorized_operations = _operations(call, request, wanted)
    return described


def _operations(call: Call, request: MetadataRequest, name: str) -> int:
    if not request.include_topic_authorized_operations:
        return _NOT_ASKED_FOR
    return call.operations(ResourceType.TOPIC, name)


def _described(broker: Broker, call: Call, request: MetadataRequest, topic: Topic) -> _Described:
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
        topic_authorized_operations=_operations(call, request, topic.name),
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
