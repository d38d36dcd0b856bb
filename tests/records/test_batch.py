"""One batch: its header, its checksum, both ways, and what a broker changes in place."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import BatchTooLargeError, CorruptDataError, UnsupportedFormatError
from shoal.records.batch import (
    HEADER_SIZE,
    RawRecord,
    assign_offsets,
    batch_size,
    checksum_holds,
    decode_batch,
    encode_batch,
    encode_single,
    iter_headers,
    next_offset,
    parse_records,
    read_body,
    read_header,
    seal,
    set_max_timestamp,
)
from shoal.types import TimestampType
from tests.records.generate import Sample, each_kernel, plain, samples, using

ONE = encode_batch([(b"key", b"value", (("h", b"1"),), 1_700_000_000_000)])


def with_field(layout: str, position: int, value: int, batch: bytes = ONE) -> bytes:
    """The batch with one header field changed and the checksum made right again."""
    changed = bytearray(batch)
    struct.pack_into(layout, changed, position, value)
    return seal_again(changed)


def seal_again(batch: bytearray) -> bytes:
    from shoal.records.checksum import crc32c

    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


def test_a_batch_is_laid_out_as_kafka_lays_it_out() -> None:
    # Written by kafka-python's builder for the same record, but for the leader epoch.
    written = (
        "0000000000000000" "00000044" "ffffffff" "02" "16c8334a" "0000" "00000000"
        "0000018bcfe56800" "0000018bcfe56800" "ffffffffffffffff" "ffff" "ffffffff" "00000001"
        "24" "00" "00" "00" "06" "6b6579" "0a" "76616c7565" "02" "02" "68" "02" "31"
    )  # fmt: skip
    assert ONE.hex() == written
    assert checksum_holds(ONE)


@given(st.binary(max_size=200), st.none() | st.binary(max_size=200), st.integers(-1, 2**53))
def test_a_single_record_is_encoded_as_any_other(
    key: bytes, value: bytes | None, timestamp_ms: int
) -> None:
    assert encode_single(key, value, timestamp_ms) == encode_batch([(key, value, (), timestamp_ms)])


@pytest.mark.slow
@given(samples())
def test_what_was_encoded_is_decoded(sample: Sample) -> None:
    header = read_header(sample.data)
    options = sample.options
    assert header.size_bytes == len(sample.data) == batch_size(sample.data)
    assert header.record_count == len(sample.records)
    assert header.base_offset == options["base_offset"]
    assert header.last_offset == options.get("last_offset", sample.offsets[-1])
    assert header.next_offset == header.last_offset + 1
    assert header.codec == options["codec"]
    assert header.leader_epoch == options["leader_epoch"]
    assert header.producer_id == options.get("producer_id", -1)
    assert header.producer_epoch == options.get("producer_epoch", -1)
    assert header.base_sequence == options.get("base_sequence", -1)
    assert header.is_transactional == options.get("is_transactional", False)
    assert not header.is_control
    assert header.timestamp_type == options.get("timestamp_type", TimestampType.CREATE_TIME)
    assert header.delete_horizon_ms == options.get("delete_horizon_ms")
    assert header.has_delete_horizon == ("delete_horizon_ms" in options)
    for name in ("python", "auto"):
        with using(name):
            assert decode_batch(sample.data) == sample.rows


@pytest.mark.slow
@given(samples())
def test_both_kernels_encode_the_same_bytes(sample: Sample) -> None:
    with using("python"):
        assert encode_batch(sample.records, **sample.options) == sample.data


@pytest.mark.slow
@given(samples(), st.integers(0, 3))
def test_a_batch_may_stand_anywhere_in_any_buffer(sample: Sample, gap: int) -> None:
    data = bytearray(b"\xee" * gap + sample.data + b"\xee")
    for buffer in (bytes(data), data, memoryview(data)):
        assert decode_batch(buffer, gap) == sample.rows
        assert checksum_holds(buffer, gap)


def test_the_max_timestamp_is_the_largest_of_all_records() -> None:
    batch = encode_batch([(b"", b"", (), 5), (b"", b"", (), 9), (b"", b"", (), 7)])
    header = read_header(batch)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (5, 9)


def test_log_append_time_is_every_record_s_time() -> None:
    batch = encode_batch(
        [(None, b"a", (), 5), (None, b"b", (), 9)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp_ms=1000,
    )
    assert [record.timestamp_ms for record in decode_batch(batch)] == [1000, 1000]


def test_a_delete_horizon_is_where_timestamps_count_from() -> None:
    batch = encode_batch([(b"k", None, (), 77)], delete_horizon_ms=1000)
    header = read_header(batch)
    assert header.delete_horizon_ms == 1000
    assert decode_batch(batch) == [RawRecord(0, 77, b"k", None)]


def test_compaction_may_leave_a_batch_without_records() -> None:
    batch = encode_batch([], base_offset=10, last_offset=14, producer_id=3, base_sequence=8)
    header = read_header(batch)
    assert (header.record_count, header.next_offset, header.last_sequence) == (0, 15, 12)
    assert decode_batch(batch) == []
    assert header.max_timestamp_ms == -1


def test_sequence_numbers_wrap_to_zero() -> None:
    records = [(None, b"", (), 0)] * 3
    assert read_header(encode_batch(records, base_sequence=2**31 - 2)).last_sequence == 0
    assert read_header(encode_batch(records)).last_sequence == -1


# Headers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(HEADER_SIZE))
def test_too_few_bytes_for_a_header_say_so(size: int) -> None:
    with pytest.raises(CorruptDataError, match=f"^.*{size} bytes left, a batch header needs 61"):
        read_header(ONE[:size])


def test_a_position_behind_the_end_is_no_batch() -> None:
    with pytest.raises(CorruptDataError, match="0 bytes left"):
        read_header(ONE, len(ONE) + 5)
    with pytest.raises(CorruptDataError, match="0 bytes left") as caught:
        batch_size(ONE, len(ONE) + 5)
    assert caught.value.position == len(ONE) + 5


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [26, 60, 61, 200])
def test_old_formats_are_refused_by_name(magic: int, size: int) -> None:
    message = struct.pack(">qiib", 0, size - 12, 0, magic) + bytes(size - 17)
    with pytest.raises(UnsupportedFormatError, match=f"message format {magic} .*is not supported"):
        read_header(message)


def test_a_torn_old_message_is_only_too_short() -> None:
    message = struct.pack(">qiib", 0, 1000, 0, 1) + bytes(30)
    with pytest.raises(CorruptDataError, match="needs 61") as caught:
        read_header(message)
    assert not isinstance(caught.value, UnsupportedFormatError)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (bytes(200), "length 0 is impossible"),
        (with_field(">i", 8, -1), "length -1 is impossible"),
        (with_field(">i", 8, 48), "length 48 is impossible"),
        (with_field(">b", 16, 3), "magic 3 is not a batch format"),
        (with_field(">b", 16, -1), "magic -1 is not a batch format"),
        (with_field(">i", 57, -1), "-1 records do not fit"),
        (with_field(">i", 57, 2), "2 records do not fit"),
        (with_field(">i", 23, -1), "last delta -1"),
        (with_field(">q", 0, -5), "offsets from -5"),
        (with_field(">q", 0, 2**63 - 6, with_field(">i", 23, 5)), "do not fit the offsets"),
    ],
)
def test_headers_which_contradict_themselves_are_refused(batch: bytes, reason: str) -> None:
    with pytest.raises(CorruptDataError, match=reason):
        read_header(batch)


def test_the_size_alone_needs_twelve_bytes() -> None:
    assert batch_size(ONE[:12]) == len(ONE)
    with pytest.raises(CorruptDataError, match="11 bytes left"):
        batch_size(ONE[:11])
    with pytest.raises(CorruptDataError, match="length 0 is impossible"):
        batch_size(bytes(12))


def test_headers_are_found_one_after_the_other() -> None:
    data = plain(3) + plain(4, base_offset=3) + plain(5, base_offset=7)
    found = list(iter_headers(data))
    assert [(header.base_offset, header.record_count) for _, header in found] == [
        (0, 3),
        (3, 4),
        (7, 5),
    ]
    ends = [position + header.size_bytes for position, header in found]
    assert [0, *ends[:-1]] == [position for position, _ in found]
    assert ends[-1] == len(data)
    assert next_offset(data, 0) == 12
    assert next_offset(data, 50) == 50
    assert next_offset(b"", 7) == 7


def test_a_fetch_goes_on_behind_the_batch_and_not_behind_its_last_record() -> None:
    # Compaction took the offsets 11 and 14 to 19.
    records = [(b"k", b"", (), 0)] * 3
    data = encode_batch(records, base_offset=10, offsets=[10, 12, 13], last_offset=19)
    assert next_offset(data, 10) == 20


def test_a_cut_anywhere_leaves_the_whole_batches_before_it() -> None:
    first, second = plain(3), plain(4, base_offset=3)
    data = first + second
    for cut in range(len(data) + 1):
        whole = (cut >= len(first)) + (cut >= len(data))
        assert len(list(iter_headers(data[:cut]))) == whole


def test_a_bad_batch_in_the_middle_is_not_taken_for_the_end() -> None:
    data = plain(3) + bytes(100)
    with pytest.raises(CorruptDataError) as caught:
        list(iter_headers(data))
    assert caught.value.position == len(plain(3))


# Damage -------------------------------------------------------------------------------------


def test_a_checksum_over_missing_bytes_does_not_hold() -> None:
    assert not checksum_holds(ONE[:-1])
    assert not checksum_holds(ONE, size=20)
    assert not checksum_holds(ONE[:-1] + b"!")


def test_errors_name_the_offset_and_the_position() -> None:
    batch = plain(3, base_offset=500)
    with pytest.raises(CorruptDataError, match="batch at offset 500: its checksum fails") as caught:
        decode_batch(b"..." + batch[:-1] + b"!", 3)
    assert caught.value.position == 3
    with pytest.raises(CorruptDataError, match=r"batch at offset 500: \d+ bytes of \d+ are there"):
        decode_batch(batch[:-1])


def test_without_the_check_a_wrong_checksum_is_not_noticed() -> None:
    broken = bytearray(ONE)
    broken[17] ^= 1
    assert decode_batch(broken, check_crc=False) == decode_batch(ONE)


def test_more_records_than_bytes_are_refused_before_anything_is_made_for_them() -> None:
    batch = with_field(">i", 57, 10**9, with_field(">i", 23, 2**31 - 1))
    with pytest.raises(CorruptDataError, match="1000000000 records cannot fit into"):
        decode_batch(batch)


@each_kernel
@pytest.mark.parametrize("count", [1, 100])
def test_what_is_wrong_with_a_record_is_said(kernel_name: str, count: int) -> None:
    batch = bytearray(plain(count, base_offset=40))
    batch[61] = 0xFF  # the first record's length
    with (
        using(kernel_name),
        pytest.raises(CorruptDataError, match="batch at offset 40: record 0 "),
    ):
        decode_batch(seal_again(batch))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(CorruptDataError, match="batch at offset 0: codec 5 does not exist"):
        decode_batch(with_field(">h", 21, 5))


def test_a_batch_which_inflates_too_far_is_named() -> None:
    batch = encode_batch([(None, bytes(100_000), (), 0)], base_offset=77, codec=4)
    with pytest.raises(BatchTooLargeError, match="offset 77 inflates to more than 50000") as caught:
        decode_batch(batch, limit_bytes=50_000)
    assert (caught.value.base_offset, caught.value.limit_bytes) == (77, 50_000)


def test_bytes_which_are_not_compressed_as_they_say_are_refused() -> None:
    with pytest.raises(CorruptDataError, match="batch at offset 0: not gzip"):
        decode_batch(with_field(">h", 21, 1))


def test_parsing_agrees_with_reading() -> None:
    header = read_header(ONE)
    assert parse_records(read_body(ONE, 0, header), header) == decode_batch(ONE)


# In place -----------------------------------------------------------------------------------


@pytest.mark.slow
@given(samples(), st.integers(0, 2**62), st.integers(0, 100))
def test_offsets_are_assigned_without_a_new_checksum(sample: Sample, base: int, epoch: int) -> None:
    data = bytearray(b"??" + sample.data)
    assign_offsets(data, 2, base_offset=base, leader_epoch=epoch)
    before, after = read_header(sample.data), read_header(data, 2)
    assert after == before._replace(base_offset=base, leader_epoch=epoch)
    assert checksum_holds(data, 2)
    assert data[2 + 16 :] == sample.data[16:]


@pytest.mark.slow
@given(samples(), st.integers(0, 2**62))
def test_log_append_time_is_set_with_a_new_checksum(sample: Sample, now_ms: int) -> None:
    data = bytearray(sample.data + b"behind")
    with memoryview(data) as view:
        assign_offsets(view, base_offset=9, leader_epoch=0, log_append_time_ms=now_ms)
    assert checksum_holds(data)
    assert data.endswith(b"behind")
    records = decode_batch(data)
    assert {record.timestamp_ms for record in records} == {now_ms}
    assert [(record.key, record.value) for record in records] == [row[2:4] for row in sample.rows]


@pytest.mark.parametrize("as_view", [False, True])
def test_a_new_max_timestamp_has_a_new_checksum(as_view: bool) -> None:
    batch = bytearray(ONE)
    set_max_timestamp(memoryview(batch) if as_view else batch, 1_800_000_000_000)
    assert checksum_holds(batch)
    assert read_header(batch).max_timestamp_ms == 1_800_000_000_000
    assert decode_batch(batch) == decode_batch(ONE)


def test_sealing_puts_a_header_before_a_body() -> None:
    header = read_header(ONE)
    fields = header._asdict()
    for name in ("length", "magic", "crc"):
        del fields[name]
    assert seal(ONE[HEADER_SIZE:], **fields) == ONE
