"""Fetch: batches from the logs, as ranges of files, now or when there is enough.

A reply holds no data: each partition's records are a range of a segment file that the connection
sends by itself. Small ranges are read at once, because a system call costs more than their copy.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from shoal.broker.fetch_sessions import FetchContext, FetchPartition, Key
from shoal.broker.handlers import LATER, Deferred
from shoal.broker.partitions import Partition, epoch_fault
from shoal.broker.slices import Turns
from shoal.errors import ErrorCode
from shoal.log.partition import PartitionLog, ReadResult
from shoal.types import TopicPartition
from shoal.wire.apis.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from shoal.broker.broker import Broker
    from shoal.broker.dispatch import Call
    from shoal.log.disk import File

_COPY_BELOW_BYTES: Final = 16 << 10
_WAIT_MAX_MS: Final = 600_000
_PARTITIONS_AT_ONCE: Final = 100
_READ_COMMITTED: Final = 1
_ISOLATION_LEVELS: Final = (0, _READ_COMMITTED)
_DONE: Final = object()
_Data = FetchResponse.PartitionData


class FileSlice:
    """A range of a segment file. It holds the file, so the range outlives the segment."""

    __slots__ = ("_file", "fd", "position", "size_bytes")

    def __init__(self, file: File, fd: int, position: int, size_bytes: int) -> None:
        self._file: File | None = file
        self.fd = fd
        self.position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def release(self) -> None:
        self._file = None


def handle(
    broker: Broker, call: Call, request: FetchRequest
) -> Generator[None, None, FetchResponse | Deferred]:
    replica = request.replica_state.replica_id if request.replica_state else request.replica_id
    if replica >= 0:
        # Only brokers are replicas, and there are no others (CVE-2018-1288).
        return refuse(request, ErrorCode.INVALID_REQUEST, call.api_version)
    if request.isolation_level not in _ISOLATION_LEVELS:
        return refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, call.api_version)
    by_id = call.api_version >= 13
    context = broker.fetch_sessions.open(
        session_id=request.session_id if call.api_version >= 7 else 0,
        session_epoch=request.session_epoch if call.api_version >= 7 else -1,
        wanted=_wanted(request, by_id=by_id),
        forgotten=_forgotten(request, by_id=by_id),
        uses_topic_ids=by_id,
        now_ms=broker.now_ms(),
        owner=call.connection,
        is_known=broker.topic_of,
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context)
    attempt = _Attempt(broker, call, request, context)
    with broker.waiting.noting() as noted:
        yield from attempt.look()
    attempt.look_again(noted)
    # Whoever queued behind it while it paused could not wake it: it must not wait now.
    is_in_the_way = call.is_large and call.connection.in_flight > 1
    no_wait = request.max_wait_ms <= 0 or broker.waiting.is_full or is_in_the_way
    if attempt.is_satisfied or no_wait:
        return attempt.response()
    attempt.wait()
    return LATER


def _wanted(request: FetchRequest, *, by_id: bool) -> list[FetchPartition]:
    wanted = [
        FetchPartition(
            topic.topic_id if by_id else topic.topic,
            partition.partition,
            partition.fetch_offset,
            partition.partition_max_bytes,
            partition.current_leader_epoch,
            partition.log_start_offset,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]
    if len(wanted) > 1:
        # What is asked for twice is answered once, as it was asked for last.
        once = {(each.topic, each.partition): each for each in wanted}
        if len(once) < len(wanted):
            return list(once.values())
    return wanted


def _forgotten(request: FetchRequest, *, by_id: bool) -> Iterable[Key]:
    return [
        (topic.topic_id if by_id else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


class _Attempt:
    """One look at the logs for a request, and another one after a wait."""

    def __init__(
        self, broker: Broker, call: Call, request: FetchRequest, context: FetchContext
    ) -> None:
        self._broker = broker
        self._call = call
        self._request = request
        self._context = context
        self._max_bytes = min(request.max_bytes, broker.config.limits.fetch_bytes)
        if call.throttling is not None:
            limit = call.throttling.fetch_bytes_max(call)
            self._max_bytes = self._max_bytes if limit is None else min(self._max_bytes, limit)
        # Who wants more at once than an answer may hold would wait for it in vain.
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._committed_only = request.isolation_level == _READ_COMMITTED
        self._results: list[tuple[FetchPartition, _Data]] = []
        self._watched: list[TopicPartition] = []
        self._size = 0
        # What a reply takes of which partition, for the counts of its topic.
        self._taken: dict[Partition, int] = {}
        self._failed = False
        # Of a partition there is more than goes into the answer: waiting makes it no larger.
        self._is_full = False

    @property
    def is_satisfied(self) -> bool:
        is_enough = self._size >= self._min_bytes or self._is_full
        return self._failed or is_enough or not self._results

    def look(self) -> Iterator[None]:
        """Read every partition; pauses if they are many."""
        self._watched = []
        self._size = 0
        self._is_full = False
        self._results = []
        self._taken = {}
        for number, wanted in enumerate(list(self._context.partitions), 1):
            self._results.append((wanted, self._read(wanted)))
            if number % _PARTITIONS_AT_ONCE == 0:
                yield

    def look_again(self, noted: set[TopicPartition]) -> None:
        """What came while ``look`` paused would wake nobody: nobody waits for it yet."""
        if noted and not self._failed:
            watched, self._watched = self._watched, []
            for index, (wanted, data) in enumerate(self._results):
                if watched[index] in noted:
                    self._size -= len(data.records or b"")
                    self._results[index] = (wanted, self._read(wanted))
                else:
                    self._watched.append(watched[index])

    def _read(self, wanted: FetchPartition) -> _Data:
        topic = self._call.topic(wanted.topic)
        if isinstance(topic, ErrorCode):
            return self._refused(wanted, topic, ())
        partition = self._broker.partitions.find(topic, wanted.partition)
        if isinstance(partition, ErrorCode):
            return self._refused(wanted, partition, ())
        if (fault := epoch_fault(partition, wanted.current_leader_epoch)) is not ErrorCode.NONE:
            return self._refused(wanted, fault)
        if partition is None:
            if wanted.fetch_offset != 0:
                return self._refused(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
            self._watched.append(TopicPartition(topic.name, wanted.partition))
            return _Data(
                partition_index=wanted.partition,
                last_stable_offset=0,
                log_start_offset=0,
                aborted_transactions=() if self._committed_only else None,
            )
        if self._max_bytes < 0 or wanted.max_bytes < 0:
            return self._refused(wanted, ErrorCode.UNKNOWN_SERVER_ERROR)
        log = partition.log
        room = min(self._max_bytes - self._size, wanted.max_bytes)
        stable = log.last_stable_offset
        # The first batch is returned whatever its size, or a large one would stop the consumer.
        found = log.read(
            wanted.fetch_offset,
            max(room, 0),
            min_one_batch=self._size == 0,
            max_offset=stable if self._committed_only else None,
        )
        if found.error is not ErrorCode.NONE:
            return self._refused(wanted, found.error)
        self._watched.append(partition.topic_partition)
        self._size += found.size
        end = stable if self._committed_only else found.high_watermark
        if 0 <= found.next_offset < end:
            self._is_full = True
        self._taken[partition] = found.size
        return _Data(
            partition_index=wanted.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=stable,
            log_start_offset=found.log_start_offset,
            # Null says that nobody asked.
            aborted_transactions=_aborted(log, wanted, found) if self._committed_only else None,
            records=_records(found),
        )

    def _refused(
        self, wanted: FetchPartition, code: ErrorCode, aborted: tuple[()] | None = None
    ) -> _Data:
        """What cannot be read; of what is not there, Kafka says that nothing was aborted in it."""
        self._failed = True
        return _Data(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=-1,
            aborted_transactions=aborted,
        )

    def wait(self) -> None:
        waiter = self._broker.waiting.wait(
            self._watched,
            missing_bytes=self._min_bytes - self._size,
            timeout_ms=min(self._request.max_wait_ms, _WAIT_MAX_MS),
            wake=self._woken,
            stable_only=self._committed_only,
        )
        self._results = []
        self._call.wake = waiter.finish

    def _woken(self) -> None:
        if not self._call.is_open:
            return
        self._call.wake = None
        with self._call.answered_or_cut():
            steps = self.look()
            if next(steps, _DONE) is _DONE:
                self._call.reply(self.response())
            else:
                self._broker.spawn(self._go_on(steps))

    async def _go_on(self, steps: Iterator[None]) -> None:
        turns = Turns()
        with self._call.answered_or_cut():
            for _ in steps:
                await turns.pause()
            self._call.reply(self.response())

    def response(self) -> FetchResponse:
        for partition, size in self._taken.items():
            partition.fetches += 1
            partition.fetched_bytes += size
        context = self._context
        topics: dict[str | bytes, FetchResponse.FetchableTopicResponse] = {}
        for wanted, data in self._results:
            if not context.worth_sending(
                wanted,
                error=ErrorCode.of(data.error_code),
                has_records=bool(data.records),
                high_watermark=data.high_watermark,
                last_stable_offset=data.last_stable_offset,
                log_start_offset=data.log_start_offset,
            ):
                continue
            entry = topics.get(wanted.topic)
            if entry is None:
                entry = topics[wanted.topic] = _topic_entry(wanted.topic)
            entry.partitions.append(data)  # type: ignore[attr-defined]  # a list, made above
        return FetchResponse(session_id=context.session_id, responses=list(topics.values()))


def _topic_entry(topic: str | bytes) -> FetchResponse.FetchableTopicResponse:
    if isinstance(topic, bytes):
        return FetchResponse.FetchableTopicResponse(topic_id=topic, partitions=[])
    return FetchResponse.FetchableTopicResponse(topic=topic, partitions=[])


def _aborted(
    log: PartitionLog, wanted: FetchPartition, found: ReadResult
) -> list[FetchResponse.AbortedTransaction]:
    """Whose records among these the reader must leave out."""
    if not found.size:
        return []
    return [
        FetchResponse.AbortedTransaction(producer_id=producer_id, first_offset=first_offset)
        for producer_id, first_offset in log.aborted_transactions(
            wanted.fetch_offset, found.next_offset
        )
    ]


def _records(found: ReadResult) -> Any:
    if found.file is None:
        # Empty, not null: librdkafka takes null for a broken message set.
        return b""
    fd = found.file.fd
    if fd < 0 or found.size < _COPY_BELOW_BYTES:
        return found.read_bytes()
    return FileSlice(found.file, fd, found.position, found.size)


def refuse(request: FetchRequest, code: ErrorCode, version: int) -> FetchResponse:
    if version >= 13:
        return FetchResponse(error_code=code)
    return FetchResponse(
        error_code=code if version >= 7 else ErrorCode.NONE,
        responses=[
            FetchResponse.FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    _Data(
                        partition_index=p.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=(),
                    )
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
