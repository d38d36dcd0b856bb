"""Reading exact offset ranges as Arrow batches: no group, no positions, nothing past the end.

Made for tasks that know what they want: ``[start, end)`` of some partitions. One request per
broker asks for all partitions that are not finished; a partition leaves as soon as its range is
read, so nothing is ever asked for that would have to wait for new data. The next answer is
fetched while the last one is decoded, and not more than one ahead.

Rule: what is returned depends on the ranges only. Reading a range again gives the same rows, or an
error that says which offsets are gone. With ``read_committed`` that holds, too, because nothing of
a range is returned before every transaction in it has ended.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, Unpack

from shoal.client.arguments import checks_arguments
from shoal.client.broker_links import Lane, Links
from shoal.client.cluster import Cluster
from shoal.client.config import AdminConfig, ConnectionConfig, config_of, one_of
from shoal.client.connection import Versioned
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.engine import Engine
from shoal.client.fetch_session import SessionRequest
from shoal.client.fetcher import Wanted, fetch_request, fetch_version
from shoal.client.leases import Lease
from shoal.client.offsets import ISOLATION_LEVELS, LATEST, isolation, list_offsets
from shoal.client.reactions import RequestReaction, reaction
from shoal.client.security import tls_context
from shoal.client.settings import ConnectionSettings
from shoal.errors import (
    ConnectionFailedError,
    CorruptDataError,
    ErrorCode,
    InvalidFrameError,
    OffsetRangeMissingError,
    RequestTimeoutError,
    RetriableError,
    ShoalError,
    error_for,
)
from shoal.records.arrow import need_arrow
from shoal.records.batch import next_offset
from shoal.records.chunks import Chunk, ChunkLike
from shoal.types import TopicPartition
from shoal.wire.apis.registry import ApiKey

if TYPE_CHECKING:
    import pyarrow as pa

Ranges = Mapping[TopicPartition, tuple[int, int]]

_SESSIONLESS: Final = (0, -1)
# A range lies before the end of its log, so an answer never waits; this bounds a mistake.
_MAX_WAIT_MS: Final = 100
_ANSWERS_AHEAD: Final = 1
_MIB: Final = 1024 * 1024


@checks_arguments()
class RangeReader:
    """Reads ranges; keeps its connections between reads. Safe to use from several threads.

    Settings are those of ``ConnectionConfig``::

        with RangeReader(bootstrap_servers="localhost:9092") as reader:
            for arrow_batch in reader.read({TopicPartition("orders", 0): (0, 1000)}):
                ...
    """

    def __init__(
        self, config: ConnectionConfig | None = None, **settings: Unpack[ConnectionSettings]
    ) -> None:
        self.config = config_of("RangeReader", ConnectionConfig, config, settings)
        self._engine = Engine("shoal-ranges")
        try:
            self._cluster = self._engine.call(_connect(self.config))
        except BaseException:
            self._engine.stop()
            raise

    @classmethod
    def shared(cls, **settings: Unpack[ConnectionSettings]) -> RangeReader:
        """The reader this process keeps for these settings; made when first asked for.

        Connections and metadata stay warm from task to task. Do not close it.
        """
        config = AdminConfig.from_settings(settings)
        # A forked process has no threads: it must not find its parent's readers.
        key = (os.getpid(), *(_hashable(getattr(config, f.name)) for f in fields(config)))
        with _shared_lock:
            reader = _shared.get(key)
            if reader is None:
                reader = _shared[key] = cls(config)
            return reader

    def read(
        self,
        ranges: Ranges,
        *,
        columns: Sequence[str] | None = None,
        max_bytes: int = 16 * _MIB,
        max_rows: int | None = None,
        fetch_max_bytes: int = 50 * _MIB,
        max_partition_fetch_bytes: int = 4 * _MIB,
        timeout: float | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> Iterator[pa.RecordBatch]:
        """The records of ``ranges``, each ``[start, end)``, as Arrow batches.

        Within a partition in order of offset. Fewer rows than offsets come where compaction or
        transaction markers left gaps.

        Args:
            columns: which and in what order; see ``shoal.records.columns``. All by default.
            max_bytes: one Arrow batch is made of about so much.
            max_rows: one Arrow batch has at most this many rows.
            timeout: no answer with progress for so many seconds is an error;
                ``default_api_timeout_ms`` by default.
            isolation_level: with read_committed, records of aborted transactions are left out,
                and those of an open one are waited for until it ends.

        Raises:
            OffsetRangeMissingError: offsets at the start of a range are gone from the log, or
                its end was never there.
            RequestTimeoutError: a partition cannot be read in time.
            BrokerError: a broker refused.
            CorruptDataError: a batch cannot be read.
        """
        need_arrow()
        from shoal.records.columns import iter_columns

        for chunks, lease in self._answers(
            ranges, fetch_max_bytes, max_partition_fetch_bytes, timeout, isolation_level
        ):
            yield from iter_columns(chunks, columns=columns, max_bytes=max_bytes, max_rows=max_rows)
            lease.release()  # columns are copies

    def read_chunks(
        self,
        ranges: Ranges,
        *,
        fetch_max_bytes: int = 50 * _MIB,
        max_partition_fetch_bytes: int = 4 * _MIB,
        timeout: float | None = None,
        isolation_level: str = "read_uncommitted",
    ) -> Iterator[list[ChunkLike]]:
        """As ``read``, but the batches as they came, for those who need their headers.

        A chunk's first and last batch may hold records outside of its range. Batches of aborted
        transactions are in it; with read_committed it says which those are.
        """
        for chunks, _ in self._answers(
            ranges, fetch_max_bytes, max_partition_fetch_bytes, timeout, isolation_level
        ):
            yield chunks  # to be kept as long as the caller likes: never released

    def _answers(
        self,
        ranges: Ranges,
        fetch_max_bytes: int,
        max_partition_fetch_bytes: int,
        timeout: float | None,
        isolation_level: str,
    ) -> Iterator[_Answer]:
        one_of("isolation_level", isolation_level, ISOLATION_LEVELS)
        for tp, (start, end) in ranges.items():
            if not 0 <= start <= end:
                raise ValueError(f"[{start}, {end}) is not a range of {tp}")
        timeout_s = self.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        plan = _Plan(
            dict(ranges), fetch_max_bytes, max_partition_fetch_bytes, timeout_s, isolation_level
        )
        stream = self._engine.call(_open(self._cluster, plan))
        try:
            while (answer := self._engine.call(stream.next())) is not None:
                yield answer
        finally:
            if self._engine.is_running:
                self._engine.call(stream.close())

    def close(self) -> None:
        """Close the connections. May be repeated."""
        if self._engine.is_running:
            try:
                self._engine.call(self._cluster.close())
            finally:
                self._engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_shared: dict[tuple[Any, ...], RangeReader] = {}
_shared_lock = threading.Lock()


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


async def _connect(config: ConnectionConfig) -> Cluster:
    return Cluster(config, Links(config, tls_context(config)))


async def _open(cluster: Cluster, plan: _Plan) -> _Stream:
    return _Stream(cluster, plan)


class _Answer(NamedTuple):
    """What one answer brought. Whoever takes it may release the lease, and else owns the memory."""

    chunks: list[ChunkLike]
    lease: Lease


class _Plan:
    """What is still to be read of each partition, and how much at a time."""

    def __init__(
        self,
        ranges: dict[TopicPartition, tuple[int, int]],
        fetch_max_bytes: int,
        partition_max_bytes: int,
        timeout_s: float,
        isolation_level: str = "read_uncommitted",
    ) -> None:
        self.left = {tp: (start, end) for tp, (start, end) in ranges.items() if start < end}
        self.fetch_max_bytes = fetch_max_bytes
        self.partition_max_bytes = partition_max_bytes
        self.timeout_s = timeout_s
        self.isolation = isolation(isolation_level)

    @property
    def is_committed(self) -> bool:
        return self.isolation == isolation("read_committed")


class _Stream:
    """One read under way. Lives on the engine's loop."""

    def __init__(self, cluster: Cluster, plan: _Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._answers: asyncio.Queue[_Answer | Exception | None] = asyncio.Queue(_ANSWERS_AHEAD)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def next(self) -> _Answer | None:
        """The chunks of the next answer and their lease; ``None`` at the end."""
        item = await self._answers.get()
        if isinstance(item, Exception):
            raise item
        return item

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        outcome: Exception | None = None
        try:
            await self._read_all()
        except Exception as error:  # noqa: BLE001 - handed to the reader's thread
            outcome = error
        await self._answers.put(outcome)

    async def _read_all(self) -> None:
        config = self._cluster.config
        backoff = RetryBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        deadline = Deadline(self._plan.timeout_s)
        while self._plan.left:
            topics = {tp.topic for tp in self._plan.left}
            await self._cluster.topics(topics, deadline)
            before = dict(self._plan.left)
            failure = await self._round()
            if self._plan.left != before:
                deadline = Deadline(self._plan.timeout_s)
                backoff.reset()
            elif deadline.has_passed:
                raise RequestTimeoutError(
                    f"nothing of {len(before)} ranges came within {self._plan.timeout_s:g} s, "
                    f"first {next(iter(before))}; last failure: {failure}"
                )
            if failure is not None:
                await deadline.sleep(backoff.next_s())
                stale = await asyncio.gather(
                    self._cluster.refresh(topics, deadline), return_exceptions=True
                )
                del stale  # a failed refresh shows in the next round

    async def _round(self) -> Exception | None:
        """One request to each leader; the first failure that may pass."""
        by_leader: dict[int, list[TopicPartition]] = {}
        failure: Exception | None = None
        for tp in self._plan.left:
            try:
                by_leader.setdefault(self._cluster.leader_id(tp), []).append(tp)
            except RetriableError as error:
                failure = error
        outcomes = await asyncio.gather(
            *(self._fetch(node_id, tps) for node_id, tps in by_leader.items()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if isinstance(
                outcome,
                RetriableError | ConnectionFailedError | RequestTimeoutError | InvalidFrameError,
            ):
                failure = outcome
            elif isinstance(outcome, BaseException):
                raise outcome
        return failure

    async def _fetch(self, node_id: int, partitions: list[TopicPartition]) -> None:
        wanted = {tp: self._wanted(tp) for tp in partitions}
        connection = await self._cluster.link(node_id, Lane.FETCH).connection()
        session = SessionRequest(*_SESSIONLESS, wanted, {})

        def build(_: int) -> Any:
            request = fetch_request(session)
            request.max_wait_ms = _MAX_WAIT_MS
            request.max_bytes = self._plan.fetch_max_bytes
            request.isolation_level = self._plan.isolation
            return request

        up_to = fetch_version(connection, wanted)
        lease = connection.lease()
        answer = await connection.send(Versioned(ApiKey.FETCH, build, up_to=up_to), lease=lease)
        if answer.error_code:
            if reaction("Fetch", answer.error_code) is RequestReaction.RAISE:
                raise error_for(answer.error_code)
            raise RetriableError(ErrorCode.of(answer.error_code))
        await self._handle(wanted, answer, lease)

    def _wanted(self, tp: TopicPartition) -> Wanted:
        topic = self._cluster.metadata.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            # Known a moment ago: somebody else's question was answered without it.
            raise RetriableError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
        epoch = topic.partitions[tp.partition].leader_epoch
        start, _ = self._plan.left[tp]
        return Wanted(
            topic.topic_id,
            -1 if epoch is None else epoch,
            start,
            self._plan.partition_max_bytes,
        )

    async def _handle(
        self, wanted: dict[TopicPartition, Wanted], answer: Any, lease: Lease
    ) -> None:
        names = {one.topic_id: tp.topic for tp, one in wanted.items() if one.topic_id}
        chunks: list[ChunkLike] = []
        bare: list[TopicPartition] = []
        failure: Exception | None = None
        for topic in answer.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                if tp not in wanted:
                    continue
                if partition.error_code:
                    failure = failure or self._failed(tp, partition)
                elif partition.high_watermark < self._plan.left[tp][1]:
                    failure = failure or await self._short(tp)
                elif not partition.records and self._plan.is_committed:
                    bare.append(tp)
                    failure = failure or self._held_back(tp, partition)
                else:
                    self._take(tp, partition, chunks)
        if chunks:
            await self._answers.put(_Answer(chunks, lease))
        elif failure is None:
            # A broker sends at least one batch if it has any: there is none up to the last stable
            # offset, because compaction took what was there.
            for tp in bare:
                del self._plan.left[tp]
        if failure is not None:
            raise failure

    def _take(self, tp: TopicPartition, partition: Any, chunks: list[ChunkLike]) -> None:
        start, end = self._plan.left[tp]
        data = partition.records
        upto = next_offset(data, start) if data else start
        if upto == start:
            if data:  # brokers send the first batch whole: its length must be wrong
                where = f"in {tp} at offset {start}"
                raise CorruptDataError(f"not one whole batch in {len(data)} bytes ({where})")
            return
        aborted = [
            (one.producer_id, one.first_offset) for one in partition.aborted_transactions or ()
        ]
        chunks.append(Chunk(tp.topic, tp.partition, data, start, min(upto, end), aborted))
        if upto >= end:
            del self._plan.left[tp]
        else:
            self._plan.left[tp] = (upto, end)

    def _held_back(self, tp: TopicPartition, partition: Any) -> Exception | None:
        """Why there is nothing to read yet, if a transaction that is open is the reason."""
        stable, (_, end) = partition.last_stable_offset, self._plan.left[tp]
        if stable >= end:
            return None
        return RetriableError(
            ErrorCode.OFFSET_NOT_AVAILABLE,
            f"a transaction is open in {tp} since offset {stable}, and {end - 1} is wanted",
        )

    async def _short(self, tp: TopicPartition) -> Exception:
        """The log seems to end too early, but a new leader may not know yet how much of it counts.

        Asked for its end, it has no answer until it does (KIP-207).
        """
        start, end = self._plan.left[tp]
        try:
            found = await list_offsets(self._cluster, {tp: LATEST}, Deadline(self._plan.timeout_s))
        except ShoalError as error:
            return error
        known = found[tp]
        if known is not None and known.offset < end:
            return OffsetRangeMissingError(tp, start, end, f"the log ends at {known.offset}")
        return RetriableError(ErrorCode.OFFSET_NOT_AVAILABLE, str(tp))

    def _failed(self, tp: TopicPartition, partition: Any) -> Exception:
        code = partition.error_code
        start, end = self._plan.left[tp]
        outcome = reaction("Fetch", code)
        if outcome is RequestReaction.RESET_POSITION:
            log_start = partition.log_start_offset
            where = f"the log starts at {log_start}" if log_start >= 0 else "outside the log"
            return OffsetRangeMissingError(tp, start, end, where)
        if outcome is RequestReaction.RAISE:
            return error_for(code, str(tp))
        if outcome is RequestReaction.REFRESH:
            self._cluster.mark_stale()
        return RetriableError(ErrorCode.of(code), str(tp))
