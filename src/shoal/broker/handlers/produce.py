"""Produce: append batches, and answer when they are stored.

The batches are views of the connection's buffer and are written before this returns, but for
those of a request with very many or that inflate to much, which are copied; only the
acknowledgement waits. With acks=0 nothing is answered; an error then closes the connection, because
there is no other way to tell.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from shoal.access.resources import ResourceType
from shoal.broker.catalogue import Topic
from shoal.broker.handlers import LATER, NO_REPLY, Deferred
from shoal.broker.handlers.transactional_produce import (
    Admission,
    admission_for,
    is_transactional,
)
from shoal.broker.slices import Turns
from shoal.errors import BatchTooLargeError, ErrorCode
from shoal.log.config import LogConfig
from shoal.log.partition import AppendResult
from shoal.log.validation import Checked, Refusal, look_inside, prepare, recompresses
from shoal.records.vetting import Facts, is_compressed
from shoal.types import TopicPartition
from shoal.wire.apis.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_Partition = ProduceResponse.PartitionProduceResponse
# So many are appended in one go, from where they were received. Each may have to make a log.
_PARTITIONS_AT_ONCE: Final = 20
_BY_ID_FROM: Final = 13
# Compressed batches are inflated to be looked at: in a thread if there is more in one request.
_PACKED_AT_ONCE_BYTES: Final = 64 << 10
_INFLATED_AT_ONCE_BYTES: Final = 512 << 10

# A short plain batch is packed here and now if its topic wants that.
_REPACKED_AT_ONCE_BYTES: Final = 16 << 10

_Inside = Mapping[int, Facts | Refusal | Checked]
"""What is known of batches that take long to check, by their number in the request."""
_Long = list[tuple[int, ProduceRequest.PartitionProduceData, Topic | ErrorCode]]
"""Such batches: number, data, topic or why there is none."""


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
            else:
                self._call.is_stored = True
            self.one_done()

        return stored

    def expect_addition(
        self, results: Sequence[Any], admission: Admission
    ) -> Callable[[ErrorCode], None]:
        """Of the partitions to a transaction."""
        self._left += 1

        def stored(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                for result in results:
                    result.error_code = result.error_code or admission.told(error)
                    result.base_offset = -1
            self.one_done()

        return stored

    def one_done(self) -> None:
        self._left -= 1
        if self._left == 0 and self._response is not None:
            self._call.reply(self._response)

    def finish(self, response: ProduceResponse) -> ProduceResponse | Deferred:
        """The response if everything is stored already."""
        self._left -= 1
        if self._left == 0:
            return response
        self._response = response
        return LATER


def handle(broker: Broker, call: Call, request: ProduceRequest) -> Any:
    if request.acks not in (-1, 0, 1):
        return refuse(request, ErrorCode.INVALID_REQUIRED_ACKS, call.api_version)
    if request.transactional_id is not None:
        refused_id = call.check(ResourceType.TRANSACTIONAL_ID, request.transactional_id)
        if refused_id is not ErrorCode.NONE:
            return _refused_whole(call, request, refused_id)
    admission = admission_for(broker, request, call.api_version)
    if isinstance(admission, ErrorCode):
        return _refused_whole(call, request, admission)
    count = sum(len(topic.partition_data) for topic in request.topic_data)
    if count > 1:
        _keep_last(request, count)
    found = _long_ones(broker, call, request)
    inside = _look_inside(broker, found)
    is_answered = admission is None or admission.ask(_of_transaction(broker, call, request))
    if inside is None or not is_answered:
        return _append_later(broker, call, request, admission, is_answered=is_answered)
    steps = _append_all(broker, call, request, inside, admission)
    if count > _PARTITIONS_AT_ONCE:
        return steps
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            return finished.value


def _refused_whole(call: Call, request: ProduceRequest, code: ErrorCode) -> Any:
    if request.acks == 0:
        call.connection.close()
        return NO_REPLY
    return refuse(request, code, call.api_version)


def _long_ones(broker: Broker, call: Call, request: ProduceRequest) -> _Long:
    """Batches that are compressed, or will be."""
    number, found = 0, []
    for wanted in request.topic_data:
        topic = _topic(call, wanted)
        for data in wanted.partition_data:
            if data.records and (
                is_compressed(data.records)
                or (isinstance(topic, Topic) and _recompresses(broker, topic, data.index))
            ):
                found.append((number, data, topic))
            number += 1
    return found


def _topic(call: Call, wanted: ProduceRequest.TopicProduceData) -> Topic | ErrorCode:
    return call.topic(wanted.topic_id if call.api_version >= _BY_ID_FROM else wanted.name)


def _recompresses(broker: Broker, topic: Topic, index: int) -> bool:
    partition = broker.partitions.opened(topic.name, index)
    if partition is not None:
        return partition.log.recompresses
    return recompresses(broker.partitions.config_of(topic, index))


def _look_inside(broker: Broker, found: _Long) -> _Inside | None:
    """What is in compressed batches, found out here and now; None if that takes too long."""
    if not found:
        return {}
    packed_bytes = plain_bytes = 0
    for _, data, topic in found:
        records = data.records
        assert records is not None
        if not is_compressed(records):
            plain_bytes += len(records)
        elif isinstance(topic, Topic) and _recompresses(broker, topic, data.index):
            return None
        else:
            packed_bytes += len(records)
    if packed_bytes > _PACKED_AT_ONCE_BYTES or plain_bytes > _REPACKED_AT_ONCE_BYTES:
        return None
    limit_bytes = _INFLATED_AT_ONCE_BYTES // len(found)
    try:
        return {
            number: look_inside(data.records or b"", limit_bytes=limit_bytes)
            for number, data, _ in found
        }
    except BatchTooLargeError:
        return None


def _of_transaction(
    broker: Broker, call: Call, request: ProduceRequest
) -> frozenset[TopicPartition]:
    """The partitions that a request's transactional batches are for, as far as they exist."""
    return frozenset(
        TopicPartition(topic.name, data.index)
        for wanted in request.topic_data
        if isinstance(topic := _topic(call, wanted), Topic) and not topic.is_internal
        for data in wanted.partition_data
        if 0 <= data.index < topic.partition_count and is_transactional(data.records)
    )


