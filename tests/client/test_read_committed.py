"""What a consumer with ``read_committed`` returns, against a model that looks at every record.

The model knows which transaction each record belongs to and how that ended. The reader knows bytes
and, for each answer, the list of aborted transactions a broker sends along.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import Consumer, TopicPartition
from shoal.client.config import ConsumerConfig
from shoal.client.fetch_buffer import Buffer, FetchedChunk, RecordReader, extent
from shoal.client.positions import Positions
from shoal.records.batch import encode_batch
from shoal.records.chunks import Chunk
from shoal.records.columns import decode_columns, decode_first
from shoal.records.markers import encode_marker
from shoal.wire.apis.fetch import FetchResponse
from shoal.wire.apis.list_offsets import ListOffsetsResponse
from shoal.wire.apis.registry import ApiKey
from tests.client.conftest import take
from tests.client.scripted import ScriptedBroker
from tests.records.generate import each_kernel, using

T0 = TopicPartition("t", 0)


class Stored(NamedTuple):
    """One batch in the model's log."""

    base: int
    last: int
    data: bytes
    values: tuple[bytes, ...]
    transaction: int | None


class ModelLog:
    """A log as transactional and plain producers make one; keeps how each transaction ended."""

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.end = 0
        self.open: dict[int, int] = {}  # producer to transaction
        self.first: dict[int, int] = {}  # transaction to first offset
        self.aborted: list[tuple[int, int, int]] = []  # producer, first and last offset
        self.outcome: dict[int, bool] = {}

    def send(self, producer_id: int, count: int, codec: int, *, transactional: bool) -> None:
        if transactional and producer_id not in self.open:
            number = len(self.first)
            self.open[producer_id] = number
            self.first[number] = self.end
        transaction = self.open.get(producer_id) if transactional else None
        values = tuple(f"{self.end + n}".encode() for n in range(count))
        data = encode_batch(
            [(None, value, (), 0) for value in values],
            base_offset=self.end,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=transactional,
        )
        self._append(data, count, values, transaction)

    def finish(self, producer_id: int, *, commit: bool) -> None:
        transaction = self.open.pop(producer_id, None)
        if transaction is not None:
            self.outcome[transaction] = commit
            if not commit:
                self.aborted.append((producer_id, self.first[transaction], self.end))
        data = encode_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=0,
            timestamp_ms=0,
            base_offset=self.end,
        )
        self._append(data, 1, (), None)

    def _append(
        self, data: bytes, count: int, values: tuple[bytes, ...], transaction: int | None
    ) -> None:
        self.batches.append(Stored(self.end, self.end + count - 1, data, values, transaction))
        self.end += count

    @property
    def stable(self) -> int:
        return min(
            (self.first[transaction] for transaction in self.open.values()), default=self.end
        )

    def committed(self, start: int) -> list[tuple[int, bytes]]:
        """Record by record: below the last stable offset, of no transaction or a committed one."""
        return [
            (batch.base + n, value)
            for batch in self.batches
            for n, value in enumerate(batch.values)
            if start <= batch.base + n < self.stable
            and (batch.transaction is None or self.outcome[batch.transaction])
        ]

    def fetch(self, offset: int, batches: int) -> tuple[bytes, list[tuple[int, int]]]:
        """Whole batches from the one with ``offset`` on, and the aborted transactions in them."""
        found = [b for b in self.batches if b.last >= offset and b.base < self.stable][:batches]
        upper = found[-1].last + 1 if found else offset
        aborted = [
            (producer, first)
            for producer, first, last in self.aborted
            if last >= offset and first < upper
        ]
        return b"".join(batch.data for batch in found), aborted


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["send", "send", "plain", "commit", "abort"]),
        st.integers(1, 3),  # producer
        st.integers(1, 4),  # records
        st.sampled_from([0, 0, 1]),  # codec
    ),
    max_size=40,
)


def log_of(steps: list[tuple[str, int, int, int]]) -> ModelLog:
    log = ModelLog()
    for what, producer, count, codec in steps:
        if what in ("commit", "abort"):
            log.finish(producer, commit=what == "commit")
        else:
            log.send(producer, count, codec, transactional=what == "send")
    return log


class Reading:
    """A reader on a buffer that is filled as a fetcher does it."""

    def __init__(self, log: ModelLog, start: int) -> None:
        self.log = log
        positions = Positions()
        positions.own([T0])
        self.state = positions[T0]
        self.state.seek(start)
        self.buffer = Buffer(positions, lambda: None)
        self.reader = RecordReader(self.buffer, ConsumerConfig(isolation_level="read_committed"))

    def fetch(self, batches: int) -> bool:
        data, aborted = self.log.fetch(self.state.fetch_offset, batches)
        if not data:
            return False
        end, epochs, _ = extent(memoryview(data), self.state.fetch_offset)
        self.state.fetch_offset = end
        self.buffer.add(FetchedChunk(self.state, memoryview(data), end, epochs, None, aborted))
        return True

    def take(self, limit: int, *, arrow: bool) -> list[tuple[int, bytes]]:
        if not arrow:
            return [(record.offset, record.value) for record in self.reader.take(limit)]
        taken = self.reader.take_arrow(limit)
        if taken is None:
            return []
        assert 0 < taken.num_rows <= limit
        return list(zip(taken["offset"].to_pylist(), taken["value"].to_pylist(), strict=True))


