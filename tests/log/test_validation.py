"""What a client may append, and what it is told otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError, ErrorCode
from shoal.log.config import LogConfig
from shoal.log.validation import (
    Checked,
    Refusal,
    check,
    look_inside,
    stores_as_sent,
    usual_batch,
)
from shoal.records.batch import (
    HEADER_SIZE,
    checksum_holds,
    decode_batch,
    encode_batch,
    read_header,
    seal,
)
from shoal.records.compression import Codec
from shoal.records.markers import encode_marker
from shoal.records.vetting import quick_vetter
from shoal.types import TimestampType
from tests.log.batches import NOW_MS, batch

CONFIG = LogConfig()


def refusal(data: bytes, config: LogConfig = CONFIG, *, from_client: bool = True) -> ErrorCode:
    result = check(data, config, now_ms=NOW_MS, from_client=from_client)
    assert not isinstance(result, Checked), "it was accepted"
    return result[0]


def accepted(data: bytes, config: LogConfig = CONFIG, *, from_client: bool = True) -> Checked:
    result = check(data, config, now_ms=NOW_MS, from_client=from_client)
    assert isinstance(result, Checked), result
    return result


def resealed(**changes: int) -> bytes:
    """A batch whose header says something else, checksum included."""
    data = batch(b"a", b"b", timestamp_ms=NOW_MS)
    fields = read_header(data)._asdict() | changes
    for name in ("length", "magic", "crc"):
        del fields[name]
    return seal(data[HEADER_SIZE:], **fields)


def test_a_good_batch_is_accepted_and_may_be_changed_in_place() -> None:
    data = batch(b"a", b"b")
    checked = accepted(data)
    assert bytes(checked.data) == data
    assert not isinstance(checked.data, bytes)
    assert [header.record_count for header in checked.headers] == [2]


TRANSACTIONAL = 0x10
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "base_offset": st.integers(0, 2),
        "attributes": st.integers(0, 127) | st.sampled_from([-1, 256]),
        "last_offset_delta": st.integers(0, 3),
        "base_timestamp_ms": st.sampled_from([-1, 0, NOW_MS - 10, NOW_MS]),
        "max_timestamp_ms": st.sampled_from([-1, NOW_MS, NOW_MS + 3_600_000, NOW_MS + 3_600_001]),
        "producer_id": st.integers(-1, 1),
        "producer_epoch": st.integers(-1, 1),
        "base_sequence": st.integers(-1, 1),
        "record_count": st.integers(0, 4),
    },
)
CONFIGS = st.builds(
    LogConfig,
    max_message_bytes=st.sampled_from([70, 1_048_588]),
    segment_bytes=st.sampled_from([70, 1 << 30]),
    message_timestamp_before_max_ms=st.sampled_from([None, 5]),
    message_timestamp_after_max_ms=st.sampled_from([None, 3_600_000]),
)


@given(
    HEADERS,
    CONFIGS,
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 255)), max_size=2),
    st.integers(-3, 3),
)
@example({"attributes": 256}, LogConfig(), [], 0)
@example({"attributes": TRANSACTIONAL}, LogConfig(), [], 0)
@example({"producer_id": 1, "producer_epoch": -1, "base_sequence": 0}, LogConfig(), [], 0)
@example({"producer_id": 1, "producer_epoch": 0, "base_sequence": -1}, LogConfig(), [], 0)
@example({}, LogConfig(segment_bytes=70), [], 0)
@example({"last_offset_delta": 3}, LogConfig(), [], 0)
@example({"last_offset_delta": 3, "record_count": 4}, LogConfig(), [], 0)
def test_the_quick_check_accepts_only_what_the_thorough_one_does(header, config, flips, cut):
    data = bytearray(resealed(**header))
    for position, flip in flips:
        data[position % len(data)] ^= flip
    data = data[:cut] if cut < 0 else data + bytes(cut)
    claimed_ms = int.from_bytes(data[35:43], "big", signed=True)
    quick = usual_batch(data, config, NOW_MS, quick_vetter())
    thorough = check(data, config, now_ms=NOW_MS, from_client=True)
    if quick is not None:
        assert isinstance(thorough, Checked), thorough
        (found,) = thorough.headers
        assert quick == (found.last_offset_delta, found.max_timestamp_ms, found.producer_id)
    elif isinstance(thorough, Checked):
        (found,) = thorough.headers
        # A codec, or those of tomorrow, which are let through.
        has_flags = found.attributes not in (0, TRANSACTIONAL)
        is_special = config.message_timestamp_before_max_ms is not None or has_flags
        is_special = is_special or found.max_timestamp_ms != claimed_ms
        assert is_special, "an ordinary batch is quick"


def test_what_may_not_be_changed_takes_the_long_way() -> None:
    data = batch(b"a")
    vetter = quick_vetter()
    assert usual_batch(bytearray(data), CONFIG, NOW_MS, vetter) == (0, NOW_MS, -1)
    assert usual_batch(memoryview(data), CONFIG, NOW_MS, vetter) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"cleanup_policy": frozenset({"compact"})}, False),
        ({"compression_type": "zstd"}, False),
        ({"message_timestamp_type": TimestampType.LOG_APPEND_TIME}, False),
    ],
)
def test_some_topics_store_something_else_than_was_sent(change, expected) -> None:
    assert stores_as_sent(replace(CONFIG, **change)) is expected


def test_a_callers_buffer_is_used_as_it_is() -> None:
    data = bytearray(batch(b"a"))
    view = memoryview(data)
    assert check(view, CONFIG, now_ms=NOW_MS, from_client=True).data is view  # type: ignore[union-attr]  # not refused
    assert accepted(bytes(data)).data is not data


@pytest.mark.parametrize("cut", [0, 1, 11, 12, 60, 61, 70])
def test_a_batch_that_is_cut_off_is_refused(cut: int) -> None:
    data = batch(b"some value")[:cut]
    assert refusal(data) is ErrorCode.INVALID_RECORD


@given(position=st.integers(12, 90), flip=st.integers(1, 255))
def test_any_changed_byte_is_noticed(position: int, flip: int) -> None:
    data = bytearray(batch(b"some value of some length"))
    if 12 <= position < 16:
        return  # the leader epoch is the broker's to set
    data[position % len(data)] ^= flip
    if position % len(data) < 12:
        return
    result = check(bytes(data), CONFIG, now_ms=NOW_MS, from_client=True)
    assert not isinstance(result, Checked)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_as_such(magic: int) -> None:
    data = bytearray(batch(b"a"))
    data[16] = magic
    assert refusal(bytes(data)) is ErrorCode.INVALID_RECORD


def test_a_client_sends_exactly_one_batch() -> None:
    assert refusal(batch(b"a") + batch(b"b")) is ErrorCode.INVALID_RECORD
    several = accepted(batch(b"a") + batch(b"b"), from_client=False)
    assert len(several.headers) == 2


def test_a_client_does_not_choose_offsets_counts_or_control() -> None:
    assert refusal(batch(b"a", base_offset=3)) is ErrorCode.INVALID_RECORD
    assert refusal(resealed(last_offset_delta=4)) is ErrorCode.INVALID_RECORD
    assert refusal(resealed(record_count=1)) is ErrorCode.INVALID_RECORD
    assert refusal(resealed(record_count=0)) is ErrorCode.INVALID_RECORD
    marker = encode_marker(commit=True, producer_id=1, producer_epoch=0, timestamp_ms=NOW_MS)
    assert refusal(marker) is ErrorCode.INVALID_RECORD
    accepted(marker, from_client=False)


def test_an_idempotent_batch_needs_a_sequence() -> None:
    assert refusal(batch(b"a", producer_id=1, producer_epoch=0)) is ErrorCode.INVALID_RECORD
    assert refusal(batch(b"a", producer_id=1, base_sequence=0)) is ErrorCode.INVALID_RECORD
    accepted(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0))


def test_a_transactional_batch_needs_a_producer() -> None:
    accepted(batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True))
    assert refusal(batch(b"a", is_transactional=True)) is ErrorCode.INVALID_RECORD


def test_sizes_are_limited_by_message_and_by_segment() -> None:
    data = batch(b"x" * 1000)
    assert refusal(data, replace(CONFIG, max_message_bytes=len(data) - 1)) is (
        ErrorCode.MESSAGE_TOO_LARGE
    )
    assert refusal(data, replace(CONFIG, segment_bytes=500)) is ErrorCode.RECORD_LIST_TOO_LARGE
    accepted(data, replace(CONFIG, max_message_bytes=len(data), segment_bytes=len(data)))


def test_timestamps_outside_the_topics_window_are_refused() -> None:
    config = replace(
        CONFIG, message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500
    )
    accepted(batch(b"a", timestamp_ms=NOW_MS - 1000), config)
    accepted(batch(b"a", timestamp_ms=NOW_MS + 500), config)
    for timestamp_ms in (NOW_MS - 1001, NOW_MS + 501):
        assert refusal(batch(b"a", timestamp_ms=timestamp_ms), config) is (
            ErrorCode.INVALID_TIMESTAMP
        )
    append_time = replace(config, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    accepted(batch(b"a", timestamp_ms=5), append_time)


def test_a_client_may_not_set_the_append_time() -> None:
    data = encode_batch([(None, b"a", (), NOW_MS)], timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert refusal(data) is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    assert refusal(resealed(attributes=codec)) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_compacted_topic_takes_only_keys() -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    assert refusal(batch(b"a"), config) is ErrorCode.INVALID_RECORD
    accepted(batch(b"a", key=b"k"), config)
    accepted(batch(b"a"), config, from_client=False)


def test_garbage_under_a_valid_checksum_is_noticed() -> None:
    data = seal(
        b"\xff" * 40,
        base_offset=0,
        leader_epoch=-1,
        attributes=0,
        last_offset_delta=1,
        base_timestamp_ms=NOW_MS,
        max_timestamp_ms=NOW_MS,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=2,
    )
    assert refusal(data) is ErrorCode.INVALID_RECORD


def test_records_to_blame_are_named() -> None:
    config = replace(CONFIG, cleanup_policy=frozenset({"compact"}))
    late = NOW_MS + 3_600_001
    records = [(b"k", b"v", (), NOW_MS), (None, b"v", (), NOW_MS), (b"k", b"v", (), late)]
    found = check(encode_batch(records[:2]), config, now_ms=NOW_MS, from_client=True)
    assert isinstance(found, Refusal)
    assert found.error is ErrorCode.INVALID_RECORD
    assert [number for number, _ in found.record_errors] == [1]
    found = check(encode_batch(records), config, now_ms=NOW_MS, from_client=True)
    assert isinstance(found, Refusal)
    assert found.error is ErrorCode.INVALID_TIMESTAMP
    assert [number for number, _ in found.record_errors] == [1, 2]


def test_a_largest_timestamp_that_is_not_true_is_corrected() -> None:
    for claimed_ms in (NOW_MS - 5, NOW_MS + 5, NOW_MS + 10**9):
        checked = accepted(resealed(max_timestamp_ms=claimed_ms))
        assert checked.headers[0].max_timestamp_ms == NOW_MS
        assert read_header(checked.data).max_timestamp_ms == NOW_MS
        assert checksum_holds(checked.data)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_a_topic_may_want_another_compression(name: str, codec: Codec) -> None:
    config = replace(CONFIG, compression_type=name)
    sent = encode_batch(
        [(b"k%d" % index, b"value" * 20, [("h", b"x")], NOW_MS + index) for index in range(9)],
        codec=Codec.ZSTD if codec is not Codec.ZSTD else Codec.GZIP,
        producer_id=5,
        producer_epoch=2,
        base_sequence=40,
    )
    checked = accepted(sent, config)
    header = checked.headers[0]
    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 40)
    assert checksum_holds(checked.data)
    assert decode_batch(checked.data) == decode_batch(sent)
    same = accepted(bytes(checked.data), config)
    assert bytes(same.data) == bytes(checked.data), "the right codec is left alone"


def test_a_batch_that_is_compressed_anew_gets_the_largest_time_of_its_records() -> None:
    config = replace(CONFIG, compression_type="gzip")
    checked = accepted(resealed(max_timestamp_ms=NOW_MS - 7), config)
    assert checked.headers[0].codec == Codec.GZIP
    assert checked.headers[0].max_timestamp_ms == NOW_MS


@pytest.mark.slow
def test_a_bomb_is_not_inflated() -> None:
    bomb = batch(bytes(65 << 20), key=b"k", codec=Codec.ZSTD)
    assert len(bomb) < 100_000
    assert refusal(bomb) is ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(BatchTooLargeError):
        look_inside(bomb, limit_bytes=1 << 20)
