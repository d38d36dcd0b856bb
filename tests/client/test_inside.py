"""Parts that are easier to hold to account alone: metadata, buffers, chunks, links, timing."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal import Admin, Consumer, OffsetAndMetadata, TopicPartition
from shoal.client.config import ConsumerConfig
from shoal.client.connection import _Frames
from shoal.client.deadlines import Deadline, RetryBackoff
from shoal.client.fetch_buffer import Buffer, FetchedChunk, RecordReader, extent
from shoal.client.metadata import Metadata, merged
from shoal.client.positions import EARLIEST, Positions
from shoal.client.producer import run_all
from shoal.client.producer_batch import Builder, ProducerBatch, SendFuture
from shoal.client.sender import stamp
from shoal.client.serializers import deserialize_str
from shoal.errors import (
    CorruptDataError,
    ErrorCode,
    InvalidFrameError,
    NoOffsetForPartitionError,
    RecordDeserializationError,
)
from shoal.records import objects
from shoal.records.batch import (
    checksum_holds,
    encode_batch,
    iter_headers,
    next_offset,
    read_header,
)
from shoal.records.compression import Codec
from shoal.wire.apis.metadata import MetadataResponse
from shoal.wire.apis.registry import ApiKey
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


def leader_in(found):
    """Who leads the partition; there must be somebody."""
    partition = found.leader_of(T0)
    assert partition is not None
    return partition.leader_id


def test_an_older_answer_does_not_bring_an_old_leader_back():
    new = merged(Metadata(), described(2, 5), {"t"})
    assert leader_in(merged(new, described(1, 4), {"t"})) == 2
    assert leader_in(merged(new, described(1, 6), {"t"})) == 1
    assert leader_in(merged(new, described(1, -1), {"t"})) == 1


def test_a_topic_made_anew_starts_its_epochs_again():
    old = merged(Metadata(), described(2, 5), {"t"})
    new = merged(old, described(1, 0, topic_id=b"j" * 16), {"t"})
    assert leader_in(new) == 1


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


def fresh(size, _ahead):
    return memoryview(bytearray(size))


@settings(max_examples=40)
@given(st.lists(st.integers(4, 150_000), max_size=4), st.lists(st.integers(1, 9000), min_size=1))
def test_frames_come_out_whole_however_the_stream_is_cut(sizes, cuts):
    frames = [bytes([n % 251]) * size for n, size in enumerate(sizes)]
    stream = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    reader, found, position, turn = _Frames(10**6, fresh), [], 0, cycle(cuts)
    while position < len(stream):
        room = reader.room()
        count = min(len(room), len(stream) - position, next(turn))
        room[:count] = stream[position : position + count]
        position += count
        found += [bytes(frame) for frame in reader.filled(count)]
    assert found == frames


def test_a_frame_of_impossible_size_is_refused():
    for size in (-1, 0, 3, 101):
        reader = _Frames(100, fresh)
        room = reader.room()
        room[:4] = size.to_bytes(4, "big", signed=True)
        with pytest.raises(InvalidFrameError, match="allowed: 100"):
            reader.filled(4)


# --- chunks ---


def batches(*ranges):
    return b"".join(
        encode_batch([(None, str(n).encode(), (), n) for n in range(*r)], base_offset=r[0])
        for r in ranges
    )


def clear_extent(data, offset):
    """The same in plain words."""
    epochs: list[Any] = []
    records = 0
    for _, header in iter_headers(data):
        records += header.record_count
        offset = max(offset, header.next_offset)
        if header.leader_epoch >= 0 and (not epochs or epochs[-1][1] != header.leader_epoch):
            epochs.append((header.base_offset, header.leader_epoch))
    return offset, epochs, records


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
        buffer.add(FetchedChunk(state, memoryview(data), end))
    return RecordReader(buffer, ConsumerConfig(**settings)), positions, buffer


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
    with pytest.raises(CorruptDataError, match="t-1 at offset 0"):
        reader.take_arrow(10)
    assert positions[T0].position == 3


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
    buffer.add(FetchedChunk(positions[tp], memoryview(data), 100))
    reader = RecordReader(buffer, ConsumerConfig())
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
    found: list[Any] = []
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


def test_the_position_goes_past_the_end_of_an_answer_whose_last_records_are_gone():
    reader, positions, buffer = reader_of()
    buffer.add(FetchedChunk(positions[T0], memoryview(batches((0, 3))), 10))  # 3 to 9 compacted
    assert [r.offset for r in reader.take(10)] == [0, 1, 2]
    assert positions.consumed()[T0].offset == 10
    assert not buffer.has_ready


@pytest.mark.parametrize("as_columns", [False, True])
def test_a_position_has_the_leader_epoch_of_the_record_before_it(as_columns):
    data = b"".join(
        encode_batch([(None, b"v", (), 0)] * 3, base_offset=base, leader_epoch=epoch)
        for base, epoch in ((0, 4), (3, 6))
    )
    reader, positions, buffer = reader_of()
    buffer.add(FetchedChunk(positions[T0], memoryview(data), *extent(data, 0)[:2]))
    take = reader.take_arrow if as_columns else reader.take
    found = []
    for limit in (3, 1, 2):
        take(limit)
        found.append((positions[T0].position, positions.consumed()[T0].leader_epoch))
    assert found == [(3, 4), (4, 6), (6, 6)]


def test_all_of_an_answer_is_deserialized_though_it_is_opened_in_several_parts():
    data = b"".join(
        encode_batch([(None, bytes(200_000), (), 0)] * 3, base_offset=base)
        for base in range(0, 30, 3)
    )
    reader, _, _ = reader_of((T0, data), value_deserializer=len)
    assert [r.value for r in reader.take(100)] == [200_000] * 30


def test_a_key_is_deserialized_once_though_its_value_fails():
    data = encode_batch([(b"k", b"0", (), 0), (b"k", b"bad", (), 0)])
    given = {"key_deserializer": bytes.decode, "value_deserializer": int}
    reader, _, _ = reader_of((T0, data), **given)
    hand = reader.hand_out(10)
    assert [(r.key, r.value) for r in hand] == [("k", 0)]
    hand.clear()
    reader.settle()
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            reader.hand_out(10)
        assert (caught.value.part, caught.value.offset) == ("value", 1)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_text_comes_up_to_the_record_that_is_none(monkeypatch, is_compiled):
    if not is_compiled:
        monkeypatch.setattr(objects, "_native", None)
    records = [("kéy".encode(), None), (None, b"v"), (b"k", b"\xff"), (b"k", b"v")]
    data = encode_batch([(key, value, (), 0) for key, value in records])
    given = {"key_deserializer": deserialize_str, "value_deserializer": deserialize_str}
    reader, positions, _ = reader_of((T0, data), **given)
    found = [reader.take(limit) for limit in (1, 10)]
    assert [[(r.key, r.value) for r in part] for part in found] == [[("kéy", None)], [(None, "v")]]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            reader.take(10)
        assert (caught.value.part, caught.value.offset) == ("value", 2)
        assert isinstance(caught.value.__cause__, UnicodeDecodeError)
    positions[T0].seek(3)
    assert positions[T0].position == 3


def test_a_deserializer_that_only_some_have_is_asked_for_those_alone():
    data = encode_batch([(b"k", b"5", (), 0)] * 3)
    reader, _, _ = reader_of((T0, data), key_deserializer=deserialize_str)
    assert [(r.key, r.value) for r in reader.take(10)] == [("k", b"5")] * 3
    given = {"key_deserializer": deserialize_str, "value_deserializer": int}
    reader, _, _ = reader_of((T0, data), **given)
    assert [(r.key, r.value) for r in reader.take(10)] == [("k", 5)] * 3


def test_what_is_left_in_a_hand_comes_next():
    reader, positions, _ = reader_of((T0, batches((0, 5))))
    hand = reader.hand_out(10)
    assert [hand.pop().offset for _ in range(2)] == [0, 1]
    reader.settle()
    assert hand == []
    assert positions[T0].position == 2
    assert [r.offset for r in reader.take(10)] == [2, 3, 4]


def test_a_value_that_refers_to_its_record_is_collected_with_it():
    class Order:
        record = None

    def read_order(content):
        return Order()

    reader, _, _ = reader_of((T0, batches((0, 3))), value_deserializer=read_order)
    taken = reader.take(10)
    for record in taken:
        record.value.record = record
    watches = [weakref.ref(record.value) for record in taken]
    del reader, record, taken
    gc.collect()
    assert [watch() for watch in watches] == [None] * 3


def test_what_cannot_be_read_is_not_overtaken_by_its_own_partition():
    bad = encode_batch([(None, b"bad", (), 0)])
    chunks = ((T0, bad), (T1, batches((0, 2))), (T0, batches((1, 3))))
    reader, positions, _ = reader_of(*chunks, value_deserializer=int)
    with pytest.raises(RecordDeserializationError):
        reader.take(10)
    assert [(r.partition, r.offset) for r in reader.take(10)] == [(1, 0), (1, 1)]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError):
            reader.take(10)
    assert positions[T0].position == 0


def test_columns_of_two_answers_of_a_partition_come_once_and_in_order():
    reader, positions, _ = reader_of((T0, batches((0, 3))), (T0, batches((3, 6))))
    for limit, offsets in ((4, [0, 1, 2, 3]), (10, [4, 5])):
        assert reader.take_arrow(limit).column("offset").to_pylist() == offsets
        assert positions[T0].position == offsets[-1] + 1


# --- producer's parts ---


@given(st.lists(st.binary(max_size=300), min_size=2, max_size=30))
def test_the_estimate_of_a_batch_is_never_too_small(values):
    builder = Builder(10**6)
    for value in values:
        builder.append(value, value, (("h", value),), 0)
    records = [(value, value, (("h", value),), 0) for value in values]
    assert len(encode_batch(records)) <= builder.size_bytes
    left, right = builder.split()
    assert left.records + right.records == records


def test_a_split_batch_keeps_its_waiters_and_callbacks():
    batch = ProducerBatch(T0, 0.0)
    batch.builder = Builder(1000)
    for n in range(4):
        batch.builder.append(None, str(n).encode(), (), 0)
    batch.record_count = 4
    told: list[int | str] = []

    def noted(n: int) -> Callable[[SendFuture], None]:
        return lambda _: told.append(n)

    for n in range(4):
        SendFuture(batch, n, 0).add_done_callback(noted(n))
    first, second = batch.split()
    first.base_offset, second.base_offset = 10, 90
    run_all([*second.finish(None), *first.finish(None)])
    assert told == [2, 3, 0, 1]
    assert [batch.wait(n, 0) for n in range(4)] == [
        (first, 0),
        (first, 1),
        (second, 0),
        (second, 1),
    ]
    SendFuture(batch, 3, 0).add_done_callback(lambda _: told.append("late"))
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
    backoff = RetryBackoff(100, 1000)
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
        leader = -1
        nodes: dict[int, ScriptedBroker] = {}  # noqa: RUF012  # of both, as a cluster has it

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


def test_brokers_that_all_moved_are_found_through_the_bootstrap_addresses():
    class Moving(ScriptedBroker):
        has_moved = False

        def _metadata(self, code):
            answer = super()._metadata(code)
            if not self.has_moved:
                answer.brokers[0].port = 9  # nobody is there any more
            return answer

    with Moving() as broker, Admin(bootstrap_servers=broker.servers, retry_backoff_ms=5) as admin:
        admin.describe_cluster(timeout=10)
        broker.has_moved = True

        async def lose_the_way_we_came():
            for link in admin._cluster._links:
                link.disconnect()

        admin._engine.call(lose_the_way_we_came())
        assert admin.list_topics(timeout=5) == ["t"]
        assert admin.describe_cluster(timeout=5).nodes[0].port == broker.port


def test_a_commit_finds_the_new_coordinator_when_the_old_one_hangs_up():
    class Node(ScriptedBroker):
        coordinator = (-1, -1)

        def _message(self, key, request, code):
            answer = super()._message(key, request, code)
            if key is ApiKey.FIND_COORDINATOR:
                answer.node_id, answer.port = Node.coordinator
            return answer

    with Node() as first, Node() as second:
        Node.coordinator = (2, first.port)
        with Consumer(bootstrap_servers=second.servers, group_id="g", retry_backoff_ms=5) as one:
            one.assign([T0])
            one.commit_sync({T0: OffsetAndMetadata(1)}, timeout=10)

            def moves(_):
                Node.coordinator = (3, second.port)

            first.spoil("OffsetCommit", moves)
            one.commit_sync({T0: OffsetAndMetadata(2)}, timeout=10)
            assert first.asked["OffsetCommit"] == 2
            assert second.asked["OffsetCommit"] == 1


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