@each_kernel
@settings(max_examples=150)
@given(
    STEPS,
    st.integers(0, 30),
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(1, 9), st.booleans()), min_size=1, max_size=12
    ),
)
def test_exactly_the_committed_records_are_returned_however_they_are_read(
    kernel_name, steps, start, reads
):
    log = log_of(steps)
    start = min(start, log.stable)
    reading = Reading(log, start)
    found = []
    with using(kernel_name):
        for number in range(10_000):
            batches, limit, arrow = reads[number % len(reads)]
            came = reading.fetch(batches)
            taken = reading.take(limit, arrow=arrow)
            found += taken
            if not came and not taken:
                break
    assert found == log.committed(start)
    assert reading.state.position == log.stable, "the position is past what was left out"


def long_log(count: int) -> ModelLog:
    """Every second record aborted, two producers at once."""
    log = ModelLog()
    for _ in range(count):
        log.send(1, 2, 0, transactional=True)
        log.send(2, 2, 0, transactional=True)
        log.finish(1, commit=False)
        log.finish(2, commit=True)
    return log


@each_kernel
def test_a_seek_into_an_aborted_transaction_shows_none_of_it(kernel_name):
    log = ModelLog()
    log.send(1, 3, 0, transactional=True)
    log.send(1, 3, 0, transactional=True)
    log.finish(1, commit=False)
    log.send(1, 1, 0, transactional=True)
    log.finish(1, commit=True)
    for start in range(log.end + 1):
        reading = Reading(log, start)
        reading.fetch(100)
        with using(kernel_name):
            assert reading.take(100, arrow=False) == log.committed(start)


def test_columns_with_gaps_are_decoded_once():
    # Markers leave gaps in every transactional log: a second look would double the work.
    log = long_log(50)
    reading = Reading(log, 0)
    reading.fetch(10_000)
    taken = reading.reader.take_arrow(10_000)
    assert taken is not None
    assert taken.num_rows == 100
    assert reading.state.position == log.end
    assert not reading.buffer.has_ready


@each_kernel
def test_a_first_part_that_is_not_all_says_so(kernel_name):
    data, aborted = long_log(50).fetch(0, 10_000)
    chunk = Chunk("t", 0, data, 0, None, aborted)
    with using(kernel_name):
        whole, _ = decode_first([chunk], max_bytes=10**9)
        part, is_all = decode_first([chunk], max_bytes=200)
        nothing, is_nothing_all = decode_first([("t", 0, b"", 0, None)], max_bytes=200)
        assert decode_columns([chunk]).equals(whole)
    assert part.num_rows < whole.num_rows == 100
    assert not is_all
    assert (nothing.num_rows, is_nothing_all) == (0, True)


def test_a_level_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="isolation_level='serializable' is not one of"):
        ConsumerConfig(isolation_level="serializable")


# --- with a broker that has open and aborted transactions ---


class ScriptedLog(ScriptedBroker):
    """Answers fetches from a model's log, by the isolation level it is asked for."""

    def __init__(self, log: ModelLog) -> None:
        super().__init__()
        self.log = log

    def _message(self, key: ApiKey, request: Any, code: int) -> Any:
        if key is not ApiKey.LIST_OFFSETS:
            return super()._message(key, request, code)
        is_start = request.topics[0].partitions[0].timestamp == -2
        end = self.log.stable if request.isolation_level else self.log.end
        part = ListOffsetsResponse.PartitionResponse(
            partition_index=0, offset=0 if is_start else end
        )
        return ListOffsetsResponse(
            topics=[ListOffsetsResponse.TopicResponse(name="t", partitions=[part])]
        )

    def _fetch(self, request: Any, code: int) -> FetchResponse:
        log = self.log
        offset = request.topics[0].partitions[0].fetch_offset if request.topics else log.end
        aborted = None
        if request.isolation_level:
            data, listed = log.fetch(offset, 1000)
            aborted = [
                FetchResponse.AbortedTransaction(producer_id=producer, first_offset=first)
                for producer, first in listed
            ]
        else:
            data = b"".join(batch.data for batch in log.batches if batch.last >= offset)
        part = FetchResponse.PartitionData(
            partition_index=0,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            aborted_transactions=aborted,
            records=data,
        )
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[part])
        return FetchResponse(responses=[topic])


@pytest.fixture
def some_log() -> ModelLog:
    """Two committed records, then two aborted, then one that is open."""
    log = ModelLog()
    for commit in (True, False):
        log.send(1, 2, 0, transactional=True)
        log.finish(1, commit=commit)
    log.send(2, 1, 0, transactional=True)
    return log


@pytest.mark.parametrize("arrow", [False, True])
def test_a_consumer_asks_for_and_returns_what_is_committed(some_log, arrow):
    settings: dict[str, Any] = {
        "isolation_level": "read_committed",
        "auto_offset_reset": "earliest",
    }
    with (
        ScriptedLog(some_log) as broker,
        Consumer(bootstrap_servers=broker.servers, **settings) as one,
    ):
        one.assign([T0])
        found: list[int] = []
        while one.position(T0) < some_log.stable:
            if arrow:
                found += one.poll_arrow(1)["offset"].to_pylist()
            else:
                found += [record.offset for record in one.poll(1)]
        assert found == [0, 1]
        assert one.lag(T0) == 0
        assert one.end_offsets([T0]) == {T0: 6}
        one.seek_to_end(T0)
        assert one.position(T0) == 6


def test_without_asking_everything_is_returned(some_log):
    with (
        ScriptedLog(some_log) as broker,
        Consumer(bootstrap_servers=broker.servers, auto_offset_reset="earliest") as one,
    ):
        one.assign([T0])
        assert [record.offset for record in take(one, 5)] == [0, 1, 3, 4, 6]
        assert one.end_offsets([T0]) == {T0: 7}
        assert one.lag(T0) == 0