def _append_later(
    broker: Broker,
    call: Call,
    request: ProduceRequest,
    admission: Admission | None,
    *,
    is_answered: bool,
) -> Coroutine[Any, Any, Any]:
    """As ``handle``, with what takes long done in a thread: the loop has other clients.

    Or when the coordinator has answered, if it could not at once: the transaction before this one
    is about to be over.
    """
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records:  # its buffer belongs to the connection
                data.records = bytearray(data.records)
    now_ms = broker.now_ms()
    work = [
        (
            number,
            data.records,
            broker.partitions.config_of(topic, data.index)
            if isinstance(topic, Topic)
            else LogConfig(),
        )
        for number, data, topic in _long_ones(broker, call, request)
    ]

    def look() -> _Inside:
        return {number: prepare(data, config, now_ms=now_ms) for number, data, config in work}  # type: ignore[arg-type]  # copied above

    async def run() -> Any:
        turns = Turns()
        if admission is not None and not is_answered:
            await admission.wait()
        inside = await broker.loop.run_in_executor(None, look) if work else {}
        steps = _append_all(broker, call, request, inside, admission)
        while True:
            try:
                next(steps)
            except StopIteration as finished:
                return finished.value
            await turns.pause()

    return run()


def _keep_last(request: ProduceRequest, count: int) -> None:
    """Of several batches for one partition Kafka stores and answers the last one."""
    last = {
        (topic.name, topic.topic_id, data.index): data
        for topic in request.topic_data
        for data in topic.partition_data
    }
    if len(last) == count:
        return
    topics: dict[tuple[str, bytes], list[ProduceRequest.PartitionProduceData]] = {}
    for (name, topic_id, _), data in last.items():
        topics.setdefault((name, topic_id), []).append(data)
    request.topic_data = [
        ProduceRequest.TopicProduceData(name=name, topic_id=topic_id, partition_data=parts)
        for (name, topic_id), parts in topics.items()
    ]


