"""Parts that are easier to hold to account alone: metadata, buffers, chunks, links, timing."""

from __future__ import annotations

import asyncio
import gc
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import Admin, Consumer, TopicPartition
from shoal.client.accumulator import Builder, ProducerBatch
from shoal.client.config import ConsumerConfig
from shoal.client.connection import Buffers, _Frames
from shoal.client.metadata import Metadata, merged
from shoal.client.positions import EARLIEST, Positions
from shoal.client.reading import Buffer, Chunk, Reader, extent
from shoal.client.stamping import stamp
from shoal.client.timing import Backoff, Deadline
from shoal.errors import (
    CorruptDataError,
    ErrorCode,
    InvalidFrameError,
    NoOffsetForPartitionError,
)
from shoal.records.batch import (
    checksum_holds,
    encode_batch,
    iter_headers,
    next_offset,
    read_header,
)
from shoal.records.compression import Codec
from shoal.wire.apis.metadata import MetadataResponse
from tests.client.scripted import RECORDS, ScriptedBroker

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


# --- metadata ---


def described(leader, epoch, *, name="t", topic_id=b"i" * 16, error=0):
    part = MetadataResponse.Partition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = MetadataResponse.Topic(
        name=name, topic_id=topic_id, error_code=error, partitions=[part]
    )
    brokers = [MetadataResponse.Broker(node_id=n, host="h", port=n) for n in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic], controller_id=1)


def test_an_older_answer_does_not_bring_an_old_leader_back():
    new = merged(Metadata(), described(2, 5), {"t"})
    assert merged(new, described(1, 4), {"t"}).leader_of(T0).leader_id == 2
    assert merged(new, described(1, 6), {"t"}).leader_of(T0).leader_id == 1
    assert merged(new, described(1, -1), {"t"}).leader_of(T0).leader_id == 1


def test_a_topic_made_anew_starts_its_epochs_again():
    old = merged(Metadata(), described(2, 5), {"t"})
    new = merged(old, described(1, 0, topic_id=b"j" * 16), {"t"})
    assert new.leader_of(T0).leader_id == 1


def test_an_answer_about_some_topics_leaves_the_others():
    both = merged(merged(Metadata(), described(1, 0), {"t"}), described(1, 0, name="u"), {"u"})
    assert set(both.topics) == {"t", "u"}
    gone = merged(both, described(1, 0, error=3), {"t"})
    assert set(gone.topics) == {"u"}
    assert gone.errors == {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert set(merged(gone, described(1, 0), None).topics) == {"t"}
    assert gone.leader_of(T0) is None
    assert gone.partition_infos("t") == []


# --- frames and their memory ---


@settings(max_examples=40)
@given(st.lists(st.integers(4, 150_000), max_size=4), st.lists(st.integers(1, 9000), min_size=1))
def test_frames_come_out_whole_however_the_stream_is_cut(sizes, cuts):
    frames = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader, found, position, turn = _Frames(10**6, Buffers(10**6)), [], 0, cycle(cuts)
    while position < len(stream):
        room = reader.room()
        count = min(len(room), len(stream) - position, next(turn))
        room[:count] = stream[position : position + count]
        position += count
        found += [bytes(frame) for frame in reader.filled(count)]
    assert found == frames


def test_a_frame_of_impossible_size_is_refused():
    for size in (-1, 0, 3, 101):
        reader = _Frames(100, Buffers(100))
        room = reader.room()
        room[:4] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(InvalidFrameError, match="allowed: 100"):
            reader.filled(4)


def test_a_buffer_is_used_again_only_when_nobody_looks_at_it():
    buffers = Buffers(10**6)
    one = buffers.take(100_000)
    part = one[10:20]
    other = buffers.take(100_000)
    assert other.obj is not one.obj
    first = id(one.obj)
    del one
    assert id(buffers.take(100_000).obj) != first  # a slice still looks
    del part
    gc.collect()
    assert id(buffers.take(100_000).obj) == first


# --- chunks ---


def batches(*ranges):
    return b"".join(
        encode_batch([(None, str(n).encode(), (), n) for n in range(*r)], base_offset=r[0])
        for r in ranges
    )


def clear_extent(data, offset):
    """The same in plain words."""
    epochs = []
    for _, header in iter_headers(data):
        offset = max(offset, header.next_offset)
        if header.leader_epoch >= 0 and (not epochs or epochs[-1][1] != header.leader_epoch):
            epochs.append((header.base_offset, header.leader_epoch))
    return offset, epochs


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 2)), max_size=5),
    st.integers(0, 3),
    st.integers(0, 10_000),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=2),
)
def test_hopping_from_batch_to_batch_finds_what_reading_every_header_finds(runs, start, cut, flips):
    data, base = bytearray(), start
    for count, epoch in runs:
        records = [(None, b"v", (), 0)] * count
        data += encode_batch(records, base_offset=base, leader_epoch=epoch)
        base += count
    if cut % 3 == 0 and data:
        del data[cut % len(data) :]
    for place, value in flips:
        if data:
            data[place % len(data)] = value
    try:
        expected = clear_extent(bytes(data), start)
    except CorruptDataError as error:
        with pytest.raises(type(error)):
            extent(bytes(data), start)
    else:
        assert extent(memoryview(data), start) == expected


