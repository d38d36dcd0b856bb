"""The usual produce request, recognised by its bytes instead of being decoded each time.

A producer's requests for one partition of one topic differ in the correlation id, the partition,
and the records; everything else (client id, acks, timeout, topic) is the same bytes at the same
place. So a connection remembers what surrounds them, and a request that has the same surroundings
goes straight to the log. The reply is put together in the same way. A batch of a transaction takes
this way too if the transaction's coordinator, asked right before, knows its partition.

Rule: nothing is understood here that was not decoded and encoded by ``shoal.wire`` once on this
connection. A request that differs by one byte takes the long way, and so does one whose sender may
not write to the topic: the verdict of the table's row is kept until the authorizer's version rises.

    head(4) correlation_id(4) before… partition(4) size(1 to 5) records… after(3 or 0)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from struct import Struct
from struct import error as struct_error
from time import perf_counter
from typing import TYPE_CHECKING, Final

from shoal.access.resources import ResourceType
from shoal.broker.authorizer import Authorizer
from shoal.broker.catalogue import INTERNAL_TOPICS
from shoal.broker.handlers import produce
from shoal.broker.handlers.transactional_produce import is_transactional, known_version
from shoal.broker.partitions import Partition
from shoal.broker.sasl import SaslSession
from shoal.errors import ErrorCode, InvalidMessageError
from shoal.log.partition import AppendResult
from shoal.records.vetting import is_compressed
from shoal.wire.apis.produce import ProduceRequest, ProduceResponse
from shoal.wire.apis.registry import ApiKey
from shoal.wire.frames import RequestHeader
from shoal.wire.varint import decode_uvarint

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.connection import ClientConnection
    from shoal.broker.dispatch import Call

logger = logging.getLogger("shoal.broker.quick_produce")

_API: Final = "Produce"
_KEY: Final = int(ApiKey.PRODUCE)
_KEY_SIZE: Final = 2
_KEY_BYTES: Final = _KEY.to_bytes(_KEY_SIZE, "big")
_ID: Final = Struct(">i")
_HEAD: Final = Struct(">ii")
_FLEXIBLE_HEAD: Final = Struct(">iix")
_ANSWER: Final = Struct(">ihqqq")
# Partition, error code, base offset, append time, log start: no other bytes of a reply are these.
_MARK: Final = (0x1A2B3C4D, 0x5E6F, 0x1122334455667788, 0x2233445566778811, 0x3344556677881122)
_FLEXIBLE_FROM: Final = 9
_BY_ID_FROM: Final = 13
_BEFORE_FROM: Final = 8
# A producer whose requests look different every time is not worth learning from.
_LESSONS_MAX: Final = 20
# So many requests for one partition are written together at most.
_RUN_MAX: Final = 16


class Shape:
    """What surrounds the records in the requests of one producer, and its replies."""

    __slots__ = (
        "_after",
        "_before",
        "_front",
        "_head",
        "_reply",
        "_reply_after",
        "_reply_before",
        "_reply_size",
        "client_id",
        "is_flexible",
        "name",
        "topic_id",
        "transactional_id",
        "version",
    )

    def __init__(self, header: RequestHeader, request: ProduceRequest) -> None:
        topic = request.topic_data[0]
        self.version = header.api_version
        self.transactional_id = request.transactional_id
        self.client_id = header.client_id
        self.is_flexible = self.version >= _FLEXIBLE_FROM
        self.name = topic.name
        self.topic_id = topic.topic_id if header.api_version >= _BY_ID_FROM else None
        self._after = bytes(3 if self.is_flexible else 0)

    def learn_request(self, frame: memoryview, data: ProduceRequest.PartitionProduceData) -> bool:
        """Remember what surrounds these records in this frame."""
        start = len(frame) - len(self._after) - len(data.records or b"")
        # The size in front of the records says how many bytes it takes itself.
        for width in range(1, 6):
            until = start - width - 4
            self._head, self._before = bytes(frame[:4]), bytes(frame[_BEFORE_FROM:until])
            self._front = Struct(f">4si{len(self._before)}si")
            found = self.find(frame)
            if found is not None and found[1:] == (data.index, data.records):
                return True
        return False

    def learn_reply(self, topic: ProduceRequest.TopicProduceData) -> bool:
        """Remember what surrounds the few numbers in a reply without errors."""
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
        before, found, after = response.encode(self.version).partition(_ANSWER.pack(*_MARK))
        head = _FLEXIBLE_HEAD if self.is_flexible else _HEAD
        self._reply_before, self._reply_after = before, after
        self._reply = Struct(f"{head.format}{len(before)}sihqqq{len(after)}s")
        self._reply_size = self._reply.size - _ID.size
        return bool(found)

    def find(self, frame: memoryview) -> tuple[int, int, memoryview] | None:
        """Correlation id, partition and records, if the frame has this shape."""
        front = self._front
        try:
            head, correlation_id, before, index = front.unpack_from(frame)
            if before != self._before or head != self._head:
                return None
            position = front.size
            if self.is_flexible:
                size, start = _compact_size(frame, position)
            else:
                size, start = _ID.unpack_from(frame, position)[0], position + 4
        except (struct_error, IndexError, InvalidMessageError):
            return None
        end = start + size
        if size <= 0 or end + len(self._after) != len(frame) or frame[end:] != self._after:
            return None
        return correlation_id, index, frame[start:end]

    def reply(self, correlation_id: int, index: int, appended: AppendResult) -> bytes:
        """The whole frame that says that a batch is stored."""
        _, base_offset, _, time_ms, start, *_ = appended
        return self._reply.pack(
            self._reply_size,
            correlation_id,
            self._reply_before,
            index,
            0,
            base_offset,
            -1 if time_ms is None else time_ms,
            start,
            self._reply_after,
        )

    def refusal(self, correlation_id: int, index: int, found: AppendResult) -> bytes:
        """The whole frame that says why a batch is not stored."""
        topic = ProduceResponse.TopicProduceResponse(
            name=self.name,
            topic_id=self.topic_id or bytes(16),
            partition_responses=[produce.not_appended(index, found)],
        )
        body = ProduceResponse(responses=[topic]).encode(self.version)
        head = _FLEXIBLE_HEAD if self.is_flexible else _HEAD
        return head.pack(len(body) + head.size - _ID.size, correlation_id) + body


def _compact_size(frame: memoryview, position: int) -> tuple[int, int]:
    """A size that is counted from one, and where it ends."""
    low, high = frame[position], frame[position + 1]
    if low > 0x7F >= high:
        # Two bytes, up to 16 KiB: the usual ones, without a loop.
        return (low & 0x7F | high << 7) - 1, position + 2
    size, start = decode_uvarint(frame, position)
    return size - 1, start


def learn(header: RequestHeader, frame: memoryview, body: memoryview, budget: int) -> Shape | None:
    """The shape of a request that was served; None if it is not of the usual kind."""
    request, end = ProduceRequest.decode_prefix(body, header.api_version, budget=budget)
    if (
        end != len(body)
        or len(request.topic_data) != 1
        or len(request.topic_data[0].partition_data) != 1
    ):
        return None
    if request.acks not in (1, -1):
        return None
    topic = request.topic_data[0]
    shape = Shape(header, request)
    is_learnt = shape.learn_request(frame, topic.partition_data[0]) and shape.learn_reply(topic)
    return shape if is_learnt else None


class _Stored:
    """Replies when the records are stored."""

    __slots__ = ("_appended", "_call", "_index", "_shape")

    def __init__(self, call: Call, shape: Shape, index: int, appended: AppendResult) -> None:
        self._call = call
        self._shape = shape
        self._index = index
        self._appended = appended

    def __call__(self, error: ErrorCode) -> None:
        call, shape = self._call, self._shape
        if call.connection.is_closed:
            return
        if error is ErrorCode.NONE:
            call.is_stored = True
            reply = shape.reply(call.correlation_id, self._index, self._appended)
        else:
            reply = shape.refusal(call.correlation_id, self._index, AppendResult(error))
        call.send((reply,))


_Found = tuple[Shape, int, Partition, int, memoryview, int | None]
"""Shape, correlation id, partition and its number, records, the version of their transaction."""


class Habit:
    """What the produce requests of one connection look like, and how they are served."""

    __slots__ = (
        "_broker",
        "_connection",
        "_is_allowed",
        "_judge",
        "_verdict_of",
        "_waits",
        "lessons",
        "shape",
    )

    def __init__(self, broker: Broker, connection: ClientConnection) -> None:
        self._broker = broker
        self._connection = connection
        self._waits = broker.syncer.durability.waits
        self.lessons = 0
        self.shape: Shape | None = None
        # The verdict about the shape's topic, who gave it, and in which version.
        self._is_allowed = False
        self._judge: Authorizer | None = None
        self._verdict_of = -1

    def _counts(self, session: SaslSession) -> bool:
        """Whether the name of this client is neither too old nor just being proved again."""
        return session.is_authenticated and not session.has_ended(self._broker.steady_ms())

    def _may_write(self, name: str, transactional_id: str | None) -> bool:
        """Whether the row of Produce lets this client write to the topic, in its transaction."""
        judge = self._broker.door.authorizer
        if judge is not self._judge or judge.version != self._verdict_of:
            self._judge, self._verdict_of = judge, judge.version
            session = self._connection.session
            api = self._broker.dispatch.api(ApiKey.PRODUCE)
            assert isinstance(session, SaslSession)
            assert api is not None
            names = {ResourceType.TOPIC: name}
            if transactional_id is not None:
                names[ResourceType.TRANSACTIONAL_ID] = transactional_id
            # Not audited: who is refused here is refused on the long way, too, and loudly.
            self._is_allowed = all(
                self._broker.door.allows(
                    session.principal,
                    self._connection.peer_host,
                    api.row.entries[resource],
                    named,
                    audited=False,
                )
                for resource, named in names.items()
            )
        return self._is_allowed

    def study(
        self, header: RequestHeader, frame: memoryview, body: memoryview, budget: int
    ) -> None:
        """Remember the bytes around the records, as long as they come again."""
        if self.lessons < _LESSONS_MAX:
            self.lessons += 1
            self.shape = learn(header, frame, body, budget)
            self._judge = None
            is_ready = self.shape is not None and not self._waits
            self._connection.at_once = self.answer if is_ready else None

    def _find(self, frame: memoryview) -> _Found | None:
        if frame[:_KEY_SIZE] != _KEY_BYTES:
            return None  # other requests of a producer
        shape = self.shape
        if shape is None or self._broker.dispatch.faults is not None or self._broker.quotas.is_set:
            return None
        session = self._connection.session
        assert isinstance(session, SaslSession)
        if session.ends_ms is not None and not self._counts(session):
            return None
        found = shape.find(frame)
        if found is None:
            return None
        correlation_id, index, records = found
        if is_compressed(records):
            return None  # to look inside may take long, and the long way knows how
        name = shape.name
        if shape.topic_id is not None:
            topic = self._broker.catalogue.by_id(shape.topic_id)
            if topic is None:
                return None
            name = topic.name
        # One that was not written to yet, or is not there, is for the long way.
        partition = self._broker.partitions.opened(name, index)
        if partition is None or name in INTERNAL_TOPICS or partition.log.recompresses:
            return None
        if not self._may_write(name, shape.transactional_id):
            return None
        version = None
        if is_transactional(records):
            version = known_version(
                self._broker, shape.transactional_id, records, partition, shape.version
            )
            if version is None:
                return None  # to be added to its transaction, or refused
        return shape, correlation_id, partition, index, records, version

    def answer(self, data: memoryview, position: int, end: int) -> tuple[int, list[bytes]]:
        """Serve the frames in ``data`` that wait for nothing: where the others begin, and replies.

        Neighbours of one partition are written together.
        """
        replies: list[bytes] = []
        run: list[_Found] = []
        connection = self._connection
        while len(run) < _RUN_MAX and end - position >= _ID.size and not connection.is_closed:
            start = position + _ID.size
            until = start + _ID.unpack_from(data, position)[0]
            if not start < until <= min(end, start + connection.frame_limit):
                break
            found = self._find(data[start:until])
            if found is None:
                break
            if run and (found[2] is not run[0][2] or found[5] is not None):
                replies += self._append(run)
                run = []
            run.append(found)
            position = until
        if run:
            replies += self._append(run)
        return position, replies

    def _append(self, run: Sequence[_Found]) -> list[bytes]:
        began = perf_counter()
        broker, partition = self._broker, run[0][2]
        try:
            if len(run) == 1:
                records, version = run[0][4:]
                results = [partition.append(records, broker.now_ms(), transaction_version=version)]
            else:
                results = partition.append_run([one[4] for one in run], broker.now_ms())
            replies = [
                shape.reply(correlation_id, index, appended)
                if appended.error is ErrorCode.NONE
                else self._refuse(shape, correlation_id, index, appended)
                for (shape, correlation_id, _, index, *_), appended in zip(
                    run, results, strict=True
                )
            ]
            if broker.syncs_in_intervals:
                broker.syncer.register(partition.log, partition.log.end_offset, None)
        except Exception:
            logger.exception("Produce v%d failed", run[0][0].version)
            self._give_up()
            return []
        seconds = perf_counter() - began
        broker.counters.request_took(_API, seconds, len(run))
        if (timings := broker.server.timings) is not None:
            timings.took(_KEY, seconds, len(run))
        return replies

    def take(self, call: Call, frame: memoryview) -> bool:
        """Append, and answer when that is stored; False if nothing was done."""
        found = self._find(frame)
        if found is None:
            return False
        shape, call.correlation_id, partition, index, records, version = found
        broker = self._broker
        call.api_key = ApiKey.PRODUCE
        call.api_version = shape.version
        call.client_id = shape.client_id
        self._connection.expect(call)
        try:
            appended = partition.append(records, broker.now_ms(), transaction_version=version)
            if appended.error is not ErrorCode.NONE:
                call.send((self._refuse(shape, call.correlation_id, index, appended),))
            else:
                stored = _Stored(call, shape, index, appended)
                broker.syncer.register(partition.log, appended.end_offset, stored)
        except Exception:
            logger.exception("Produce v%d failed", shape.version)
            self._give_up()
            return True
        broker.counters.request_took(_API, perf_counter() - call.started)
        return True

    def _refuse(self, shape: Shape, correlation_id: int, index: int, found: AppendResult) -> bytes:
        self._broker.counters.errors[found.error.name] += 1
        return shape.refusal(correlation_id, index, found)

    def _give_up(self) -> None:
        """It is not known what was done, so nothing can be answered."""
        self._broker.counters.errors[_API] += 1
        self._connection.close()
