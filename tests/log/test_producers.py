"""Idempotent producers: once, in order, and remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import ErrorCode
from shoal.log.producers import Producers, StoredBatch, first_sequence, last_sequence, next_sequence
from shoal.records.batch import BatchHeader, read_header
from shoal.records.checksum import crc32c
from shoal.records.markers import encode_marker, read_marker
from tests.log.batches import NOW_MS, batch

LAST = 2**31 - 1


def header(sequence: int, *, count: int = 1, epoch: int = 0, producer_id: int = 7) -> BatchHeader:
    return read_header(
        batch(
            *[b"v"] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
        )
    )


def filled(*sequences: int, epoch: int = 0) -> Producers:
    producers = Producers()
    for offset, sequence in enumerate(sequences):
        producers.note(header(sequence, epoch=epoch), 100 + offset)
    return producers


def test_an_unknown_producer_may_start_anywhere() -> None:
    assert Producers().check(header(0)) is None
    assert Producers().check(header(12345, epoch=9)) is None


def test_the_next_sequence_is_taken_and_nothing_else() -> None:
    producers = filled(0, 1, 2)
    assert producers.check(header(3)) is None
    for wrong in (4, 100):
        assert producers.check(header(wrong)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_recognised() -> None:
    producers = filled(0, 1, 2, 3, 4, 5)
    assert producers.check(header(0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "too long ago"
    for sequence in range(1, 6):
        found = producers.check(header(sequence))
        assert isinstance(found, StoredBatch)
        assert found.base_offset == 100 + sequence
    longer = producers.check(header(4, count=3))
    assert longer is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "same start, other batch"


def test_epochs_fence() -> None:
    producers = filled(0, 1, epoch=3)
    assert producers.check(header(2, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(header(2, epoch=4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=4)) is None
    producers.note(header(0, epoch=4), 200)
    assert producers.check(header(1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(header(1, epoch=4)) is None


def test_sequences_wrap() -> None:
    assert next_sequence(LAST) == 0
    assert last_sequence(LAST, 1) == 0
    assert first_sequence(0, 1) == LAST
    producers = filled(LAST - 1)
    assert producers.check(header(LAST, count=2)) is None
    producers.note(header(LAST, count=2), 300)
    assert producers.check(header(1)) is None
    assert isinstance(producers.check(header(LAST, count=2)), StoredBatch)


def test_a_marker_of_the_same_epoch_leaves_the_sequence_and_a_higher_one_starts_it_anew() -> None:
    producers = filled(0)
    note_marker(producers, epoch=0)
    assert producers.check(header(1)) is None
    note_marker(producers, epoch=1)
    assert producers.check(header(1, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(header(1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=1)) is None


def test_a_producer_that_is_only_known_by_a_marker_starts_at_0() -> None:
    producers = Producers()
    note_marker(producers, epoch=5)
    assert producers.entries[7].last_sequence == -1
    assert producers.check(header(0, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.check(header(3, epoch=5)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=5)) is None


def note_marker(producers: Producers, *, epoch: int) -> None:
    data = encode_marker(commit=True, producer_id=7, producer_epoch=epoch, timestamp_ms=NOW_MS)
    marker = read_marker(data)
    assert marker is not None
    producers.note_marker(read_header(data), marker, 101)


def test_silent_producers_are_forgotten() -> None:
    producers = filled(0, 1)
    assert producers.expire(NOW_MS + 1000, after_ms=1000) == 0
    assert producers.expire(NOW_MS + 1001, after_ms=1000) == 1
    assert producers.check(header(77)) is None


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=40
    )
)
def test_a_snapshot_restores_every_answer(events: list[tuple[int, int, int]]) -> None:
    producers, offset = Producers(), 0
    for producer_id, count, epoch in events:
        entry = producers.entries.get(producer_id)
        sequence = next_sequence(entry.last_sequence) if entry and entry.epoch == epoch else 0
        offset += count
        producers.note(
            header(sequence, count=count, epoch=epoch, producer_id=producer_id), offset - 1
        )
    again = Producers.decode(producers.encode(offset), offset)
    assert again is not None
    for producer_id, entry in producers.entries.items():
        other = again[0].entries[producer_id]
        assert (other.epoch, other.batches) == (entry.epoch, entry.batches)
    assert Producers.decode(producers.encode(offset), offset + 1) is None, "of another offset"


def test_kafkas_own_snapshot_holds_one_batch_per_producer() -> None:
    data = filled(0, 1, 2).encode(103)
    body = data[6 : data.index(b"SHOL")]
    kafkas = data[:2] + crc32c(body).to_bytes(4, "big") + body
    again = Producers.decode(kafkas, 103)
    assert again is not None
    assert again[1] is None, "Kafka does not tell the size of the transaction index"
    assert again[0].entries[7].batches == [StoredBatch(2, 2, 102, 0, NOW_MS)]


@pytest.mark.parametrize("damage", [b"", b"\0", b"\0\2" + bytes(8), b"\0\1" + bytes(8)])
def test_a_damaged_snapshot_is_no_snapshot(damage: bytes) -> None:
    assert Producers.decode(damage, 0) is None


@given(st.integers(0, 200), st.integers(1, 255))
def test_any_changed_byte_of_a_snapshot_is_noticed(at: int, flip: int) -> None:
    data = bytearray(filled(0, 1, 2).encode(103))
    data[at % len(data)] ^= flip
    assert Producers.decode(bytes(data), 103) is None


def test_what_follows_a_batch_there_was_no_room_for_is_refused_as_it_was() -> None:
    producers = filled(0)
    producers.note_refused(header(1))
    assert producers.check(header(1)) is None, "it may come again"
    assert producers.check(header(2)) is ErrorCode.KAFKA_STORAGE_ERROR
    producers.note_refused(header(0, epoch=1))
    assert producers.check(header(1, epoch=1)) is ErrorCode.KAFKA_STORAGE_ERROR
    producers.note_refused(header(1))
    assert producers.check(header(1, epoch=1)) is ErrorCode.KAFKA_STORAGE_ERROR, "a late old one"
    producers.note(header(0, epoch=1), 105)
    assert producers.check(header(1, epoch=1)) is None