def reader_of(*chunks, **settings):
    """A reader over chunks of T0 and T1, positions at 0."""
    positions = Positions()
    positions.own([T0, T1])
    for state in positions:
        state.seek(0)
    buffer = Buffer(positions, lambda: None)
    for tp, data in chunks:
        state = positions[tp]
        state.fetch_offset = end = next_offset(data, state.fetch_offset)
        buffer.add(Chunk(state, memoryview(data), end))
    return Reader(buffer, ConsumerConfig(**settings)), positions, buffer


def test_a_bad_batch_names_its_place_others_go_on_and_seek_passes_it():
    bad = bytearray(batches((0, 3), (3, 6), (6, 9)))
    bad[len(bad) // 2] ^= 1
    reader, positions, buffer = reader_of((T0, bytes(bad)), (T1, batches((0, 2))))
    assert [r.offset for r in reader.take(10)] == [0, 1, 2]
    with pytest.raises(CorruptDataError, match="t-0 at offset 3"):
        reader.take(10)
    assert [(r.partition, r.offset) for r in reader.take(10)] == [(1, 0), (1, 1)]
    with pytest.raises(CorruptDataError, match="t-0 at offset 3"):
        reader.take(10)
    assert positions[T0].position == 3
    positions[T0].seek(6)
    assert reader.take(10) == []
    assert positions[T0].buffered_bytes == 0
    assert not buffer.has_ready


def test_a_bad_batch_in_columns_does_the_same():
    bad = bytearray(batches((0, 3), (3, 6)))
    bad[-1] ^= 1
    reader, positions, _ = reader_of((T0, bytes(bad)), (T1, batches((0, 2))))
    assert reader.take_arrow(10).column("offset").to_pylist() == [0, 1, 2]
    with pytest.raises(CorruptDataError, match="t-0 at offset 3"):
        reader.take_arrow(10)
    assert reader.take_arrow(10).column("partition").to_pylist() == [1, 1]
    assert (positions[T0].position, positions[T1].position) == (3, 2)


def test_a_bad_batch_behind_chunks_without_rows_is_named_in_columns_too():
    nothing = encode_batch([(bytes(4), bytes(6), (), 0)], base_offset=2, is_control=True)
    bad = bytearray(batches((0, 3)))
    bad[-1] ^= 1
    reader, positions, _ = reader_of((T0, batches((0, 2))), (T0, nothing), (T1, bytes(bad)))
    assert reader.take_arrow(10).column("offset").to_pylist() == [0, 1]
    assert reader.take_arrow(10).num_rows == 0
    assert positions[T0].position == 3
    with pytest.raises(CorruptDataError, match="t-1 at offset 0"):
        reader.take_arrow(10)


@pytest.mark.slow
def test_columns_of_what_is_compressed_very_well_come_in_parts():
    # The topic is repeated in every row: a long name leaves less room in an Arrow batch.
    tp = TopicPartition("t" * 249, 0)
    record = (None, bytes(2**20), (), 0)
    data = b"".join(
        encode_batch([record] * 20, base_offset=n, codec=Codec.ZSTD) for n in range(0, 100, 20)
    )
    positions = Positions()
    positions.own([tp])
    positions[tp].seek(0)
    buffer = Buffer(positions, lambda: None)
    buffer.add(Chunk(positions[tp], memoryview(data), 100))
    reader = Reader(buffer, ConsumerConfig())
    offsets = []
    while (part := reader.take_arrow(1000)) is not None:
        offsets += part.column("offset").to_pylist()
    assert offsets == [*range(100)]


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.lists(st.tuples(st.booleans(), st.integers(1, 7)), min_size=1, max_size=40),
)
@pytest.mark.slow
def test_however_it_is_taken_every_offset_comes_once_and_in_order(sizes, takes):
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    data = batches(*((end - size, end) for size, end in zip(sizes, ends, strict=True)))
    reader, positions, _ = reader_of((T0, data))
    found = []
    for as_columns, limit in takes:
        if as_columns:
            arrow_batch = reader.take_arrow(limit)
            part = [] if arrow_batch is None else arrow_batch.column("offset").to_pylist()
        else:
            part = [record.offset for record in reader.take(limit)]
        assert len(part) <= limit
        found += part
        assert positions[T0].position >= len(found)
    assert found == [*range(len(found))]
    if sum(limit for _, limit in takes) >= ends[-1]:
        assert len(found) == ends[-1]


