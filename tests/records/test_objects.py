"""Batches to tuples and to records."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from shoal.errors import CorruptDataError
from shoal.records import objects
from shoal.records.batch import encode_batch
from shoal.records.chunks import Chunk
from shoal.records.objects import decode_records, iter_records
from shoal.types import Record, TimestampType
from tests.records.generate import Sample, each_kernel, needs_kernel, plain, samples, using


def records(chunk: Any, **options: Any) -> list[Record[Any, Any]]:
    return [record for part in iter_records(chunk, **options) for record in part]


@each_kernel
def test_a_record_has_all_that_kafka_says_about_it(kernel_name: str) -> None:
    data = encode_batch(
        [(b"k", None, (("h", b"1"),), 5), (None, b"v", (), 7)], base_offset=30, leader_epoch=4
    )
    with using(kernel_name):
        assert records(("topic", 2, data, 0, None)) == [
            Record("topic", 2, 30, 5, TimestampType.CREATE_TIME, b"k", None, (("h", b"1"),), 4),
            Record("topic", 2, 31, 7, TimestampType.CREATE_TIME, None, b"v", (), 4),
        ]


@each_kernel
def test_batches_may_differ_in_timestamp_type_and_leader_epoch(kernel_name: str) -> None:
    data = plain(2) + encode_batch(
        [(None, b"v", (), 7)],
        base_offset=2,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        leader_epoch=9,
    )
    with using(kernel_name):
        found = records(("t", 0, data, 1, None))
    assert [(record.offset, record.timestamp_type, record.leader_epoch) for record in found] == [
        (1, TimestampType.CREATE_TIME, None),
        (2, TimestampType.LOG_APPEND_TIME, 9),
    ]


@each_kernel
@pytest.mark.parametrize("codec", [0, 1])
def test_records_come_in_parts_and_before_the_error(kernel_name: str, codec: int) -> None:
    parts = [plain(500, base_offset=500 * i, codec=codec, size=400) for i in range(4)]
    data = b"".join(parts) + b"\0" * 100
    with using(kernel_name):
        found = iter_records(("t", 0, data, 0, None))
        count = 0
        while count < 2000:
            for record in next(found):
                assert record.offset == count
                count += 1
        with pytest.raises(CorruptDataError, match="length 0 is impossible"):
            next(found)


@each_kernel
@pytest.mark.parametrize("codec", [0, 3])
def test_every_record_may_have_headers_and_nulls(kernel_name: str, codec: int) -> None:
    rows = [
        (None, b"v", (("a", None), ("é", b"%d" % i), ("a", b"")), i)
        if i % 2
        else (b"k", None, (), i)
        for i in range(100)
    ]
    with using(kernel_name):
        fields = decode_records(("t", 0, encode_batch(rows, codec=codec), 0, None))
    assert [(key, value, headers, time) for _, time, key, value, headers in fields] == rows


@each_kernel
def test_a_null_whose_length_is_written_in_two_bytes_is_still_null(kernel_name: str) -> None:
    from shoal.records.batch import read_header, seal
    from shoal.records.record import varint

    header = read_header(encode_batch([(None, None, (), 0)]))._asdict()
    for name in ("length", "magic", "crc"):
        del header[name]
    null = b"\x81\x00"
    content = b"\0\0\0" + null + null + varint(1) + b"\0" + null
    data = seal(varint(len(content)) + content, **header)
    with using(kernel_name):
        assert decode_records(("t", 0, data, 0, None)) == [(0, 0, None, None, (("", None),))]


@needs_kernel
def test_batches_which_change_under_our_hands_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(plain(40))
    real: Any = vars(objects)["Layout"]

    def meddle() -> Any:
        data[data.index(b"\x02n")] = 0x7F  # a header's length is not what it was when measured
        return real()

    monkeypatch.setattr(objects, "Layout", meddle)
    with using("c"), pytest.raises(CorruptDataError, match="changed while"):
        decode_records(("t", 0, data, 0, None))


@pytest.mark.slow
@needs_kernel
@given(samples())
def test_both_kernels_make_the_same_objects(sample: Sample) -> None:
    chunk = Chunk("t", 1, memoryview(bytearray(sample.data)))
    made = []
    for name in ("python", "c"):
        with using(name):
            assert decode_records(chunk) == sample.rows
            made.append(records(chunk))
    assert made[0] == made[1]
    assert [record.topic_partition for record in made[0]] == [("t", 1)] * len(sample.rows)
