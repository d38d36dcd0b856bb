"""Memory that is used again is never memory somebody still reads.

The end-to-end tests scribble over memory the moment it is given back. Whoever looks at it after
that reads nonsense at once, on every version of Python, instead of once in a while.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from shoal import AsyncConsumer, Consumer, Producer, RangeReader, TopicPartition
from shoal.client.config import ConsumerConfig
from shoal.client.leases import Buffers, Pieces
from shoal.client.producer_batch import ProducerBatch
from shoal.wire.apis.metadata import MetadataRequest
from tests.client.conftest import take
from tests.client.scripted import ScriptedBroker
from tests.client.virtual import opener, run

VALUES = 60
SIZE = 120_000
TOPIC_BYTES = VALUES * SIZE


# --- a lease alone ---


def test_memory_comes_back_when_the_last_holder_releases_it():
    buffers = Buffers(10**6)
    lease = buffers.lease()
    view = lease.fill(100_000)
    assert len(view) == 100_000
    lease.hold()
    for _ in range(2):
        lease.release()
        assert buffers.take(100_000) is not view.obj
    lease.release()
    assert buffers.take(100_000) is view.obj
    assert buffers.take(100_000) is not view.obj


def test_a_lease_of_an_answer_that_was_small_gives_nothing_back():
    buffers = Buffers(10**6)
    buffers.lease().release()
    assert not buffers._free


def test_a_lease_that_is_released_too_often_says_so():
    lease = Buffers(10**6).lease()
    lease.release()
    with pytest.raises(AssertionError, match="more often than held"):
        lease.release()


def test_what_is_kept_for_the_next_is_bounded():
    buffers = Buffers(10**6)
    memory = [buffers.take(300_000) for _ in range(5)]
    for one in memory:
        buffers.give_back(one)
    assert sum(map(len, buffers._free)) == buffers._free_bytes <= 10**6
    assert buffers._free[-1] is memory[-1]  # the last used is still in the processor's cache
    buffers.give_back(bytearray(2 * 10**6))
    assert buffers._free_bytes <= 10**6


def test_the_least_that_is_large_enough_is_taken():
    buffers = Buffers(10**7)
    large, small = bytearray(10**6), bytearray(500_000)
    buffers.give_back(large)
    buffers.give_back(small)
    assert buffers.take(400_000) is small
    assert buffers.take(400_000) is large
    assert not buffers._free_bytes


def test_a_piece_is_free_when_it_is_full_and_nobody_looks_at_it():
    buffers = Buffers(10**7)
    pieces = Pieces(buffers)
    first = pieces.take(100_000).obj
    parts = [pieces.hold(), pieces.hold()]
    assert parts[0] is parts[1]
    second = pieces.take(100_000).obj
    assert second is not first
    parts[0].release()
    assert not buffers._free
    parts[1].release()
    assert buffers._free == [first]
    pieces.done()
    pieces.done()
    assert sorted(map(id, buffers._free)) == sorted([id(first), id(second)])


@pytest.mark.parametrize(("error", "is_reused"), [(None, True), (RuntimeError(), False)])
def test_memory_of_a_batch_is_used_again_if_it_was_stored_and_not_if_it_failed(error, is_reused):
    """A connection may be in the middle of sending what was given up."""
    buffers = Buffers(10**6)
    lease = buffers.lease()
    batch = ProducerBatch(TopicPartition("t", 0), 0.0)
    batch.prebuilt, batch.lease = lease.fill(100_000), lease
    lease.release()
    memory = batch.prebuilt.obj
    batch.finish(error)
    assert (buffers.take(100_000) is memory) is is_reused


def test_answers_that_come_together_lie_each_in_the_memory_of_its_own_request():
    """A small one and the beginning of a large one in the same piece of the stream."""

    class Answers(ScriptedBroker):
        def _metadata(self, code):
            answer = super()._metadata(code)
            size = 1 if self.asked["Metadata"] == 1 else 200_000
            answer.cluster_id = "c"
            answer.brokers[0].rack = "r" * 10
            answer.brokers = list(answer.brokers) * (1 + size // 30)
            return answer

    with Answers() as broker:

        async def ask():
            buffers = Buffers(10**7)
            config = ConsumerConfig(bootstrap_servers=broker.servers)
            connection = await opener(broker)("h", 1, config, None, buffers)
            pipe = connection._transport
            pieces: list[Any] = []
            pipe._deliver = pieces.append  # both answers, in one piece
            small, large = connection.lease(), connection.lease()
            answers = [
                connection.send(MetadataRequest(topics=[]), lease=lease) for lease in (small, large)
            ]
            await asyncio.sleep(1)
            del pipe._deliver
            pipe._deliver(b"".join(pieces))
            await asyncio.gather(*answers)
            small.release()
            kept = len(buffers._free)
            large.release()
            return kept, len(buffers._free)

        assert run(ask())[0] == (0, 1), "only who asked for the large one can give it back"


# --- all the way ---


@pytest.fixture
def scribbled(monkeypatch):
    """Counts what is given back, and spoils it."""
    spoiled = []
    give_back = Buffers.give_back

    def spoil(self, buffer):
        buffer[:] = b"\xdd" * len(buffer)
        spoiled.append(id(buffer))
        give_back(self, buffer)

    monkeypatch.setattr(Buffers, "give_back", spoil)
    return spoiled


def value(partition, n):
    return f"{partition}-{n}-".encode().ljust(SIZE, bytes([n % 200 + 1]))


@pytest.fixture
def filled(producer, new_topic):
    topic = new_topic(3)
    for n in range(VALUES):
        producer.send(topic, value(n % 3, n), partition=n % 3)
    producer.flush(30)
    return topic


def expected():
    return sorted(value(n % 3, n) for n in range(VALUES))


def small_fetches(servers, **settings):
    """Many answers under way, buffered and half read at the same time."""
    return {
        "bootstrap_servers": servers,
        "auto_offset_reset": "earliest",
        "max_partition_fetch_bytes": 300_000,
        **settings,
    }


@pytest.mark.parametrize("check_crcs", [True, False])
def test_records_keep_their_bytes_while_memory_is_used_again(
    servers, filled, scribbled, check_crcs
):
    with Consumer(**small_fetches(servers, check_crcs=check_crcs)) as one:
        one.assign([TopicPartition(filled, n) for n in range(3)])
        records = [record for _ in range(VALUES) for record in take(one, 1)]
    assert sorted(record.value for record in records) == expected()
    assert len(scribbled) > 5


def test_records_of_a_loop_keep_their_bytes_too(servers, filled, scribbled):
    with Consumer(**small_fetches(servers, check_crcs=False)) as one:
        one.assign([TopicPartition(filled, n) for n in range(3)])
        values = []
        for record in one:
            values.append(record.value)
            if len(values) == VALUES:
                break
    assert sorted(values) == expected()
    assert len(scribbled) > 5


def test_columns_keep_their_bytes_while_memory_is_used_again(servers, filled, scribbled):
    with Consumer(**small_fetches(servers, check_crcs=False)) as one:
        one.assign([TopicPartition(filled, n) for n in range(3)])
        parts, rows = [], 0
        while rows < VALUES:
            parts.append(one.poll_arrow(10, max_records=2))
            rows += parts[-1].num_rows
    values = [value for part in parts for value in part["value"].to_pylist()]
    assert sorted(values) == expected()
    assert len(scribbled) > 5


def test_an_awaiting_consumer_reads_right_bytes_too(servers, filled, scribbled):
    async def body():
        values: list[Any] = []
        async with AsyncConsumer(**small_fetches(servers, check_crcs=False)) as one:
            await one.assign([TopicPartition(filled, n) for n in range(3)])
            while len(values) < VALUES:
                values += [record.value for record in await one.poll(10, max_records=1)]
        return values

    assert sorted(asyncio.run(body())) == expected()
    assert len(scribbled) > 5


def test_memory_of_what_a_seek_threw_away_is_used_again_and_read_right(servers, filled, scribbled):
    tps = [TopicPartition(filled, n) for n in range(3)]
    with Consumer(**small_fetches(servers, check_crcs=False)) as one:
        one.assign(tps)
        for _ in range(10):
            assert take(one, 1)[0].value in expected()
            for tp in tps:
                one.seek(tp, 0)
        records = [record for _ in range(VALUES) for record in take(one, 1)]
    assert sorted(record.value for record in records) == expected()
    assert len(scribbled) > 5


def test_ranges_keep_their_bytes_while_memory_is_used_again(servers, filled, scribbled):
    ranges = {TopicPartition(filled, n): (0, VALUES // 3) for n in range(3)}
    with RangeReader(bootstrap_servers=servers) as reader:
        parts = list(reader.read(ranges, max_partition_fetch_bytes=300_000))
        chunks = [
            bytes(chunk[2])
            for kept in list(reader.read_chunks(ranges, max_partition_fetch_bytes=300_000))
            for chunk in kept
        ]
    values = [value for part in parts for value in part["value"].to_pylist()]
    assert sorted(values) == expected()
    assert len(scribbled) > 2
    whole = b"".join(chunks)
    assert all(value in whole for value in expected())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_batches_keep_their_bytes_until_they_are_stored(servers, new_topic, scribbled, acks):
    topic = new_topic(1)
    with Producer(bootstrap_servers=servers, acks=acks) as producer:
        for n in range(VALUES):
            producer.send_arrow(topic, pa.table({"value": [value(0, n)]}), partition=0)
        producer.flush(30)
    assert len(scribbled) > VALUES // 2
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as one:
        one.assign([TopicPartition(topic, 0)])
        assert [r.value for r in take(one, VALUES)] == [value(0, n) for n in range(VALUES)]


def test_a_long_read_makes_do_with_the_memory_of_a_few_answers(servers, filled, monkeypatch):
    taken = []
    take_memory = Buffers.take

    def noted(self, size):
        buffer = take_memory(self, size)
        taken.append(buffer)  # kept, so that each has an id of its own
        return buffer

    monkeypatch.setattr(Buffers, "take", noted)
    settings = {"fetch_buffer_bytes": 1_000_000, "fetch_max_bytes": 300_000}
    with Consumer(**small_fetches(servers, **settings)) as one:
        for _ in range(3):
            one.assign([TopicPartition(filled, n) for n in range(3)])
            one.seek_to_beginning()
            read = 0
            while read < VALUES:
                read += one.poll_arrow(10, max_records=2).num_rows
    assert len(taken) > 3 * TOPIC_BYTES // 1_000_000
    assert len({id(buffer) for buffer in taken}) <= len(taken) // 3