def _append_all(
    broker: Broker,
    call: Call,
    request: ProduceRequest,
    inside: _Inside,
    admission: Admission | None,
) -> Generator[None, None, ProduceResponse | Deferred]:
    """Append batch after batch; pauses between them if they are many."""
    stores = _Stores(call)
    failed = False
    done = 0
    topics = []
    for wanted in request.topic_data:
        topic = _topic(call, wanted)
        partitions = []
        for data in wanted.partition_data:
            if done == _PARTITIONS_AT_ONCE:
                _keep(request)
            if done >= _PARTITIONS_AT_ONCE:
                yield
            result = _append(broker, topic, data, stores, inside.get(done), admission)
            failed = failed or result.error_code != 0
            partitions.append(result)
            done += 1
        if partitions:
            topics.append(
                ProduceResponse.TopicProduceResponse(
                    name=wanted.name, topic_id=wanted.topic_id, partition_responses=partitions
                )
            )
    if request.acks == 0:
        if failed:
            call.connection.close()
        return NO_REPLY
    if admission is not None and admission.added is not None:
        # The batches count when their addition to the transaction does.
        answers = [answer for topic in topics for answer in topic.partition_responses]
        admission.added.when_told(stores.expect_addition(answers, admission))
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
    topic: Topic | ErrorCode,
    data: ProduceRequest.PartitionProduceData,
    stores: _Stores,
    facts: Facts | Refusal | Checked | None,
    admission: Admission | None,
) -> _Partition:
    if isinstance(topic, ErrorCode):
        return refused(data.index, topic)
    if topic.is_internal:
        return refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic is internal")
    partition = broker.partitions.get(topic, data.index)
    if isinstance(partition, ErrorCode):
        return refused(data.index, partition)
    if not data.records:
        return refused(data.index, ErrorCode.INVALID_RECORD, "there is no record batch")
    transaction_version = None
    if admission is not None and is_transactional(data.records):
        fault = admission.fault(partition.topic_partition)
        if fault is not ErrorCode.NONE:
            return refused(data.index, fault)
        transaction_version = admission.transaction_version
    appended = partition.append(
        data.records, broker.now_ms(), facts=facts, transaction_version=transaction_version
    )
    if appended.error is not ErrorCode.NONE:
        broker.counters.errors[appended.error.name] += 1
        return not_appended(data.index, appended)
    result = _accepted(data.index, appended)
    if partition.log.high_watermark < appended.end_offset:
        broker.syncer.register(partition.log, appended.end_offset, stores.expect(result))
    elif broker.syncs_in_intervals:
        broker.syncer.register(partition.log, appended.end_offset, None)
    return result


# Batches that Kafka refuses before it has looked at the log: the start is not known then.
_REFUSED_AS_A_WHOLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)


def _accepted(index: int, appended: AppendResult) -> _Partition:
    time_ms = appended.append_time_ms
    return _Partition(
        index=index,
        base_offset=appended.base_offset,
        log_append_time_ms=-1 if time_ms is None else time_ms,
        log_start_offset=appended.log_start_offset,
    )


def not_appended(index: int, found: AppendResult) -> _Partition:
    """What a client is told of a batch that is not stored, and of the records to blame."""
    answer = refused(index, found.error, found.detail)
    if found.record_errors or found.error not in _REFUSED_AS_A_WHOLE:
        answer.log_start_offset = found.log_start_offset
    answer.record_errors = [
        ProduceResponse.BatchIndexAndErrorMessage(
            batch_index=number, batch_index_error_message=reason
        )
        for number, reason in found.record_errors
    ]
    return answer


def refused(index: int, code: ErrorCode, detail: str = "") -> _Partition:
    return _Partition(
        index=index,
        error_code=code,
        base_offset=-1,
        log_start_offset=-1,
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
