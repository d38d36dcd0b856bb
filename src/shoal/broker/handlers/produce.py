"""Produce: append batches, and answer when they are stored.

The batches are views of the connection's buffer and are written before this returns, but for
those of a request with very many, which are copied; only the acknowledgement waits. With acks=0
nothing is answered; an error then closes the connection, because there is no other way to tell.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

from shoal.broker.dispatch import NO_REPLY
from shoal.broker.topics import Topic
from shoal.errors import ErrorCode
from shoal.log.results import AppendResult
from shoal.wire.apis.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Partition = ProduceResponse.PartitionProduceResponse
# So many are appended in one go, from where they were received. Each may have to make a log.
_PARTITIONS_AT_ONCE: Final = 20


class _Stores:
    """Replies when the last of a request's partitions is stored."""

    __slots__ = ("_call", "_left", "_response")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._left = 1
        self._response: ProduceResponse | None = None

    def expect(self, result: Any) -> Any:
        self._left += 1

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                result.error_code = error
                result.base_offset = -1
            self.one_done()

        return stored

    def one_done(self) -> None:
        self._left -= 1
        if self._left == 0 and self._response is not None:
            self._call.reply(self._response)

    def finish(self, response: ProduceResponse) -> ProduceResponse | None:
        """The response if everything is stored already, else None."""
        self._left -= 1
        if self._left == 0:
            return response
        self._response = response
        return None


def handle(broker: Broker, call: Call, request: ProduceRequest) -> Any:
    if request.acks not in (-1, 0, 1):
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS, call.api_version)
    if request.transactional_id is not None:
        return refuse(request, ErrorCode.INVALID_TXN_STATE, call.api_version)
    steps = _append_all(broker, call, request)
    if sum(len(topic.partition_data) for topic in request.topic_data) > _PARTITIONS_AT_ONCE:
        return steps
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def _append_all(
    broker: Broker, call: Call, request: ProduceRequest
) -> Generator[None, None, ProduceResponse | object | None]:
    """Append batch after batch; pauses between them if they are many."""
    stores = _Stores(call)
    by_id = call.api_version >= 13
    failed = False
    done = 0
    topics = []
    for wanted in request.topic_data:
        catalogue = broker.catalogue
        topic = catalogue.by_id(wanted.topic_id) if by_id else catalogue.get(wanted.name)
        partitions = []
        for data in wanted.partition_data:
            if done == _PARTITIONS_AT_ONCE:
                _keep(request)
            if done >= _PARTITIONS_AT_ONCE:
                yield
            result = _append(broker, topic, data, stores, by_id=by_id)
            failed = failed or result.error_code != 0
            partitions.append(result)
            done += 1
        topics.append(
            ProduceResponse.TopicProduceResponse(
                name=wanted.name, topic_id=wanted.topic_id, partition_responses=partitions
            )
        )
    if request.acks == 0:
        if failed:
            call.connection.close()
        return NO_REPLY
    return stores.finish(ProduceResponse(responses=topics))


def _keep(request: ProduceRequest) -> None:
    """Before the first pause: the buffer in which the batches lie belongs to the connection."""
    left = -_PARTITIONS_AT_ONCE
    for topic in request.topic_data:
        for data in topic.partition_data:
            left += 1
            if left > 0 and data.records:
                data.records = bytearray(data.records)


def _append(
    broker: Broker,
    topic: Topic | None,
    data: ProduceRequest.PartitionProduceData,
    stores: _Stores,
    *,
    by_id: bool,
) -> _Partition:
    if topic is None:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return refused(data.index, unknown)
    if topic.is_internal:
        return refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal")
    partition = broker.partitions.get(topic, data.index)
    if isinstance(partition, ErrorCode):
        return refused(data.index, partition)
    if not data.records:
        return refused(data.index, ErrorCode.INVALID_RECORD, "there is no record batch")
    appended = partition.append(data.records, broker.now_ms())
    if appended.error is not ErrorCode.NONE:
        broker.counters.errors[appended.error.name] += 1
        return refused(data.index, appended.error, appended.detail, start=appended.log_start_offset)
    result = _accepted(data.index, appended)
    if partition.log.high_watermark < appended.end_offset:
        broker.syncer.register(partition.log, appended.end_offset, stores.expect(result))
    elif broker.syncs_in_intervals:
        broker.syncer.register(partition.log, appended.end_offset, None)
    return result


def _accepted(index: int, appended: AppendResult) -> _Partition:
    time_ms = appended.append_time_ms
    return _Partition(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=-1 if time_ms is None else time_ms,
        log_start_offset=appended.log_start_offset,
    )


def refused(index: int, code: ErrorCode, detail: str = "", *, start: int = -1) -> _Partition:
    return _Partition(
        index=index,
        error_code=code,
        base_offset=-1,
        log_start_offset=start,
        error_message=detail or None,
    )


def refuse(request: ProduceRequest, code: ErrorCode, version: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[refused(data.index, code) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
