"""The usual produce request, recognised by its bytes instead of being decoded each time.

A producer's requests for one partition of one topic differ in the correlation id, the partition,
and the records; everything else (client id, acks, timeout, topic) is the same bytes at the same
place. So a connection remembers what surrounds them, and a request that has the same surroundings
goes straight to the log. The reply is put together in the same way.

Rule: nothing is understood here that was not decoded and encoded by ``shoal.wire`` once on this
connection. A request that differs by one byte takes the long way, and so does every refusal.

    head(4) correlation_id(4) before… partition(4) size(1 to 5) records… after(3 or 0)
"""

from __future__ import annotations

from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from shoal.broker.handlers import produce
from shoal.errors import ErrorCode, InvalidMessageError
from shoal.log.results import AppendResult
from shoal.wire.apis.produce import ProduceRequest, ProduceResponse
from shoal.wire.frames import RequestHeader
from shoal.wire.varint import decode_uvarint

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call

_ID: Final = Struct(">i")
_HEAD: Final = Struct(">ii")
_FLEXIBLE_HEAD: Final = Struct(">iix")
_ANSWER: Final = Struct(">ihqqq")
# Partition, error code, base offset, append time, log start: no other bytes of a reply are these.
_MARK: Final = (0x1A2B3C4D, 0x5E6F, 0x1122334455667788, 0x2233445566778811, 0x3344556677881122)
_FLEXIBLE_FROM: Final = 9
_BY_ID_FROM: Final = 13
_BEFORE_FROM: Final = 8


class Shape:
    """What surrounds the records in the requests of one producer, and its replies."""

    __slots__ = (
        "after",
        "before",
        "client_id",
        "head",
        "name",
        "reply_after",
        "reply_before",
        "reply_size",
        "topic_id",
        "until",
        "version",
    )

    def __init__(self, header: RequestHeader, topic: ProduceRequest.TopicProduceData) -> None:
        self.version = header.api_version
        self.client_id = header.client_id
        self.name = topic.name
        self.topic_id = topic.topic_id if header.api_version >= _BY_ID_FROM else None
        self.head = self.before = self.after = b""
        self.until = self.reply_size = 0
        self.reply_before = self.reply_after = b""

    @property
    def is_flexible(self) -> bool:
        return self.version >= _FLEXIBLE_FROM

    def find(self, frame: memoryview) -> tuple[int, memoryview] | None:
        """Partition and records, if the frame has this shape."""
        until = self.until
        if frame[:4] != self.head or frame[_BEFORE_FROM:until] != self.before:
            return None
        try:
            (index,) = _ID.unpack_from(frame, until)
            size, start = _size(frame, until + 4, flexible=self.is_flexible)
        except (struct_error, IndexError, InvalidMessageError):
            return None
        end = start + size
        if size <= 0 or end + len(self.after) != len(frame) or frame[end:] != self.after:
            return None
        return index, frame[start:end]


def _size(frame: memoryview, position: int, *, flexible: bool) -> tuple[int, int]:
    if not flexible:
        return _ID.unpack_from(frame, position)[0], position + 4
    size, start = decode_uvarint(frame, position)
    return size - 1, start


def learn(header: RequestHeader, frame: memoryview, body: memoryview, budget: int) -> Shape | None:
    """The shape of a request that was served; None if it is not of the usual kind."""
    request = ProduceRequest.decode(body, header.api_version, budget=budget)
    if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
        return None
    if request.acks not in (1, -1) or request.transactional_id is not None:
        return None
    topic = request.topic_data[0]
    data = topic.partition_data[0]
    shape = Shape(header, topic)
    shape.after = bytes(3 if shape.is_flexible else 0)
    start = len(frame) - len(shape.after) - len(data.records or b"")
    # The size in front of the records says how many bytes it takes itself.
    for width in range(1, 6):
        shape.until = start - width - 4
        shape.head, shape.before = bytes(frame[:4]), bytes(frame[_BEFORE_FROM : shape.until])
        if shape.find(frame) == (data.index, data.records):
            return shape if _learn_reply(shape, topic) else None
    return None


def _learn_reply(shape: Shape, topic: ProduceRequest.TopicProduceData) -> bool:
    index, code, offset, time_ms, start = _MARK
    answer = ProduceResponse.PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=offset,
        log_append_time_ms=time_ms,
        log_start_offset=start,
    )
    response = ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[answer]
            )
        ]
    )
    before, found, after = response.encode(shape.version).partition(_ANSWER.pack(*_MARK))
    shape.reply_before, shape.reply_after = before, after
    shape.reply_size = len(before) + len(found) + len(after)
    return bool(found)


class _Stored:
    """Replies when the records are stored."""

    __slots__ = ("_appended", "_call", "_index", "_shape")

    def __init__(self, call: Call, shape: Shape, index: int, appended: AppendResult) -> None:
        self._call = call
        self._shape = shape
        self._index = index
        self._appended = appended

    def __call__(self, error: ErrorCode) -> None:
        call, shape, appended = self._call, self._shape, self._appended
        if call.connection.is_closed:
            return
        if error is not ErrorCode.NONE:
            _refuse(call, shape, self._index, error, "")
            return
        head = (
            _FLEXIBLE_HEAD.pack(shape.reply_size + 5, call.correlation_id)
            if shape.is_flexible
            else _HEAD.pack(shape.reply_size + 4, call.correlation_id)
        )
        time_ms = appended.append_time_ms
        answer = _ANSWER.pack(
            self._index,
            0,
            appended.base_offset,
            -1 if time_ms is None else time_ms,
            appended.log_start_offset,
        )
        call.send((head + shape.reply_before + answer + shape.reply_after,))


def handle(broker: Broker, call: Call, shape: Shape, index: int, records: memoryview) -> bool:
    """Append and answer; False if nothing was done, and the long way is to be taken."""
    catalogue = broker.catalogue
    topic_id = shape.topic_id
    topic = catalogue.get(shape.name) if topic_id is None else catalogue.by_id(topic_id)
    if topic is None or topic.is_internal:
        return False
    partition = broker.partitions.get(topic, index)
    if isinstance(partition, ErrorCode):
        return False
    appended = partition.append(records, broker.now_ms())
    if appended.error is not ErrorCode.NONE:
        broker.counters.errors[appended.error.name] += 1
        start = appended.log_start_offset
        _refuse(call, shape, index, appended.error, appended.detail, start=start)
        return True
    stored = _Stored(call, shape, index, appended)
    if partition.log.high_watermark < appended.end_offset:
        broker.syncer.register(partition.log, appended.end_offset, stored)
        return True
    if broker.syncs_in_intervals:
        broker.syncer.register(partition.log, appended.end_offset, None)
    stored(ErrorCode.NONE)
    return True


def _refuse(
    call: Call, shape: Shape, index: int, code: ErrorCode, detail: str, *, start: int = -1
) -> None:
    answer = produce.refused(index, code, detail, start=start)
    topic = ProduceResponse.TopicProduceResponse(
        name=shape.name, topic_id=shape.topic_id or bytes(16), partition_responses=[answer]
    )
    call.reply(ProduceResponse(responses=[topic]))