def test_what_is_gone_or_held_is_not_returned():
    reader, positions, buffer = reader_of((T0, batches((0, 3))), (T1, batches((0, 3))))
    positions[T1].is_held = True
    assert {r.partition for r in reader.take(10)} == {0}
    positions.forget([T1])
    buffer.discard_revoked()
    assert reader.take(10) == []
    positions.own([T0, T1])
    assert positions[T1].needs_position
    positions[T1].reset(EARLIEST)
    assert not positions[T1].needs_position


# --- producer's parts ---


@given(st.lists(st.binary(max_size=300), min_size=2, max_size=30))
def test_the_estimate_of_a_batch_is_never_too_small(values):
    builder = Builder(10**6)
    for value in values:
        builder.append(value, value, [("h", value)], 0)
    records = [(value, value, [("h", value)], 0) for value in values]
    assert len(encode_batch(records)) <= builder.size_bytes
    left, right = builder.split()
    assert left.records + right.records == records


def test_a_split_batch_keeps_its_waiters_and_callbacks():
    batch = ProducerBatch(T0, 0.0)
    batch.builder = Builder(1000)
    for n in range(4):
        batch.builder.append(None, str(n).encode(), (), 0)
    batch.record_count = 4
    told = []
    for n in range(4):
        batch.add_callback(n, lambda n=n: told.append(n))
    first, second = batch.split()
    first.base_offset, second.base_offset = 10, 90
    for callback in [*second.finish(None), *first.finish(None)]:
        callback()
    assert told == [2, 3, 0, 1]
    assert [batch.wait(n, 0) for n in range(4)] == [
        (first, 0),
        (first, 1),
        (second, 0),
        (second, 1),
    ]
    batch.add_callback(3, lambda: told.append("late"))
    assert told[-1] == "late"


def test_a_stamp_changes_the_producer_and_keeps_the_checksum_true():
    batch = memoryview(bytearray(encode_batch([(None, b"v", (), 1)], base_offset=77)))
    stamp(batch, 5, 6, 7)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert header.base_offset == 0
    assert checksum_holds(batch)


# --- time ---


def test_backoff_doubles_with_jitter_up_to_its_longest():
    backoff = Backoff(100, 1000)
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert expected * 0.8 <= backoff.next_s() <= expected * 1.2
    backoff.reset()
    assert backoff.next_s() <= 0.12


def test_a_deadline_without_an_end_never_passes():
    async def run():
        assert not Deadline(None).has_passed
        assert Deadline(None).limit(3) == 3
        assert Deadline(0).has_passed
        assert Deadline(5).limit(9) <= 5

    asyncio.run(run())


# --- a leader that is gone ---


def test_a_question_finds_the_new_leader_when_the_old_one_is_gone():
    class Node(ScriptedBroker):
        leader = None

        def _metadata(self, code):
            answer = super()._metadata(code)
            answer.brokers = [
                MetadataResponse.Broker(node_id=n, host="127.0.0.1", port=node.port)
                for n, node in self.nodes.items()
            ]
            answer.topics[0].partitions[0].leader_id = Node.leader
            answer.topics[0].partitions[0].leader_epoch = Node.leader
            return answer

    with Node() as second:
        with Node() as first:
            Node.nodes, Node.leader = {1: first, 2: second}, 1
            servers = f"{first.servers},{second.servers}"
            one = Consumer(bootstrap_servers=servers, retry_backoff_ms=5)
            assert one.end_offsets([T0], timeout=10) == {T0: RECORDS}
        Node.leader = 2
        assert one.end_offsets([T0], timeout=10) == {T0: RECORDS}
        one.close()
        with Admin(bootstrap_servers=servers) as admin:
            assert admin.list_topics(timeout=10) == ["t"]


def test_a_missing_offset_is_not_reported_for_a_partition_sought_meanwhile(shoal_broker) -> None:
    tps = [TopicPartition("sought", 0), TopicPartition("sought", 1)]
    shoal_broker.create_topic("sought", partitions=2)
    with Consumer(
        bootstrap_servers=shoal_broker.bootstrap_servers, auto_offset_reset="none"
    ) as consumer:
        consumer.assign(tps)
        with pytest.raises(NoOffsetForPartitionError):
            consumer.poll(10)
        locator = consumer._session._locator
        # As if the search had ended between the two seeks.
        locator._failure = NoOffsetForPartitionError([tps[1]])
        consumer.seek(tps[0], 0)
        consumer.seek(tps[1], 0)
        assert not consumer.poll(0.1)
